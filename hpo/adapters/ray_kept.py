"""What a driver keeps of the reports of trials that have ended: few points, in arrays.

A study keeps every report; this is the driver's own copy, from which a trial is learned again where terms change. A dict of a
hundred reports takes 4 kB and is one of thousands. Trials report at the same steps, so those are kept once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
KEPT_POINTS = 160
"""Points kept of an ended trial, means of the reports between; a running one keeps all its reports."""


class KeptReports(Mapping[int, float]):
    """The reports of an ended trial in order of steps, read-only; 8 bytes a report, and 8 a step that no other trial has."""

    __slots__ = ("_steps", "_values")

    def __init__(self, steps: FloatArray, values: FloatArray) -> None:
        self._steps, self._values = steps, values

    def __getitem__(self, step: int) -> float:
        place = int(np.searchsorted(self._steps, step))
        if place == len(self._steps) or self._steps[place] != step:
            raise KeyError(step)
        return float(self._values[place])

    def __iter__(self) -> Iterator[int]:
        return map(as_key, self._steps.tolist())

    def __reversed__(self) -> Iterator[int]:
        return map(as_key, self._steps[::-1].tolist())

    def __len__(self) -> int:
        return len(self._steps)


class StepsInCommon:
    """The steps at which trials report; those that agree from the first on share one array."""

    def __init__(self) -> None:
        self._longest: FloatArray = np.empty(0)

    def keep(self, reports: Mapping[int, float]) -> KeptReports:
        """Return at most :data:`KEPT_POINTS` of a trial's reports (see :func:`thinned`), whose steps must ascend."""
        kept = thinned(reports)
        steps = np.fromiter(kept.keys(), dtype=np.float64, count=len(kept))
        values = np.fromiter(kept.values(), dtype=np.float64, count=len(kept))
        n = min(len(steps), len(self._longest))
        agree = np.array_equal(steps[:n], self._longest[:n])
        if not agree or len(steps) > n:
            self._longest = steps
        return KeptReports(self._longest[: len(steps)], values)


def thinned(values: Mapping[int, float]) -> Mapping[int, float]:
    """Return at most :data:`KEPT_POINTS` points of reports in order of steps: means of groups, the last report as it is."""
    if len(values) <= KEPT_POINTS:
        return values
    *before, last = values.items()
    size = -(-len(before) // (KEPT_POINTS - 1))
    groups = [before[i : i + size] for i in range(0, len(before), size)]
    means = [(as_key(sum(s for s, _ in g) / len(g)), sum(v for _, v in g) / len(g)) for g in groups]
    return dict([*means, last])


def as_key(step: float) -> int:
    """Return a step as Optuna types it; fractional ones stay what they are."""
    return int(step) if step == int(step) else step  # type: ignore[return-value]
