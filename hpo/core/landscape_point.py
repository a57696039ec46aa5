"""Where a run lies in a landscape of settings: its recipe's logs, its schedule, and the values searched."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpo.core.recipe import Recipe

_SCHEDULE_GRID = np.linspace(0.05, 1.0, 20)
SCHEDULE_KEYS = tuple(f"schedule.{k:02d}" for k in range(_SCHEDULE_GRID.size))


@dataclass(frozen=True)
class Point:
    """A run's place in the landscape: numbers by name, words by name, and the final value expected beforehand."""

    numbers: Mapping[str, float]
    words: Mapping[str, str]
    expected: float = 0.0

    def has(self, dimension: str) -> bool:
        """True if the point has a place along one of :attr:`hpo.core.landscape.Landscape.dimensions`."""
        if dimension == "schedule":
            return any(name.startswith("schedule.") for name in self.numbers)
        return dimension[1:] in self.words if dimension.startswith("=") else dimension in self.numbers

    def searched(self, name: str) -> float | str | None:
        """Return the value of a searched setting, None if the point lacks it."""
        return self.words.get(name, self.numbers.get(name))


def point_of(recipe: Recipe | None, settings: Mapping[str, Any], expected: float = 0.0) -> Point:
    """Return where a run lies: its recipe's logs, its schedule, and the values searched.

    ``expected`` is a final value known up to a constant beforehand, for instance of the response mean; the process then
    describes departures from it. Numbers above zero enter as logs, others as they are; booleans and strings are words;
    anything else is left out.
    """
    numbers, words = _recipe_numbers(recipe), {}
    if recipe is not None and not recipe.schedule.is_known:
        words["schedule"] = str(recipe.schedule)
    for name, value in settings.items():
        if isinstance(value, bool | str):
            words[name] = str(value)
        elif isinstance(value, int | float) and math.isfinite(value):
            numbers[name] = math.log(value) if value > 0 else float(value)
            if value <= 0:
                words[f"{name}≤0"] = str(value)
    return Point(numbers, words, expected)


def _recipe_numbers(recipe: Recipe | None) -> dict[str, float]:
    if recipe is None:
        return {}
    raw = {
        "recipe.lr": recipe.base_lr or recipe.lr,
        "recipe.weight_decay": recipe.base_weight_decay or recipe.weight_decay,
        "recipe.batch_tokens": recipe.batch_tokens,
        "recipe.n_params": recipe.n_params,
        "recipe.n_tokens": recipe.n_tokens or recipe.total_steps,
    }
    numbers = {name: math.log(value) for name, value in raw.items() if value}
    if recipe.schedule.is_known:
        eta = recipe.schedule(_SCHEDULE_GRID, recipe.warmup_fraction or 0.0)
        numbers |= {f"schedule.{k:02d}": float(v) for k, v in enumerate(eta)}
    return numbers


def dimensions_of(points: Sequence[Point]) -> tuple[str, ...]:
    """Return the settings that every point has and that vary, each once: a copy of another one is left out."""
    found: dict[tuple[float, ...], str] = {}
    schedule = False
    for name in sorted(set.intersection(*(set(p.numbers) for p in points)), key=lambda n: (not n.startswith("recipe."), n)):
        column = np.array([p.numbers[name] for p in points])
        if np.ptp(column) <= 1e-9:
            continue
        if name.startswith("schedule."):
            schedule = True
        else:
            found.setdefault(tuple(np.round((column - column.min()) / np.ptp(column), 6)), name)
    words = [
        f"={name}"
        for name in sorted(set.intersection(*(set(p.words) for p in points)))
        if 1 < len({p.words[name] for p in points}) <= len(points) // 2
    ]
    return (*found.values(), *(["schedule"] if schedule else []), *words)
