"""What the forms of a response mean share: a run's learning rate and its sum along training, and curves that are remembered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpo.core.recipe import Recipe

FloatArray = NDArray[np.float64]
GRID: FloatArray = np.concatenate((np.geomspace(0.002, 0.05, 12)[:-1], np.linspace(0.05, 1.0, 58)))
"""t̂ at which response means are evaluated."""
FIT_FROM = 0.05
"""t̂ from which on fits use a curve."""
ROBUST = 0.003
"""Error of log L from which on a point counts less in a fit."""
FINE: FloatArray = np.linspace(0.0, 1.0, 1141)
"""t̂ at which the rate is summed."""


class Rate(NamedTuple):
    """A run's learning rate and its sum (rate × steps) at :data:`FINE`, its number of steps, its peak rate."""

    along: FloatArray
    summed: FloatArray
    steps: float
    peak: float


class ResponseForm(ABC):
    """Fitted constants of a form; hashable."""

    @abstractmethod
    def losses(self, recipe: Recipe, n_steps: float | None) -> FloatArray:
        """Return L of a run along the grid; ``n_steps`` replaces the run's own."""

    def log_losses(self, recipe: Recipe, n_steps: float | None) -> FloatArray:
        """Return log L of a run along the grid, read-only; ``n_steps`` replaces the run's own."""
        return _log_losses(self, recipe, n_steps)


@lru_cache(maxsize=1024)
def _log_losses(form: ResponseForm, recipe: Recipe, n_steps: float | None) -> FloatArray:
    """Return log L of a run along the grid; a running trial is asked about again and again."""
    values: FloatArray = np.log(form.losses(recipe, n_steps))
    values.setflags(write=False)
    return values


def has_rate(recipe: Recipe) -> bool:
    """True if peak rate, number of steps and schedule of a run are known."""
    return recipe.lr is not None and recipe.n_steps is not None and recipe.schedule.is_known


def summed_rate(recipe: Recipe, n_steps: float | None = None) -> Rate:
    """Return η and S = ∫ η dt of a run; ``n_steps`` replaces its own.

    Raises
    ------
    ValueError
        The peak rate or the number of steps is not known.
    """
    steps = recipe.n_steps if n_steps is None else n_steps
    if recipe.lr is None or steps is None:
        raise ValueError("the response mean needs lr and the number of steps")
    eta = recipe.lr * recipe.schedule(FINE, recipe.warmup_fraction or 0.0)
    summed = np.concatenate(([0.0], np.cumsum(0.5 * (eta[1:] + eta[:-1]) * np.diff(FINE)))) * steps
    return Rate(np.asarray(eta, dtype=np.float64), np.asarray(summed, dtype=np.float64), float(steps), recipe.lr)
