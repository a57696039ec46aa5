"""A checked search space: Optuna distributions, full grids, distinct candidates, derived settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from search_spaces.definition import (
    CategoricalParameter,
    Condition,
    Definition,
    FloatParameter,
    IntParameter,
    same_choice,
)
from search_spaces.derived import RunContext, derive

if TYPE_CHECKING:
    import optuna

AnyParameter = FloatParameter | IntParameter | CategoricalParameter
Point = dict[str, Any]
_LARGEST_GRID = 1_000_000
_DRAWS_PER_POINT = 16


class SearchSpace:
    """The points of a sweep.

    Parameters
    ----------
    definition : Definition
        A checked file; :func:`search_spaces.load_space` makes one.

    Attributes
    ----------
    parameters : dict of str to parameter
        In the order of the file.
    fixed : dict
        Settings that every point shares; they are not part of a point, but of what :meth:`derive` returns.
    first : list of dict
        Points to try first.

    Raises
    ------
    ValueError
        A condition on an unknown parameter or value, a parameter that is also fixed, τ together with a weight decay, or a
        first point outside the space.
    """

    def __init__(self, definition: Definition) -> None:
        self.description = definition.description
        self.parameters: dict[str, AnyParameter] = dict(definition.parameters)
        self.fixed: dict[str, Any] = dict(definition.fixed)
        self._check_names()
        self._check_conditions()
        self.first: list[Point] = [self.checked(point, f"first.{k}") for k, point in enumerate(definition.first)]

    @property
    def size(self) -> int | None:
        """Number of distinct points, None if a parameter is continuous."""
        return self._count(list(self.parameters), {})

    def distributions(self) -> dict[str, optuna.distributions.BaseDistribution]:
        """Return Optuna's distribution of every parameter, conditional ones included."""
        from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

        made: dict[str, optuna.distributions.BaseDistribution] = {}
        for name, one in self.parameters.items():
            if isinstance(one, CategoricalParameter):
                made[name] = CategoricalDistribution(one.choices)
            elif isinstance(one, IntParameter):
                made[name] = IntDistribution(one.low, _last(one), log=one.log, step=one.step)
            else:
                made[name] = FloatDistribution(one.low, _last(one), log=one.log, step=one.step)
        return made

    def suggest(self, trial: optuna.trial.BaseTrial) -> Point:
        """Return a point drawn by the trial's sampler; parameters whose condition fails are neither asked for nor returned."""
        point: Point = {}
        for name, one in self.parameters.items():
            if not _active(one, point):
                continue
            if isinstance(one, CategoricalParameter):
                point[name] = trial.suggest_categorical(name, one.choices)
            elif isinstance(one, IntParameter):
                point[name] = trial.suggest_int(name, one.low, _last(one), log=one.log, step=one.step)
            else:
                point[name] = trial.suggest_float(name, one.low, _last(one), log=one.log, step=one.step)
        return point

    def grid(self) -> list[Point]:
        """Return the full grid, the last parameter varying fastest.

        Raises
        ------
        ValueError
            A parameter without grid values, or a grid of more than a million points.
        """
        values: dict[str, list[Any]] = {}
        for name, one in self.parameters.items():
            listed = one.grid_values()
            if listed is None:
                raise ValueError(
                    f"parameters.{name}: a full grid expected grid values or points, or search.candidates; found neither"
                )
            values[name] = listed
        if math.prod(map(len, values.values())) > _LARGEST_GRID:
            raise ValueError(f"parameters: expected a grid of at most {_LARGEST_GRID} points; found more")
        return list(self._product(values))

    def candidates(self, n: int | Literal["grid"], seed: int = 0) -> list[Point]:
        """Return distinct points: the full grid, or the first points and then scrambled Sobol draws.

        Parameters
        ----------
        n : int or "grid"
            How many.
        seed : int
            The same seed gives the same points, and a larger ``n`` only appends, except where the draws miss points of a
            space that is nearly used up.

        Raises
        ------
        ValueError
            ``n`` below 1 or above the number of points in the space.
        """
        if n == "grid":
            return self.grid()
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise ValueError(f"candidates must be a whole number of at least 1, or 'grid'; found {n!r}")
        size = self.size
        if size is not None and n > size:
            raise ValueError(f"candidates must be at most the {size} points of the space; found {n}")
        chosen: dict[tuple[Any, ...], Point] = {}
        for point in self._in_order(n, size, seed):
            chosen.setdefault(_key(point), point)
            if len(chosen) == n:
                return list(chosen.values())
        raise ValueError(f"candidates must be at most the distinct points of the space; found {n} > {len(chosen)}")

    def checked(self, point: Mapping[str, Any], where: str = "settings") -> Point:
        """Return ``point`` in the space's own types (a ``16.0`` for an integer becomes 16).

        Raises
        ------
        ValueError
            An unknown, missing or inactive parameter, or a value outside its range; ``where`` starts the message.
        """
        unknown = [name for name in point if name not in self.parameters]
        if unknown:
            raise ValueError(f"{where}.{unknown[0]}: expected one of {', '.join(self.parameters)}; found {unknown[0]!r}")
        out: Point = {}
        for name, one in self.parameters.items():
            if not _active(one, out):
                if name in point:
                    raise ValueError(f"{where}.{name}: expected none unless {_in_words(one.when)}; found {point[name]!r}")
                continue
            if name not in point:
                raise ValueError(f"{where}.{name}: expected {one.expected}; found none")
            value = _own_type(one, point[name])
            if not one.holds(value):
                raise ValueError(f"{where}.{name}: expected {one.expected}; found {point[name]!r}")
            out[name] = value
        return out

    def derive(self, settings: Mapping[str, Any], run: RunContext) -> dict[str, Any]:
        """Return the training settings of a point at the size of ``run``; see :func:`search_spaces.derived.derive`."""
        return derive({**self.fixed, **settings}, run)

    def _in_order(self, n: int, size: int | None, seed: int) -> Iterator[Point]:
        """Yield first points, Sobol draws, and at last, in a finite space, every point in a random order."""
        yield from self.first
        yield from self._sobol(n * _DRAWS_PER_POINT, seed)
        if size is not None and size <= _LARGEST_GRID:
            every = list(self._product({name: one.values() for name, one in self.parameters.items()}))
            yield from (every[k] for k in np.random.default_rng(seed).permutation(len(every)))

    def _sobol(self, n: int, seed: int) -> Iterator[Point]:
        from scipy.stats import qmc  # half a second to import, and only needed here

        draws = qmc.Sobol(len(self.parameters), scramble=True, seed=np.random.default_rng(seed))
        for k in range(max(n - 1, 1).bit_length() + 1):  # blocks of 1, 1, 2, 4, …: only whole powers of two stay balanced
            for row in draws.random(1 if k == 0 else 2 ** (k - 1)):
                yield self._at(row)

    def _at(self, row: Any) -> Point:
        point: Point = {}
        for (name, one), unit in zip(self.parameters.items(), row, strict=True):
            if _active(one, point):
                point[name] = one.at(min(float(unit), math.nextafter(1.0, 0.0)))
        return point

    def _product(self, values: Mapping[str, list[Any]]) -> Iterator[Point]:
        points: list[Point] = [{}]
        for name, listed in values.items():
            one = self.parameters[name]
            points = (
                [p | {name: v} for p in points for v in listed]
                if not one.when
                else [extended for p in points for extended in ([p | {name: v} for v in listed] if _active(one, p) else [p])]
            )
        return iter(points)

    def _count(self, names: list[str], point: Point) -> int | None:
        """Count the points over ``names``, given the choices made before; branches only where a condition looks."""
        if not names:
            return 1
        name, rest = names[0], names[1:]
        one = self.parameters[name]
        if not _active(one, point):
            return self._count(rest, point)
        if any(name in self.parameters[later].when for later in rest):
            parts = [self._count(rest, {**point, name: value}) for value in one.values()]
            return None if any(part is None for part in parts) else sum(part or 0 for part in parts)
        others = self._count(rest, point)
        return None if one.size is None or others is None else one.size * others

    def _check_names(self) -> None:
        both = [name for name in self.parameters if name in self.fixed]
        if both:
            raise ValueError(f"fixed.{both[0]}: expected no parameter that is searched; found {both[0]!r}")
        known = {*self.parameters, *self.fixed}
        for one, other in (("tau", "weight_decay"), ("batch_sequences", "batch_tokens")):
            if one in known and other in known and not self._never_together(one, other):
                place = f"parameters.{other}" if other in self.parameters else f"fixed.{other}"
                raise ValueError(f"{place}: expected {one} or {other}, not both; found both")

    def _never_together(self, one: str, other: str) -> bool:
        """Return True if both are conditional (then a point is checked when it is derived)."""
        return all(name in self.parameters and self.parameters[name].when for name in (one, other))

    def _check_conditions(self) -> None:
        earlier: list[str] = []
        for name, one in self.parameters.items():
            for parent, wanted in one.when.items():
                place = f"parameters.{name}.when.{parent}"
                found = self.parameters.get(parent)
                if parent not in earlier or not isinstance(found, CategoricalParameter):
                    raise ValueError(f"{place}: expected an earlier categorical parameter; found {parent!r}")
                missing = [value for value in _as_list(wanted) if not found.holds(value)]
                if missing:
                    raise ValueError(f"{place}: expected {found.expected}; found {missing[0]!r}")
            earlier.append(name)


def _active(one: AnyParameter, point: Mapping[str, Any]) -> bool:
    return all(
        parent in point and any(same_choice(point[parent], value) for value in _as_list(wanted))
        for parent, wanted in one.when.items()
    )


def _as_list(wanted: Any) -> list[Any]:
    return wanted if isinstance(wanted, list) else [wanted]


def _in_words(when: Condition) -> str:
    return " and ".join(f"{parent} is {' or '.join(map(str, _as_list(wanted)))}" for parent, wanted in when.items())


def _own_type(one: AnyParameter, value: Any) -> Any:
    if isinstance(value, bool) or isinstance(one, CategoricalParameter) or not isinstance(value, int | float):
        return value
    if isinstance(one, FloatParameter):
        return float(value)
    return int(value) if float(value).is_integer() else value


def _last(one: FloatParameter | IntParameter) -> Any:
    """Largest value on the step: Optuna would else warn and cut the range itself."""
    return one.high if one.step in (None, 1) else one.values()[-1]


def _key(point: Point) -> tuple[Any, ...]:
    return tuple((name, type(value) is bool, value) for name, value in point.items())
