"""A sampler that learns from forecasts: what it sees, and that it is otherwise the sampler it wraps."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial
from optuna_studies import HORIZON, curve, steps

from hpo import CollapsePruner, ForecastSampler, report

BOX = {"x": FloatDistribution(0.0, 1.0), "y": FloatDistribution(0.0, 1.0)}
INNER: dict[str, Callable[[], BaseSampler]] = {
    "random": lambda: RandomSampler(seed=1),
    "tpe": lambda: TPESampler(seed=1, n_startup_trials=5),
}
if find_spec("torch") is not None:  # which Optuna's Gaussian process asks for
    INNER["gp"] = lambda: GPSampler(seed=1, n_startup_trials=5)
try:
    import cmaes  # noqa: F401 - optional in Optuna
except ImportError:
    pass
else:
    INNER["cma"] = lambda: CmaEsSampler(seed=1, n_startup_trials=5)


def bowl(params: dict[str, float]) -> float:
    return 3.0 + (params["x"] - 0.7) ** 2 + (params["y"] - 0.2) ** 2


def bowl_objective(trial: optuna.Trial) -> float:
    return bowl({name: trial.suggest_float(name, 0.0, 1.0) for name in BOX})


def add_stopped(study: optuna.Study, n: int, seed: int = 0, **attributes: Any) -> None:
    """Add stopped trials all over the box, each with the forecast of the bowl, or with the attributes given."""
    draw = RandomSampler(seed=seed)
    for _ in range(n):
        trial = study.ask()
        params = {name: draw._rng.rng.uniform() for name in BOX}
        study.tell(trial, state=TrialState.FAIL)
        said = attributes or {"predicted_final": bowl(params)}
        state, reports = TrialState.PRUNED, {10: 9.0}
        study.add_trial(
            create_trial(state=state, params=params, distributions=BOX, intermediate_values=reports, user_attrs=said)
        )


class Watching(RandomSampler):
    """A sampler that keeps the trials it was shown."""

    def __init__(self) -> None:
        super().__init__(seed=0)
        self.seen: list[FrozenTrial] = []

    def sample_relative(self, study: optuna.Study, trial: FrozenTrial, search_space: Any) -> dict[str, Any]:
        self.seen = study.get_trials(deepcopy=False)
        return super().sample_relative(study, trial, search_space)


@pytest.mark.parametrize("name", sorted(INNER))
def test_where_nothing_was_stopped_it_is_the_sampler_it_wraps(name: str) -> None:
    runs = []
    for sampler in (INNER[name](), ForecastSampler(INNER[name]())):
        study = optuna.create_study(sampler=sampler)
        study.optimize(bowl_objective, n_trials=12)
        runs.append([t.params for t in study.trials])
    assert runs[0] == runs[1]


def test_stopped_trials_are_seen_finished_at_their_forecasts(study: optuna.Study) -> None:
    inner = Watching()
    study.sampler = ForecastSampler(inner)
    add_stopped(study, 3)
    for nothing in (None, "nan", float("inf")):
        add_stopped(study, 1, predicted_final=nothing)
    study.ask(BOX)
    pruned = [t for t in study.trials if t.user_attrs]
    shown = [t for t in inner.seen if t.user_attrs]
    assert [t.state for t in shown] == [TrialState.COMPLETE] * 3 + [TrialState.PRUNED] * 3
    assert [t.value for t in shown[:3]] == [t.user_attrs["predicted_final"] for t in pruned[:3]]
    assert [t.state for t in pruned] == [TrialState.PRUNED] * 6
    assert [t.number for t in shown] == [t.number for t in pruned]


@pytest.mark.parametrize("name", sorted({"tpe", "gp"} & set(INNER)))
def test_suggestions_follow_the_forecasts(name: str) -> None:
    study = optuna.create_study(sampler=ForecastSampler(INNER[name]()))
    add_stopped(study, 30)
    asked = [study.ask(BOX).params for _ in range(5)]
    assert sum(bowl(p) for p in asked) / 5 < 3.06  # 3.25 on average over the box


def test_threads_share_it() -> None:
    study = optuna.create_study(sampler=ForecastSampler(TPESampler(seed=0)), pruner=CollapsePruner(total_steps=HORIZON))

    def objective(trial: optuna.Trial) -> float:
        final = bowl_objective(trial)
        for step, value in curve(final, steps(), wiggle=0.001, seed=trial.number).items():
            report(trial, step, value)
        return final

    study.optimize(objective, n_trials=40, n_jobs=4)
    assert len(study.trials) == 40
    assert {t.state for t in study.trials} == {TrialState.COMPLETE, TrialState.PRUNED}


def test_it_wraps_a_sampler() -> None:
    with pytest.raises(ValueError, match="inner must be an Optuna sampler"):
        ForecastSampler("tpe")  # type: ignore[arg-type]


def test_a_sampler_that_has_nothing_left_ends_the_study() -> None:
    study = optuna.create_study(sampler=ForecastSampler(optuna.samplers.GridSampler({"x": [1, 2, 3]})))
    study.optimize(lambda trial: float(trial.suggest_categorical("x", [1, 2, 3])), n_trials=20)
    assert len(study.trials) == 3
