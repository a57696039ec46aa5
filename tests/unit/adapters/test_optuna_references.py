"""Which finished trials are kept, and when the model is fitted anew."""

from __future__ import annotations

import itertools
from math import log

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial
from optuna_studies import HORIZON, curve, steps

from hpo.adapters.optuna_references import MOST_WAITING, N_BEST, N_NEWEST, Kept, References, Shelf
from hpo.core.curve import Curve
from hpo.core.metric import Metric


def trial(number: int, final: float) -> FrozenTrial:
    reports = curve(final, steps(), wiggle=0.002, seed=number)
    made = create_trial(state=TrialState.COMPLETE, value=reports[HORIZON], intermediate_values=reports)
    made.number = number
    return made


def curve_of(trial: FrozenTrial) -> Curve:
    points = trial.intermediate_values
    return Curve.from_points(
        list(points), list(points.values()), horizon=HORIZON, metric=Metric(end="value"), run_id=str(trial.number), family="a"
    )


def fits(levels: list[float]) -> list[int]:
    shelf = Shelf()
    return [n for n, level in enumerate(levels, start=1) if shelf.add(Kept(trial(n, 3.0), level))]


def test_up_to_twenty_trials_each_is_fitted_then_every_twentieth_part() -> None:
    when = fits([1.0] * 400)
    assert when[:20] == list(range(1, 21))
    gaps = [b - a for a, b in itertools.pairwise(when)]
    assert all(gap <= 0.053 * at + 1 for at, gap in zip(when, gaps, strict=False))
    assert max(gaps) == MOST_WAITING


def test_a_record_is_fitted_at_once() -> None:
    levels = [1.0] * 300
    levels[250] = 0.9
    assert 251 in fits(levels)


def test_the_newest_and_the_best_are_kept() -> None:
    shelf = Shelf()
    for n in range(1, 301):
        shelf.add(Kept(trial(n, 3.0), level=n / 300))
    kept = {k.trial.number for k in shelf.members}
    assert set(range(1, N_BEST + 1)) <= kept
    assert len(kept) == N_NEWEST + N_BEST
    assert max(kept) > 300 - MOST_WAITING


def test_labels_have_models_of_their_own_and_share_the_best_level() -> None:
    references = References(None, curve_of)
    for n in range(8):
        references.add("a", trial(n, 3.0 + 0.1 * n), level=log(3.0 + 0.1 * n))
    references.add("b", trial(9, 2.0), level=log(2.0))
    assert len(references.model_for("a").references) == 8
    assert references.best_level == pytest.approx(log(2.0))
    assert references.model_for("unseen").references  # to abstain for its family, not for want of references


def test_a_trial_without_reports_counts_with_its_value() -> None:
    references = References(None, curve_of)
    bare = create_trial(state=TrialState.COMPLETE, value=2.0)
    references.add("a", bare, level=0.7)
    assert references.best_level == 0.7
    assert references.model_for("a").references == ()


def test_forgetting_leaves_nothing_learned() -> None:
    references = References(None, curve_of)
    references.add("a", trial(0, 3.0), level=1.0)
    references.forget()
    assert references.best_level is None
    assert references.model_for("a").references == ()
