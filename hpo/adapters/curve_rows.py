"""Which rows of a log hold a value of the metric; the rule is in :mod:`hpo.adapters.curve_files`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hpo.adapters.curve_tables import BoolArray, FloatArray

if TYPE_CHECKING:
    from hpo.adapters.curve_columns import Layout

_BLANKS, _FEWEST_BLANKS = 2, 3
"""Blank cells at the end of a log from which they are NaN, in units of the longest gap so far, and in number."""
_DISORDERED = 0.1
"""Share of points that go back to an earlier step above which a log is not in order of writing: then no restarts are seen."""
_SEVERAL = 3
_SHORT = 3
"""Nor is it where it goes back so often and mostly goes on for so few points: a restarted run goes on for longer."""


class LoggedRows:
    """Says which rows hold a value of the metric (the rule is in :mod:`hpo.adapters.curve_files`)."""

    def __init__(self, layout: Layout, column: str) -> None:
        values = layout.numbers(column)
        empty = layout.source.empty(column) if layout.source.is_numeric(column) else np.isnan(values)
        self._layout, self._column = layout, column
        self._others: BoolArray = np.zeros(values.size, dtype=bool)
        for name in layout.loss_columns:
            if name != column:
                self._others |= ~np.isnan(layout.numbers(name))
        self._holds: BoolArray = ~empty & ~(np.isnan(values) & self._others)

    def in_run(self, rows: NDArray[np.int64]) -> tuple[BoolArray, int | None]:
        """Return True for the rows (sorted by step, of one run) that hold a value, finite or not.

        Second comes the first row whose cell is blank and taken for NaN, None without any.
        """
        holds = self._holds[rows]
        due = self._due(rows, holds)
        if not due.size:
            return holds, None
        holds = holds.copy()
        holds[due] = True
        return holds, int(due[0])

    def _due(self, rows: NDArray[np.int64], holds: BoolArray) -> NDArray[np.int64]:
        """Return which blank rows at the end are NaN: those in which a value was due by the run's own rhythm."""
        reported = np.flatnonzero(holds | self._others[rows])
        rhythm = int(np.diff(reported, prepend=-1).max()) if reported.size else 1
        silent_from = int(reported[-1]) + 1 if reported.size else 0
        if rows.size - silent_from >= rhythm and (holds.any() or not reported.size):
            return np.arange(silent_from + rhythm - 1, rows.size, rhythm)
        last = np.flatnonzero(holds)
        return self._due_beside_others(rows, holds, int(last[-1])) if last.size and last[-1] < rows.size - 1 else last[:0]

    def _due_beside_others(self, rows: NDArray[np.int64], holds: BoolArray, last: int) -> NDArray[np.int64]:
        """Return the blank rows after the last value that are filled as rows with a value are, if those go on for too long.

        A logger writes the rows of one metric alike, so rows of another one (validation, a summary at the end) do not count;
        and where some rows of a kind are blank anyway, at least twice as many as ever before must be.
        """
        kind = self._filled[rows]
        found: list[NDArray[np.int64]] = []
        for one in np.unique(kind[holds]).tolist():
            alike = np.flatnonzero(kind == one)
            of_metric = np.flatnonzero(holds[alike])
            gap = int(np.diff(of_metric).max()) if of_metric.size > 1 else alike.size
            silent = alike[alike > last]
            if silent.size >= max(_BLANKS * gap, _FEWEST_BLANKS):
                found.append(silent[gap - 1 :: gap])
        return np.sort(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)

    @cached_property
    def _filled(self) -> NDArray[np.int64]:
        """Which of the other columns are filled, as one number a row."""
        kinds = np.zeros(self._layout.source.n_rows, dtype=np.int64)
        for name in self._layout.source.columns:
            if name != self._column:
                pairs = 2 * kinds + self._layout.source.empty(name)
                kinds = np.unique(pairs, return_inverse=True)[1].astype(np.int64) if pairs.any() else pairs
        return kinds


def logged_last(rows: NDArray[np.int64], steps: FloatArray) -> tuple[NDArray[np.int64], tuple[float, ...]]:
    """Return the rows that hold a run's points, sorted by step, each step once, and the steps at which it was restarted.

    Where the log goes back to an earlier step, what it had said from there on is dropped: the later segment counts. A log
    whose rows are in no order is sorted instead, and of a step logged twice the later row counts.

    Parameters
    ----------
    rows : ndarray of int, shape (n,)
        In the order of writing.
    steps : ndarray
        The step of every row of the table.
    """
    at = steps[rows]
    back = np.flatnonzero(np.diff(at) < 0)
    if _is_disordered(back, at.size):
        order = np.argsort(at, kind="stable")
        rows, at, back = rows[order], at[order], back[:0]
    lowest_after = np.minimum.accumulate(np.append(at[1:], np.inf)[::-1])[::-1]
    return rows[at < lowest_after], tuple(float(step) for step in at[back + 1])


def _is_disordered(back: NDArray[np.int64], n: int) -> bool:
    """Return True if n points, which go back to an earlier step after each of ``back``, are in no order."""
    lengths = np.diff(np.append(back, n - 1))
    often = back.size > max(1.0, _DISORDERED * n)
    return bool(often or (back.size >= _SEVERAL and np.median(lengths) <= _SHORT))
