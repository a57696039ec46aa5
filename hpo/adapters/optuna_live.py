"""Helpers for code that holds a live trial or study: report and stop in one call, leave the forecast in a stopped trial.

A pruner must not write to the study; these functions may, because they hold the objects whose caches they would change.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import isfinite
from typing import Any, SupportsFloat
from weakref import WeakKeyDictionary, WeakSet

import optuna
from optuna.study import Study
from optuna.trial import FixedTrial, FrozenTrial, Trial

from hpo.adapters.optuna_pruner import CollapsePruner

MARK = "collapse_pruner"
"""User attribute of a study under which :func:`attach` and :func:`report` leave the pruner's settings."""
MAX_POINTS = 200
_DENSE = 100  # points stored one by one while the horizon is unknown; then each a tenth further on


def attach(study: Study, pruner: CollapsePruner) -> Study:
    """Set ``pruner`` on a study that was loaded, and return the study.

    Optuna does not store pruners: ``load_study`` without ``pruner=`` gives a ``MedianPruner``. The pruner's settings are
    written to the study's user attributes, so that :func:`report` notices when somebody loads the study without it.

    Warns
    -----
    UserWarning
        The study was made with other settings, or with another pruner.

    Raises
    ------
    ValueError
        ``study`` is no study, ``pruner`` is not a :class:`CollapsePruner`, or the study has several objectives.
    """
    if not isinstance(pruner, CollapsePruner):
        raise ValueError(f"pruner must be a CollapsePruner; found {type(pruner).__name__}")
    if not isinstance(study, Study):
        raise ValueError(f"study must be an Optuna study; found {study!r:.80}")
    if len(study.directions) != 1:
        raise ValueError(f"study must have one objective, because a pruner cannot rank trials by {len(study.directions)}")
    other = _made_with_another(study, pruner)
    study.pruner = pruner
    study.set_user_attr(MARK, pruner.describe())
    _marked.add(study)
    if other:
        warnings.warn(f"study {study.study_name!r} {other}; from now on CollapsePruner decides", UserWarning, stacklevel=2)
    return study


def report(trial: Trial, step: int, loss: float, tokens: float | None = None) -> None:
    """Report a value, store at most 200 points a trial, and raise ``optuna.TrialPruned`` if the trial should stop.

    Parameters
    ----------
    trial : Trial
    step : int
        Not negative, increasing; a step not beyond the last is ignored.
    loss : float
        The value at that step. Stored is the mean of what came since the last stored point; a NaN or infinite value is
        stored at once.
    tokens : float, optional
        Training tokens so far. The tokens of a batch that follow from it are written to the trial (``batch_tokens``), where
        the recipe finds them.

    Raises
    ------
    optuna.TrialPruned
        The study's pruner stops the trial; its forecast is then in the trial's user attributes (:func:`finish`).
    ValueError
        ``trial`` is no trial, ``step`` no whole number, or ``loss`` no number.

    Notes
    -----
    With a ``FixedTrial`` or a finished trial, as objectives are tried and repeated with, nothing is stored and nothing stops.
    """
    step, value = _step(step), _number("loss", loss)
    if not _is_live(trial):
        return
    _note_pruner(trial.study)
    thinner = _thinners.get(trial)
    if thinner is None:
        thinner = _thinners[trial] = Thinner()
    if tokens is not None and step > 0 and thinner.last_step is None and "batch_tokens" not in trial.user_attrs:
        trial.set_user_attr("batch_tokens", tokens / step)
    if thinner.horizon is None:
        thinner.horizon = _horizon(trial)
    stored = thinner.take(step, value)
    if stored is None:
        return
    trial.report(stored, step)
    if trial.should_prune():
        finish(trial)
        raise optuna.TrialPruned(f"stopped at step {step}: {trial.user_attrs.get('reason_text', 'by the pruner')}")


def finish(trial: Trial) -> None:
    """Write the forecast of a trial that is being stopped to its user attributes.

    Call it after ``trial.should_prune()`` said True and before raising ``TrialPruned``; :func:`report` does. Written are
    ``predicted_final`` (None if it was stopped without a forecast), ``predicted_lower``, ``predicted_upper``, ``stopped_at``
    (step), ``stopped_fraction``, ``p_best``, ``reason`` and ``reason_text``. Nothing is written where the pruner did not
    stop the trial.

    Raises
    ------
    ValueError
        ``trial`` is no trial.
    """
    if not _is_live(trial):
        return
    study = trial.study
    pruner = pruner_of(study)
    decision = None if pruner is None else pruner.decision(trial.number, study)
    if decision is None or not decision.pruned:
        return
    for key, value in decision.attributes().items():
        trial.set_user_attr(key, value)


def pruner_of(study: Study) -> CollapsePruner | None:
    """Return the study's pruner, also one inside Optuna's ``PatientPruner``; None if it is another."""
    pruner = getattr(study.pruner, "_wrapped_pruner", study.pruner)
    return pruner if isinstance(pruner, CollapsePruner) else None


def _is_live(trial: Any) -> bool:
    """Return False for a trial that an objective is tried or repeated with: it has no study to report to."""
    if isinstance(trial, FixedTrial | FrozenTrial):
        return False
    if not isinstance(getattr(trial, "study", None), Study):
        raise ValueError(f"trial must be a live Optuna trial, as an objective is given; found {trial!r:.80}")
    return True


@dataclass
class Thinner:
    """Decides which reports of one trial are stored: at most about 200, evenly over the horizon where it is known."""

    horizon: float | None = None
    last_step: int | None = None
    stored_step: int | None = None
    n_stored: int = 0
    total: float = 0.0
    count: int = 0

    def take(self, step: int, value: float) -> float | None:
        """Return the value to store at this step, None if none is."""
        if self.last_step is not None and step <= self.last_step:
            return None
        self.last_step = step
        if not isfinite(value):
            return value
        self.total, self.count = self.total + value, self.count + 1
        if not self._is_due(step):
            return None
        mean = self.total / self.count
        self.stored_step, self.n_stored, self.total, self.count = step, self.n_stored + 1, 0.0, 0
        return mean

    def _is_due(self, step: int) -> bool:
        if self.stored_step is None:
            return True
        if self.horizon is None:
            return self.n_stored < _DENSE or step >= 1.1 * self.stored_step
        width = self.horizon / (MAX_POINTS - 2)
        return width <= 1 or step // width > self.stored_step // width or step == self.horizon


_thinners: WeakKeyDictionary[Trial, Thinner] = WeakKeyDictionary()
_marked: WeakSet[Study] = WeakSet()


def _step(given: SupportsFloat) -> int:
    """Return a step as Optuna takes it: whole."""
    step = _number("step", given)
    if not isfinite(step) or step != int(step):
        raise ValueError(f"step must be a whole number, as Optuna stores it (batches, not parts of epochs); found {given!r}")
    return int(step)


def _number(name: str, given: SupportsFloat) -> float:
    try:
        return float(given)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number; found {given!r}") from None


def _horizon(trial: Trial) -> float | None:
    pruner = pruner_of(trial.study)
    return None if pruner is None else pruner.horizon(trial.study, trial)


def _note_pruner(study: Study) -> None:
    """Once for each study object: leave the pruner's settings in the study, or warn that they are there without it."""
    if study in _marked:
        return
    _marked.add(study)
    mark = study.user_attrs.get(MARK)
    if isinstance(study.pruner, CollapsePruner):
        if mark is None:
            study.set_user_attr(MARK, study.pruner.describe())
    elif mark is not None:
        warnings.warn(
            f"study {study.study_name!r} was made with CollapsePruner but was loaded without it, so that "
            f"{type(study.pruner).__name__} decides: call hpo.attach(study, pruner)",
            UserWarning,
            stacklevel=3,
        )


def _made_with_another(study: Study, pruner: CollapsePruner) -> str:
    """Say with what else a study was made; empty if with nothing else that can be seen."""
    mark, settings = study.user_attrs.get(MARK), pruner.describe()
    if mark is not None:
        changed = [f"{k}={mark.get(k)!r}" for k, v in settings.items() if mark.get(k, v) != v]
        return f"was made with CollapsePruner({', '.join(changed)})" if changed else ""
    current = type(study.pruner).__name__
    if not isinstance(study.pruner, CollapsePruner | optuna.pruners.MedianPruner | optuna.pruners.NopPruner):
        return f"was made with {current}"
    n_pruned = len(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.PRUNED,)))
    if n_pruned and not isinstance(study.pruner, CollapsePruner):
        return f"has {n_pruned} pruned trials and no mark of this pruner (attach it before the first trial to leave one)"
    return ""
