"""A pruner for Optuna that stops a trial by the forecast of its final value, not by its value so far.

``optuna.create_study(pruner=CollapsePruner())`` is all that an existing study needs. The pruner reads reports, flips the sign
where the study maximises, asks the core, and answers; it never writes to the study. What it knows of finished trials is kept
in a :class:`~hpo.adapters.optuna_view.StudyView`, because in Optuna reading or counting trials costs a read of all of them: it
is refreshed at a trial's first decision, a few times later on, and before every stop. Between two bins of a curve (1 % of
training) the last decision stands, except that a NaN, an infinity or sustained divergence is acted on at its report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from optuna.pruners import BasePruner
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial

from hpo.adapters.blas_threads import one_blas_thread
from hpo.adapters.model_files import read_model
from hpo.adapters.optuna_audit import Audit, Claim
from hpo.adapters.optuna_hands import Orders
from hpo.adapters.optuna_record import PRUNER_REASONS, DecisionLog, TrialDecision, record_of
from hpo.adapters.optuna_scale import KINDS, Kind
from hpo.adapters.optuna_trials import AnyTrial, FamilyOf, Follower, FunctionError, RecipeOf, TotalSteps, TrialReader
from hpo.adapters.optuna_view import StudyView
from hpo.core.curve import Curve
from hpo.core.decision import REASONS, StoppingSettings, check_values
from hpo.core.model import CollapseModel

Mode = Literal["act", "shadow", "audit"]
LOOK_AGAIN = 1.5
"""Factor of the training done after which a running trial has the study read again."""


class CollapsePruner(BasePruner):
    """Stops trials whose forecast final value cannot beat the best finished trial.

    Parameters
    ----------
    model : CollapseModel, path or None
        References from elsewhere (a model of proxy runs, or the file of one); None learns from the study's own finished
        trials alone. With a model both serve, where family, metric and schedule agree.
    total_steps : int, callable or None
        Last step of a full trial, or a function of the trial. None: ``user_attrs["total_steps"]``, else the step at which
        at least 80 % of the finished trials ended. Where they do not agree nothing is stopped.
    recipe : callable or None
        Function of a trial to its :class:`hpo.Recipe`. None reads ``user_attrs`` and ``params`` under the usual names.
    family : callable or None
        Function of a trial to a label; trials are compared within a label only. None reads ``user_attrs["family"]``.
        Within a label, trials are compared only where their schedules agree as well.
    min_fraction : float
        No forecast stops a trial before this share of its training.
    margin : float
        Relative: stop a trial only if it is worse than the best by more than this.
    alpha : float
        Error budget of the whole study: bound on the summed probabilities of the stopped trials to beat the best.
    min_references : int
        Fewer complete references than this and a trial is not judged.
    mode : {"act", "shadow", "audit"}
        ``"shadow"`` decides and logs but stops nothing. ``"audit"`` is ``"act"`` with ``audit=0.05`` if that is not given.
    audit : float
        This share of the trials that would be stopped goes on to the end. When they contradict the forecasts, a warning
        is given and no trial is stopped by forecast any more.
    transform : {"log", "log1m", "identity"} or None
        Scale on which curves are compared. None: the log for positive losses, the log of 1 − x for maximised values in
        [0, 1), else the value itself.
    log : path or None
        JSONL file to which decisions are appended.
    stop_diverging : bool
        Stop a trial whose value rose far above its own best and stayed there. False where values rise and come back by
        nature (adversarial training, rewards): such a trial is then judged by its forecast, or not at all.

    Raises
    ------
    ValueError
        An argument outside its range, or a model of several metrics.

    Notes
    -----
    A restarted process comes to the same decisions, because everything follows from the finished trials; see
    :class:`hpo.adapters.optuna_view.StudyView`. What only the old process knew is lost: trials that it had told to stop but
    were not yet PRUNED, and its audit.
    """

    def __init__(
        self,
        model: CollapseModel | str | Path | None = None,
        *,
        total_steps: TotalSteps = None,
        recipe: RecipeOf | None = None,
        family: FamilyOf | None = None,
        min_fraction: float = 0.1,
        margin: float = 0.0,
        alpha: float = 0.05,
        min_references: int = 3,
        mode: Mode = "act",
        audit: float = 0.0,
        transform: Kind | None = None,
        log: str | Path | None = None,
        stop_diverging: bool = True,
    ) -> None:
        self._settings = StoppingSettings(min_fraction, alpha, margin, min_references)
        self._reader = TrialReader(
            _checked_steps(total_steps), _checked_callable("recipe", recipe), _checked_callable("family", family)
        )
        self._model = _checked_model(read_model(Path(model)) if isinstance(model, str | Path) else model, transform)
        if mode not in ("act", "shadow", "audit"):
            raise ValueError(f"mode must be act, shadow or audit; found {mode!r}")
        if not (isinstance(audit, int | float) and 0 <= audit < 1):
            raise ValueError(f"audit must be in [0, 1); found {audit!r}")
        if transform is not None and transform not in KINDS:
            raise ValueError(f"transform must be log, log1m, identity or None; found {transform!r}")
        if not isinstance(stop_diverging, bool):
            raise ValueError(f"stop_diverging must be True or False; found {stop_diverging!r}")
        if log is not None and not isinstance(log, str | PathLike):
            raise ValueError(f"log must be the path of a file or None; found {log!r}")
        self._mode: Mode = mode
        self._audit_share = 0.05 if mode == "audit" and audit == 0 else float(audit)
        self._transform = transform
        self._stop_diverging = stop_diverging
        self._log = DecisionLog(log)
        self._by_hand = Orders()
        self._start()

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Return True if the trial should stop now; False on anything that cannot be judged."""
        if len(study.directions) != 1:
            return self._answer(study, _not_judged(trial, "multi_objective"))
        if not trial.intermediate_values:
            return self._answer(study, _not_judged(trial, "no_reports"))
        view = self.view_of(study)
        with view.lock, one_blas_thread, np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # values may be 1e300
            try:
                return self._answer(study, self._decide(view, study, trial))
            except FunctionError as failure:
                self._reader.complain(failure)
                record = on_values_alone(trial, "function_failed", str(failure))
            except Exception as error:  # noqa: BLE001 - a fault of ours must not end somebody's study
                view.complain(error, trial)
                record = on_values_alone(trial, "failed", f"{type(error).__name__}: {error}")
            return self._answer(study, self._overrule(view, study, record))

    def decision(self, trial_number: int, study: Study | None = None) -> TrialDecision | None:
        """Return the last decision about a trial in this process, None if there was none.

        Parameters
        ----------
        study : Study, optional
            Needed only where one pruner serves several studies; default: the one it served last.
        """
        name = self._last_study if study is None else study.study_name
        return self._decisions.get((name, trial_number))

    def keep(self, trial_number: int, study: Study | None = None) -> None:
        """Let a trial go on whatever its forecast; only a non-finite value still stops it.

        Parameters
        ----------
        study : Study, optional
            Needed only where one pruner serves several studies.

        Raises
        ------
        ValueError
            The trial number is not one, or the pruner serves several studies, and none is given.
        """
        self._by_hand.give("keep", trial_number, None if study is None else study.study_name, self._served)

    def stop(self, trial_number: int, study: Study | None = None) -> None:
        """Stop a trial at its next report, in shadow mode as well; ``study`` and errors as for :meth:`keep`."""
        self._by_hand.give("stop", trial_number, None if study is None else study.study_name, self._served)

    def horizon(self, study: Study, trial: AnyTrial) -> float | None:
        """Return the last step of a full run of this trial, None while it is unknown."""
        view = self.view_of(study)
        with view.lock:
            return view.horizon_if_known(trial)

    def view_of(self, study: Study) -> StudyView:
        """Return what this process knows of a study with one objective; the pruner's decisions follow from it."""
        view = self._views.get(study)
        if view is None:
            sign = -1.0 if study.direction == StudyDirection.MAXIMIZE else 1.0
            made = StudyView(
                sign,
                self._reader,
                self._settings,
                self._model,
                self._transform,
                audit=Audit(self._audit_share),
                counts_would_be_stops=self._mode == "shadow",
                stops_diverging=self._stop_diverging,
                said_at_stop=self._said_at_stop,
            )
            view = self._views.setdefault(study, made)
        return view

    def describe(self) -> dict[str, Any]:
        """Return the settings that decide, JSON-ready; functions and models by their kind."""
        return {
            "min_fraction": self._settings.min_fraction,
            "margin": self._settings.margin,
            "alpha": self._settings.alpha,
            "min_references": self._settings.min_references,
            "mode": self._mode,
            "transform": self._transform,
            "stop_diverging": self._stop_diverging,
            "references_given": 0 if self._model is None else len(self._model.references),
        }

    def _start(self) -> None:
        self._views: WeakKeyDictionary[Study, StudyView] = WeakKeyDictionary()
        self._decisions: dict[tuple[str, int], TrialDecision] = {}
        self._last_study = ""
        self._served: set[str] = set()

    def __getstate__(self) -> dict[str, Any]:
        transient = {"_views", "_decisions", "_last_study", "_served"}
        return {key: value for key, value in self.__dict__.items() if key not in transient}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def _decide(self, view: StudyView, study: Study, trial: FrozenTrial) -> TrialDecision:
        """Return the decision for a trial with reports, reading the study where it is due."""
        follower = view.follow(trial)
        if self._is_look_due(follower):
            view.refresh(study)
            follower = view.follow(trial)
        before = follower.judged
        record = self._judge(view, follower, trial)
        is_confirmed = before is not None and before is follower.judged
        if record.reason == "cannot_win" and not is_confirmed and view.refresh(study):
            record = self._judge(view, view.follow(trial), trial)
        return self._overrule(view, study, record)

    def _is_look_due(self, follower: Follower) -> bool:
        """Return True if the study should be read again before this trial is judged; moves the next time on."""
        n, horizon = follower.n_taken, follower.horizon
        if horizon is None:
            due = n >= follower.next_look_count
            follower.next_look_count = 2 * n if due else follower.next_look_count
            return due
        fraction = follower.furthest / horizon
        due = fraction >= max(follower.next_look_fraction, self._settings.min_fraction) - 1e-9
        follower.next_look_fraction = LOOK_AGAIN * fraction if due else follower.next_look_fraction
        return due

    def _judge(self, view: StudyView, follower: Follower, trial: FrozenTrial) -> TrialDecision:
        """Return what the rule says, from what the view knows."""
        curve = view.curve_of(trial, follower)
        place = view.version, _bin_of(curve)
        if follower.judged is not None and follower.judged[:2] == place and check_values(curve) is None:
            return follower.judged[2]
        spent = view.spent_without(trial.number)
        decision = view.judge(curve, spent, partial(self._running_rivals, view, trial), self._n_open())
        record = record_of(
            decision,
            view.scale,
            trial=trial.number,
            step=int(curve.last_step),
            detail=_detail(view, trial, decision.reason),
            incumbent=view.incumbent,
            error_spent=spent,
        )
        follower.judged = (*place, record)
        return record

    def _running_rivals(self, view: StudyView, trial: FrozenTrial) -> Sequence[Curve]:
        """Return the running trials that a trial is compared with: none here, as a study does not tell who still runs."""
        del view, trial
        return ()

    def _n_open(self) -> int | None:
        """Return how many trials may still be stopped: nobody knows, as a study may go on for ever."""
        return None

    def _said_at_stop(self, trial: FrozenTrial) -> float | None:
        """Return the P(best) of a PRUNED trial that says it was stopped by its forecast (:func:`hpo.finish`)."""
        said = trial.user_attrs
        stated = said.get("p_best") if said.get("reason") == "cannot_win" else None
        return stated if isinstance(stated, float) and 0.0 <= stated <= self._settings.alpha else None

    def _overrule(self, view: StudyView, study: Study, record: TrialDecision) -> TrialDecision:
        """Return the answer: the rule's, unless a person, the audit or shadow mode says otherwise."""
        number, hand = record.trial, self._by_hand.about(study.study_name, record.trial)
        if hand == "stop":
            return _changed(record, "stopped_by_hand", pruned=True)
        if record.action != "stop" or (hand == "keep" and record.reason != "non_finite"):
            return _changed(record, "kept_by_hand", pruned=False) if hand == "keep" else record
        if record.reason == "cannot_win":
            view.pending.setdefault(number, record.p_best or 0.0)
            if view.is_suspended:
                return _changed(record, "suspended", pruned=False)
            if number in view.audit.claims or view.audit.chooses(study.study_name, number):
                view.audit.claims.setdefault(number, _claim(view, record))
                return _changed(record, "audited", pruned=False)
        return replace(record, pruned=self._mode != "shadow")

    def _answer(self, study: Study, record: TrialDecision) -> bool:
        """Keep and log a decision; return its answer."""
        self._last_study = study.study_name
        self._served.add(self._last_study)
        self._decisions[self._last_study, record.trial] = record
        self._log.write(self._last_study, record)
        return record.pruned


def _detail(view: StudyView, trial: FrozenTrial, reason: str) -> str:
    """Return what there is to say of a trial's length where that is why it is not judged; "" otherwise."""
    if reason == "unknown_horizon":
        return view.horizon_of(trial)[1]
    return view.doubt_about(trial) if reason in ("no_references", "too_few_references") else ""


def _bin_of(curve: Curve) -> int:
    fraction = curve.fraction_seen
    return -curve.n_points if fraction is None else int(min(100 * fraction + 1e-9, 1e9))


def _changed(record: TrialDecision, reason: str, pruned: bool) -> TrialDecision:
    return replace(record, reason=reason, detail=PRUNER_REASONS[reason], pruned=pruned)


def _claim(view: StudyView, record: TrialDecision) -> Claim:
    ends = [view.scale.level(x) for x in (record.lower, record.upper) if x is not None]
    best = float("inf") if view.best_level is None else view.best_level
    return Claim(record.p_best or 0.0, best, min(ends, default=float("-inf")))


def _not_judged(trial: FrozenTrial, reason: str, detail: str = "") -> TrialDecision:
    return TrialDecision(trial.number, _last_step(trial), "continue", False, reason, detail or PRUNER_REASONS[reason])


def on_values_alone(trial: FrozenTrial, reason: str, failure: str) -> TrialDecision:
    """Return the decision about a trial that cannot be judged for want of an answer: only a non-finite value stops it."""
    if all(isfinite(value) for value in trial.intermediate_values.values()):
        return _not_judged(trial, reason, failure)
    return TrialDecision(trial.number, _last_step(trial), "stop", True, "non_finite", REASONS["non_finite"])


def _last_step(trial: FrozenTrial) -> int | None:
    return max(trial.intermediate_values, default=None)


def _checked_steps(total_steps: TotalSteps) -> TotalSteps:
    if total_steps is None or callable(total_steps):
        return total_steps
    is_number = isinstance(total_steps, int | float | np.integer | np.floating) and not isinstance(total_steps, bool)
    if not (is_number and 1 <= total_steps < float("inf")):
        raise ValueError(f"total_steps must be at least 1, a function of the trial, or None; found {total_steps!r}")
    return total_steps


def _checked_callable(name: str, given: Any) -> Any:
    if given is not None and not callable(given):
        raise ValueError(f"{name} must be a function of the trial or None; found {given!r}")
    return given


def _checked_model(model: CollapseModel | None, transform: str | None) -> CollapseModel | None:
    """Return the model if a study can use it."""
    if model is None:
        return None
    if not isinstance(model, CollapseModel):
        raise ValueError(f"model must be a CollapseModel, the path of its file, or None; found {model!r}")
    metrics = {r.metric for r in model.references}
    if len(metrics) > 1:
        names = ", ".join(sorted(m.name for m in metrics))
        raise ValueError(f"model must have references of one metric; found {names}: fit it on one of them")
    if transform is not None and metrics:
        raise ValueError(f"transform must be None with a model, whose metric has its own; found {transform!r}")
    return model
