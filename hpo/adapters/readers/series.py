"""Metrics logged one by one, each with its own steps, as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Values = Sequence[float] | FloatArray


def merged(series: Mapping[str, tuple[Values, Values]]) -> pa.Table:
    """Return a table with a column ``step`` and one a metric; a metric not logged in a row has an empty cell.

    A row is a step of a *lap*: where a metric goes back to an earlier step (a restart) its next lap begins. Laps follow one
    another, so that the table keeps the order of writing.
    """
    points = {name: _with_laps(*pair) for name, pair in series.items() if len(pair[0])}
    if not points:
        return pa.table({"step": pa.array([], pa.float64())})
    keys, rows = np.unique(np.concatenate([key for key, _ in points.values()]), return_inverse=True)
    ends = np.cumsum([key.size for key, _ in points.values()])
    columns = {"step": pa.array(keys.imag)}
    for (name, (_, values)), own in zip(points.items(), np.split(rows, ends[:-1]), strict=True):
        cells, filled = np.zeros(keys.size), np.zeros(keys.size, dtype=bool)
        cells[own], filled[own] = values, True
        columns[name if name != "step" else "step (metric)"] = pa.array(cells, mask=~filled)
    return pa.table(columns)


def _with_laps(steps: Values, values: Values) -> tuple[NDArray[np.complex128], FloatArray]:
    """Return lap + i·step of each finite step, which sorts by lap first, and the values."""
    at, what = np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64)
    at, what = at[np.isfinite(at)], what[np.isfinite(at)]
    laps = np.cumsum(np.diff(at, prepend=at[:1] - 1.0) <= 0)
    return laps + 1j * at, what
