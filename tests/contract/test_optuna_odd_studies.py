"""Studies that nobody planned for: extreme values, retried trials, samplers that keep their own books, noise, threads."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from optuna_studies import HORIZON, add, add_family, attach, curve, first_stop, running, steps

Open = Callable[[str], optuna.storages.BaseStorage]


def objective(trial: optuna.Trial) -> float:
    final = 3.0 + trial.suggest_float("x", 0.0, 1.0)
    for step, value in curve(final, steps()).items():
        trial.report(value, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return final


def noisy(final: float, seed: int, noise: float = 0.02) -> dict[int, float]:
    scatter = np.random.default_rng(seed).standard_normal(HORIZON)
    return {s: v * float(np.exp(noise * e)) for (s, v), e in zip(curve(final, steps(1)).items(), scatter, strict=True)}


@pytest.mark.parametrize("factor", [1e-320, 1e-300, 1e-9, 1e9, 1e299, 1e307])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_values_near_the_ends_of_what_floats_hold_warn_and_break_nothing(
    factor: float, sign: float, open_storage: Open
) -> None:
    direction = "minimize" if sign > 0 else "maximize"
    study = optuna.create_study(storage=open_storage("memory"), direction=direction)
    attach(study)
    for final in (3.0, 3.1, 3.2, 3.3, 3.4):
        add(study, {s: sign * factor * v for s, v in curve(final, steps()).items()})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stops = [
            first_stop(study, {s: sign * factor * v for s, v in curve(final, steps()).items()}) for final in (2.9, 3.15, 9.0)
        ]
    assert stops[0] == 0


@pytest.mark.parametrize(
    "sampler",
    [
        lambda: optuna.samplers.TPESampler(constant_liar=True, seed=0, n_startup_trials=4),
        lambda: optuna.samplers.GridSampler({"x": [0.1 * i for i in range(10)]}),
        lambda: optuna.samplers.QMCSampler(seed=0),
    ],
    ids=["constant liar", "grid", "quasi Monte Carlo"],
)
@pytest.mark.parametrize("n_jobs", [1, 4])
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_any_sampler_works_with_an_enqueued_trial_and_with_threads(sampler: Callable, n_jobs: int, open_storage: Open) -> None:
    study = optuna.create_study(storage=open_storage("memory"), sampler=sampler())
    attach(study)
    add_family(study, 4)
    study.enqueue_trial({"x": 0.0})
    study.optimize(objective, n_trials=10, n_jobs=n_jobs)
    states = [trial.state for trial in study.trials[4:]]
    assert set(states) <= {TrialState.COMPLETE, TrialState.PRUNED}
    assert states.count(TrialState.PRUNED) >= 1
    enqueued = [trial for trial in study.trials[4:] if trial.params["x"] == 0.0]
    assert all(trial.state == TrialState.COMPLETE for trial in enqueued)


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_retried_trial_that_inherits_its_reports_is_judged_by_them(open_storage: Open) -> None:
    """It repeats steps that it has already: Optuna keeps the first value, and so does the decision."""
    study = optuna.create_study(storage=open_storage("journal"), sampler=optuna.samplers.RandomSampler(seed=0))
    pruner = attach(study)
    add_family(study)
    first = running(study, {s: v for s, v in curve(3.9, steps(1)).items() if s <= 8})
    study.tell(first, state=TrialState.FAIL)
    names = ("RetryHeartbeatStaleTrialCallback", "RetryFailedTrialCallback")  # the second until Optuna 4.8
    retry = next(getattr(optuna.storages, name) for name in names if hasattr(optuna.storages, name))
    retry(inherit_intermediate_values=True)(study, study.trials[-1])
    again, stopped = study.ask(), 0
    assert len(study.trials[again.number].intermediate_values) == 8
    for step, value in curve(3.9, steps(1)).items():
        if step > 5:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Optuna says that it ignores steps 6 to 8
                again.report(value, step)
            if again.should_prune():
                stopped = step
                break
    assert 8 <= stopped <= 20
    found = pruner.decision(again.number)
    assert found is not None
    assert found.reason == "cannot_win"


def test_two_per_cent_noise_stops_what_is_five_per_cent_worse_by_30_per_cent_and_not_the_best(
    storage: optuna.storages.BaseStorage,
) -> None:
    """A few studies of what the bench counts in hundreds (``python -m bench.pruner_scenarios``)."""
    caught, n_studies = [], 4 if isinstance(storage, optuna.storages.InMemoryStorage) else 1
    for seed in range(n_studies):
        study = optuna.create_study(storage=storage)
        attach(study)
        for i in range(10):
            add(study, noisy(3.0 + 0.06 * i, 100 * seed + i))
        caught.append(first_stop(study, noisy(3.15, 100 * seed + 50)))
        assert first_stop(study, noisy(2.97, 100 * seed + 51)) == 0
    assert sum(10 <= step <= 30 for step in caught) > 0.7 * n_studies


def test_trials_that_were_all_stopped_teach_nothing(study: optuna.Study) -> None:
    pruner = attach(study)
    for i in range(6):
        add(study, {1: 3.0 + i}, state=TrialState.PRUNED)
    assert first_stop(study, curve(9.0, steps())) == 0
    assert pruner.decision(6).n_references == 0


def test_trials_with_reports_at_the_start_and_the_end_only_stop_nothing(study: optuna.Study) -> None:
    pruner = attach(study)
    for i in range(5):
        add(study, {0: 5.0, HORIZON: 3.0 + i})
    assert first_stop(study, {0: 5.0, 50: 9.0, HORIZON: 9.0}) == 0
    assert pruner.decision(5).reason == "complete"


def test_two_reports_a_trial_stop_nothing_that_may_win(study: optuna.Study) -> None:
    attach(study)
    add_family(study, every=50)
    assert first_stop(study, curve(2.9, steps(50))) == 0
