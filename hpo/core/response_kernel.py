"""The response kernel: one curve for all schedules, learning rates and horizons of one model size.

    L(t) = L0 + A·((η_p/η_0)^x S(t) + S0)^−α + b·∫ η^γ e^{−(S(t) − s)/κ} ds,      S(t) = ∫ η dt

The first term is progress, driven by the summed learning rate S, a little less than in proportion where the peak rate η_p is
high; the second is the excess that a high rate keeps up, forgotten as training goes on by e-folds of κ in S. The fit is by
robust least squares on log L. For references of one peak rate :mod:`hpo.core.multi_power_law` extrapolates better.

References
----------
arXiv 2503.12811 and 2408.11029 sum learning rates in the same way; this form, with forgetting in S, is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from hpo.core.learning_rate import FINE, FIT_FROM, GRID, ROBUST, ResponseForm, summed_rate
from hpo.core.recipe import Recipe

FloatArray = NDArray[np.float64]


class Drive(NamedTuple):
    """One run's learning rate: S at the grid, S between grid points, mean rate there, peak."""

    summed: FloatArray
    steps: FloatArray
    rate: FloatArray
    peak: float


@dataclass(frozen=True)
class Kernel(ResponseForm):
    """Fitted constants; ``peak_unit`` is η_0."""

    floor: float
    log_progress: float
    log_offset: float
    exponent: float
    log_excess: float
    rate_exponent: float
    log_memory: float
    peak_exponent: float
    peak_unit: float

    def losses(self, recipe: Recipe, n_steps: float | None) -> FloatArray:
        """Return L of a run along the grid; ``n_steps`` replaces the run's own."""
        constants = np.array(astuple(self)[:-1])
        return np.asarray(_losses(constants, _stacked([drive_of(recipe, n_steps)]), self.peak_unit)[0])


_CONSTANTS = tuple(f.name for f in fields(Kernel))[:-1]


def drive_of(recipe: Recipe, n_steps: float | None = None) -> Drive:
    """Return the learning rate of a run along :data:`GRID`; S in units of rate × steps. ``n_steps`` replaces the run's own."""
    rate = summed_rate(recipe, n_steps)
    summed = np.interp(GRID, FINE, rate.summed)
    between = np.diff(summed, prepend=0.0)
    return Drive(summed, between, between / (np.diff(GRID, prepend=0.0) * rate.steps), rate.peak)


def fit_kernel(recipes: Sequence[Recipe], losses: FloatArray, lowest_floor: float = 0.0) -> tuple[Kernel, float]:
    """Return the constants of complete runs of one size and batch, and the root mean square of the fit's errors.

    Parameters
    ----------
    losses : ndarray, shape (n_runs, len(GRID))
        log L; NaN where a run was not logged.
    lowest_floor : float
        Of L0, in units of the lowest loss; at most 0.
    """
    drives = _stacked([drive_of(recipe) for recipe in recipes])
    use = np.isfinite(losses) & (GRID >= FIT_FROM)
    unit = float(np.exp(np.mean(np.log(drives.peak))))
    start, low, high = _bounds(drives, losses, lowest_floor)

    def errors(theta: FloatArray) -> FloatArray:
        return np.asarray((np.log(np.maximum(_losses(theta, drives, unit), 1e-9)) - losses)[use], dtype=np.float64)

    found = least_squares(errors, start, bounds=(low, high), loss="soft_l1", f_scale=ROBUST, max_nfev=80, x_scale="jac")
    constants = dict(zip(_CONSTANTS, map(float, found.x), strict=True))
    return Kernel(**constants, peak_unit=unit), float(np.sqrt(np.mean(errors(found.x) ** 2)))


class _Drives(NamedTuple):
    """Several runs' :class:`Drive`, shapes (n_runs, len(GRID)) and, of the peaks, (n_runs,)."""

    summed: FloatArray
    steps: FloatArray
    rate: FloatArray
    peak: FloatArray


def _stacked(drives: Sequence[Drive]) -> _Drives:
    return _Drives(*(np.stack([np.asarray(getattr(d, name)) for d in drives]) for name in _Drives._fields))


def _bounds(drives: _Drives, losses: FloatArray, lowest_floor: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return start, lower and upper bounds, scaled to the runs' own losses and summed rates."""
    best = float(np.exp(np.nanmin(losses)))
    total, peak = float(np.median(drives.summed[:, -1])), float(np.median(drives.peak))
    exponent, rate_exponent, memory = 0.4, 0.5, 0.05 * total
    start = [
        0.75 * best,
        np.log(0.25 * best) + exponent * np.log(total),
        np.log(0.01 * total),
        exponent,
        np.log(0.03 * best / memory) - rate_exponent * np.log(peak),  # a constant rate keeps up b·η^γ·κ
        rate_exponent,
        np.log(memory),
        -0.1,
    ]
    low = [lowest_floor * best, start[1] - 8, np.log(1e-6 * total), 0.02, start[4] - 10, 0.0, np.log(1e-3 * total), -0.6]
    high = [0.98 * best, start[1] + 8, np.log(0.5 * total), 2.0, start[4] + 15, 2.0, np.log(3 * total), 0.3]
    return np.array(start), np.array(low), np.array(high)


def _losses(theta: FloatArray, drives: _Drives, unit: float) -> FloatArray:
    """Return L, shape (n_runs, len(GRID))."""
    floor, log_progress, log_offset, exponent, log_excess, rate_exponent, log_memory, peak_exponent = theta
    progressed = drives.summed * (drives.peak[:, None] / unit) ** peak_exponent + np.exp(log_offset)
    half = np.exp(-0.5 * drives.steps / np.exp(log_memory))
    gain = half * np.maximum(drives.rate, 1e-300) ** rate_exponent * drives.steps
    excess = _recursion(half**2, gain)
    return np.asarray(floor + np.exp(log_progress) * progressed**-exponent + np.exp(log_excess) * excess, dtype=np.float64)


def _recursion(keep: FloatArray, gain: FloatArray) -> FloatArray:
    """Return e, shape (n_runs, n), with e_k = keep_k·e_{k−1} + gain_k along the last axis, e_{−1} = 0.

    Of one run by plain numbers: each step costs a twentieth of one of arrays.
    """
    if len(gain) == 1:
        steps = zip(keep[0].tolist(), gain[0].tolist(), strict=True)
        return np.array([list(accumulate(steps, lambda e, step: step[0] * e + step[1], initial=0.0))[1:]])
    out, rows = gain.T.copy(), np.ascontiguousarray(keep.T)
    for k in range(1, len(out)):
        out[k] += rows[k] * out[k - 1]
    return np.asarray(out.T)
