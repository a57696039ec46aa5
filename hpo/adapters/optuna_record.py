"""What the pruner decided about a trial and why: a record, and the log it is written to."""

from __future__ import annotations

import json
import threading
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpo.adapters.optuna_scale import Scale, jsonable
from hpo.core.decision import REASONS, Decision

PRUNER_REASONS = {
    "no_reports": "nothing was reported yet",
    "multi_objective": "the study has several objectives; a pruner cannot rank its trials",
    "kept_by_hand": "kept by hand, whatever its forecast",
    "stopped_by_hand": "stopped by hand",
    "audited": "its forecast says stop; it goes on to check the forecasts",
    "suspended": "its forecast says stop; audited trials contradicted the forecasts, so none is stopped",
    "function_failed": "a function given to the pruner does not answer for this trial",
    "no_fit": "the alignment failed numerically",
    "failed": "the pruner itself failed on this trial",
}
"""Reasons besides those of :data:`hpo.core.decision.REASONS`."""


@dataclass(frozen=True)
class TrialDecision:
    """One decision about one trial; values are in the study's own terms.

    Attributes
    ----------
    trial : int
        Trial number.
    step : int or None
        Last step reported.
    action : str
        What the rule says: ``"stop"`` or ``"continue"``.
    pruned : bool
        What the pruner answered: False in shadow mode and for audited trials whatever ``action`` says.
    reason, detail : str
        Code and text.
    fraction : float or None
        Share of training done.
    forecast, lower, upper : float or None
        Forecast final value and its 90 % interval.
    incumbent : float or None
        Best final value of the study so far.
    p_best, allowed : float or None
        Probability that the trial ends better than the incumbent, and the largest at which it is stopped.
    family : str or None
        References it was compared with, in words; ``n_references`` of them.
    misfit : float or None
        How far the trial leaves its family's curve, in standard deviations; about 1 is normal.
    error_spent : float
        Of the study's error budget, by the trials stopped so far, this one not counted.
    """

    trial: int
    step: int | None
    action: str
    pruned: bool
    reason: str
    detail: str
    fraction: float | None = None
    forecast: float | None = None
    lower: float | None = None
    upper: float | None = None
    incumbent: float | None = None
    p_best: float | None = None
    allowed: float | None = None
    family: str | None = None
    n_references: int | None = None
    misfit: float | None = None
    error_spent: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {key: jsonable(value) for key, value in asdict(self).items()}

    def attributes(self) -> dict[str, Any]:
        """Return what a stopped trial's user attributes say of the decision, JSON-ready."""
        said = {
            "predicted_final": self.forecast,
            "predicted_lower": self.lower,
            "predicted_upper": self.upper,
            "stopped_at": self.step,
            "stopped_fraction": self.fraction,
            "p_best": self.p_best,
            "reason": self.reason,
            "reason_text": self.detail,
        }
        return {key: jsonable(value) for key, value in said.items()}


def record_of(
    decision: Decision, scale: Scale, *, trial: int, step: int | None, detail: str = "", **about: Any
) -> TrialDecision:
    """Return the record of a core decision, its numbers turned back into the study's."""
    numbers = decision.numbers
    lower, upper = scale.interval(_real(numbers, "lower"), _real(numbers, "upper"))
    fields: dict[str, Any] = {
        "forecast": scale.to_study(_real(numbers, "forecast")),
        "lower": lower,
        "upper": upper,
        **{name: numbers.get(name) for name in ("fraction", "p_best", "allowed", "family", "n_references", "misfit")},
    }
    text = detail or REASONS.get(decision.reason) or PRUNER_REASONS.get(decision.reason, decision.reason)
    stops = decision.action == "stop"
    return TrialDecision(
        **{"trial": trial, "step": step, "action": decision.action, "pruned": stops, "reason": decision.reason, "detail": text}
        | fields
        | about
    )


class DecisionLog:
    """Appends decisions to a JSONL file, one line at a time; several processes may share the file.

    A trial's decision is written when it differs from its last in action, reason or answer. A file that cannot be written is
    given up with one warning: a log never stops a study.
    """

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else Path(path)
        self._lock = threading.Lock()
        self._last: dict[tuple[str, int], tuple[str, str, bool]] = {}

    def write(self, study: str, record: TrialDecision) -> None:
        """Append a decision if it says something new."""
        said = (record.action, record.reason, record.pruned)
        with self._lock:
            if self.path is None or self._last.get((study, record.trial)) == said:
                return
            self._last[study, record.trial] = said
            line = json.dumps({"study": study, **record.to_dict()}, allow_nan=False) + "\n"
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(line)
            except OSError as error:
                warnings.warn(f"decisions are no longer logged: {error}", RuntimeWarning, stacklevel=2)
                self.path = None

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"])  # type: ignore[misc]


def _real(numbers: dict[str, Any], name: str) -> float | None:
    value = numbers.get(name)
    return None if value is None else float(value)
