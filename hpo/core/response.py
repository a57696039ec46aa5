"""The response mean: one curve for all schedules, learning rates and horizons of one model size.

    L(t) = L0 + A·((η_p/η_0)^x S(t) + S0)^−α + b·∫ η^γ e^{−(S(t) − s)/κ} ds,      S(t) = ∫ η dt

The first term is progress, driven by the summed learning rate S, a little less than in proportion where the peak rate η_p is
high; the second is the excess that a high rate keeps up, forgotten as training goes on by e-folds of κ in S. So a schedule
never seen, or a longer horizon, has a curve before any run of it is finished. The fit is by robust least squares on log L.

The constants hold at one size and one batch: :class:`ResponseMean` refuses other runs, and the shape model corrects what is
left (:mod:`hpo.core.shape`).

References
----------
arXiv 2503.12811 and 2408.11029 sum learning rates in the same way; this form, with forgetting in S, is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from hpo.core.recipe import Recipe

FloatArray = NDArray[np.float64]
GRID: FloatArray = np.concatenate((np.geomspace(0.002, 0.05, 12)[:-1], np.linspace(0.05, 1.0, 58)))
"""t̂ at which the excess is integrated; the fit uses those from :data:`FIT_FROM` on."""
FIT_FROM = 0.05
MIN_RUNS = 5
SAME_SIZE = 0.05
_ROBUST = 0.003
_FINE = np.linspace(0.0, 1.0, 1141)


class Drive(NamedTuple):
    """One run's learning rate: S at the grid, S between grid points, mean rate there, peak."""

    summed: FloatArray
    steps: FloatArray
    rate: FloatArray
    peak: float


@dataclass(frozen=True)
class ResponseMean:
    """Fitted constants, and the size and batch they hold for."""

    floor: float
    log_progress: float
    log_offset: float
    exponent: float
    log_excess: float
    rate_exponent: float
    log_memory: float
    peak_exponent: float
    peak_unit: float
    n_params: float | None
    batch_tokens: float | None
    longest: float
    rms: float

    def covers(self, recipe: Recipe | None) -> bool:
        """True if the constants hold for a run: rate, steps and schedule known, size and batch within 5 %."""
        return (
            recipe is not None
            and has_drive(recipe)
            and _close(recipe.n_params, self.n_params)
            and _close(recipe.batch_tokens, self.batch_tokens)
        )

    def log_shape(self, recipe: Recipe, fractions: FloatArray) -> FloatArray:
        """Return log L(t̂) − log L(1) at ``fractions``, shape (n,); constant before the grid's first point."""
        values = _log_losses(self, recipe, None)
        return np.asarray(
            np.interp(np.log(np.maximum(fractions, GRID[0])), np.log(GRID), values) - values[-1], dtype=np.float64
        )

    def log_final(self, recipe: Recipe) -> float:
        """Return log L(1) of a run nothing of which has been seen, were it no longer than the longest reference.

        Between rates and schedules the fit interpolates well; how their order changes with the horizon it does not know.
        """
        return float(_log_losses(self, recipe, min(self.longest, float(recipe.n_steps or 0)))[-1])


_CONSTANTS = tuple(f.name for f in fields(ResponseMean))[:8]


@lru_cache(maxsize=1024)
def _log_losses(mean: ResponseMean, recipe: Recipe, n_steps: float | None) -> FloatArray:
    """Return log L of a run along the grid, read-only; a running trial is asked about again and again."""
    constants = np.array([getattr(mean, name) for name in _CONSTANTS])
    values = np.log(_losses(constants, drive_of(recipe, n_steps), mean.peak_unit))
    values.setflags(write=False)
    return values


def has_drive(recipe: Recipe) -> bool:
    """True if peak rate, number of steps and schedule of a run are known."""
    return recipe.lr is not None and recipe.n_steps is not None and recipe.schedule.is_known


def drive_of(recipe: Recipe, n_steps: float | None = None) -> Drive:
    """Return the learning rate of a run along :data:`GRID`; S in units of rate × steps. ``n_steps`` replaces the run's own."""
    steps = recipe.n_steps if n_steps is None else n_steps
    if recipe.lr is None or steps is None:
        raise ValueError("the response mean needs lr and the number of steps")
    eta = recipe.lr * recipe.schedule(_FINE, recipe.warmup_fraction or 0.0)
    summed_fine = np.concatenate(([0.0], np.cumsum(0.5 * (eta[1:] + eta[:-1]) * np.diff(_FINE)))) * steps
    summed = np.interp(GRID, _FINE, summed_fine)
    between = np.diff(summed, prepend=0.0)
    return Drive(summed, between, between / (np.diff(GRID, prepend=0.0) * steps), recipe.lr)


def fit_response(samples: Sequence[tuple[Recipe, FloatArray]]) -> ResponseMean | None:
    """Return the response mean of complete runs, or None if they do not suit it.

    Parameters
    ----------
    samples : sequence of (recipe, log_loss)
        ``log_loss`` has shape (len(GRID),); NaN where a run was not logged. At least :data:`MIN_RUNS` runs of one size and
        batch (within 5 %), with more than one peak rate or schedule among them.
    """
    runs = [(recipe, y) for recipe, y in samples if has_drive(recipe) and np.isfinite(y[-1])]
    if len(runs) < MIN_RUNS or not _alike([r for r, _ in runs]):
        return None
    drives = [drive_of(recipe) for recipe, _ in runs]
    losses = np.stack([y for _, y in runs])
    use = np.isfinite(losses) & (GRID >= FIT_FROM)
    unit = float(np.exp(np.mean([np.log(d.peak) for d in drives])))
    start, low, high = _bounds(drives, losses)

    def errors(theta: FloatArray) -> FloatArray:
        fitted = np.stack([_losses(theta, d, unit) for d in drives])
        return np.asarray((np.log(np.maximum(fitted, 1e-9)) - losses)[use], dtype=np.float64)

    found = least_squares(errors, start, bounds=(low, high), loss="soft_l1", f_scale=_ROBUST, max_nfev=80, x_scale="jac")
    rms = float(np.sqrt(np.mean(errors(found.x) ** 2)))
    first = runs[0][0]
    longest = max(float(r.n_steps or 0) for r, _ in runs)
    constants = dict(zip(_CONSTANTS, map(float, found.x), strict=True))
    return ResponseMean(
        **constants, peak_unit=unit, n_params=first.n_params, batch_tokens=first.batch_tokens, longest=longest, rms=rms
    )


def _bounds(drives: Sequence[Drive], losses: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return start, lower and upper bounds, scaled to the runs' own losses and summed rates."""
    best = float(np.exp(np.nanmin(losses)))
    total = float(np.median([d.summed[-1] for d in drives]))
    peak = float(np.median([d.peak for d in drives]))
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
    low = [0.0, start[1] - 8, np.log(1e-6 * total), 0.02, start[4] - 10, 0.0, np.log(1e-3 * total), -0.6]
    high = [0.98 * best, start[1] + 8, np.log(0.5 * total), 2.0, start[4] + 15, 2.0, np.log(3 * total), 0.3]
    return np.array(start), np.array(low), np.array(high)


def _losses(theta: FloatArray, drive: Drive, unit: float) -> FloatArray:
    floor, log_progress, log_offset, exponent, log_excess, rate_exponent, log_memory, peak_exponent = theta
    progressed = drive.summed * (drive.peak / unit) ** peak_exponent + np.exp(log_offset)
    forgetting = np.exp(-drive.steps / np.exp(log_memory))
    kept = np.exp(-0.5 * drive.steps / np.exp(log_memory))
    excess = _recursion(forgetting, kept * np.maximum(drive.rate, 1e-300) ** rate_exponent * drive.steps)
    return np.asarray(floor + np.exp(log_progress) * progressed**-exponent + np.exp(log_excess) * excess, dtype=np.float64)


def _recursion(keep: FloatArray, gain: FloatArray) -> FloatArray:
    """Return e with e_k = keep_k·e_{k−1} + gain_k, e_{−1} = 0."""
    out = np.empty_like(gain)
    held = 0.0
    for k, (a, g) in enumerate(zip(keep.tolist(), gain.tolist(), strict=True)):
        held = a * held + g
        out[k] = held
    return out


def _alike(recipes: Sequence[Recipe]) -> bool:
    first = recipes[0]
    same = all(_close(r.n_params, first.n_params) and _close(r.batch_tokens, first.batch_tokens) for r in recipes)
    return same and len({(r.lr, str(r.schedule)) for r in recipes}) > 1


def _close(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is None and b is None
    return bool(abs(np.log(a / b)) <= SAME_SIZE)
