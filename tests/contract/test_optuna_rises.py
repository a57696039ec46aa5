"""Runs that rise by design (warm restarts, stages) and runs that diverge, in one study."""

from __future__ import annotations

import warnings

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from optuna_studies import HORIZON, first_stop

from hpo import CollapseModel, CollapsePruner, Curve


def restarted(final: float, seed: int = 0) -> dict[int, float]:
    """Return reports of a run of four cycles: half as much again at each warm restart."""
    noise = np.random.default_rng(seed).standard_normal(HORIZON)
    t = np.arange(1, HORIZON + 1) / HORIZON
    cycle = np.where(t == 1, 1.0, (4 * t) % 1)
    values = final * (1 + 0.5 * (1 - cycle)) * (1 + 0.6 * np.exp(-t / 0.15)) * np.exp(0.005 * noise)
    return dict(enumerate(values.tolist(), start=1))


def states(study: optuna.Study) -> list[TrialState]:
    return [trial.state for trial in study.trials]


def test_a_study_of_warm_restarts_finishes_trials_and_then_judges_by_forecasts() -> None:
    study = optuna.create_study(pruner=CollapsePruner(total_steps=HORIZON))
    with pytest.warns(RuntimeWarning, match="3 trials were stopped as diverging and none has finished"):
        stops = [first_stop(study, restarted(2 + 0.1 * i, i)) for i in range(8)]
    assert [stop > 0 for stop in stops[:6]] == [True] * 3 + [False] * 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert first_stop(study, restarted(1.9, 8)) == 0
    assert 0 < first_stop(study, restarted(4.0, 9)) < HORIZON
    assert study.pruner.decision(9).reason == "cannot_win"


def test_references_that_rise_make_a_rise_usual() -> None:
    runs = [restarted(3 + 0.2 * i, 20 + i) for i in range(6)]
    model = CollapseModel.fit(
        [Curve.from_points(list(log), list(log.values()), horizon=HORIZON, run_id=f"p{i}") for i, log in enumerate(runs)]
    )
    study = optuna.create_study(pruner=CollapsePruner(model, total_steps=HORIZON))
    assert first_stop(study, restarted(2.0)) == 0


def test_a_run_that_diverges_among_calm_ones_is_stopped_at_once() -> None:
    study = optuna.create_study(pruner=CollapsePruner(total_steps=HORIZON))
    calm = {step: 2 + 8 / step for step in range(1, HORIZON + 1)}
    for _ in range(4):
        first_stop(study, calm)
    diverging = {step: value if step < 40 else value + 0.5 * (step - 39) for step, value in calm.items()}
    assert 40 < first_stop(study, diverging) <= 46
    assert study.pruner.decision(4).reason == "diverging"
