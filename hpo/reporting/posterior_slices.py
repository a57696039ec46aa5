"""The landscape of final losses over what was searched: the posterior that the candidates' forecasts rest on, between them too.

The prior is the landscape of the proxies (:mod:`hpo.core.landscape`) over the searched values and the model's size, its common
level left free; what is known of the candidates, final losses and forecasts, updates it
(:func:`hpo.core.landscape.update`) as in the sweep, with further points of the same landscape carried along that no run was
trained at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpo.core.curve import Curve
from hpo.core.landscape import Landscape, fit_landscape, update
from hpo.core.landscape_point import Point, point_of
from hpo.core.model import CollapseModel
from hpo.reporting.sweep_files import SweepRecord, TrialRecord

FloatArray = NDArray[np.float64]
N_SLICE, N_PLANE = 41, 25
UNKNOWN_SD = 10.0
"""Of a point that no run was trained at, on the log scale, before the landscape speaks."""
Z90 = 1.6448536269514722
MAX_TRIALS = 150
_SIZE = "size"


@dataclass(frozen=True)
class Slice:
    """Posterior along one parameter, the others at the best candidate's: final loss (median) and 90 % interval.

    Every array has shape (n_points,).
    """

    parameter: str
    is_log: bool
    values: FloatArray
    loss: FloatArray
    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class Plane:
    """Posterior over two parameters: final loss (median) and sd in % of it, shape (n_y, n_x)."""

    x_name: str
    y_name: str
    x: FloatArray
    y: FloatArray
    x_is_log: bool
    y_is_log: bool
    loss: FloatArray
    sd_pct: FloatArray


@dataclass(frozen=True)
class Posterior:
    """Slices along the numeric parameters, and the plane where there are exactly two."""

    about: str
    slices: tuple[Slice, ...]
    plane: Plane | None


def posterior_of(sweep: SweepRecord) -> Posterior | None:
    """Return the posterior over the searched values; None without proxies that tell a landscape, or without forecasts."""
    judged = [trial for trial in sweep.trials if _known(trial, sweep.at) is not None]
    numeric = numeric_parameters(sweep.trials)
    if sweep.model is None or len(judged) < 2 or not numeric:
        return None
    landscape = _landscape(sweep)
    if landscape is None:
        return None
    judged = sorted(judged, key=lambda trial: _order(trial))[:MAX_TRIALS]
    surface = _Surface(landscape, sweep.model, judged, sweep.at)
    best = sweep.winner or judged[0]
    slices = tuple(surface.along(name, best.settings, numeric[name]) for name in numeric)
    names = list(numeric)
    plane = surface.over(names[0], names[1], numeric, best.settings) if len(names) == 2 else None
    return Posterior(best.name, slices, plane)


def numeric_parameters(trials: Sequence[TrialRecord]) -> dict[str, list[float]]:
    """Return the values, ascending, of every parameter that is a number in all trials and takes at least three values."""
    names = list(dict.fromkeys(name for trial in trials for name in trial.settings))
    found = {}
    for name in names:
        values = [trial.settings.get(name) for trial in trials]
        if all(isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values):
            distinct = sorted({float(v) for v in values if v is not None})
            if len(distinct) >= 3:
                found[name] = distinct
    return found


def is_log(values: Sequence[float]) -> bool:
    """Return True for positive values whose logs are spread at least as evenly as they are themselves."""
    if min(values) <= 0:
        return False
    gaps, log_gaps = np.diff(values), np.diff(np.log(values))
    return bool(np.std(log_gaps) / np.mean(log_gaps) <= np.std(gaps) / np.mean(gaps) + 1e-9)


class _Surface:
    """The joint law of the candidates and of any other points."""

    def __init__(self, landscape: Landscape, model: CollapseModel, trials: Sequence[TrialRecord], at: float) -> None:
        plain = CollapseModel(model.references, replace(model.settings, landscape=False, n_draws=4000))
        curves = [curve for trial in trials if (curve := _known(trial, at)) is not None]
        made = plain.forecast_many(curves, np.random.default_rng(0))
        known = [i for i in range(len(curves)) if np.isfinite(made.draws[:, i]).all()]
        self._landscape, self._curves = landscape, curves
        self._points = [_point_of(trials[i].settings, curves[i]) for i in known]
        self._level = made.draws[:, known].mean(axis=0)
        self._covariance = np.cov(made.draws[:, known], rowvar=False).reshape(len(known), len(known))

    def at(self, settings: Sequence[Mapping[str, Any]]) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd of the log final loss at further settings, shape (n,) each."""
        points = [*self._points, *(_point_of(one, self._curves[0]) for one in settings)]
        n, more = len(self._points), len(settings)
        level = np.concatenate((self._level, np.full(more, self._level.mean())))
        covariance = UNKNOWN_SD**2 * np.eye(n + more)
        covariance[:n, :n] = self._covariance
        mean, spread = update(level, covariance, *self._landscape.prior(points))
        return mean[n:], np.sqrt(np.maximum(np.diag(spread)[n:], 0.0))

    def along(self, name: str, others: Mapping[str, Any], values: list[float]) -> Slice:
        log = is_log(values)
        x = _spaced(values, N_SLICE, log)
        mean, sd = self.at([{**others, name: value} for value in x.tolist()])
        return Slice(name, log, x, np.exp(mean), np.exp(mean - Z90 * sd), np.exp(mean + Z90 * sd))

    def over(self, x_name: str, y_name: str, values: Mapping[str, list[float]], others: Mapping[str, Any]) -> Plane:
        logs = is_log(values[x_name]), is_log(values[y_name])
        x, y = _spaced(values[x_name], N_PLANE, logs[0]), _spaced(values[y_name], N_PLANE, logs[1])
        rows = [self.at([{**others, x_name: u, y_name: v} for u in x.tolist()]) for v in y.tolist()]
        loss, sd = np.exp(np.stack([row[0] for row in rows])), 100 * np.stack([row[1] for row in rows])
        return Plane(x_name, y_name, x, y, *logs, loss, sd)


def _landscape(sweep: SweepRecord) -> Landscape | None:
    """Return the landscape of the proxies over the searched values and their size."""
    if sweep.model is None:
        return None
    known = [(run, run.curve()) for run in sweep.proxies.values()]
    complete = [(run, curve) for run, curve in known if curve.final_loss is not None and curve.metric.transform == "log"]
    points = [_point_of(run.settings, curve) for run, curve in complete]
    return fit_landscape(points, np.array([math.log(curve.final_loss or math.nan) for _, curve in complete]))


def _point_of(settings: Mapping[str, Any], curve: Curve) -> Point:
    n_params = None if curve.recipe is None else curve.recipe.n_params
    return point_of(None, {**settings, **({_SIZE: float(n_params)} if n_params else {})})


def _known(trial: TrialRecord, at: float) -> Curve | None:
    """Return all of a candidate's curve; None if it has not come to the stopping point or has diverged."""
    curve = trial.curve
    if curve is None or (curve.fraction_seen or 0.0) < at * 0.98 or curve.nonfinite_step is not None:
        return None
    return curve if curve.metric.transform == "log" else None


def _order(trial: TrialRecord) -> float:
    known = trial.final_loss if trial.final_loss is not None else trial.forecast.get("final_loss")
    return math.inf if known is None else float(known)


def _spaced(values: Sequence[float], n: int, log: bool) -> FloatArray:
    return np.geomspace(values[0], values[-1], n) if log else np.linspace(values[0], values[-1], n)
