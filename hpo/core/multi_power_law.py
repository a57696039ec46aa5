"""The multi-power law: a loss curve from its learning-rate schedule, for runs of one size and one peak rate.

    L(t) = L0 + A·((S(t) + b·η_p)/Ŝ)^−α + B·[1 − Σ_k ((η_{k−1}/η_p)^r − (η_k/η_p)^r)·G((η_k/η_p)^−γ·C·S_k(t)/Ŝ)]
    G(z) = 1 − (1 + z)^−β,      S(t) = Σ_{i ≤ t} η_i,   S_k(t) = Σ_{k ≤ i ≤ t} η_i

The first term is progress, driven by the summed learning rate S and a burn-in of b steps at the peak rate η_p; the second is
the excess that a high rate keeps up, given back as the rate falls, at first fast, then ever slower (k runs over the schedule's
falls). Ŝ is a usual sum. The fit is by robust least squares on log L, under weak priors: few references do not tell all
constants.

Over several peak rates it is no better than :mod:`hpo.core.response_kernel` and further off beyond them (bench/LOG.md).

References
----------
arXiv 2503.12811, where r = 1 and b is half the warm-up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from hpo.core.learning_rate import FINE, FIT_FROM, GRID, ROBUST, ResponseForm, summed_rate
from hpo.core.recipe import Recipe

FloatArray = NDArray[np.float64]
BURN_IN_WARMUPS = 1.5
"""Lengths of the warm-up that pass before the law may hold."""
LATEST_START = 0.5
_FALLS = 24
_LOWEST_RATE = 0.01
"""Share of the peak rate: below, falls are given back as if it were this high."""
_BURN_IN = 100.0
"""Steps, where no run warms up."""
_PRIOR = 0.002
"""What one sd from the priors weighs, as an error of log L at one point."""
_FITTED = np.flatnonzero(GRID >= FIT_FROM)[::-2][::-1]


class Drive(NamedTuple):
    """One run's learning rate.

    Attributes
    ----------
    summed : ndarray, shape (len(GRID),)
        S at the grid.
    before, after : ndarray, shape (n_falls,)
        Rate before and after each fall of the schedule.
    since : ndarray, shape (len(GRID), n_falls)
        S_k at the grid; 0 before the fall.
    peak : float
    """

    summed: FloatArray
    before: FloatArray
    after: FloatArray
    since: FloatArray
    peak: float


@dataclass(frozen=True)
class MultiPowerLaw(ResponseForm):
    """Fitted constants: L0, log A, α, log b, log B, r, log C, γ and β; ``sum_unit`` is Ŝ."""

    floor: float
    log_progress: float
    exponent: float
    log_burn_in: float
    log_excess: float
    fall_exponent: float
    log_memory: float
    memory_rate: float
    memory_exponent: float
    sum_unit: float

    def losses(self, recipe: Recipe, n_steps: float | None) -> FloatArray:
        """Return L of a run along the grid; ``n_steps`` replaces the run's own."""
        drives = _Drives.of([drive_of(recipe, n_steps)], self.sum_unit)
        return np.asarray(drives.losses(np.array(astuple(self)[:-1]))[0])

    def begins(self, recipe: Recipe) -> float:
        """Return the fraction of training from which on it may hold for a run: some time after warm-up."""
        return _begins(recipe)


_CONSTANTS = tuple(f.name for f in fields(MultiPowerLaw))[:-1]


def _begins(recipe: Recipe) -> float:
    return min(BURN_IN_WARMUPS * (recipe.warmup_fraction or 0.0), LATEST_START)


def drive_of(recipe: Recipe, n_steps: float | None = None) -> Drive:
    """Return the learning rate of a run along :data:`GRID`; S in units of rate × steps. ``n_steps`` replaces the run's own."""
    rate = summed_rate(recipe, n_steps)
    before, after, place = _falls_of(rate.along, rate.summed, recipe.warmup_fraction or 0.0)
    along = np.interp(GRID, FINE, rate.summed)
    since = np.maximum(along[:, None] - place[None, :], 0.0)
    return Drive(along, before / rate.peak, after / rate.peak, since, rate.peak)


def _falls_of(eta: FloatArray, summed: FloatArray, warmup: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the rate before and after each fall (or rise) past warm-up, and S at each: at most :data:`_FALLS` of like size."""
    change = np.where(FINE[:-1] < warmup, 0.0, np.abs(np.diff(eta)))
    total = float(change.sum())
    if total <= 1e-12 * float(eta.max()):
        return np.zeros(0), np.zeros(0), np.zeros(0)
    falling = np.flatnonzero(change)
    part = np.minimum((np.cumsum(change) - 0.5 * change)[falling] / total * _FALLS, _FALLS - 1).astype(np.int64)
    first = np.flatnonzero(np.diff(part, prepend=-1))
    last = np.append(first[1:], falling.size) - 1
    middle = 0.5 * (summed[1:] + summed[:-1])[falling]
    place = np.add.reduceat(change[falling] * middle, first) / np.add.reduceat(change[falling], first)
    return eta[falling[first]], eta[falling[last] + 1], np.asarray(place, dtype=np.float64)


@dataclass(frozen=True)
class _Drives:
    """Several runs' learning rates in units of the fit, padded to one number of falls.

    Attributes
    ----------
    summed : ndarray, shape (n_runs, n_times)
        S/Ŝ.
    peak : ndarray, shape (n_runs,)
        S of one step at the peak rate, over Ŝ.
    before, after : ndarray, shape (n_runs, n_falls)
        Rates over the peak's.
    since : ndarray, shape (n_runs, n_times, n_falls)
        S_k/Ŝ.
    """

    summed: FloatArray
    peak: FloatArray
    before: FloatArray
    after: FloatArray
    since: FloatArray

    @classmethod
    def of(cls, drives: Sequence[Drive], sum_unit: float, times: slice | NDArray[np.int64] = slice(None)) -> _Drives:
        n_falls = max(d.before.size for d in drives)
        pads = [(0, n_falls - d.before.size) for d in drives]
        before = np.stack([np.pad(d.before, pad, constant_values=1.0) for d, pad in zip(drives, pads, strict=True)])
        after = np.stack([np.pad(d.after, pad, constant_values=1.0) for d, pad in zip(drives, pads, strict=True)])
        since = np.stack([np.pad(d.since[times], ((0, 0), pad)) for d, pad in zip(drives, pads, strict=True)])
        summed = np.stack([d.summed[times] for d in drives])
        return cls(summed / sum_unit, np.array([d.peak for d in drives]) / sum_unit, before, after, since / sum_unit)

    def losses(self, theta: FloatArray) -> FloatArray:
        """Return L, shape (n_runs, n_times)."""
        floor, log_progress, alpha, log_burn_in, log_excess, r, *memory = theta
        progress = np.exp(log_progress - alpha * np.log(self.summed + np.exp(log_burn_in) * self.peak[:, None]))
        _, _, left, _ = self._memory(memory)
        fall = self.before**r - self.after**r
        kept = 1.0 - ((1.0 - left) @ fall[:, :, None])[:, :, 0]
        return np.asarray(floor + progress + np.exp(log_excess) * kept, dtype=np.float64)

    def gradient(self, theta: FloatArray) -> FloatArray:
        """Return ∂L/∂θ, shape (n_runs, n_times, n_constants)."""
        _, log_progress, alpha, log_burn_in, log_excess, r, *memory = theta
        burn_in = np.exp(log_burn_in) * self.peak[:, None]
        log_driven = np.log(self.summed + burn_in)
        progress = np.exp(log_progress - alpha * log_driven)
        log_rate, log_z, left, slope = self._memory(memory)
        fall = self.before**r - self.after**r
        by_exponent = _x_log_x(self.before, r) - _x_log_x(self.after, r)
        excess = np.exp(log_excess)

        def summed(weights: FloatArray, falls: FloatArray) -> FloatArray:
            return np.asarray(excess * (weights @ falls[:, :, None])[:, :, 0], dtype=np.float64)

        columns = [
            np.ones_like(progress),
            progress,
            -progress * log_driven,
            -alpha * progress * burn_in / (self.summed + burn_in),
            excess - summed(1.0 - left, fall),
            -summed(1.0 - left, by_exponent),
            -summed(slope, fall),
            summed(slope, fall * log_rate),
            -summed(left * log_z, fall),
        ]
        return np.stack(columns, axis=-1)

    def _memory(self, constants: Sequence[float]) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return log η_k (not below the lowest), log(1 + z), 1 − G and dG/d log z."""
        log_memory, gamma, beta = constants
        log_rate = np.log(np.maximum(self.after, _LOWEST_RATE))
        z = np.exp(log_memory - gamma * log_rate)[:, None, :] * self.since
        log_z = np.log1p(z)
        left = np.exp(-beta * log_z)
        return log_rate, log_z, left, beta * left * z / (1.0 + z)


def _x_log_x(x: FloatArray, r: float) -> FloatArray:
    """Return x^r log x, 0 at 0."""
    return np.asarray(x**r * np.log(np.where(x > 0, x, 1.0)), dtype=np.float64)


def fit_multi_power_law(
    recipes: Sequence[Recipe], losses: FloatArray, lowest_floor: float = 0.0
) -> tuple[MultiPowerLaw, float]:
    """Return the constants of complete runs of one size, batch and peak rate, and the root mean square of the fit's errors.

    Parameters
    ----------
    losses : ndarray, shape (n_runs, len(GRID))
        log L; NaN where a run was not logged.
    lowest_floor : float
        Of L0, in units of the lowest loss; at most 0.
    """
    drives = [drive_of(recipe) for recipe in recipes]
    unit = float(np.median([d.summed[-1] for d in drives]))
    burn_in = float(np.median([0.5 * (r.warmup_fraction or 0.0) * float(r.n_steps or 0) for r in recipes])) or _BURN_IN
    begins = np.array([_begins(recipe) for recipe in recipes])
    told = np.where(begins[:, None] <= GRID, losses, np.nan)
    found, rms = _fit(_Drives.of(drives, unit, _FITTED), told[:, _FITTED], math.log(burn_in), lowest_floor)
    return MultiPowerLaw(**dict(zip(_CONSTANTS, map(float, found), strict=True)), sum_unit=unit), rms


def _fit(drives: _Drives, losses: FloatArray, log_burn_in: float, lowest_floor: float) -> tuple[FloatArray, float]:
    """Return the constants that fit log losses, shape (n_runs, n_times), best, and the rms of the errors."""
    use = np.isfinite(losses)
    centre, weight = _prior(log_burn_in)
    best = float(np.exp(np.min(losses[use])))

    def errors(theta: FloatArray) -> FloatArray:
        fitted = np.log(np.maximum(drives.losses(theta), 1e-9))
        return np.concatenate(((fitted - losses)[use], weight * (theta - centre)))

    def jacobian(theta: FloatArray) -> FloatArray:
        value = np.maximum(drives.losses(theta), 1e-9)
        return np.concatenate(((drives.gradient(theta) / value[..., None])[use], np.diag(weight)))

    start, low, high = _bounds(best, log_burn_in, lowest_floor)
    fitted = least_squares(
        errors, start, jacobian, bounds=(low, high), loss="soft_l1", f_scale=ROBUST, max_nfev=80, x_scale="jac"
    )
    return np.asarray(fitted.x), float(np.sqrt(np.mean(errors(fitted.x)[: int(use.sum())] ** 2)))


def _prior(log_burn_in: float) -> tuple[FloatArray, FloatArray]:
    """Return the priors' centre and what one unit from it weighs."""
    centre = np.array([0.0, 0.0, 0.0, log_burn_in, 0.0, 0.5, 0.0, 0.6, 0.6])
    sd = np.array([np.inf, np.inf, np.inf, 1.0, np.inf, 0.3, np.inf, 0.3, 0.3])
    return centre, _PRIOR / sd


def _bounds(best: float, log_burn_in: float, lowest_floor: float) -> tuple[list[float], list[float], list[float]]:
    """Return start, lower and upper bounds; other starts end in the same place (all recorded runs)."""
    start = [0.85 * best, math.log(0.12 * best), 0.4, log_burn_in, math.log(0.03 * best), 0.5, 7.0, 0.6, 0.6]
    low = [lowest_floor * best, math.log(1e-4 * best), 0.01, log_burn_in - 6.0, math.log(1e-5 * best), 0.05, -2.0, 0.0, 0.01]
    high = [0.999 * best, math.log(100.0 * best), 3.0, log_burn_in + 4.0, math.log(10.0 * best), 1.5, 16.0, 2.0, 3.0]
    return start, low, high
