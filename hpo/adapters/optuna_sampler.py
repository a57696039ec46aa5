"""Lets an Optuna sampler learn from the forecasts of stopped trials, as if they had run to the end.

Left to themselves, samplers make little of a stopped trial: TPE ranks it below every finished one by its last value, the
Gaussian process and CMA-ES leave it out. Here the sampler is handed a view of the study in which a PRUNED trial that carries
``predicted_final`` is a COMPLETE one of that value. The study itself is not changed.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Sequence
from math import isfinite
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState


class ForecastSampler(BaseSampler):
    """A sampler that sees forecast final values where trials were stopped.

    Parameters
    ----------
    inner : BaseSampler
        Makes the suggestions. It must not be shared with a study that uses it directly.

    Notes
    -----
    Trials stopped without a forecast (non-finite values, divergence) stay PRUNED for the inner sampler.
    """

    def __init__(self, inner: BaseSampler) -> None:
        if not isinstance(inner, BaseSampler):
            raise ValueError(f"inner must be an Optuna sampler; found {inner!r}")
        self.inner = inner

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the inner sampler's, seeing forecasts."""
        return self.inner.infer_relative_search_space(_seen(study), trial)

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]) -> dict[str, Any]:
        """Return the inner sampler's, seeing forecasts."""
        return self.inner.sample_relative(_seen(study), trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the inner sampler's, seeing forecasts."""
        return self.inner.sample_independent(_seen(study), trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Tell the inner sampler."""
        self.inner.before_trial(_seen(study), trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Tell the inner sampler."""
        self.inner.after_trial(_seen(study), trial, state, values)

    def reseed_rng(self) -> None:
        """Reseed the inner sampler."""
        self.inner.reseed_rng()


class _StudySeen(Study):
    """A study whose stopped trials are finished at their forecasts; made by :func:`_seen`."""

    _origin: Study

    def stop(self) -> None:
        """End the study that is seen, as a sampler does that has nothing left to suggest."""
        self._origin.stop()

    def _get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None, use_cache: bool = False
    ) -> list[FrozenTrial]:
        trials = [finished_at_forecast(t) for t in super()._get_trials(deepcopy, None, use_cache)]
        return trials if states is None else [t for t in trials if t.state in states]


def finished_at_forecast(trial: FrozenTrial) -> FrozenTrial:
    """Return a stopped trial as a finished one of its forecast value; any other trial, or one without a forecast, as it is."""
    forecast = trial.user_attrs.get("predicted_final")
    if trial.state != TrialState.PRUNED or not isinstance(forecast, float) or not isfinite(forecast):
        return trial
    seen = copy.copy(trial)
    seen.value, seen.state = forecast, TrialState.COMPLETE
    return seen


def _seen(study: Study) -> Study:
    seen = object.__new__(_StudySeen)
    seen.__dict__.update(study.__dict__)
    seen._origin = study
    return seen
