"""Optuna's pruners and Ray's ASHA on the simulated clock: their own classes as they ship, driven through their interfaces."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import optuna

from bench.simulation import Sweep
from hpo.adapters.optuna_pruner import CollapsePruner

_NO_CONTROLLER: Any = None


class OptunaRule:
    """A pruner judging an in-memory study; reports are numbered from 1, as in a loop over evaluations."""

    def __init__(self, sweep: Sweep, make: Callable[[], optuna.pruners.BasePruner]) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._sweep = sweep
        self._study = optuna.create_study(
            study_name=f"replay-{sweep.seed}",  # Hyperband draws its brackets from the name
            direction="minimize" if sweep.mode == "min" else "maximize",
            pruner=make(),
            sampler=optuna.samplers.RandomSampler(seed=sweep.seed),
        )
        self._trials: dict[int, optuna.Trial] = {}

    def begin(self, trial: int) -> None:
        """Ask for a trial."""
        self._trials[trial] = self._study.ask()

    def report(self, trial: int, look: int) -> bool:
        """Report and ask whether to prune."""
        live = self._trials[trial]
        live.report(float(self._sweep.values[trial, look]), look + 1)
        if look + 1 == self._sweep.looks.size:
            return False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the median of reports that are all NaN
            stopped = live.should_prune()
        if stopped:
            self._study.tell(live, state=optuna.trial.TrialState.PRUNED)
        return stopped

    def end(self, trial: int) -> None:
        """Tell the final value; a trial that ends at NaN has failed."""
        value = float(self._sweep.values[trial, -1])
        if math.isfinite(value):
            self._study.tell(self._trials[trial], value)
        else:
            self._study.tell(self._trials[trial], state=optuna.trial.TrialState.FAIL)


class RayAsha:
    """Ray Tune's AsyncHyperBandScheduler (ASHA); training is 100 iterations, the scheduler's own default."""

    def __init__(self, sweep: Sweep) -> None:
        from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

        self._sweep = sweep
        self._stop = TrialScheduler.STOP
        self._scheduler = AsyncHyperBandScheduler(metric="value", mode=sweep.mode)
        self._trials = [SimpleNamespace(trial_id=str(i)) for i in range(len(sweep.trials))]

    def begin(self, trial: int) -> None:
        """Add a trial."""
        self._scheduler.on_trial_add(_NO_CONTROLLER, self._trial(trial))

    def report(self, trial: int, look: int) -> bool:
        """Hand on a result; at the last iteration the scheduler says stop, which is the trial's end."""
        if look + 1 == self._sweep.looks.size:
            return False
        result = self._result(trial, look)
        if self._scheduler.on_trial_result(_NO_CONTROLLER, self._trial(trial), result) != self._stop:
            return False
        self._scheduler.on_trial_complete(_NO_CONTROLLER, self._trial(trial), result)
        return True

    def end(self, trial: int) -> None:
        """Complete a trial."""
        self._scheduler.on_trial_complete(_NO_CONTROLLER, self._trial(trial), self._result(trial, self._sweep.looks.size - 1))

    def _trial(self, trial: int) -> Any:
        return self._trials[trial]

    def _result(self, trial: int, look: int) -> dict[str, float]:
        iteration = round(100 * float(self._sweep.looks[look]))
        return {"training_iteration": iteration, "value": float(self._sweep.values[trial, look])}


OPTUNA_PRUNERS: dict[str, Callable[[], optuna.pruners.BasePruner]] = {
    "optuna_median": optuna.pruners.MedianPruner,
    "optuna_percentile": lambda: optuna.pruners.PercentilePruner(25.0),
    "optuna_halving": optuna.pruners.SuccessiveHalvingPruner,
    "optuna_hyperband": optuna.pruners.HyperbandPruner,
    "collapse_pruner": CollapsePruner,
}
"""The pruners with their default settings (the percentile has none: the best quarter goes on), and ours as it ships: it then
learns from the finished trials of the study alone."""


def optuna_rule(name: str, sweep: Sweep) -> OptunaRule:
    """Return the rule of one of :data:`OPTUNA_PRUNERS`."""
    return OptunaRule(sweep, OPTUNA_PRUNERS[name])
