"""What a study's trials look like to its pruner: normalised curves, forecasts, and the band of the references.

All of it follows from what a study holds: reports, values, and the attributes that :func:`hpo.finish` leaves in a stopped
trial. A live pruner adds the references it was given and the forecasts of running trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from math import isfinite
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from hpo.adapters.optuna_live import pruner_of
from hpo.adapters.optuna_pruner import CollapsePruner
from hpo.adapters.optuna_scale import Scale
from hpo.adapters.optuna_trials import is_feasible, sorted_reports
from hpo.adapters.optuna_view import UNLABELLED, StudyView
from hpo.core.references import Family, Reference, families_of, is_reference
from hpo.core.shape import NODES, ShapeSettings

FloatArray = NDArray[np.float64]
Kind = Literal["finished", "stopped", "running", "unjudged"]
QUANTILES_FROM = 20
"""References from which a band holds their middle 90 %; it holds all of fewer."""
MAX_REFERENCES = 256
"""Newest finished trials that a band is made of."""
_SHOWN_PARAMS = 6


@dataclass(frozen=True)
class TrialLine:
    """One trial as it is drawn; values are in the study's own terms.

    Attributes
    ----------
    kind : {"finished", "stopped", "running", "unjudged"}
        "stopped" and "running" trials have a forecast; "unjudged" ones were stopped without.
    fractions, normalised : ndarray, shape (n_reports,)
        t̂, and the reports against the final value (see :func:`normalised`); empty where horizon or final value is unknown.
    final : float
        Final value, its forecast, or the last report of an unjudged trial.
    lower, upper : float or None
        The forecast's 90 % interval.
    text : str
        What is said of the trial on hovering, in HTML.
    is_feasible : bool
        False for a trial that breaks a constraint: it is never the best.
    """

    number: int
    kind: Kind
    fractions: FloatArray = field(repr=False)
    normalised: FloatArray = field(repr=False)
    steps: FloatArray = field(repr=False)
    final: float = float("nan")
    lower: float | None = None
    upper: float | None = None
    text: str = ""
    is_feasible: bool = True


@dataclass(frozen=True)
class Band:
    """References of one family: t̂ and the normalised values between which they lie, shape (n_nodes,) each."""

    name: str
    n_references: int
    fractions: FloatArray = field(repr=False)
    low: FloatArray = field(repr=False)
    high: FloatArray = field(repr=False)


@dataclass(frozen=True)
class StudyLines:
    """A study as it is drawn: trials by number, those with nothing to draw left out; bands; words of the normalised axis."""

    lines: tuple[TrialLine, ...]
    bands: tuple[Band, ...]
    axis: str
    n_trials: int
    n_stopped: int


def study_lines(study: Study, pruner: CollapsePruner | None = None) -> StudyLines:
    """Return what there is to draw of a study.

    Raises
    ------
    ValueError
        ``study`` is no study, or has several objectives.
    """
    if not isinstance(study, Study):
        raise ValueError(f"study must be an Optuna study; found {study!r:.80}")
    if len(study.directions) != 1:
        raise ValueError(f"study must have one objective; found {len(study.directions)}")
    if pruner is None:
        pruner = pruner_of(study) or CollapsePruner()
    view = pruner.view_of(study)
    with view.lock:
        view.refresh(study)
        trials = study.get_trials(deepcopy=False)
        n_stopped = sum(t.state == TrialState.PRUNED for t in trials)
        found = (_line(view, t, pruner, study) for t in trials)
        drawn = tuple(x for x in found if x is not None)
        return StudyLines(drawn, _bands(view, trials), _axis_of(view.scale), len(trials), n_stopped)


def normalised(scale: Scale, levels: FloatArray, end: float) -> FloatArray:
    """Return model-scale levels against the level ``end``: their ratio where the scale is a log, else their distance."""
    away = levels - end
    return np.asarray(away / abs(scale.factor) if scale.kind == "identity" else np.exp(away), dtype=np.float64)


def _axis_of(scale: Scale) -> str:
    return {
        "log": "value ÷ final value (no unit)",
        "log1m": "(1 − value) ÷ (1 − final value) (no unit)",
        "identity": "distance from the final value (units of the objective)",
    }[scale.kind]


def _line(view: StudyView, trial: FrozenTrial, pruner: CollapsePruner, study: Study) -> TrialLine | None:
    """Return a trial as it is drawn; None if there is nothing to draw."""
    said = _said_of(trial, pruner, study)
    kind, final = _kind_and_final(trial, said)
    if kind is None or not isfinite(final):
        return None
    steps, losses = sorted_reports(trial.intermediate_values, view.scale)
    horizon = view.horizon_if_known(trial) or _horizon_from(said)
    fractions = rows = np.empty(0)
    if kind != "unjudged" and horizon is not None:
        levels = view.scale.metric.to_model(losses)
        level = view.final_level(trial) if kind == "finished" else view.scale.level(final)
        fractions, rows = steps / horizon, normalised(view.scale, levels, level)
    lower, upper = (_number(said.get(f"predicted_{end}")) if kind != "finished" else None for end in ("lower", "upper"))
    text, may_win = _text(trial, kind, final, said), is_feasible(trial)
    return TrialLine(trial.number, kind, fractions, rows, steps, final, lower, upper, text, may_win)


def _said_of(trial: FrozenTrial, pruner: CollapsePruner, study: Study) -> dict[str, Any]:
    """Return a trial's attributes; of a running one, or one stopped without `finish`, what its pruner says now."""
    said = dict(trial.user_attrs)
    if trial.state == TrialState.COMPLETE or "predicted_final" in said:
        return said
    decision = pruner.decision(trial.number, study)
    return said if decision is None else {**said, **decision.attributes()}


def _kind_and_final(trial: FrozenTrial, said: dict[str, Any]) -> tuple[Kind | None, float]:
    forecast = _number(said.get("predicted_final"))
    if trial.state == TrialState.COMPLETE:
        return "finished", float("nan") if trial.value is None else trial.value
    if trial.state == TrialState.RUNNING:
        return ("running", forecast) if forecast is not None else (None, float("nan"))
    if trial.state != TrialState.PRUNED:
        return None, float("nan")
    if forecast is not None:
        return "stopped", forecast
    reports = [trial.intermediate_values[s] for s in sorted(trial.intermediate_values)]
    return "unjudged", next((v for v in reversed(reports) if isfinite(v)), float("nan"))


def _horizon_from(said: dict[str, Any]) -> float | None:
    """Return the horizon that follows from where a trial was stopped."""
    step, fraction = _number(said.get("stopped_at")), _number(said.get("stopped_fraction"))
    return step / fraction if step and fraction else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and isfinite(value) else None


def _text(trial: FrozenTrial, kind: Kind, final: float, said: dict[str, Any]) -> str:
    heads = {"finished": "finished", "stopped": "stopped", "running": "running", "unjudged": "stopped without a forecast"}
    at, fraction = _number(said.get("stopped_at")), _number(said.get("stopped_fraction"))
    where = (
        "" if at is None or kind == "finished" else f" at step {at:.0f}" + ("" if fraction is None else f" ({fraction:.0%})")
    )
    parts = [f"<b>trial {trial.number}</b>: {heads[kind]}{where}"]
    lower, upper = _number(said.get("predicted_lower")), _number(said.get("predicted_upper"))
    if kind in ("stopped", "running"):
        parts.append(
            f"forecast {final:.6g}" + ("" if lower is None or upper is None else f", 90 %: {lower:.6g} to {upper:.6g}")
        )
        p_best = _number(said.get("p_best"))
        parts += [] if p_best is None else [f"P(best) {p_best:.2g}"]
    else:
        parts.append(f"{'value' if kind == 'finished' else 'last value'} {final:.6g}")
    reason = said.get("reason_text") if kind != "finished" else None
    parts += [escape(str(reason))] if reason else []
    parts += [] if is_feasible(trial) else ["breaks a constraint"]
    params = list(trial.params.items())
    parts += [escape(f"{k} = {v:.6g}" if isinstance(v, float) else f"{k} = {v}") for k, v in params[:_SHOWN_PARAMS]]
    return "<br>".join([*parts, *(["…"] if len(params) > _SHOWN_PARAMS else [])])


def _bands(view: StudyView, trials: Sequence[FrozenTrial]) -> tuple[Band, ...]:
    """Return the bands of the references given and of the study's own finished trials, by family label and schedule."""
    finished = [t for t in trials if t.state == TrialState.COMPLETE][-MAX_REFERENCES:]
    curves = (view.finished_curve(t) for t in finished)
    own = [Reference.of(c) for c in curves if c is not None and is_reference(c)]
    families = families_of([*view.given, *own], ShapeSettings(mean="none"))
    found = (_band(view.scale, family) for family in families)
    return tuple(b for b in found if b is not None)


def _band(scale: Scale, family: Family) -> Band | None:
    """Return the band of a family's references; None where fewer than two were logged at once."""
    rows = np.stack([r.residuals for r in family.references])
    known = np.sum(np.isfinite(rows), axis=0) >= min(2, len(rows))
    if len(rows) < 2 or not known.any():
        return None
    ends = (5.0, 95.0) if len(rows) >= QUANTILES_FROM else (0.0, 100.0)
    low, high = np.nanpercentile(rows[:, known], ends, axis=0)
    t = np.append(NODES[known], 1.0)
    around = (normalised(scale, np.append(edge, 0.0), 0.0) for edge in (low, high))
    unsaid = ("no schedule", UNLABELLED)
    words = [word for word in family.name.split(" · ") if word not in unsaid and not word.startswith("objective_")]
    return Band(" · ".join(words) or "this study", len(rows), t, *around)
