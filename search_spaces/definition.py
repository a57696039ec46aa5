"""The schema of a search-space file.

::

    description: what is swept
    fixed: {tau: 0.2}                                   # the same for every point
    parameters:
      lr: {type: float, low: 1.0e-3, high: 1.0e-1, log: true, points: 9}
      batch_sequences: {type: int, low: 4, high: 64, log: true, grid: [4, 16, 64]}
      optimizer: {type: categorical, choices: [adamw, sgd]}
      momentum: {type: float, low: 0.8, high: 0.99, points: 3, when: {optimizer: sgd}}
    first: [{lr: 1.0e-2, batch_sequences: 16, optimizer: adamw}]      # points to try first

``grid`` lists the values of a full grid, ``points`` spaces that many from ``low`` to ``high`` (evenly on the parameter's
scale). ``when`` names earlier categorical parameters and the value, or list of values, for which this one exists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Choice = None | bool | int | float | str


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("expected a number")
    return value


Number = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_no_bool)]
Whole = Annotated[int, BeforeValidator(_no_bool)]
Condition = dict[str, Choice | list[Choice]]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Ranged(_Strict):
    """What float and integer parameters share."""

    log: bool = False
    points: Annotated[Whole, Field(ge=1, le=100_000)] | None = None
    when: Condition = Field(default_factory=dict)

    def grid_values(self) -> list[Any] | None:
        """Return the values of a full grid, increasing; None if the file states none."""
        grid: list[Any] | None = getattr(self, "grid", None)
        if grid is not None:
            return sorted(set(grid))
        low, high = getattr(self, "low"), getattr(self, "high")  # noqa: B009 - declared by the two subclasses
        if self.points is None:
            return [low] if low == high else None
        spaced = np.geomspace(low, high, self.points) if self.log else np.linspace(low, high, self.points)
        return sorted({self.nearest(float(value)) for value in spaced})

    def nearest(self, value: float) -> Any:
        """Return the legal value closest to ``value`` (floats: within the range and on the step)."""
        raise NotImplementedError

    def _check_range(self, low: float, high: float, step: float | None, grid: list[Any] | None) -> None:
        if low > high:
            raise ValueError(f"low: expected at most high, {high:g}; found {low:g}")
        if self.log and low <= 0:
            raise ValueError(f"low: expected a value above 0 on a log scale; found {low:g}")
        if self.log and step is not None:
            raise ValueError(f"step: expected no step on a log scale; found step {step:g}")
        if grid is not None and self.points is not None:
            raise ValueError("points: expected grid or points, not both; found both")
        outside = [value for value in grid or [] if not low <= value <= high]
        if outside:
            raise ValueError(f"grid: expected values within [{low:g}, {high:g}]; found {outside[0]:g}")


def _range_from_grid(data: Any) -> Any:
    """Let a grid alone state its range."""
    if isinstance(data, Mapping) and isinstance(data.get("grid"), list) and data["grid"]:
        try:
            values = [float(value) for value in data["grid"]]
        except (TypeError, ValueError):
            return data  # the field's own message is better
        return {"low": min(values), "high": max(values), **data}
    return data


class FloatParameter(_Ranged):
    """A real number in [low, high]."""

    type: Literal["float"]
    low: Number
    high: Number
    step: Annotated[Number, Field(gt=0)] | None = None
    grid: Annotated[list[Number], Field(min_length=1)] | None = None

    _grid_range = model_validator(mode="before")(_range_from_grid)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_range(self.low, self.high, self.step, self.grid)
        return self

    @property
    def size(self) -> int | None:
        """Number of distinct values, None if continuous."""
        if self.low == self.high:
            return 1
        return None if self.step is None else math.floor((self.high - self.low) / self.step + 1e-9) + 1

    def values(self) -> list[float]:
        """Return every value of a parameter with a step."""
        return [self.low + k * (self.step or 0.0) for k in range(self.size or 0)]

    def nearest(self, value: float) -> float:
        """Return the legal value closest to ``value``."""
        if self.step is not None:
            k = min(round((value - self.low) / self.step), (self.size or 1) - 1)
            return self.low + max(k, 0) * self.step
        return min(max(value, self.low), self.high)

    def at(self, unit: float) -> float:
        """Return the value at ``unit`` in [0, 1) of the parameter's scale."""
        if self.step is not None:
            return self.low + int(unit * (self.size or 1)) * self.step
        if self.log:
            return self.nearest(math.exp(math.log(self.low) + unit * (math.log(self.high) - math.log(self.low))))
        return self.nearest(self.low + unit * (self.high - self.low))

    def holds(self, value: Any) -> bool:
        """Return True if ``value`` is legal (any number in the range; the step is only for drawing)."""
        return isinstance(value, int | float) and not isinstance(value, bool) and self.low <= value <= self.high

    @property
    def expected(self) -> str:
        """What :meth:`holds` accepts, in words."""
        return f"a number in [{self.low:g}, {self.high:g}]"


class IntParameter(_Ranged):
    """A whole number in [low, high]."""

    type: Literal["int"]
    low: Whole
    high: Whole
    step: Annotated[Whole, Field(ge=1)] = 1
    grid: Annotated[list[Whole], Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _grid_range(cls, data: Any) -> Any:
        return _range_from_grid(data)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_range(self.low, self.high, None if self.step == 1 else self.step, self.grid)
        return self

    @property
    def size(self) -> int | None:
        """Number of distinct values."""
        return (self.high - self.low) // self.step + 1

    def values(self) -> list[int]:
        """Return every value."""
        return list(range(self.low, self.high + 1, self.step))

    def nearest(self, value: float) -> int:
        """Return the legal value closest to ``value``."""
        k = round((value - self.low) / self.step)
        return self.low + min(max(k, 0), (self.high - self.low) // self.step) * self.step

    def at(self, unit: float) -> int:
        """Return the value at ``unit`` in [0, 1) of the parameter's scale."""
        if self.log:  # as Optuna: uniform in the log of [low − ½, high + ½]
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            return self.nearest(math.exp(low + unit * (high - low)))
        return self.low + int(unit * ((self.high - self.low) // self.step + 1)) * self.step

    def holds(self, value: Any) -> bool:
        """Return True if ``value`` is a whole number in the range."""
        return isinstance(value, int) and not isinstance(value, bool) and self.low <= value <= self.high

    @property
    def expected(self) -> str:
        """What :meth:`holds` accepts, in words."""
        return f"a whole number in [{self.low}, {self.high}]"


class CategoricalParameter(_Strict):
    """One of a list of values."""

    type: Literal["categorical"]
    choices: Annotated[list[Choice], Field(min_length=1)]
    when: Condition = Field(default_factory=dict)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        twice = [c for k, c in enumerate(self.choices) if any(same_choice(c, other) for other in self.choices[:k])]
        if twice:
            raise ValueError(f"choices: expected distinct values; found {twice[0]!r} twice")
        return self

    @property
    def size(self) -> int | None:
        """Number of choices."""
        return len(self.choices)

    def values(self) -> list[Choice]:
        """Return every choice."""
        return list(self.choices)

    def grid_values(self) -> list[Any] | None:
        """Return every choice: all are on a full grid."""
        return list(self.choices)

    def at(self, unit: float) -> Choice:
        """Return the choice at ``unit`` in [0, 1)."""
        return self.choices[int(unit * len(self.choices))]

    def holds(self, value: Any) -> bool:
        """Return True if ``value`` is a choice."""
        return any(same_choice(value, choice) for choice in self.choices)

    @property
    def expected(self) -> str:
        """What :meth:`holds` accepts, in words."""
        return "one of " + ", ".join(map(str, self.choices))


Parameter = Annotated[FloatParameter | IntParameter | CategoricalParameter, Field(discriminator="type")]


class Definition(_Strict):
    """A whole search-space file, checked."""

    description: str = ""
    parameters: Annotated[dict[str, Parameter], Field(min_length=1)]
    fixed: dict[str, Any] = Field(default_factory=dict)
    first: list[dict[str, Any]] = Field(default_factory=list)


def same_choice(a: Any, b: Any) -> bool:
    """Return True if two choices are one: equal, and not a truth value on one side only (1 is not ``true``)."""
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)
