"""The landscape: what finished runs say about *differences* of final values between settings.

A small Gaussian process over the settings of the references (learning rate, decay, batch, schedule, size, data, and the
searched values of any other name) is fitted to their final values on the model's scale. It gives a prior on the final values
of a sweep's trials in which the common level is left free: how well a larger model or a longer run does at all is for its own
prefix to say, which of its settings is better may be learned from cheaper ones. How much it may say is learned too: amplitude,
noise and one length scale a setting maximise the posterior under wide priors, so that settings without structure give no
prior. It takes at least two references a setting, and two more: with fewer, structure cannot be told from chance.

The prior meets the alignment in :func:`update`, a precision-weighted mean. A schedule enters as its values η(t̂), so that
similar schedules are near.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky
from scipy.linalg.lapack import dtrtrs
from scipy.optimize import minimize

from hpo.core.landscape_point import SCHEDULE_KEYS, Point, dimensions_of

FloatArray = NDArray[np.float64]
MIN_REFERENCES = 4
LEVEL_SD = 1.0
"""Prior sd of the trials' common level on the model's scale: free."""
_MIN_NOISE = 3e-4
_TILT, _CURVATURE = 0.02, 0.01  # of log loss per e-fold of the learning rate, and per its square


@dataclass(frozen=True)
class Landscape:
    """A fitted Gaussian process; built by :func:`fit_landscape`.

    Attributes
    ----------
    dimensions : tuple of (str, ...)
        Names of numbers and words used; the schedule's values count as one dimension.
    length_scales : ndarray, shape (n_dimensions,)
    amplitude, noise : float
        Standard deviations on the model's scale.
    unit : float
        Of that scale (:mod:`hpo.core.unit`): that of the priors.
    """

    points: tuple[Point, ...]
    finals: FloatArray
    dimensions: tuple[str, ...]
    length_scales: FloatArray
    amplitude: float
    noise: float
    mean: float
    rate_centre: float
    unit: float = 1.0

    @property
    def dof(self) -> float:
        """Degrees of freedom of its variances: references less what is fitted (mean, amplitude, noise, lengths), at least 1."""
        return max(float(len(self.points) - len(self.dimensions) - 3), 1.0)

    def bears_on(self, points: Sequence[Point]) -> list[bool]:
        """Return for each of several points whether the landscape says how it differs from the others.

        Not if it lacks a setting that the references vary in, nor if it differs from other points in one that all references
        have alike, or lack, while it has not their value. (What all points differ in alike is a matter of their common level.)
        """
        places = {d.removeprefix("=") for d in self.dimensions}
        names = {n for p in points for n in (*p.numbers, *p.words)} - places
        odd = [False] * len(points)
        for name in (n for n in names if not n.startswith(("recipe.", "schedule."))):
            known = self._searched.get(name, {None})
            asked = [p.searched(name) for p in points]
            if len(set(asked)) > 1 and len(known) == 1:
                odd = [was or value not in known for was, value in zip(odd, asked, strict=True)]
        return [not o and all(p.has(d) for d in self.dimensions) for o, p in zip(odd, points, strict=True)]

    def prior(self, points: Sequence[Point]) -> tuple[FloatArray, FloatArray]:
        """Return mean and covariance of the final values at ``points``, seed noise included, common level fixed.

        Shapes (n,) and (n, n).
        """
        if not self.points:
            alone = self.kernel(points, points) + self.noise**2 * np.eye(len(points))
            return self.mean + np.array([p.expected for p in points]), alone
        cross = self._to_references(points)
        factor, solved = self._known
        expected = self.mean + np.array([p.expected for p in points])
        mean = expected + cross @ solved
        half, _ = dtrtrs(factor, cross.T, lower=1)
        inside = self.kernel(points, points) - half.T @ half
        covariance = inside + self.noise**2 * np.eye(len(points))
        return np.asarray(mean, dtype=np.float64), np.asarray(0.5 * (covariance + covariance.T), dtype=np.float64)

    @property
    def _covariance(self) -> FloatArray:
        """Covariance of the references' final values, seed noise included."""
        return self.kernel(self.points, self.points) + self.noise**2 * np.eye(len(self.points))

    @cached_property
    def _known(self) -> tuple[FloatArray, FloatArray]:
        """Cholesky factor of the references' covariance, and it solved for their final values."""
        factor = cholesky(self._covariance, lower=True)
        return factor, np.asarray(cho_solve((factor, True), self.finals - self.mean), dtype=np.float64)

    def rates(self, points: Sequence[Point]) -> FloatArray:
        """Return the points' log learning rates about the references' mean, shape (n,); 0 where unknown."""
        return _places(points, (), self.rate_centre).rates

    @cached_property
    def left_out(self) -> tuple[FloatArray, FloatArray]:
        """Return what the others say of each reference's final value, on the model's scale, and its variance."""
        inverse = np.linalg.inv(self._covariance)
        ones = inverse.sum(axis=1)
        free = inverse - np.outer(ones, ones) / ones.sum()  # the mean is told by the others too
        variance = 1.0 / np.diag(free)
        expected = np.array([p.expected for p in self.points])
        return np.asarray(self.finals + expected - variance * (free @ self.finals)), np.asarray(variance)

    @cached_property
    def _searched(self) -> dict[str, set[float | str | None]]:
        """Values that the references have of each setting, None among them where one lacks it."""
        names = {name for q in self.points for name in (*q.numbers, *q.words)}
        return {name: {q.searched(name) for q in self.points} for name in names}

    def kernel(self, a: Sequence[Point], b: Sequence[Point]) -> FloatArray:
        """Return the covariance of final values without seed noise, shape (len(a), len(b))."""
        there = _places(b, self.dimensions, self.rate_centre)
        return self._kernel(there if a is b else _places(a, self.dimensions, self.rate_centre), there)

    def _to_references(self, points: Sequence[Point]) -> FloatArray:
        """Return :meth:`kernel` of points and the references, whose places are remembered."""
        return self._kernel(_places(points, self.dimensions, self.rate_centre), self._reference_places)

    @cached_property
    def _reference_places(self) -> _Places:
        return _places(self.points, self.dimensions, self.rate_centre)

    def _kernel(self, a: _Places, b: _Places) -> FloatArray:
        scaled = np.tensordot(self.length_scales**-2.0, _distances(a, b), axes=1)
        return np.asarray(self.amplitude**2 * np.exp(-0.5 * scaled) + self.unit**2 * _bowl(a, b), dtype=np.float64)


@dataclass(frozen=True)
class _Places:
    """Where points lie along each dimension: numbers, NaN where a point lacks it; a schedule's values; words as objects.

    ``rates`` are log learning rates off the centre, 0 where unknown.
    """

    along: tuple[NDArray[Any], ...]
    rates: FloatArray


def _places(points: Sequence[Point], dimensions: Sequence[str], centre: float) -> _Places:
    rates = np.array([p.numbers.get("recipe.lr", centre) for p in points]) - centre
    return _Places(tuple(_along(points, name) for name in dimensions), rates)


def _along(points: Sequence[Point], name: str) -> NDArray[Any]:
    if name.startswith("="):
        return np.array([p.words.get(name[1:], "") for p in points], dtype=object)
    if name == "schedule":
        return np.array([[p.numbers.get(k, np.nan) for k in SCHEDULE_KEYS] for p in points])
    return np.array([p.numbers.get(name, np.nan) for p in points])


def _bowl(a: _Places, b: _Places) -> FloatArray:
    """Return the covariance of a quadratic in the log learning rate: away from the rates tried, losses rise by unknown much."""
    product = np.outer(a.rates, b.rates)
    return np.asarray(_TILT**2 * product + _CURVATURE**2 * product**2, dtype=np.float64)


def fit_landscape(points: Sequence[Point], finals: FloatArray, unit: float = 1.0) -> Landscape | None:
    """Return the landscape of references, or None if they are too few or do not vary.

    Parameters
    ----------
    points : sequence of Point
    finals : ndarray, shape (n,)
        Final values on the model's scale (smaller is better). Very bad ones are drawn in: only the good end matters.
    unit : float
        Of that scale (:mod:`hpo.core.unit`).
    """
    if len(points) < MIN_REFERENCES or np.ptp(finals) <= 0:
        return None
    dimensions = dimensions_of(points)
    if not suffice(len(points), dimensions):
        return None
    drawn_in = _drawn_in(finals / unit) - np.array([p.expected for p in points]) / unit
    centre = float(np.mean([p.numbers.get("recipe.lr", 0.0) for p in points]))
    places = _places(points, dimensions, centre)
    squared = _distances(places, places)
    typical = np.array([max(math.sqrt(float(np.max(d))), 1e-9) for d in squared])
    start = _start(drawn_in, typical)
    bowl = _bowl(places, places)
    found = minimize(
        _objective, start, args=(drawn_in, squared, bowl, start), jac=True, method="L-BFGS-B", options={"maxiter": 80}
    )
    theta = found.x if np.all(np.isfinite(found.x)) and np.isfinite(found.fun) else start
    amplitude, noise = unit * math.exp(theta[0]), unit * math.hypot(math.exp(theta[1]), _MIN_NOISE)
    drawn_in = unit * drawn_in
    return Landscape(
        tuple(points), drawn_in, dimensions, np.exp(theta[2:]), amplitude, noise, float(np.mean(drawn_in)), centre, unit
    )


def suffice(n_references: int, dimensions: Sequence[str]) -> bool:
    """True if so many references can tell structure in so many settings from chance."""
    return bool(dimensions) and n_references >= max(MIN_REFERENCES, 2 * len(dimensions) + 2)


def update(
    level: FloatArray, covariance: FloatArray, prior_mean: FloatArray, prior_covariance: FloatArray, unit: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """Return the posterior of the final values from an alignment and a landscape whose common level is free.

    Parameters
    ----------
    level, covariance : ndarray, shapes (n,) and (n, n)
        From the prefixes; a known final value has variance 0.
    prior_mean, prior_covariance : ndarray
        From :meth:`Landscape.prior`.
    unit : float
        Of the model's scale (:mod:`hpo.core.unit`).
    """
    gain = update_gain(covariance, prior_covariance, unit)
    centred = prior_mean - np.mean(prior_mean) + np.mean(level)
    posterior = covariance - gain @ covariance
    return level + gain @ (centred - level), 0.5 * (posterior + posterior.T)


def update_gain(covariance: FloatArray, prior_covariance: FloatArray, unit: float = 1.0) -> FloatArray:
    """Return how far :func:`update` moves final values from the alignment towards the landscape, shape (n, n)."""
    return np.asarray(np.linalg.solve(covariance + prior_covariance + (unit * LEVEL_SD) ** 2, covariance).T, dtype=np.float64)


def joint_dof(dof: float, before: float, after: float, other: float) -> float:
    """Return the degrees of freedom of a variance ``before`` that a second source with its own has brought down to ``after``.

    Shares of the precision weigh the two (Satterthwaite): the log of the joint variance moves with each one's by its share.
    Never more than before: how a run strays stays as uncertain as it was.
    """
    if before <= 0:
        return dof
    share = min(max(1.0 - after / before, 0.0), 1.0)
    return min(dof, 1.0 / ((1.0 - share) ** 2 / dof + share**2 / other)) if share > 0 else dof


def _drawn_in(finals: FloatArray) -> FloatArray:
    """Return the finals with those far above the middle moved towards it: beyond it, only the order is kept (log)."""
    best, middle = float(np.min(finals)), float(np.median(finals))
    knee = middle + max(middle - best, 0.02)
    over = np.maximum(finals - knee, 0.0)
    scale = max(knee - best, 1e-6)
    return np.asarray(np.minimum(finals, knee) + scale * np.log1p(over / scale), dtype=np.float64)


def _distances(a: _Places, b: _Places) -> FloatArray:
    """Return squared distances by dimension, shape (n_dimensions, len(a), len(b)); what a point lacks is at distance 0."""
    return np.stack([_distance(x, y) for x, y in zip(a.along, b.along, strict=True)])


def _distance(x: NDArray[Any], y: NDArray[Any]) -> FloatArray:
    """Return squared distances of numbers or schedules; words are 1 apart, as is a known schedule from none."""
    if x.dtype == object:
        return np.asarray(x[:, None] != y[None, :], dtype=np.float64)
    apart = (x[:, None] - y[None, :]) ** 2
    if apart.ndim == 3:
        apart = apart.mean(axis=2)
        apart[np.isnan(apart)] = 1.0
    else:
        apart[np.isnan(apart)] = 0.0
    return np.asarray(apart, dtype=np.float64)


def _start(finals: FloatArray, typical: FloatArray) -> FloatArray:
    """Return the priors' centre: log amplitude, log noise, log length scales (a wide share of each setting's range)."""
    spread = max(float(np.std(finals)), 1e-3)
    return np.concatenate(
        ([math.log(spread), math.log(max(0.2 * spread, _MIN_NOISE))], np.log(typical * math.sqrt(typical.size)))
    )


_PRIOR_SD = np.array([1.0, 1.5])
_LENGTH_SD = 0.8
_ABSURD = 40.0
"""A line search may ask for hyperparameters this many e-folds from the priors' centre, or for ones that overflow."""


def _objective(
    theta: FloatArray, y: FloatArray, squared: FloatArray, bowl: FloatArray, centre: FloatArray
) -> tuple[float, FloatArray]:
    """Return the negative log posterior of the hyperparameters and its gradient; the mean is profiled out."""
    if np.max(np.abs(theta - centre)) > _ABSURD:
        return 1e10, np.zeros_like(theta)
    n = y.size
    scales = np.exp(theta[2:])
    kernel = math.exp(2 * theta[0]) * np.exp(-0.5 * np.tensordot(scales**-2.0, squared, axes=1))
    noise = math.exp(2 * theta[1])
    try:
        factor = cholesky(kernel + bowl + (noise + _MIN_NOISE**2) * np.eye(n), lower=True)
    except np.linalg.LinAlgError:
        return 1e10, np.zeros_like(theta)
    inverse = cho_solve((factor, True), np.eye(n))
    ones = inverse.sum(axis=1)
    residual = y - float(ones @ y) / float(ones.sum())
    alpha = inverse @ residual
    value = 0.5 * float(residual @ alpha) + float(np.sum(np.log(np.diag(factor))))
    outer = inverse - np.outer(alpha, alpha)
    gradient = np.empty_like(theta)
    gradient[0] = np.sum(outer * kernel)
    gradient[1] = noise * np.trace(outer)
    gradient[2:] = 0.5 * np.einsum("ij,ij,dij->d", outer, kernel, squared) * scales**-2.0
    sd = np.concatenate((_PRIOR_SD, np.full(scales.size, _LENGTH_SD)))
    off = (theta - centre) / sd
    return value + 0.5 * float(off @ off), gradient + off / sd
