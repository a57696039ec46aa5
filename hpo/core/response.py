"""The response mean: one curve for all schedules, learning rates and horizons of one model size.

So a schedule never seen, or a longer horizon, has a curve before any run of it is finished. Its form is the multi-power law
where all references have one peak rate (:mod:`hpo.core.multi_power_law`), else a response kernel
(:mod:`hpo.core.response_kernel`), and for rates with enough references the mean of both: they err in different ways.

It is fitted to log ℓ: log L, or another metric's y in the unit in which it falls as log losses do (:mod:`hpo.core.unit`).
The constants hold at one size and one batch: :class:`ResponseMean` refuses other runs, and the shape model corrects what is
left (:mod:`hpo.core.shape`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpo.core.learning_rate import GRID, has_rate
from hpo.core.multi_power_law import MultiPowerLaw, fit_multi_power_law
from hpo.core.recipe import Recipe, share_schedule
from hpo.core.response_kernel import Kernel, fit_kernel

FloatArray = NDArray[np.float64]
MIN_RUNS = 5
MIN_RUNS_OF_ONE_RATE = 3
SAME_SIZE = 0.05
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
    unit : float
        What log ℓ is multiplied by to be y, up to a constant.
    """

    form: Kernel | MultiPowerLaw | Blend
    n_params: float | None
    batch_tokens: float | None
    longest: float
    rms: float
    rates: tuple[float, ...] | None = None
    unit: float = 1.0

    def covers(self, recipe: Recipe | None) -> bool:
        """True if the constants hold for a run: its rate, steps and schedule known, and all as in the fit (within 5 %)."""
        return (
            recipe is not None
            and has_rate(recipe)
            and _close(recipe.n_params, self.n_params)
            and _close(recipe.batch_tokens, self.batch_tokens)
            and (self.rates is None or any(_close(recipe.lr, rate) for rate in self.rates))
        )

    def begins(self, recipe: Recipe) -> float:
        """Return the fraction of training from which on it may hold for a run."""
        return self.form.begins(recipe) if isinstance(self.form, MultiPowerLaw) else 0.0

    def shape(self, recipe: Recipe, fractions: FloatArray) -> FloatArray:
        """Return y(t̂) − y(1) at ``fractions``, shape (n,); constant before the grid's first point."""
        values = self.form.log_losses(recipe, None)
        inside = np.interp(np.log(np.maximum(fractions, GRID[0])), np.log(GRID), values)
        return np.asarray(self.unit * (inside - values[-1]), dtype=np.float64)

    def final(self, recipe: Recipe) -> float:
        """Return y(1), up to a constant, of a run nothing of which has been seen, were it no longer than the longest reference.

        Between rates and schedules the fit interpolates well; how their order changes with the horizon it does not know.
        """
        return self.unit * float(self.form.log_losses(recipe, min(self.longest, float(recipe.n_steps or 0)))[-1])


def fit_responses(samples: Sequence[Sample], unit: float = 1.0) -> list[ResponseMean]:
    """Return the response means of complete runs, the best first: none, one, or one for known rates and one for all.

    Parameters
    ----------
    samples : sequence of (recipe, y)
        ``y`` has shape (len(GRID),); NaN where a run was not logged. At least :data:`MIN_RUNS` runs of one size and batch
        (within 5 %), with more than one schedule or length among them; fewer do, of one peak rate.
    unit : float
        Of y (:mod:`hpo.core.unit`).
    """
    known = [(recipe, y) for recipe, y in samples if has_rate(recipe) and np.isfinite(y[-1])]
    origin = 0.0 if unit == 1.0 else min((float(np.nanmin(y)) for _, y in known), default=0.0)
    runs = [(recipe, (y - origin) / unit) for recipe, y in known]
    if not runs or not are_alike([recipe for recipe, _ in runs]) or _are_of_one_course([recipe for recipe, _ in runs]):
        return []
    by_rate: dict[float, list[Sample]] = {}
    for recipe, y in runs:
        rate = next((known for known in by_rate if _close(known, recipe.lr)), recipe.lr or 0.0)
        by_rate.setdefault(rate, []).append((recipe, y))
    if len(by_rate) == 1:
        law = _law_of(runs, MIN_RUNS_OF_ONE_RATE)
        return [] if law is None else [_mean(*law, runs, tuple(by_rate), unit)]
    if len(runs) < MIN_RUNS:
        return []
    kernel, rms = fit_kernel(*_columns(runs))
    laws = [(rate, law) for rate, own in by_rate.items() if (law := _law_of(own, MIN_RUNS)) is not None]
    blend = Blend(kernel, tuple((rate, law) for rate, (law, _) in laws))
    worst = max((rms, *(rms_of_law for _, (_, rms_of_law) in laws)))
    blended = [_mean(blend, worst, runs, tuple(rate for rate, _ in laws), unit)] if laws else []
    return [*blended, _mean(kernel, rms, runs, None, unit)]


def _law_of(runs: Sequence[Sample], least: int) -> tuple[MultiPowerLaw, float] | None:
    """Return the law of runs of one rate and its errors, None for too few runs or schedules."""
    if len(runs) < least or all(share_schedule(runs[0][0], recipe) for recipe, _ in runs):
        return None
    return fit_multi_power_law(*_columns(runs))


def _columns(runs: Sequence[Sample]) -> tuple[list[Recipe], FloatArray]:
    return [recipe for recipe, _ in runs], np.stack([y for _, y in runs])


def _mean(
    form: Kernel | MultiPowerLaw | Blend, rms: float, runs: Sequence[Sample], rates: tuple[float, ...] | None, unit: float
) -> ResponseMean:
    first, longest = runs[0][0], max(float(recipe.n_steps or 0) for recipe, _ in runs)
    return ResponseMean(form, first.n_params, first.batch_tokens, longest, rms, rates, unit)


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
