"""The response mean: one curve for all schedules, learning rates and horizons of one model size.

So a schedule never seen, or a longer horizon, has a curve before any run of it is finished. Its form is the multi-power law
where all references have one peak rate (:mod:`hpo.core.multi_power_law`), else a response kernel
(:mod:`hpo.core.response_kernel`), and for rates with enough references the mean of both: they err in different ways.

It is fitted to log ℓ: log L, or another metric's y in the unit in which it falls as log losses do (:mod:`hpo.core.unit`). What
remains of a loss above some constant is ℓ itself: its L0 lies below zero.
The constants hold at one size and one batch: :class:`ResponseMean` refuses other runs, and the shape model corrects what is
left (:mod:`hpo.core.shape`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hpo.core.learning_rate import GRID, has_rate
from hpo.core.multi_power_law import MultiPowerLaw, fit_multi_power_law
from hpo.core.recipe import Recipe, share_schedule
from hpo.core.response_kernel import Kernel, fit_kernel

FloatArray = NDArray[np.float64]
MIN_RUNS = 3
ENOUGH = 5
"""Runs from which on a kernel holds for rates beyond all of theirs, and a rate has a law of its own among others."""
SAME_SIZE = 0.05
LOWEST_FLOOR = -30.0
"""Of the law of what remains of a loss above some constant, in units of the lowest value."""
AS_GOOD = 1.2
"""Factor by which its errors may be larger than those of log ℓ in the metric's unit."""
Sample = tuple[Recipe, FloatArray]


@dataclass(frozen=True)
class Blend:
    """The mean of two forms: the kernel, fitted to all rates, and the multi-power law of a run's own rate.

    Attributes
    ----------
    laws : tuple of (rate, law)
    """

    kernel: Kernel
    laws: tuple[tuple[float, MultiPowerLaw], ...]

    @property
    def floor(self) -> float:
        """L0 of all rates."""
        return self.kernel.floor

    def log_losses(self, recipe: Recipe, n_steps: float | None) -> FloatArray:
        """Return log L of a run along the grid; ``n_steps`` replaces the run's own."""
        law = next(law for rate, law in self.laws if _close(rate, recipe.lr))
        return 0.5 * (self.kernel.log_losses(recipe, n_steps) + law.log_losses(recipe, n_steps))


@dataclass(frozen=True)
class ResponseMean:
    """A fitted form, and the size and batch it holds for.

    Attributes
    ----------
    longest : float
        Steps of the longest run of the fit.
    rms : float
        Root mean square of the fit's errors of log ℓ.
    rates : tuple of float or None
        The peak rates it holds for; None: all.
    between : tuple of float
        The lowest and the highest peak rate it holds for.
    scale, unit : float
        What log ℓ is multiplied by to be y, up to a constant; and the unit of y. They differ where ℓ is the value itself though
        its log is no log loss.
    """

    form: Kernel | MultiPowerLaw | Blend
    n_params: float | None
    batch_tokens: float | None
    longest: float
    rms: float
    rates: tuple[float, ...] | None = None
    between: tuple[float, float] = (0.0, math.inf)
    scale: float = 1.0
    unit: float = 1.0

    def covers(self, recipe: Recipe | None) -> bool:
        """True if the constants hold for a run: its rate, steps and schedule known, and all as in the fit (within 5 %)."""
        return (
            recipe is not None
            and has_rate(recipe)
            and _close(recipe.n_params, self.n_params)
            and _close(recipe.batch_tokens, self.batch_tokens)
            and (self.rates is None or any(_close(recipe.lr, rate) for rate in self.rates))
            and self._is_between(recipe.lr)
        )

    def _is_between(self, lr: float | None) -> bool:
        low, high = self.between
        return lr is not None and low * (1.0 - SAME_SIZE) <= lr <= high * (1.0 + SAME_SIZE)

    def begins(self, recipe: Recipe) -> float:
        """Return the fraction of training from which on it may hold for a run."""
        return self.form.begins(recipe) if isinstance(self.form, MultiPowerLaw) else 0.0

    def shape(self, recipe: Recipe, fractions: FloatArray) -> FloatArray:
        """Return y(t̂) − y(1) at ``fractions``, shape (n,); constant before the grid's first point."""
        values = self.form.log_losses(recipe, None)
        inside = np.interp(np.log(np.maximum(fractions, GRID[0])), np.log(GRID), values)
        return np.asarray(self.scale * (inside - values[-1]), dtype=np.float64)

    def final(self, recipe: Recipe) -> float:
        """Return y(1), up to a constant, of a run nothing of which has been seen, were it no longer than the longest reference.

        Between rates and schedules the fit interpolates well; how their order changes with the horizon it does not know.
        """
        return self.scale * float(self.form.log_losses(recipe, min(self.longest, float(recipe.n_steps or 0)))[-1])


def fit_responses(samples: Sequence[Sample], unit: float = 1.0, *, is_log: bool = True) -> list[ResponseMean]:
    """Return the response means of complete runs, the best first: none, one, or one for known rates and one for all.

    Parameters
    ----------
    samples : sequence of (recipe, y)
        ``y`` has shape (len(GRID),); NaN where a run was not logged. At least :data:`MIN_RUNS` runs of one size and batch
        (within 5 %), with more than one schedule among them; :data:`ENOUGH`, if they differ in peak rate and length only. Of
        fewer with several rates one that holds between these: beyond them, few runs say nothing of what a rate does.
    unit : float
        Of y (:mod:`hpo.core.unit`).
    is_log : bool
        True if y is the log of a value: one that falls by much may be what a loss has above some constant.
    """
    runs = [(recipe, y) for recipe, y in samples if has_rate(recipe) and np.isfinite(y[-1])]
    if not runs or not are_alike([recipe for recipe, _ in runs]) or _are_of_one_course([recipe for recipe, _ in runs]):
        return []
    origin = 0.0 if unit == 1.0 else min(float(np.nanmin(y)) for _, y in runs)
    scaled = [(recipe, (y - origin) / unit) for recipe, y in runs]
    means = [replace(mean, scale=unit, unit=unit) for mean in _fitted(scaled, 0.0)]
    if not is_log or unit <= 1.0 or not means:
        return means
    remains = [replace(mean, unit=unit) for mean in _fitted(runs, LOWEST_FLOOR)]
    return remains if remains[-1].form.floor < 0 and remains[-1].rms <= AS_GOOD * means[-1].rms * unit else means


def _fitted(runs: Sequence[Sample], lowest_floor: float) -> list[ResponseMean]:
    """Return the means fitted to log ℓ, the one for all last."""
    by_rate: dict[float, list[Sample]] = {}
    for recipe, y in runs:
        rate = next((known for known in by_rate if _close(known, recipe.lr)), recipe.lr or 0.0)
        by_rate.setdefault(rate, []).append((recipe, y))
    if len(by_rate) == 1:
        law = _law_of(runs, MIN_RUNS, lowest_floor)
        return [] if law is None else [_mean(*law, runs, tuple(by_rate))]
    if len(runs) < (MIN_RUNS if _differ_in_schedule(runs) else ENOUGH):
        return []
    kernel, rms = fit_kernel(*_columns(runs), lowest_floor)
    laws = [(rate, law) for rate, own in by_rate.items() if (law := _law_of(own, ENOUGH, lowest_floor)) is not None]
    blend = Blend(kernel, tuple((rate, law) for rate, (law, _) in laws))
    worst = max((rms, *(rms_of_law for _, (_, rms_of_law) in laws)))
    blended = [_mean(blend, worst, runs, tuple(rate for rate, _ in laws))] if laws else []
    known = (0.0, math.inf) if len(runs) >= ENOUGH else (min(by_rate), max(by_rate))
    return [*blended, replace(_mean(kernel, rms, runs, None), between=known)]


def _law_of(runs: Sequence[Sample], least: int, lowest_floor: float) -> tuple[MultiPowerLaw, float] | None:
    """Return the law of runs of one rate and its errors, None for too few runs or schedules."""
    if len(runs) < least or not _differ_in_schedule(runs):
        return None
    return fit_multi_power_law(*_columns(runs), lowest_floor)


def _differ_in_schedule(runs: Sequence[Sample]) -> bool:
    return not all(share_schedule(runs[0][0], recipe) for recipe, _ in runs)


def _columns(runs: Sequence[Sample]) -> tuple[list[Recipe], FloatArray]:
    return [recipe for recipe, _ in runs], np.stack([y for _, y in runs])


def _mean(
    form: Kernel | MultiPowerLaw | Blend, rms: float, runs: Sequence[Sample], rates: tuple[float, ...] | None
) -> ResponseMean:
    first, longest = runs[0][0], max(float(recipe.n_steps or 0) for recipe, _ in runs)
    return ResponseMean(form, first.n_params, first.batch_tokens, longest, rms, rates)


def are_alike(recipes: Sequence[Recipe | None]) -> bool:
    """True if runs are of one size and one batch (within 5 %): one set of constants may hold for them."""
    known = [r for r in recipes if r is not None]
    return all(_close(r.n_params, known[0].n_params) and _close(r.batch_tokens, known[0].batch_tokens) for r in known)


def _are_of_one_course(recipes: Sequence[Recipe]) -> bool:
    """True if all runs have one schedule and one length: there is nothing for a mean to join."""
    first = recipes[0]
    return all(share_schedule(first, recipe) and _close(first.n_steps, recipe.n_steps) for recipe in recipes)


def _close(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is None and b is None
    return bool(abs(np.log(a / b)) <= SAME_SIZE)
