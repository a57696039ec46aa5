"""Where a run lies among others: the logs of its controls, and its schedule's values."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hpo.core.recipe import Recipe
from hpo.core.remembered import MOST

FloatArray = NDArray[np.float64]
COLLAPSED_FROM = 2.5e6
"""Parameters. Measured on our own byte-level models of 1e5 and on recorded language models of 1e8: curves shift by .06 of log
loss an e-fold of size there, by less than .01 here (bench/LOG.md)."""
SAME_KIND = 0.05
Kind = tuple[float | None, ...]
"""A run's parameters, tokens and steps."""
SCHEDULE_GRID: FloatArray = np.linspace(0.05, 1.0, 20)
_NOWHERE = 10.0


@dataclass(frozen=True)
class Coordinates:
    """Where a run lies: the logs of its known controls by name, its schedule's values (None if unknown), or only its name."""

    controls: dict[str, float]
    schedule: FloatArray | None = field(default=None, compare=False)
    label: str = ""

    @property
    def is_scheduled(self) -> bool:
        """True if the schedule is known, or has a name by which runs that share it are told."""
        return self.schedule is not None or bool(self.label)

    @property
    def place(self) -> FloatArray:
        """The schedule's values; where they are not known, values far from all schedules but those of the same name."""
        if self.schedule is not None:
            return self.schedule
        return np.full_like(SCHEDULE_GRID, _NOWHERE + zlib.crc32(self.label.encode()))


@lru_cache(MOST)
def coordinates_of(recipe: Recipe | None) -> Coordinates:
    """Return the coordinates of a run with ``recipe``."""
    if recipe is None:
        return Coordinates({})
    known = {"log_tau": recipe.tau, "log_tpp": recipe.tpp}
    controls = {name: float(np.log(value)) for name, value in known.items() if value is not None}
    if recipe.tau is not None and recipe.n_tokens is not None:
        controls["log_rate"] = -float(np.log(recipe.tau * recipe.n_tokens))
    if recipe.lr is not None:
        controls["log_lr"] = math.log(recipe.lr)
    if recipe.n_steps is not None:
        controls["log_length"] = math.log(recipe.n_steps)
    if recipe.n_params is not None:
        controls["log_n"] = size_coordinate(recipe.n_params)
    if not recipe.schedule.is_known:
        return Coordinates(controls, label=recipe.schedule.label)
    return Coordinates(controls, recipe.schedule(SCHEDULE_GRID, recipe.warmup_fraction or 0.0))


def kind_of(recipe: Recipe | None) -> Kind:
    """Return a run's size and length, as far as they are known: parameters, tokens and steps."""
    return (None, None, None) if recipe is None else (recipe.n_params, recipe.n_tokens, recipe.n_steps)


@lru_cache(MOST)
def are_of_one_kind(a: Kind, b: Kind) -> bool:
    """True if how well runs of one kind are forecast says how well those of the other are: each quantity within 5 %."""
    return all((x is None) == (y is None) for x, y in zip(a, b, strict=True)) and unlike(a, b) <= SAME_KIND


def unlike(a: Kind, b: Kind) -> float:
    """Return the largest difference of two kinds in a quantity that both know, in e-folds; 0 where they share none."""
    return max((abs(math.log(x / y)) for x, y in zip(a, b, strict=True) if x is not None and y is not None), default=0.0)


def size_coordinate(n_params: float) -> float:
    """Return u(N) = log N − 2·√(N_c/N): how far apart sizes are, as far as their curves' shapes go.

    du/d log N = 1 + √(N_c/N) with N_c = :data:`COLLAPSED_FROM`: sizes of millions and more are apart by their logs; below, a
    family has hardly begun to collapse, and each step in size changes the shape several times as much.
    """
    return float(np.log(n_params) - 2.0 * np.sqrt(COLLAPSED_FROM / n_params))
