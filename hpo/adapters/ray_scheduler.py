"""A scheduler for Ray Tune that stops a trial by the forecast of its final value.

It translates and nothing else: a Ray result becomes a report in a :class:`~hpo.adapters.ray_book.TrialBook`, where
:class:`hpo.CollapsePruner` decides as it does in an Optuna study. Ray keeps no scheduler over a restart, and calls in ways
that must be told apart: ``on_trial_complete`` for a natural end and for a stop, ``on_trial_error`` then ``on_trial_add`` for a
retry, ``on_trial_add`` for every restored trial. So what was seen is also written to a log, and read back from it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from optuna.study import StudyDirection
from pyarrow.fs import LocalFileSystem
from ray.tune.schedulers import FIFOScheduler

from hpo.adapters.optuna_record import TrialDecision
from hpo.adapters.ray_book import BookPruner, Ending, RayTrial, TrialBook
from hpo.adapters.ray_log import Event, EventLog, decision_event, decision_from
from hpo.adapters.ray_reports import allow_missing_metrics, number_in, settings_in, step_in
from hpo.adapters.ray_search import CollapseSearch
from hpo.core.model import CollapseModel
from hpo.core.quantities import is_real, is_whole
from hpo.core.recipe import Recipe

Total = float | Callable[[Mapping[str, Any]], "float | None"]
LOG_NAME = "collapse_scheduler.jsonl"
_logger = logging.getLogger(__name__)


class CollapseScheduler(FIFOScheduler):
    """Stops trials whose forecast final value cannot beat the best of the others; runs those in order.

    The others are the best finished trials and, where ``model`` is given and a trial's controls are known (its size, tokens per
    parameter or timescale, by its recipe), the most promising running ones.

    Parameters
    ----------
    model : CollapseModel, path or None
        References from elsewhere (proxy runs); None learns from the experiment's own finished trials alone, and compares with
        them alone.
    metric : str or None
        Key under which trials report their loss; None takes that of ``tune.TuneConfig``.
    mode : {"min", "max"} or None
        Direction of the metric; None takes that of ``tune.TuneConfig``.
    time_attr : str
        Key under which trials report their step, tokens or epoch. A report not beyond the last is ignored.
    total : number or callable
        Value of ``time_attr`` at the end of a full run, or a function of a trial's config to it (None: not known, and the
        trial is not judged).
    min_fraction, margin, alpha, min_references
        As in :class:`hpo.CollapsePruner`; ``alpha`` is the error budget of the whole experiment.
    n_trials : int or None
        How many trials the experiment will have, if that is known: where running ones count too, a stop may then spend an equal
        share of what is left of the budget, which lets small experiments stop sooner.
    stopping : {"act", "shadow"}
        ``"shadow"`` decides and logs but stops nothing.
    recipe : callable or None
        Function of a trial's config to its :class:`hpo.Recipe`. None reads the usual names in the config.
    family : callable or None
        Function of a trial's config to a label; trials are compared within a label only.
    log : path or None
        JSONL file of all reports and decisions, from which a restored experiment goes on. None keeps it in the experiment's
        folder, where that is a local or shared one.

    Raises
    ------
    ValueError
        An argument outside its range.

    Notes
    -----
    After ``Tuner.restore`` the state comes from the log, without one from the study of :class:`hpo.CollapseSearch`; the
    same events lead to the same decisions. A result without the metric, or with None for it, is passed over: Ray's own
    check, which would end the experiment, is switched off through its environment variable unless that is set. A NaN or
    infinite value stops its trial. A trial is judged once in each per cent of its training, which takes milliseconds in the
    driver; the first judgement after a trial has ended fits the model anew.
    """

    _supports_buffered_results = False

    def __init__(
        self,
        model: CollapseModel | str | Path | None = None,
        *,
        metric: str | None = None,
        mode: str | None = None,
        time_attr: str = "training_iteration",
        total: Total,
        min_fraction: float = 0.1,
        margin: float = 0.0,
        alpha: float = 0.05,
        min_references: int = 3,
        n_trials: int | None = None,
        stopping: Literal["act", "shadow"] = "act",
        recipe: Callable[[Mapping[str, Any]], Recipe | None] | None = None,
        family: Callable[[Mapping[str, Any]], Any] | None = None,
        log: str | Path | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        _check(metric, mode, time_attr, total, stopping)
        for name, given in (("recipe", recipe), ("family", family)):
            if given is not None and not callable(given):
                raise ValueError(f"{name} must be a function of the config or None; found {given!r}")
        if n_trials is not None and not (is_whole(n_trials) and n_trials >= 1):
            raise ValueError(f"n_trials must be a whole number of at least 1 or None; found {n_trials!r}")
        if log is not None and not isinstance(log, str | PathLike):
            raise ValueError(f"log must be the path of a file or None; found {log!r}")
        self._metric, self._mode, self._time_attr, self._total = metric, mode, time_attr, total
        self._recipe, self._family = recipe, family
        self._book = TrialBook()
        self._pruner = BookPruner(
            self._book,
            model,
            min_fraction=min_fraction,
            margin=margin,
            alpha=alpha,
            min_references=min_references,
            n_trials=n_trials,
            mode=stopping,
        )
        self._log = EventLog(None if log is None else Path(log))
        self._search: CollapseSearch | None = None
        self._has_begun = False
        self._has_warned = False
        self._warned_of: set[str] = set()

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take metric and mode of ``tune.TuneConfig``; False where the scheduler was given others.

        Raises
        ------
        ValueError
            Neither names them.
        """
        del spec
        for ours, theirs in ((self._metric, metric), (self._mode, mode)):
            if ours is not None and theirs is not None and ours != theirs:
                return False
        self._metric, self._mode = self._metric or metric, self._mode or mode
        if self._metric is None or self._mode is None:
            missing = "metric" if self._metric is None else "mode"
            raise ValueError(f"{missing} must be given to CollapseScheduler or to tune.TuneConfig; found None")
        allow_missing_metrics()
        return True

    def decision(self, trial_id: str) -> TrialDecision | None:
        """Return the last decision about a trial, None if there was none."""
        known = self._book.trials.get(trial_id)
        return None if known is None else known.decision

    def keep(self, trial_id: str) -> None:
        """Let a trial go on whatever its forecast; only a non-finite value still stops it. Unknown trials are passed over."""
        known = self._book.trials.get(trial_id)
        if known is not None:
            self._pruner.keep(known.frozen.number)

    def release(self, trial_id: str) -> None:
        """Take back :meth:`keep`: the trial is judged again from its next report on."""
        known = self._book.trials.get(trial_id)
        if known is not None:
            self._pruner.release(known.frozen.number)

    def learn(self, tune_controller: Any, trial: Any, results: Iterable[Mapping[str, Any]]) -> None:
        """Take results of a trial that went on while nobody judged it; those that are known already are passed over."""
        known = self._known(tune_controller, trial)
        for result in results:
            step, value = step_in(result, self._time_attr), number_in(result, self._metric or "")
            if step is not None and value is not None and step > known.last_step and not known.has_ended:
                self._happen({"event": "report", "id": trial.trial_id, "step": step, "value": value, "learned": True})

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        """Take up a trial: new, to be tried again, or restored."""
        if not self._has_begun:
            self._begin(tune_controller, trial)
        known = self._book.trials.get(trial.trial_id)
        if known is not None and known.status != "failed":
            return
        about = self._about(trial)
        self._happen({"event": "add", "id": trial.trial_id, "about": about})
        if self._search is not None:
            self._search.describe(trial.trial_id, about)

    def on_trial_result(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> str:
        """Return ``STOP`` if the trial should stop now, else ``CONTINUE``."""
        known = self._known(tune_controller, trial)
        if known.status in ("stopping", "stopped"):
            return self._stop(trial.trial_id, known)
        step, value = step_in(result, self._time_attr), number_in(result, self._metric or "")
        if step is None or value is None:
            self._warn_of_missing(trial, self._time_attr if step is None else self._metric)
            return str(self.CONTINUE)
        if known.has_ended or step <= known.last_step:
            return str(self.CONTINUE)
        self._happen({"event": "report", "id": trial.trial_id, "step": step, "value": value})
        return self._judge(trial.trial_id, known)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: Mapping[str, Any]) -> None:
        """Note the end of a trial, whether it was stopped or came to it by itself."""
        known = self._known(tune_controller, trial)
        step, value = step_in(result or {}, self._time_attr), number_in(result or {}, self._metric or "")
        if known.status == "running" and step is not None and value is not None and step > known.last_step:
            # Ray's own stopping criteria end a trial without showing its last result to the scheduler.
            self._happen({"event": "report", "id": trial.trial_id, "step": step, "value": value})
        self._end(trial.trial_id, "stopped" if known.status == "stopping" else "finished")

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        """Note that a trial failed; it may be added again."""
        known = self._known(tune_controller, trial)
        self._end(trial.trial_id, "stopped" if known.status == "stopping" else "failed")

    def on_trial_remove(self, tune_controller: Any, trial: Any) -> None:
        """Note that a waiting trial will not go on."""
        self.on_trial_error(tune_controller, trial)

    def debug_string(self) -> str:
        """Return a line for Ray's progress report."""
        trials = self._book.trials.values()
        n_stopped = sum(t.status in ("stopping", "stopped") for t in trials)
        return f"Using CollapseScheduler: {n_stopped} of {len(trials)} trials stopped by forecast or bad values."

    def _begin(self, tune_controller: Any, trial: Any) -> None:
        """At the first trial: find log and study, and what they remember of this experiment."""
        self._has_begun = True
        self._book.direction = StudyDirection.MAXIMIZE if self._mode == "max" else StudyDirection.MINIMIZE
        controller = getattr(tune_controller, "_tune_controller", tune_controller)
        self._search = _search_of(controller)
        if self._search is not None:
            self._search.time_attr = self._time_attr
        if self._log.path is None:
            self._log = EventLog(_log_beside(trial))
        if self._is_logged(trial.trial_id, getattr(controller, "_resumed", False)):
            self._replay(self._log.read())
            return
        self._log.write({"event": "start", "metric": self._metric, "mode": self._mode, "time_attr": self._time_attr})
        for event in [] if self._search is None else self._search.events():
            self._happen(event)
        self._close_stopping()

    def _is_logged(self, trial_id: str, is_resumed: bool) -> bool:
        """Return True if the log holds events, and of this experiment: it is a resumed one, or knows the trial."""
        return any(is_resumed or event.get("id") == trial_id for event in self._log.read())

    def _replay(self, events: Iterable[Event]) -> None:
        for event in events:
            self._apply(event)
        self._close_stopping()

    def _close_stopping(self) -> None:
        """Count as stopped what was told to stop before a crash: it will be told again."""
        for trial_id, known in self._book.trials.items():
            if known.status == "stopping":
                self._end(trial_id, "stopped")

    def _happen(self, event: Event) -> None:
        self._log.write(event)
        self._apply(event)

    def _apply(self, event: Event) -> None:
        """Bring the book up to one event; events about trials that it does not know are passed over."""
        kind, trial_id = event["event"], event.get("id", "")
        known = self._book.trials.get(trial_id)
        if kind == "add":
            self._book.add(trial_id, event["about"])
        elif known is None:
            return
        elif kind == "report":
            self._book.report(trial_id, float(event["step"]), float(event["value"]))
        elif kind == "decision":
            known.decision = known.logged = decision_from(event, known.frozen.number)
            known.status = "stopping" if known.decision.pruned and known.status == "running" else known.status
        elif kind == "end":
            self._book.end(trial_id, event["how"])
            self._pruner.let_go(known)

    def _judge(self, trial_id: str, known: RayTrial) -> str:
        before = known.decision
        decision = self._pruner.judge(known)
        if before is None or _said(before) != _said(decision):
            self._log_decision(trial_id, known)
        if not decision.pruned:
            return str(self.CONTINUE)
        known.status = "stopping"
        return self._stop(trial_id, known)

    def _stop(self, trial_id: str, known: RayTrial) -> str:
        if self._search is not None and known.decision is not None:
            self._search.stop(trial_id, known.decision)
        return str(self.STOP)

    def _end(self, trial_id: str, how: Ending) -> None:
        known = self._book.trials[trial_id]
        if not known.has_ended and known.status != how:
            self._log_decision(trial_id, known)
            self._happen({"event": "end", "id": trial_id, "how": how})

    def _log_decision(self, trial_id: str, known: RayTrial) -> None:
        """Write a trial's decision unless it was written; done when it says something new, and at the trial's end."""
        if known.decision is not None and known.decision is not known.logged:
            self._log.write(decision_event(trial_id, known.decision))
            known.logged = known.decision

    def _known(self, tune_controller: Any, trial: Any) -> RayTrial:
        if trial.trial_id not in self._book.trials:
            self.on_trial_add(tune_controller, trial)
        return self._book.trials[trial.trial_id]

    def _about(self, trial: Any) -> dict[str, Any]:
        """Return what a trial's config says about its run, JSON-ready.

        A function of the user's that fails costs the trial its judgement, never the experiment.
        """
        config = trial.config or {}
        about: dict[str, Any] = {
            "settings": settings_in(config),
            "searched": settings_in(getattr(trial, "evaluated_params", None) or config),
        }
        name = "total"
        try:
            total = self._total(config) if callable(self._total) else self._total
            horizon = None if total is None else float(total)
            name = "recipe"
            recipe = None if self._recipe is None else self._recipe(config)
            if recipe is not None and not isinstance(recipe, Recipe):
                raise ValueError(f"it must return a Recipe or None; it returned {recipe!r:.80}")
            name = "family"
            label = None if self._family is None else self._family(config)
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises
            return {**about, "failed": self._failed(name, trial, error)}
        described = None if recipe is None else recipe.to_dict()
        return {**about, "recipe": described, "family": "" if label is None else str(label), "horizon": horizon}

    def _failed(self, name: str, trial: Any, error: Exception) -> str:
        """Return which function failed and how; warn of each function once."""
        said = f"{name} failed ({type(error).__name__}: {error})"
        if name not in self._warned_of:
            text = "%s for trial %s; a trial for which %s fails is judged by its values alone and teaches nothing"
            _logger.warning(text, said, trial.trial_id, name)
        self._warned_of.add(name)
        return said

    def _warn_of_missing(self, trial: Any, key: str | None) -> None:
        if not self._has_warned:
            _logger.warning("trial %s reported no number under %r; such results are passed over", trial.trial_id, key)
        self._has_warned = True


def _said(decision: TrialDecision) -> tuple[str, str, bool]:
    return decision.action, decision.reason, decision.pruned


def _search_of(controller: Any) -> CollapseSearch | None:
    """Return the search behind Ray's wrappers, if it is ours."""
    search = getattr(controller, "search_alg", None)
    while search is not None and not isinstance(search, CollapseSearch):
        search = getattr(search, "searcher", None)
    return search


def _log_beside(trial: Any) -> Path | None:
    """Return the log's path in the experiment's folder; None where that is not a folder of this machine."""
    storage = getattr(trial, "storage", None)
    if storage is None or not isinstance(storage.storage_filesystem, LocalFileSystem):
        return None
    return Path(storage.experiment_fs_path) / LOG_NAME


def _check(metric: Any, mode: Any, time_attr: Any, total: Any, stopping: Any) -> None:
    for name, given in (("metric", metric), ("time_attr", time_attr)):
        if not (isinstance(given, str) and given) and not (name == "metric" and given is None):
            raise ValueError(f"{name} must be the key of a reported value; found {given!r}")
    if mode not in (None, "min", "max"):
        raise ValueError(f"mode must be min or max; found {mode!r}")
    if stopping not in ("act", "shadow"):
        raise ValueError(f"stopping must be act or shadow; found {stopping!r}")
    if not callable(total) and not (is_real(total) and isfinite(total) and total > 0):
        raise ValueError(f"total must be a number above 0 or a function of the config; found {total!r}")
