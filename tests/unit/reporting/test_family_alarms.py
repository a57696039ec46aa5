from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hpo.adapters.curve_files import RecordedRun
from hpo.core.model import CollapseModel
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule
from hpo.reporting.family_alarms import family_alarms
from hpo.reporting.sweep_files import SweepRecord, TrialRecord
from hpo.reporting.sweep_state import SweepState

STEPS = 1000
T: NDArray[np.float64] = np.arange(1, STEPS + 1) / STEPS


def recorded(name: str, final: float, fault: NDArray[np.float64] | float = 0.0) -> RecordedRun:
    recipe = Recipe(schedule=schedule("linear"), n_params=1e8, n_tokens=1e9, batch_tokens=1e6, lr=1e-3, warmup_fraction=0.02)
    noise = 0.005 * np.random.default_rng(len(name) + ord(name[-1])).standard_normal(STEPS)
    losses = final * (1 + 0.25 * (1 - T) + 0.3 * np.exp(-12 * T)) * np.exp(noise + fault)
    return RecordedRun(run_id=name, steps=T * STEPS, values=losses, horizon=float(STEPS), recipe=recipe, family="f")


def sweep_with(fault: NDArray[np.float64] | float) -> SweepRecord:
    proxies = {f"proxy-{i}": recorded(f"proxy-{i}", 3.5 - 0.1 * i) for i in range(5)}
    run = recorded("trial-07", 2.8, fault)
    trial = TrialRecord("trial-07", 7, {"lr": 1e-3}, "winner", "", {}, None, run.curve().final_loss, False, run)
    model = CollapseModel.fit([one.curve() for one in proxies.values()])
    return SweepRecord(Path(), {}, None, SweepState(), (trial,), proxies, model, ())


def test_a_finished_run_that_jumped_is_an_alarm_with_its_onset() -> None:
    (alarm,) = family_alarms(sweep_with(np.where(T >= 0.6, 0.03, 0.0)))
    assert alarm.level == "alarm"
    assert alarm.text.startswith("Trial 7 is suspect: it left the proxies' curve from 6")


def test_a_healthy_run_and_one_without_a_model_are_none() -> None:
    sweep = sweep_with(0.0)
    assert family_alarms(sweep) == []
    assert family_alarms(replace(sweep, model=None)) == []


@pytest.mark.parametrize("state", ["stopped", "running"])
def test_a_run_that_has_not_finished_is_not_watched_here(state: str) -> None:
    sweep = sweep_with(np.where(T >= 0.6, 0.03, 0.0))
    cut = replace(sweep.trials[0], state=state, final_loss=None)
    assert family_alarms(replace(sweep, trials=(cut,))) == []
