"""What other stopping points would have given: regret and forecast error at each fraction of training.

The candidates that were trained to their end (all of them after ``--verify``) are cut at each fraction and forecast from the
model of the proxies, as the sweep would have done there. Nothing of a run after the cut is used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpo.adapters.curve_files import RecordedRun
from hpo.core.curve import Curve
from hpo.core.model import CollapseModel
from hpo.reporting.sweep_files import SweepRecord, TrialRecord

FRACTIONS = (0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MAX_TRIALS = 64
"""Of more finished candidates, so many are looked at: the best ones, because regret and error matter there."""


@dataclass(frozen=True)
class StoppingPoint:
    """One fraction.

    Attributes
    ----------
    n_judged : int
        Finished candidates that had a forecast there.
    error_pct, bias_pct : float
        Mean absolute and mean signed error of their forecasts.
    apart_pct : float or None
        Mean absolute error once what all forecasts share is taken off: what bears on the choice; None with fewer than two.
    covered : float
        Share of their final losses inside the 90 % intervals.
    regret_pct, current_best_regret_pct : float or None
        Of the lowest forecast, and of the lowest loss so far; None with fewer than two candidates.
    """

    fraction: float
    n_judged: int
    error_pct: float
    bias_pct: float
    apart_pct: float | None
    covered: float
    regret_pct: float | None
    current_best_regret_pct: float | None


def stopping_points(sweep: SweepRecord) -> list[StoppingPoint]:
    """Return a point for each of :data:`FRACTIONS` at which at least one finished candidate can be forecast."""
    if sweep.model is None or not sweep.model.references:
        return []
    finished = [t for t in sweep.trials if t.final_loss is not None and t.run is not None and t.run.horizon is not None]
    finished = sorted(finished, key=lambda t: t.final_loss or 0.0)[:MAX_TRIALS]
    model = CollapseModel(sweep.model.references, replace(sweep.model.settings, n_draws=1))
    fractions = sorted({*FRACTIONS, sweep.at})
    points = [_point(model, finished, fraction) for fraction in fractions] if finished else []
    return [point for point in points if point is not None]


def _point(model: CollapseModel, trials: Sequence[TrialRecord], fraction: float) -> StoppingPoint | None:
    curves = [trial.run.curve(_until(trial.run, fraction)) for trial in trials if trial.run is not None]
    forecasts = model.forecast_many(curves, np.random.default_rng(0)).forecasts
    judged = [
        (float(trial.final_loss or 0.0), forecast, curve)
        for trial, forecast, curve in zip(trials, forecasts, curves, strict=True)
        if forecast.status == "ok" and forecast.final_loss is not None
    ]
    if not judged:
        return None
    finals = np.array([final for final, _, _ in judged])
    forecast_losses = np.array([float(f.final_loss or 0.0) for _, f, _ in judged])
    errors = 100 * (forecast_losses - finals) / np.abs(finals)
    inside = [(f.lower or -math.inf) <= final <= (f.upper or math.inf) for final, f, _ in judged]
    many = len(judged) > 1
    return StoppingPoint(
        fraction=fraction,
        n_judged=len(judged),
        error_pct=float(np.mean(np.abs(errors))),
        bias_pct=float(np.mean(errors)),
        apart_pct=float(np.mean(np.abs(errors - errors.mean()))) if many else None,
        covered=float(np.mean(inside)),
        regret_pct=_regret(finals, forecast_losses) if many else None,
        current_best_regret_pct=_regret(finals, np.array([_so_far(curve) for _, _, curve in judged])) if many else None,
    )


def _until(run: RecordedRun, fraction: float) -> float:
    """Return a share of training up to the nearest whole step, where a sweep judges its candidates."""
    return fraction if run.horizon is None else min(1.0, (round(fraction * run.horizon) + 1e-6) / run.horizon)


def _so_far(curve: Curve) -> float:
    return math.inf if curve.nonfinite_step is not None else curve.current_value


def _regret(finals: np.ndarray[Any, np.dtype[np.float64]], score: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    best = float(finals.min())
    return 100 * (float(finals[int(np.argmin(score))]) - best) / abs(best)


def picked_regret(result: Mapping[str, Any] | None, rule: str) -> float | None:
    """Return the regret of a rule's pick as the result tells it, None where it was not verified."""
    value = ((result or {}).get("regret_pct") or {}).get(rule)
    return None if value is None else float(value)
