"""Ray's Optuna search, mended: stopped trials are PRUNED in the study, with their last report and why.

Ray's own records a stopped trial as COMPLETE with its early value, keeps the report at which it stopped from the study, and
leaves a trial with a NaN running for ever. Samplers then learn from values that are no final values.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from inspect import signature
from math import isfinite
from typing import Any
from uuid import uuid4

from optuna.trial import FrozenTrial, Trial, TrialState
from ray.tune.search.optuna import OptunaSearch

from hpo.adapters.optuna_record import TrialDecision
from hpo.adapters.ray_log import Event
from hpo.adapters.ray_reports import allow_missing_metrics, number_in, step_in
from hpo.adapters.storage_patience import persistently

ABOUT, RAY_TRIAL, SEARCH = "collapse_about", "ray_trial", "ray_search"
"""User attributes of a trial: what the scheduler knows of it, Ray's trial id, and the search that made it."""


class CollapseSearch(OptunaSearch):
    """:class:`ray.tune.search.optuna.OptunaSearch`, with the same arguments, beside :class:`hpo.CollapseScheduler`.

    A trial that the scheduler stopped is PRUNED in the study: the stopping report first, then the state, with user attributes
    ``predicted_final``, ``predicted_lower``, ``predicted_upper``, ``stopped_at``, ``stopped_fraction``, ``p_best``,
    ``reason`` and ``reason_text``. A trial that ends without a finite value is FAIL, or PRUNED where it only lacks a value at
    its last report. None is left RUNNING: what an interrupted driver began and its restored one does not know is FAIL.
    """

    time_attr = "training_iteration"
    """Key of the step under which values go into the study; set by the scheduler."""

    __signature__ = signature(OptunaSearch)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._stops: dict[str, dict[str, Any]] = {}
        self._last_steps: dict[str, float] = {}
        self._token = uuid4().hex
        super().__init__(*args, **kwargs)

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """Return the settings of a new trial."""
        allow_missing_metrics()
        settings: dict[str, Any] | None = super().suggest(trial_id)
        for key, value in ((RAY_TRIAL, trial_id), (SEARCH, self._token)):
            persistently(partial(self._ot_trials[trial_id].set_user_attr, key, value))
        return settings

    def describe(self, trial_id: str, about: dict[str, Any]) -> None:
        """Keep what the scheduler knows of a trial in the study, where a restored one finds it."""
        trial = self._ot_trials.get(trial_id)
        if trial is not None and trial_id not in self._completed_trials:
            persistently(lambda: trial.set_user_attr(ABOUT, about))

    def stop(self, trial_id: str, decision: TrialDecision) -> None:
        """Take note that the scheduler stops a trial."""
        self._stops[trial_id] = decision.attributes()

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Report a value to the study; results without one, and steps not beyond the last, are passed over."""
        if trial_id in self._ot_trials and trial_id not in self._completed_trials:
            self._report(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Tell the study how a trial ended; a second call for it does nothing."""
        trial = self._ot_trials.get(trial_id)
        if trial is None or trial_id in self._completed_trials:
            return
        self._report(trial_id, result or {})
        stopped = self._stops.pop(trial_id, None)
        for key, value in (stopped or {}).items():
            persistently(partial(trial.set_user_attr, key, value))
        if stopped is not None:
            state, values = TrialState.PRUNED, None
        else:
            state, values = self._outcome(trial_id, result or {}, error)
        persistently(lambda: self._study.tell(trial, values, state=state, skip_if_finished=True))
        self._completed_trials.add(trial_id)
        self._last_steps.pop(trial_id, None)
        del self._ot_trials[trial_id]  # it keeps a copy of every value; the study has them

    def restore(self, checkpoint_path: str) -> None:
        """Take up a saved search; a study in a storage may have gone on since, and what it has finished stays so."""
        super().restore(checkpoint_path)
        known = {trial.number: trial_id for trial_id, trial in self._ot_trials.items()}
        study = self._study
        for trial in () if study is None else study.get_trials(deepcopy=False):
            trial_id = known.get(trial.number)
            if trial_id is None and not trial.state.is_finished() and trial.user_attrs.get(SEARCH) == self._token:
                study.tell(trial.number, state=TrialState.FAIL)
            elif trial_id is not None and trial.state.is_finished():
                self._completed_trials.add(trial_id)
            elif trial_id is not None and trial.intermediate_values:
                self._last_steps[trial_id] = max(trial.intermediate_values)

    def events(self) -> list[Event]:
        """Return what the study knows of its trials, as the scheduler's log would have it."""
        study = self._study
        if study is None or len(study.directions) != 1:
            return []
        trials = [t for t in study.get_trials(deepcopy=False) if ABOUT in t.user_attrs and t.intermediate_values]
        return [event for trial in sorted(trials, key=_ended_first) for event in _events_of(trial)]

    @property
    def _study(self) -> Any:  # Ray's own types know neither a study nor several metrics
        return self._ot_study

    @property
    def _metrics(self) -> list[str]:
        named: Any = self.metric
        return list(named) if isinstance(named, list | tuple) else [named]

    def _report(self, trial_id: str, result: Mapping[str, Any]) -> None:
        if len(self._study.directions) != 1:  # Optuna takes no reports where there are several objectives
            return
        step, value = step_in(result, self.time_attr), number_in(result, self._metrics[0])
        if step is None or value is None or int(step) <= self._last_steps.get(trial_id, -1):
            return
        self._last_steps[trial_id] = int(step)
        trial: Trial = self._ot_trials[trial_id]
        persistently(lambda: trial.report(value, int(step)))

    def _outcome(self, trial_id: str, result: Mapping[str, Any], error: bool) -> tuple[TrialState, Any]:
        """Return state and values of a trial that nobody stopped."""
        values = [number_in(result, key) for key in self._metrics]
        if not error and all(v is not None and isfinite(v) for v in values):
            return TrialState.COMPLETE, values
        lacks = None in values and trial_id in self._last_steps
        return (TrialState.PRUNED if lacks and not error else TrialState.FAIL), None


def _ended_first(trial: FrozenTrial) -> tuple[bool, float, int]:
    ended = trial.datetime_complete
    return ended is None, 0.0 if ended is None else ended.timestamp(), trial.number


def _events_of(trial: FrozenTrial) -> list[Event]:
    """Return the events of one trial, its decision too where it was stopped."""
    about, name = trial.user_attrs, trial.user_attrs[RAY_TRIAL]
    events: list[Event] = [{"event": "add", "id": name, "about": about[ABOUT]}]
    events += [{"event": "report", "id": name, "step": s, "value": v} for s, v in sorted(trial.intermediate_values.items())]
    if trial.state == TrialState.PRUNED and "reason" in about:
        said = {"forecast": "predicted_final", "lower": "predicted_lower", "upper": "predicted_upper", "step": "stopped_at"}
        said |= {"fraction": "stopped_fraction", "p_best": "p_best", "reason": "reason", "detail": "reason_text"}
        numbers = {field: about.get(key) for field, key in said.items()}
        events.append({"event": "decision", "id": name, "action": "stop", "pruned": True, **numbers})
    how = {TrialState.COMPLETE: "finished", TrialState.PRUNED: "stopped", TrialState.FAIL: "failed"}.get(trial.state)
    return events if how is None else [*events, {"event": "end", "id": name, "how": how}]
