"""Per-run power law: L(t) = E + A·t^−α fitted to the prefix alone, extrapolated to the horizon.

For a given α the law is linear in E and A: relative least squares with E, A ≥ 0, over a grid of α that is then zoomed. Warm-up
and the first tenth of the prefix are left out. Fewer than four bins, or a value outside the metric's domain: abstains.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.methods.view import Prediction, TaskView, final_levels, residual_sd
from hpo.core.curve import Curve

FloatArray = NDArray[np.float64]
SKIP = 0.1
FEWEST = 4
_ALPHAS = np.geomspace(0.03, 3.0, 40)
_ZOOMS = 3


def predict(view: TaskView) -> Prediction:
    """Return extrapolated values as scores and forecasts; the interval is from the same fit on the references' prefixes."""
    level = np.array([extrapolated(c) for c in view.targets])
    key = ("power law", view.stop, *(c.run_id for c in view.references))
    made = Prediction.gaussian(level, view.remember(key, lambda: _own_sd(view)))
    return Prediction(
        np.where([c.nonfinite_step is not None for c in view.targets], np.inf, level), made.level, made.sd, made.dof
    )


def extrapolated(prefix: Curve) -> float:
    """Return the law's value at the horizon on the model's scale, NaN where it cannot be fitted."""
    t, loss, weight = _points(prefix)
    if t.size < FEWEST:
        return float("nan")
    law = fit(t, loss, weight, bounded=prefix.metric.transform != "identity")
    at_end = law[0] + law[1]  # t is in units of the horizon
    return _to_model(prefix, at_end)


def fit(t: FloatArray, loss: FloatArray, weight: FloatArray, *, bounded: bool = True) -> tuple[float, float, float]:
    """Return (E, A, α) of L = E + A·t^−α by weighted least squares of relative errors; E ≥ 0 if ``bounded``, A ≥ 0 always."""
    w = weight / loss**2 if bounded else weight
    alphas = _ALPHAS
    best = (float(loss[-1]), 0.0, 1.0)
    for _ in range(_ZOOMS + 1):
        offset, slope, error = _linear(t[None, :] ** -alphas[:, None], loss, w, bounded)
        k = int(np.argmin(error))
        best = (float(offset[k]), float(slope[k]), float(alphas[k]))
        low, high = alphas[max(k - 1, 0)], alphas[min(k + 1, alphas.size - 1)]
        alphas = np.linspace(low, high, 11)
    return best


def _linear(x: FloatArray, y: FloatArray, w: FloatArray, bounded: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return offset, slope and error of y ≈ E + A·x for each row of ``x``, within the bounds (the better active set)."""
    total = w.sum()
    x_mean, y_mean = x @ w / total, float(y @ w / total)
    centred = x - x_mean[:, None]
    slope = np.maximum((centred * w) @ (y - y_mean) / np.maximum((centred**2) @ w, 1e-300), 0.0)
    offset = y_mean - slope * x_mean
    if bounded:
        through_zero = np.maximum((x * w) @ y / ((x**2) @ w), 0.0)
        slope, offset = np.where(offset < 0, through_zero, slope), np.maximum(offset, 0.0)
    error = ((y - offset[:, None] - slope[:, None] * x) ** 2) @ w
    return offset, slope, error


def _points(prefix: Curve) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return t̂, the minimised values and their number of points, past warm-up and the first tenth of what was seen."""
    if prefix.nonfinite_step is not None or prefix.fractions.size == 0:
        return (np.zeros(0),) * 3
    warmup = 0.0 if prefix.recipe is None else prefix.recipe.warmup_fraction or 0.0
    keep = prefix.fractions > max(warmup, SKIP * prefix.fractions[-1])
    values = _minimised(prefix, prefix.means[keep])
    good = np.isfinite(values) & ((values > 0) | (prefix.metric.transform == "identity"))
    return prefix.fractions[keep][good], values[good], prefix.counts[keep][good]


def _minimised(prefix: Curve, values: FloatArray) -> FloatArray:
    transform = prefix.metric.transform
    return 1.0 - values if transform == "log1m" else values if transform == "log" else prefix.metric.to_model(values)


def _to_model(prefix: Curve, value: float) -> float:
    if prefix.metric.transform == "identity":
        return value
    return float(np.log(value)) if value > 0 else float("nan")


def _own_sd(view: TaskView) -> float:
    if not view.references:
        return float("nan")
    return residual_sd(np.array([extrapolated(c) for c in view.reference_prefixes]) - final_levels(view.references))
