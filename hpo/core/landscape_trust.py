"""How far a landscape is believed against a run's own curve: as far as it would have helped to order the references.

What finished runs say of settings may be right on the whole and wrong where it matters: in a study most of whose runs learn
nothing, settings predict a run that learns to end like the others. So each reference is taken as a run that has got so far,
forecast from the others by its curve and by its settings (both in closed form), and the landscape's variance is multiplied by
the factor under which the two together give the orders of pairs the highest likelihood: of pairs with one of the better runs,
as only those decide a sweep. A factor of 1 believes the landscape as it is, infinity not at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hpo.core.coordinates import Kind, are_of_one_kind, kind_of
from hpo.core.landscape import Landscape
from hpo.core.references import Reference
from hpo.core.shape import Shape
from hpo.core.standing import Prefix, standing_of, tempered

FloatArray = NDArray[np.float64]
FEWEST = 6
"""Fewer references than this cannot tell: the landscape is believed."""
MOST = 48
"""So many references are asked, at most, evenly spaced in the order of their final values."""
FACTORS: FloatArray = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 1e6])
STAGES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8)
"""t̂ at which it is asked; in between, what was found at the last of them holds."""
PAIR_DOF = 4.0
BETTER = 1 / 3
"""Share of the references that count as the better ones."""
_LEAST_VARIANCE, _NOTHING_KNOWN = 1e-12, 1e12
LandscapeOf = tuple[Landscape, Sequence[Reference]]


@dataclass(frozen=True)
class LeftOut:
    """References forecast from the others, shape (n,) each, on the model's scale.

    Attributes
    ----------
    final : ndarray
        The true final values.
    curve, curve_variance : ndarray
        What their curves say, up to some t̂.
    landscape, landscape_variance : ndarray
        What their settings say.
    """

    final: FloatArray
    curve: FloatArray
    curve_variance: FloatArray
    landscape: FloatArray
    landscape_variance: FloatArray


def stage_of(fraction: float) -> float:
    """Return the last of :data:`STAGES` that is not beyond ``fraction``, or the first."""
    return max((stage for stage in STAGES if stage <= fraction), default=STAGES[0])


def factor_of(runs: LeftOut) -> float:
    """Return by what to multiply the landscape's variance, of :data:`FACTORS`."""
    if runs.final.size < FEWEST:
        return 1.0
    better = np.argsort(runs.final, kind="stable")[: max(round(BETTER * runs.final.size), 2)]
    likelihoods = np.stack([_order_likelihoods(runs, factor, better) for factor in FACTORS])
    best = likelihoods[int(np.argmax(likelihoods.mean(axis=1)))]
    behind = best - likelihoods
    error = behind.std(axis=1, ddof=1) / math.sqrt(better.size)
    return float(FACTORS[np.flatnonzero(behind.mean(axis=1) <= error)[-1]])


def _order_likelihoods(runs: LeftOut, factor: float, better: NDArray[np.intp]) -> FloatArray:
    """Return for each of the ``better`` runs the mean log probability of the true order of it and another run."""
    curve, landscape = 1.0 / runs.curve_variance, 1.0 / (factor * runs.landscape_variance)
    level = (curve * runs.curve + landscape * runs.landscape) / (curve + landscape)
    variance = 1.0 / (curve + landscape)
    sign = np.sign(runs.final[None, :] - runs.final[better][:, None])
    gap = (level[None, :] - level[better][:, None]) / np.sqrt(variance[None, :] + variance[better][:, None])
    logs = np.where(sign != 0, np.log(special.stdtr(PAIR_DOF, sign * gap)), 0.0)
    return np.asarray(logs.sum(axis=1) / np.maximum(np.count_nonzero(sign, axis=1), 1))


def left_out(
    shapes: Sequence[tuple[Shape, Sequence[Reference]]],
    landscape: LandscapeOf,
    fraction: float,
    kind: Kind,
) -> LeftOut:
    """Return the references that shapes and a landscape were both fitted to, each forecast from the others at ``fraction``.

    Parameters
    ----------
    shapes : sequence of (Shape, references)
        Each with the references that it was fitted to, in their order.
    landscape : (Landscape, references)
        The same of the landscape.
    kind : tuple
        The target's size and length: references of others say little of how well its curve is forecast.
    """
    fitted, known = landscape
    told = {id(r): k for k, r in enumerate(known) if are_of_one_kind(kind_of(r.recipe), kind)}
    asked = [(shape, i, told[id(r)]) for shape, runs in shapes for i, r in enumerate(runs) if id(r) in told]
    final = np.array([float(known[k].metric.to_model(known[k].final_loss)) for _, _, k in asked])
    chosen = np.argsort(final, kind="stable")[:: max(-(-len(asked) // MOST), 1)]
    curve = np.array([_curve_left_out(asked[j][0], asked[j][1], fraction) for j in chosen]).reshape(-1, 2)
    settings, variance = fitted.left_out
    at = [asked[j][2] for j in chosen]
    return LeftOut(final[chosen], final[chosen] + curve[:, 0], curve[:, 1], settings[at], variance[at])


def _curve_left_out(shape: Shape, i: int, fraction: float) -> tuple[float, float]:
    """Return the error, and its variance, of the i-th reference forecast from the others and its curve up to ``fraction``."""
    n = int(np.sum(shape.nodes <= fraction))
    if n == 0:
        return 0.0, _NOTHING_KNOWN
    leverage = 1.0 / float(shape.inverse[i, i])
    point, unit, end = 0.0, np.zeros(n), 0.0
    if shape.noise is not None:
        point, unit, end = float(shape.noise.points[i]), np.diag(shape.noise.bins)[:n], shape.noise.end
    k = shape.covariance[:n, :n]
    noise = np.maximum(point * unit, _LEAST_VARIANCE)
    prefix = Prefix(leverage * shape.solved[i, :n], np.eye(n), np.zeros(1), leverage, noise, at_bins=k)
    found = standing_of(tempered(prefix, k, shape.settings.outlier_sd), shape.settings.scale_dof)
    widened = (shape.calibration(fraction) * found.scale) ** 2
    return found.level, widened * (found.variance + end * point) + _LEAST_VARIANCE
