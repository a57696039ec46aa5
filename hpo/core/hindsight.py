"""What forecasts of the references would have been worth: each taken as a run that got so far, and forecast from the others.

A forecast aligns a run with its family's shape and lets it end where it may, as if nothing were known of where runs end. Where
references have the run's own size and length, much is: their final values, regressed on what their curves would have said at
the same t̂, tell by how much such forecasts are off as a rule, and how much of a difference at t̂ is left at the end. (In a study
most of whose runs learn nothing, the mean fall is of a few; where fast starters end worse, early differences turn round.)
The regression is the "model output statistics" of weather forecasts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hpo.core.coordinates import Kind, are_of_one_kind, kind_of
from hpo.core.references import Reference
from hpo.core.shape import Shape
from hpo.core.standing import Prefix, standing_of, tempered

FloatArray = NDArray[np.float64]
FEWEST = 6
"""Fewer references than this cannot tell."""
MOST = 48
"""So many references are asked, at most, evenly spaced in the order of their final values."""
STAGES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8)
"""t̂ at which they are asked; in between, what was found at the last of them holds."""
SLOPE_SD, SURE = 0.5, 1.4
"""Prior sd of the slope about 1, and by how many standard errors it must order the references better than a slope of 1."""
PAIR_DOF = 4.0
FAR = 4.0
"""Forecasts differ where their variance is so many times that of one."""
APART = 2.0
"""Ends differ where they are this many sds of their noise apart."""
_TAIL_DOF, _PASSES = 4.0, 30
_MOST_UNEQUAL = (0.1, 1e4)
_LEAST_VARIANCE, _NOTHING_KNOWN = 1e-12, 1e12
_MOST_LEVERAGE = 0.95
_ALL = slice(None)
Fitted = tuple[Shape, Sequence[Reference]]
"""A shape and the references that it was fitted to, in their order."""


@dataclass(frozen=True)
class Hindsight:
    """References of one kind forecast from the others at some t̂, shape (n,) each, on the model's scale.

    Attributes
    ----------
    runs : tuple of Reference
    final, noise : ndarray
        Their true final values, and the variance of these values' noise.
    level, variance : ndarray
        What their curves say.
    """

    runs: tuple[Reference, ...]
    final: FloatArray
    noise: FloatArray
    level: FloatArray
    variance: FloatArray

    @cached_property
    def middle(self) -> tuple[float, float]:
        """Median of what the curves say, and its robust sd about it with that of a typical forecast."""
        middle = float(np.median(self.level))
        apart = float(np.median(np.abs(self.level - middle))) / 0.6745
        return middle, math.hypot(apart, math.sqrt(float(np.median(self.variance))))


@dataclass(frozen=True)
class Correction:
    """From a forecast's level to where such runs ended: ``ended + slope · (level − forecast)``.

    ``misleads`` is True where forecasts so corrected would surely have ordered the references worse than a coin.
    """

    forecast: float = 0.0
    ended: float = 0.0
    slope: float = 1.0
    misleads: bool = False

    def of(self, level: FloatArray) -> FloatArray:
        """Return corrected levels."""
        return np.asarray(self.ended + self.slope * (level - self.forecast), dtype=np.float64)


def stage_of(fraction: float) -> float:
    """Return the last of :data:`STAGES` that is not beyond ``fraction``, or the first."""
    return max((stage for stage in STAGES if stage <= fraction), default=STAGES[0])


def hindsight_of(shapes: Sequence[Fitted], kind: Kind, fraction: float) -> Hindsight:
    """Return the references of one size and length, each forecast from the others of its shape as if it were at ``fraction``.

    How well references of other kinds are forecast says little of a run of this kind: they are left out.
    """
    asked = [(shape, i, r) for shape, runs in shapes for i, r in enumerate(runs) if are_of_one_kind(kind_of(r.recipe), kind)]
    final = shapes[0][1][0].metric.to_model([r.final_loss for _, _, r in asked])
    chosen = np.argsort(final, kind="stable")[:: max(-(-len(asked) // MOST), 1)]
    found = np.array([_left_out(asked[k][0], asked[k][1], fraction) for k in chosen]).reshape(-1, 2)
    runs = tuple(asked[k][2] for k in chosen)
    noise = np.array([run.noise.end for run in runs])
    return Hindsight(runs, final[chosen], noise, final[chosen] + found[:, 0], found[:, 1])


def correction_of(known: Hindsight) -> Correction:
    """Return the robust regression of final values on forecasts, none with too few references.

    With a slope of 1, unless another one would have ordered the references better by more than chance, or would have told their
    ends better and their order no worse, each corrected by the others: where most runs are alike, a slope is what their noise
    makes of it, or a single run.
    """
    if known.final.size < FEWEST:
        return Correction()
    shift, bent = _tried(known, 0.0), _tried(known, SLOPE_SD)
    orders = _surely_positive(bent.orders - shift.orders)
    are_apart = float(np.var(known.level)) > FAR * float(np.median(known.variance))  # else what they differ by is their errors
    tells = are_apart and _surely_above_zero(bent.ends - shift.ends) and not _surely_positive(shift.orders - bent.orders)
    best = bent if orders or tells else shift
    return replace(best.correction, misleads=is_worse_than_chance(best.orders, known.final, known.noise))


@dataclass(frozen=True)
class _Tried:
    """A regression, and the log likelihoods of the references by it, each without its own part in it.

    Attributes
    ----------
    orders : ndarray, shape (n, n)
        Of :func:`order_logs`.
    ends : ndarray, shape (n,)
        Of the final values, up to a constant.
    """

    correction: Correction
    orders: FloatArray
    ends: FloatArray


def _tried(known: Hindsight, slope_sd: float) -> _Tried:
    found, leverage = _regression(known, slope_sd)
    off = (known.final - found.of(known.level)) / (1.0 - leverage)
    ends = -0.5 * (PAIR_DOF + 1.0) * np.log1p(off**2 / (PAIR_DOF * known.variance))
    return _Tried(found, order_logs(known.final, known.final - off, known.variance), ends)


def order_logs(final: FloatArray, level: FloatArray, variance: FloatArray, of: NDArray[np.intp] | slice = _ALL) -> FloatArray:
    """Return the log probability that forecasts gave to the true order of each pair, shape (n, n); 0 for equal ends.

    Parameters
    ----------
    final : ndarray, shape (n,)
    level, variance : ndarray, shape (n,)
        The forecasts.
    of : ndarray of int, optional
        The rows wanted.
    """
    sign = np.sign(final[None, :] - final[of, None])
    gap = (level[None, :] - level[of, None]) / np.sqrt(variance[None, :] + variance[of, None])
    return np.where(sign != 0, np.log(np.maximum(special.stdtr(PAIR_DOF, sign * gap), 1e-300)), 0.0)


def is_worse_than_chance(told: FloatArray, final: FloatArray, noise: FloatArray) -> bool:
    """True if forecasts give less likelihood than a coin to the order of final values, by more than chance.

    Parameters
    ----------
    told : ndarray, shape (n, n)
        Of :func:`order_logs`.
    final, noise : ndarray, shape (n,)
        The final values and the variance of their noise: pairs that are not :data:`APART` do not count, their order is chance.
    """
    apart = np.abs(final[None, :] - final[:, None]) > APART * np.sqrt(noise[None, :] + noise[:, None])
    return _surely_positive(np.where(apart, math.log(0.5) - told, 0.0))


def _surely_above_zero(gains: FloatArray) -> bool:
    """True if the mean over runs, shape (n,), is above 0 by :data:`SURE` standard errors."""
    return bool(gains.mean() > SURE * gains.std(ddof=1) / math.sqrt(gains.size))


def _surely_positive(gains: FloatArray) -> bool:
    """True if the mean over pairs is above 0 by :data:`SURE` standard errors, told by leaving out run by run (jackknife).

    Parameters
    ----------
    gains : ndarray, shape (n, n)
        Symmetric, 0 on the diagonal.
    """
    n = len(gains)
    without = (gains.sum() - 2.0 * gains.sum(axis=1)) / ((n - 1) * (n - 2))
    error = math.sqrt((n - 1) / n * float(np.sum((without - without.mean()) ** 2)))
    return bool(gains.sum() / (n * (n - 1)) > SURE * error)


def _regression(known: Hindsight, slope_sd: float) -> tuple[Correction, FloatArray]:
    """Return the regression with Student-t errors whose variance goes with the forecast's, and each run's leverage.

    By iterated weights. The slope has the prior N(1, slope_sd²).
    """
    relative = np.clip(known.variance / np.exp(np.mean(np.log(known.variance))), *_MOST_UNEQUAL)
    weights, slope = np.ones(known.final.size), 1.0
    for _ in range(_PASSES):
        shares = weights / relative
        forecast, ended = (float(shares @ values / shares.sum()) for values in (known.level, known.final))
        off, gone = known.level - forecast, known.final - ended
        free = max(float(weights.sum()) - 1.0, 1.0)
        variance = max(float(shares @ (gone - slope * off) ** 2) / free, _LEAST_VARIANCE)
        if slope_sd > 0:
            told = float((shares * off) @ off) / variance + slope_sd**-2
            slope = (float((shares * off) @ gone) / variance + slope_sd**-2) / told
        weights = (_TAIL_DOF + 1.0) / (_TAIL_DOF + (gone - slope * off) ** 2 / (variance * relative))
    leverage = shares * (1.0 / shares.sum() + (off**2 / (variance * told) if slope_sd > 0 else 0.0))
    return Correction(forecast, ended, slope), np.minimum(leverage, _MOST_LEVERAGE)


def _left_out(shape: Shape, i: int, fraction: float) -> tuple[float, float]:
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
