from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import recipe, surrogate_curve

from hpo.core.decision import REASONS, StoppingSettings, SweepState, allowance, decide, select
from hpo.core.forecast import SweepForecast, abstained_forecast, judged_forecast

SETTINGS = StoppingSettings(min_fraction=0.1)
CURVE = surrogate_curve(recipe(), until=0.2)


def forecast(level, sd=0.01, dof=20.0, n_references=5):
    return judged_forecast(CURVE, level, sd, dof, n_references=n_references, family="f")


def sweep(levels, sd=0.01, seed=0):
    rng = np.random.default_rng(seed)
    draws = np.asarray(levels) + sd * rng.standard_normal((20_000, len(levels)))
    return SweepForecast(tuple(forecast(level, sd) for level in levels), np.zeros(len(levels)), draws)


def test_a_hopeless_trial_is_stopped_and_says_what_it_spent():
    made = decide(CURVE, forecast(1.3), SweepState(best_level=1.0), SETTINGS)
    assert (made.action, made.reason) == ("stop", "cannot_win")
    assert made.error_spent == made.numbers["p_best"] < 0.005


def test_a_trial_that_may_win_goes_on():
    made = decide(CURVE, forecast(1.01), SweepState(best_level=1.0), SETTINGS)
    assert (made.action, made.reason) == ("continue", "may_win")


def test_an_exhausted_budget_stops_nobody():
    state = SweepState(best_level=1.0, error_spent=0.05)
    assert decide(CURVE, forecast(1.08), state, SETTINGS).action == "continue"


def test_a_margin_spares_trials_that_are_only_a_little_worse():
    state = SweepState(best_level=1.0)
    assert decide(CURVE, forecast(1.1), state, SETTINGS).action == "stop"
    assert decide(CURVE, forecast(1.1), state, replace(SETTINGS, margin=0.1)).action == "continue"


@pytest.mark.parametrize(
    ("made", "state", "reason"),
    [
        (forecast(1.3, n_references=2), SweepState(1.0), "too_few_references"),
        (forecast(1.3), SweepState(None), "no_incumbent"),
        (abstained_forecast("no_family", CURVE), SweepState(1.0), "no_family"),
        (abstained_forecast("bad_misfit", CURVE), SweepState(1.0), "bad_misfit"),
    ],
)
def test_nothing_is_stopped_by_a_guess(made, state, reason):
    found = decide(CURVE, made, state, SETTINGS)
    assert (found.action, found.reason) == ("continue", reason)


def test_before_the_minimum_fraction_a_hopeless_trial_goes_on():
    early = surrogate_curve(recipe(), until=0.09)
    assert decide(early, None, SweepState(1.0), SETTINGS).reason == "too_early"


def test_within_warmup_a_hopeless_trial_goes_on():
    early = surrogate_curve(recipe(), until=0.09)
    assert decide(early, None, SweepState(1.0), replace(SETTINGS, min_fraction=0.05)).reason == "too_early"


@pytest.mark.parametrize("change", [{"nonfinite_step": 3.0}, {"diverging": True}])
def test_bad_values_stop_a_trial_even_in_the_grace_period(change):
    early = replace(surrogate_curve(recipe(), until=0.05), **change)
    assert decide(early, None, SweepState(), SETTINGS).action == "stop"


def test_the_selection_keeps_the_smallest_set_that_holds_the_best():
    made = select([CURVE] * 4, sweep([1.0, 1.005, 1.2, 1.3]), SETTINGS)
    assert set(made.kept) == {0, 1}
    assert made.tie_set == (0, 1)
    assert made.error_spent <= SETTINGS.alpha
    assert made.reasons == ("selected", "selected", "not_selected", "not_selected")


def test_the_cap_cuts_and_reports_the_error_it_spends():
    made = select([CURVE] * 3, sweep([1.0, 1.001, 1.2]), replace(SETTINGS, keep_max=1))
    assert made.kept == (0,)
    assert made.reasons[1] == "capped"
    assert made.tie_set == (0, 1)
    assert made.error_spent > 0.3


def test_keep_min_keeps_more_than_are_needed():
    made = select([CURVE] * 3, sweep([1.0, 1.2, 1.3]), replace(SETTINGS, keep_min=2))
    assert made.kept == (0, 1)


def test_trials_that_cannot_be_judged_go_on_besides_whatever_the_cap():
    both = sweep([1.0, 1.2, 1.3])
    mixed = SweepForecast((*both.forecasts[:2], abstained_forecast("bad_misfit", CURVE)), both.p_best, both.draws)
    made = select([CURVE] * 3, mixed, replace(SETTINGS, keep_max=1))
    assert made.kept == (0, 2)
    assert made.reasons[2] == "bad_misfit"


def test_a_non_finite_trial_is_stopped_and_enters_no_probability():
    curves = [CURVE, CURVE, replace(CURVE, nonfinite_step=1.0)]
    made = select(curves, sweep([1.0, 1.2, 0.5]), SETTINGS)
    assert made.reasons[2] == "non_finite"
    assert made.kept == (0,)


def test_if_nothing_can_be_judged_everything_goes_on():
    nothing = SweepForecast(
        tuple(abstained_forecast("no_references", CURVE) for _ in range(3)), np.full(3, np.nan), np.full((10, 3), np.nan)
    )
    made = select([CURVE] * 3, nothing, replace(SETTINGS, keep_max=1))
    assert made.kept == (0, 1, 2)
    assert made.tie_set == ()


def test_every_reason_has_words():
    assert all(REASONS.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_fraction", 0),
        ("min_fraction", 1),
        ("alpha", 0),
        ("alpha", 1),
        ("margin", -0.1),
        ("min_references", 0),
        ("keep_min", 0),
        ("keep_max", 0),
    ],
)
def test_impossible_settings_are_refused_naming_the_parameter(name, value):
    with pytest.raises(ValueError, match=name):
        StoppingSettings(**{name: value})


def test_stops_that_spend_all_they_may_never_spend_the_budget_and_leave_some_to_thousands():
    spent = 0.0
    for n in range(1, 5001):
        share = allowance(0.05, spent)
        assert share == pytest.approx(4 * 0.05 / ((n + 4) * (n + 3)))
        spent += share
    assert spent < 0.05


@given(st.lists(st.integers(1, 60), max_size=80), st.floats(0.001, 0.5))
def test_no_number_of_trials_still_open_lets_stops_spend_more_than_the_budget(n_open, alpha):
    spent = 0.0
    for n in n_open:
        share = allowance(alpha, spent, n)
        assert share >= allowance(alpha, spent)
        spent += share
    assert spent <= alpha * (1 + 1e-12)


def test_of_three_trials_the_first_stop_may_spend_half():
    assert allowance(0.05, 0.0, 2) == pytest.approx(0.025)
    assert allowance(0.05, 0.0, 1) == pytest.approx(0.05)
    assert allowance(0.05, 0.0, 100) == allowance(0.05, 0.0)
    known, unknown = (SweepState(best_level=1.0, n_open=n) for n in (2, None))
    close = forecast(1.02, dof=np.inf)  # P(best) is .023
    assert [decide(CURVE, close, state, SETTINGS).action for state in (known, unknown)] == ["stop", "continue"]


def test_the_first_stop_may_spend_a_fifth_and_none_may_once_the_budget_is_gone():
    assert allowance(0.05, 0.0) == pytest.approx(0.01)
    assert allowance(0.05, 0.05) == allowance(0.05, 0.2) == 0.0
