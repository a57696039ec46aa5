"""Learning-rate schedules as functions of the fraction of training.

A schedule maps t̂ = t/T in [0, 1] to the multiplier η(t̂) in [0, 1] of the peak learning rate. Its *shape* is
what must match for two runs to collapse, so warm-up is kept apart: :meth:`Schedule.__call__` takes the warm-up
fraction as an argument, and :func:`schedules_match` compares two schedules where both have finished warming up.
The shapes themselves are in :mod:`hpo.core.schedule_shapes`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hpo.core.schedule_shapes import CONSTANT, COSINE, EXPONENTIAL, LINEAR, STEP, WSD, FloatArray, Shape

Value = float | str | tuple[float, ...]

MATCH_TOLERANCE = 0.05


SHAPES: dict[str, Shape] = {shape.name: shape for shape in (CONSTANT, LINEAR, COSINE, WSD, STEP, EXPONENTIAL)}
"""Every shape by name."""


@dataclass(frozen=True)
class Schedule:
    """A named learning-rate schedule.

    Parameters
    ----------
    name : str
        A key of :data:`SHAPES`, or ``"recorded"`` (interpolates ``points``), or ``"unknown"`` (only a label: equal
        to schedules of the same label, and its values are NaN).
    parameters : tuple of (name, value)
        Arguments of the shape; build them with :func:`schedule`.
    points : tuple of (t̂, η)
        For ``"recorded"``: increasing t̂, η scaled to a peak of 1, warm-up included.
    label : str
        For ``"unknown"`` and ``"recorded"``: the name under which the run was recorded.
    """

    name: str
    parameters: tuple[tuple[str, Value], ...] = ()
    points: tuple[tuple[float, float], ...] = field(default=(), repr=False)
    label: str = ""

    def __call__(self, fraction: ArrayLike, warmup_fraction: float = 0.0) -> FloatArray:
        """Return η(t̂) in [0, 1] for ``fraction`` (any shape), after a linear warm-up over ``warmup_fraction``.

        The warm-up rises linearly from 0 at t̂ = 0; linear, cosine and exponential decay run from its end to t̂ = 1.
        ``"recorded"`` schedules hold their own warm-up and ignore the argument; ``"unknown"`` ones give NaN.
        """
        t = np.asarray(fraction, dtype=np.float64)
        if self.name == "unknown":
            return np.full_like(t, np.nan)
        if self.name == "recorded":
            known = np.asarray(self.points)
            return np.asarray(np.interp(t, known[:, 0], known[:, 1]), dtype=np.float64)
        shape = SHAPES[self.name]
        position = t if shape.counts_warmup else (t - warmup_fraction) / (1 - warmup_fraction)
        after = shape.value(np.clip(position, 0.0, 1.0), **dict(self.parameters))
        if warmup_fraction <= 0:
            return after
        return np.where(t < warmup_fraction, t / warmup_fraction, after)

    @property
    def is_known(self) -> bool:
        """True if the schedule has values, not only a label."""
        return self.name != "unknown"

    def __str__(self) -> str:
        if self.name == "unknown":
            return self.label
        if self.name == "recorded":
            return self.label or f"recorded({len(self.points)} points)"
        inside = ", ".join(f"{key}={value}" for key, value in self.parameters)
        return f"{self.name}({inside})" if inside else self.name

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict, the inverse of :func:`schedule_from_dict`."""
        out: dict[str, Any] = {"name": self.name}
        if self.parameters:
            out["parameters"] = {k: list(v) if isinstance(v, tuple) else v for k, v in self.parameters}
        if self.points:
            out["points"] = [list(pair) for pair in self.points]
        if self.label:
            out["label"] = self.label
        return out


def schedule(name: str, **parameters: Any) -> Schedule:
    """Return the schedule ``name`` with ``parameters``, checked.

    Examples: ``schedule("linear")`` (decay to zero, D2Z), ``schedule("cosine", final_ratio=0.1)``,
    ``schedule("wsd", cooldown_fraction=0.2, shape="sqrt")``, ``schedule("step", milestones=(0.5, 0.8), factor=0.1)``.

    Raises
    ------
    ValueError
        Unknown name or parameter, or a value outside its range.
    """
    if name not in SHAPES:
        raise ValueError(f"schedule name must be one of {', '.join(sorted(SHAPES))}; found {name!r}")
    parameters = {k: tuple(v) if isinstance(v, list) else v for k, v in parameters.items()}
    _check_parameters(name, parameters)
    made = Schedule(name, tuple(sorted(parameters.items())))
    values = made(np.linspace(0, 1, 11))
    if not np.all((values >= -1e-12) & (values <= 1 + 1e-12)):
        raise ValueError(f"schedule {made} must stay within [0, 1]")
    return made


def _check_parameters(name: str, parameters: Mapping[str, Any]) -> None:
    known = SHAPES[name].parameters
    for key, value in parameters.items():
        if key not in known:
            raise ValueError(f"schedule {name!r} has no parameter {key!r}; it takes {', '.join(known) or 'none'}")
        if isinstance(known[key], str):
            continue
        numbers = value if isinstance(value, tuple) else (value,)
        if not all(isinstance(x, int | float) and math.isfinite(x) and 0 <= x <= 1 for x in numbers):
            raise ValueError(f"schedule parameter {key} must lie in [0, 1]; found {value!r}")
    SHAPES[name].check(parameters)


def recorded_schedule(fraction: ArrayLike, learning_rate: ArrayLike, n_points: int = 256, label: str = "") -> Schedule:
    """Return the schedule that a run logged, scaled to a peak of 1 and thinned to at most ``n_points``.

    Parameters
    ----------
    fraction, learning_rate : array_like, shape (n,)
        t̂ and the learning rate there, in any order; non-finite pairs are dropped.
    label : str
        The name under which the run was recorded, if it says nothing of the values.

    Raises
    ------
    ValueError
        Fewer than two finite pairs, or no positive learning rate.
    """
    t, lr = np.asarray(fraction, dtype=np.float64), np.asarray(learning_rate, dtype=np.float64)
    keep = np.isfinite(t) & np.isfinite(lr)
    order = np.argsort(t[keep], kind="stable")
    t, lr = t[keep][order], lr[keep][order]
    if t.size < 2 or lr.max() <= 0:
        raise ValueError(f"a recorded schedule needs two finite points and a positive learning rate; found {t.size} points")
    t, lr = _from_the_start(t, lr)
    if t.size > n_points:
        pick = np.unique(np.linspace(0, t.size - 1, n_points).round().astype(int))
        t, lr = t[pick], lr[pick]
    scaled = np.clip(lr / lr.max(), 0.0, 1.0)
    return Schedule("recorded", points=tuple(zip(t.tolist(), scaled.tolist(), strict=True)), label=label)


def _from_the_start(t: FloatArray, lr: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a log that begins in its warm-up from t̂ = 0 on: its first report is not what the rate was before."""
    if t[0] <= 0 or lr[1] <= lr[0] or t[1] <= t[0]:
        return t, lr
    start = lr[0] - t[0] * (lr[1] - lr[0]) / (t[1] - t[0])
    return np.append(0.0, t), np.append(max(start, 0.0), lr)


def unknown_schedule(label: str) -> Schedule:
    """Return a schedule of which only the name is known; it matches schedules of the same label."""
    return Schedule("unknown", label=label)


def schedule_from_dict(data: Mapping[str, Any]) -> Schedule:
    """Return the schedule of ``Schedule.to_dict()``; ``ValueError`` on anything else."""
    name = data.get("name")
    if name == "recorded":
        points = np.asarray(data.get("points", []), dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != 2:
            raise ValueError("a recorded schedule needs points: a list of [t̂, η] pairs")
        return recorded_schedule(points[:, 0], points[:, 1], label=str(data.get("label", "")))
    if name == "unknown":
        return unknown_schedule(str(data.get("label", "")))
    if not isinstance(name, str):
        raise ValueError(f"schedule name must be a string; found {name!r}")
    return schedule(name, **data.get("parameters", {}))


def schedules_match(
    a: Schedule, b: Schedule, warmup_fractions: tuple[float, float] = (0.0, 0.0), tolerance: float = MATCH_TOLERANCE
) -> bool:
    """Return True if sup |η_a − η_b| ≤ ``tolerance`` over t̂ past both warm-ups, whatever the names.

    Two of which one is unknown match when their labels are equal: of a run that goes on only the name may be known yet.
    """
    if a == b and warmup_fractions[0] == warmup_fractions[1]:
        return True
    if not (a.is_known and b.is_known):
        return a.label == b.label and (bool(a.label) or a == b)
    return schedule_distance(a, b, warmup_fractions) <= tolerance


def schedule_distance(a: Schedule, b: Schedule, warmup_fractions: tuple[float, float] = (0.0, 0.0)) -> float:
    """Return sup |η_a − η_b| over t̂ past both warm-ups (1 where one of the two is unknown)."""
    if not (a.is_known and b.is_known):
        return 0.0 if a == b else 1.0
    start = max(*warmup_fractions, 0.05)
    grid = np.linspace(start, 1.0, 201)
    return float(np.max(np.abs(a(grid, warmup_fractions[0]) - b(grid, warmup_fractions[1]))))
