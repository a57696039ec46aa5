from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hpo.adapters.curve_files import RecordedRun
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule
from hpo.reporting.posterior_slices import is_log, numeric_parameters, posterior_of
from hpo.reporting.sweep_files import SweepRecord, TrialRecord
from hpo.reporting.sweep_state import SweepState

N_STEPS = 200


def final(lr: float, n_params: float) -> float:
    return 2.0 + 20.0 / math.sqrt(n_params) + 0.05 * math.log(lr / 0.01) ** 2


def recorded(name: str, lr: float, n_params: float, until: float = 1.0) -> RecordedRun:
    steps = np.arange(1, round(until * N_STEPS) + 1, dtype=np.float64)
    t = steps / N_STEPS
    recipe = Recipe(
        schedule=schedule("linear"), n_params=n_params, n_tokens=1e5, batch_tokens=500.0, lr=lr, warmup_fraction=0.1
    )
    values = final(lr, n_params) * (1 + 0.3 * (1 - t) ** 2)
    group = "proxy" if n_params < 4000 else "candidate"
    metric, about = Metric("train_loss"), {"horizon": float(N_STEPS), "group": group, "recipe": recipe}
    return RecordedRun(run_id=name, steps=steps, values=values, metric=metric, settings={"lr": lr}, **about)  # type: ignore[arg-type]


@pytest.fixture
def sweep() -> SweepRecord:
    """Nine candidates cut at 20 % but the best, ten proxies of two sizes; the lowest final loss lies at lr = 0.01."""
    rates = np.geomspace(1e-3, 1e-1, 9).tolist()
    proxies = {
        f"proxy-{n:.0f}-{i}": recorded(f"proxy-{n:.0f}-{i}", lr, n) for n in (1000.0, 2000.0) for i, lr in enumerate(rates[::2])
    }
    trials = []
    for i, lr in enumerate(rates):
        is_best = i == 4
        run = recorded(f"trial-{i:02d}", lr, 4000.0, 1.0 if is_best else 0.2)
        about = {
            "state": "winner" if is_best else "stopped",
            "reason": "",
            "forecast": {},
            "loss_at_stop": None,
            "is_tied": False,
        }
        ends = run.curve().final_loss if is_best else None
        trials.append(TrialRecord(name=run.run_id, number=i, settings={"lr": lr}, final_loss=ends, run=run, **about))  # type: ignore[arg-type]
    model = CollapseModel.fit([run.curve() for run in proxies.values()])
    return SweepRecord(Path(), {"name": "s"}, None, SweepState(), tuple(trials), proxies, model, ())


def test_the_posterior_finds_the_valley_between_the_candidates(sweep: SweepRecord) -> None:
    found = posterior_of(sweep)
    assert found is not None
    (along,) = found.slices
    assert along.is_log
    assert along.values[int(np.argmin(along.loss))] == pytest.approx(0.01, rel=0.3)
    truth = np.array([final(lr, 4000.0) for lr in along.values])
    assert np.all((along.lower <= truth) & (truth <= along.upper))
    assert np.max(np.abs(along.loss / truth - 1)) < 0.02


def test_a_measured_final_loss_is_known_there_and_less_so_further_away(sweep: SweepRecord) -> None:
    found = posterior_of(sweep)
    assert found is not None
    width = (found.slices[0].upper - found.slices[0].lower) / found.slices[0].loss
    at_winner = int(np.argmin(np.abs(np.log(found.slices[0].values / 0.01))))
    assert found.slices[0].loss[at_winner] == pytest.approx(final(0.01, 4000.0), rel=3e-3)
    assert width[at_winner] < 0.7 * max(width[0], width[-1])


def test_without_a_model_or_enough_proxies_there_is_no_posterior(sweep: SweepRecord) -> None:
    assert posterior_of(replace(sweep, model=None)) is None
    few = dict(list(sweep.proxies.items())[:2])
    assert posterior_of(replace(sweep, proxies=few)) is None


def test_only_numbers_with_three_values_or_more_are_parameters_of_the_landscape(sweep: SweepRecord) -> None:
    settings = [{"lr": 0.1 * i, "kind": "a", "flag": True, "two": i % 2, "gone": i} for i in range(1, 5)]
    del settings[0]["gone"]
    trials = [replace(sweep.trials[i], settings=one) for i, one in enumerate(settings)]
    assert list(numeric_parameters(trials)) == ["lr"]


def test_values_spread_evenly_in_their_logs_get_a_log_axis() -> None:
    assert is_log([1e-3, 1e-2, 1e-1])
    assert not is_log([1.0, 2.0, 3.0])
    assert not is_log([0.0, 0.1, 0.2])
