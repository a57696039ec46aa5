"""A run's learning rate and its sum along training, as the response means need them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hpo.core.recipe import Recipe

FloatArray = NDArray[np.float64]
GRID: FloatArray = np.concatenate((np.geomspace(0.002, 0.05, 12)[:-1], np.linspace(0.05, 1.0, 58)))
"""t̂ at which response means are evaluated."""
FINE: FloatArray = np.linspace(0.0, 1.0, 1141)
"""t̂ at which the rate is summed."""


def has_rate(recipe: Recipe) -> bool:
    """True if peak rate, number of steps and schedule of a run are known."""
    return recipe.lr is not None and recipe.n_steps is not None and recipe.schedule.is_known


def summed_rate(recipe: Recipe, n_steps: float | None = None) -> tuple[FloatArray, FloatArray, float]:
    """Return η and S = ∫ η dt (rate × steps) at :data:`FINE`, and the number of steps; ``n_steps`` replaces the run's own.

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
    return np.asarray(eta, dtype=np.float64), np.asarray(summed, dtype=np.float64), float(steps)
