"""Looks of the rule select: one budget for all of them, the cap at the last, one look is the rule itself."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import recipe, surrogate_curve

from hpo.core.decision import StoppingSettings, select
from hpo.core.forecast import SweepForecast, judged_forecast
from hpo.core.posterior import probability_best
from hpo.core.rungs import select_at_look

CURVE = surrogate_curve(recipe(), until=0.2)
SETTINGS = StoppingSettings(alpha=0.06)


def _sweep(levels, sd=0.01):
    draws = np.asarray(levels) + sd * np.random.default_rng(0).standard_normal((20_000, len(levels)))
    forecasts = tuple(judged_forecast(CURVE, level, sd, 20.0, n_references=5, family="f") for level in levels)
    return SweepForecast(forecasts, probability_best(draws), draws)


def _look(sweep, settings=SETTINGS, going=None, error_spent=0.0, looks_left=1):
    n = len(sweep.forecasts)
    going = range(n) if going is None else going
    return select_at_look([CURVE] * n, sweep, settings, going=going, error_spent=error_spent, looks_left=looks_left)


def test_one_look_is_the_rule_select():
    sweep = _sweep([1.0, 1.005, 1.012, 1.3])
    assert _look(sweep) == select([CURVE] * 4, sweep, SETTINGS)


def test_an_early_look_spends_no_more_than_its_share_of_what_is_left():
    sweep = _sweep([1.0, 1.01, 1.018, 1.022, 1.026])
    whole, third = _look(sweep), _look(sweep, looks_left=3)
    assert third.error_spent <= 0.02 < whole.error_spent <= 0.06
    assert set(whole.kept) < set(third.kept)


def test_what_was_spent_is_not_spent_again():
    sweep = _sweep([1.0, 1.01, 1.018, 1.022, 1.026])
    assert _look(sweep, error_spent=0.055).error_spent <= 0.005
    assert _look(sweep, error_spent=0.2).error_spent <= 1e-9


def test_only_those_that_are_going_are_judged():
    made = _look(_sweep([0.5, 1.0, 1.2, 1.005]), going=[1, 2, 3])
    assert len(made.decisions) == 3
    assert set(made.kept) == {0, 2}  # positions in going


def test_the_cap_cuts_at_the_last_look_only():
    capped = StoppingSettings(keep_max=1)
    sweep = _sweep([1.0, 1.002, 1.3])
    assert set(_look(sweep, capped, looks_left=2).kept) == {0, 1}
    assert _look(sweep, capped).kept == (0,)


def test_no_look_left_is_refused():
    with pytest.raises(ValueError, match="looks_left must be at least 1; found 0"):
        _look(_sweep([1.0]), looks_left=0)
