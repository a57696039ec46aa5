"""Which runs share part of their trajectory, up to where, and what a set of runs costs when shared parts count once.

Two sources say so: ``hp.prefix_from`` and ``hp.own_start`` (the run was resumed at that step from the named one), and, in any
data, values that are exactly equal at equal steps from the first one on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from bench.records import Record

FloatArray = NDArray[np.float64]
DISTINCT_VALUES = 3
"""Fewer distinct equal values are a coincidence (chance accuracy, one seed's value at step 0), not a shared trajectory."""


def common_until(records: Sequence[Record]) -> FloatArray:
    """Return the step up to which each pair of runs is one trajectory, shape (n, n); 0 where it shares nothing.

    The diagonal is the runs' own last steps.
    """
    n = len(records)
    until = np.zeros((n, n))
    until[np.diag_indices(n)] = [_length(r) for r in records]
    for i, j, step in [*_equal_values(records), *_declared(records)]:
        until[i, j] = until[j, i] = max(until[i, j], min(step, until[i, i], until[j, j]))
    return until


def union_cost(until: FloatArray, reach: FloatArray, cost_per_step: FloatArray, known: FloatArray | None = None) -> float:
    """Return the cost of training each run i up to step ``reach[i]``, shared parts counted once.

    Parameters
    ----------
    until : ndarray, shape (n, n)
        Of :func:`common_until`.
    reach, cost_per_step : ndarray, shape (n,)
    known : ndarray, shape (n,), optional
        Steps of each run that have been paid for already.
    """
    paid = np.zeros_like(reach) if known is None else known
    had = np.minimum(until, paid[None, :]).max(axis=1, initial=0.0)
    total = 0.0
    for i, goal in enumerate(reach):
        before = np.minimum(until[i, :i], reach[:i]).max(initial=0.0)
        total += max(0.0, float(goal - max(before, had[i]))) * float(cost_per_step[i])
    return total


def _length(record: Record) -> float:
    return float(record.run.horizon or (record.run.steps[-1] if record.run.steps.size else 0.0))


def _equal_values(records: Sequence[Record]) -> list[tuple[int, int, float]]:
    """Pairs whose first values are equal, and the last step before they differ."""
    starts: dict[tuple[float, ...], list[int]] = defaultdict(list)
    for i, record in enumerate(records):
        steps, values = record.run.steps, record.run.values
        if steps.size >= DISTINCT_VALUES:
            starts[(*steps[:2].tolist(), *values[:2].tolist())].append(i)
    found = []
    for group in starts.values():
        for a, i in enumerate(group):
            for j in group[a + 1 :]:
                step = _last_equal(records[i], records[j])
                if step > 0:
                    found.append((i, j, step))
    return found


def _last_equal(a: Record, b: Record) -> float:
    n = min(a.run.steps.size, b.run.steps.size)
    same = (a.run.steps[:n] == b.run.steps[:n]) & (a.run.values[:n] == b.run.values[:n])
    k = n if same.all() else int(np.argmin(same))
    if np.unique(a.run.values[:k]).size < DISTINCT_VALUES:
        return 0.0
    return float(a.run.steps[k - 1])


def _declared(records: Sequence[Record]) -> list[tuple[int, int, float]]:
    """Pairs resumed from one trunk, or one from the other, by what the runs say of themselves."""
    trunks: dict[str, list[tuple[int, float]]] = defaultdict(list)
    by_id = {record.run_id: i for i, record in enumerate(records)}
    found = []
    for i, record in enumerate(records):
        trunk, start = record.fields.get("prefix_from"), record.fields.get("own_start")
        if not isinstance(trunk, str) or not isinstance(start, int | float) or start <= 0:
            continue
        found += [(i, j, min(float(start), other)) for j, other in trunks[trunk]]
        trunks[trunk].append((i, float(start)))
        whole = next((by_id[name] for name in (trunk, PurePath(trunk).name, PurePath(trunk).stem) if name in by_id), None)
        if whole is not None and whole != i:
            found.append((i, whole, float(start)))
    return found
