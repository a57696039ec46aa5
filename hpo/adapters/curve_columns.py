"""Which column of a curve table is the step, the metric and the run, and each run's rows and settings.

Names are matched without regard to case. :func:`split_runs` sorts a table once and hands out slices, so that a file of
a million rows costs a few array operations a column, not a pass a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hpo.adapters.curve_tables import BoolArray, CurveTable, FloatArray
from hpo.core.metric import Metric

STEP_NAMES = ("step", "steps", "iteration", "iterations", "iter", "global_step", "_step", "train_step", "training_step")
TOKEN_NAMES = ("tokens", "n_tokens", "num_tokens", "tokens_seen", "consumed_tokens")
TRAIN_NAMES = ("train_loss", "loss", "train/loss", "training_loss", "train loss")
VAL_NAMES = ("val_loss", "valid_loss", "validation_loss", "eval_loss", "val/loss", "valid/loss", "eval/loss")
LR_LOG_NAMES = ("lr_at_step", "lr", "learning_rate")
OWN_TEXTS = ("source", "family", "group", "run_id", "hp")
_LOSS = re.compile(r"loss|nll|cross.?entropy|perplexity|ppl", re.IGNORECASE)
_SCORE = re.compile(
    r"(?:^|[_/ .-])(acc|accuracy|score|auc|f1|map|bleu|rouge|ssim|mean_average_precision)(?:$|[_/ .@-])", re.IGNORECASE
)
_END_VALUE = re.compile(r"final_", re.IGNORECASE)


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """The rows of one run: the metric's points sorted by step, and access to everything else recorded beside them."""

    table: _Layout = field(repr=False)
    run_id: str
    metric: Metric
    steps: FloatArray
    values: FloatArray
    tokens: FloatArray | None
    learning_rates: FloatArray | None
    rows: NDArray[np.int64] = field(repr=False)

    @property
    def path(self) -> Path:
        """The file."""
        return self.table.source.path

    @property
    def steps_are_tokens(self) -> bool:
        """True if the file has no step column and counts in tokens."""
        return self.table.step in TOKEN_NAMES

    def number(self, name: str) -> float | None:
        """Return the run's value of a scalar column: its first number, None if there is none or it varies (a log)."""
        column = self.table.find(name)
        if column is None:
            return None
        values = self.table.numbers(column)[self.rows]
        known = values[np.isfinite(values)]
        return None if known.size == 0 or known.min() != known.max() else float(known[0])

    def text(self, name: str) -> str | None:
        """Return the first non-empty cell of a column as text, None if there is none."""
        column = self.table.find(name)
        cell = None if column is None else self._first_cell(column)
        return None if cell is None or cell == "" else cell if isinstance(cell, str) else str(cell)

    @property
    def lr_log(self) -> tuple[FloatArray, FloatArray]:
        """Steps and learning rates of every row that logged one."""
        column = _own_lr_log(self.table, self.rows)
        if column is None:
            return np.zeros(0), np.zeros(0)
        steps, rates = self.table.steps[self.rows], self.table.numbers(column)[self.rows]
        known = np.isfinite(steps) & np.isfinite(rates)
        return steps[known], rates[known]

    @property
    def hp(self) -> dict[str, Any]:
        """The JSON object of the column ``hp`` (empty if absent)."""
        column = self.table.find("hp")
        if column is None:
            return {}
        raw = self._first_cell(column)
        if isinstance(raw, dict):
            return {name: value for name, value in raw.items() if value is not None}
        try:
            found = json.loads(raw) if raw else {}
        except (TypeError, ValueError):
            raise ValueError(f"{self.path}: run {self.run_id}: hp must be a JSON object; found {str(raw)[:60]!r}") from None
        if not isinstance(found, dict):
            raise ValueError(f"{self.path}: run {self.run_id}: hp must be a JSON object; found {str(raw)[:60]!r}")
        return found

    @property
    def settings(self) -> dict[str, Any]:
        """Scalar columns known of the run, overridden by ``hp``."""
        out: dict[str, Any] = {}
        for column in self.table.setting_columns:
            value = self.number(column) if self.table.source.is_numeric(column) else self.text(column)
            if value is not None:
                out[column] = value
        return out | self.hp

    def _first_cell(self, column: str) -> Any:
        codes, values = self.table.codes(column)
        filled = codes[self.rows]
        filled = filled[filled >= 0]
        return values[filled[0]] if filled.size else None


class _Layout:
    """Columns of one table by their role, each converted at most once."""

    def __init__(self, source: CurveTable) -> None:
        self.source = source
        self._by_name = {name.lower(): name for name in reversed(source.columns)}
        self._numbers: dict[str, FloatArray] = {}
        self._codes: dict[str, tuple[NDArray[np.int64], list[Any]]] = {}
        step = self.first_of(STEP_NAMES) or self.first_of(TOKEN_NAMES)
        if step is None:
            raise ValueError(f"{source.path}: expected a step column ({', '.join(STEP_NAMES)}); found {_names(source.columns)}")
        self.step = step
        self.steps = self.numbers(step)
        self.tokens = self.first_of(TOKEN_NAMES)
        if not np.isfinite(self.steps).any():
            raise ValueError(f"{source.path}: column {step}: expected numbers; found none")

    def find(self, name: str) -> str | None:
        return self._by_name.get(name.lower())

    def first_of(self, names: tuple[str, ...]) -> str | None:
        return next((column for name in names if (column := self.find(name)) is not None), None)

    def numbers(self, column: str) -> FloatArray:
        if column not in self._numbers:
            self._numbers[column] = self.source.numbers(column)
        return self._numbers[column]

    def codes(self, column: str) -> tuple[NDArray[np.int64], list[Any]]:
        if column not in self._codes:
            self._codes[column] = self.source.codes(column)
        return self._codes[column]

    def order(self) -> tuple[NDArray[np.int64], list[str], NDArray[np.int64]]:
        """Return (rows grouped by run and sorted by step, the runs' ids, where each run starts and the end)."""
        column = self.find("run_id")
        codes, names = (np.zeros(self.source.n_rows, dtype=np.int64), [self.source.path.stem])
        if column is not None:
            codes, found = self.codes(column)
            names = [str(name) for name in found]
            if (codes < 0).any():
                raise ValueError(f"{self.source.path}: column {column}: expected a run id in every row; found an empty cell")
        rows = np.flatnonzero(np.isfinite(self.steps))
        rows = rows[np.lexsort((self.steps[rows], codes[rows]))]
        bounds = np.searchsorted(codes[rows], np.arange(len(names) + 1))
        return rows, names, bounds

    @property
    def lr_log(self) -> str | None:
        """Column with the learning rate at each row, if any; ``lr`` may be one (see :meth:`Rows.number`)."""
        return self.first_of(LR_LOG_NAMES)

    @property
    def metric_columns(self) -> list[str]:
        """Numeric columns that look like a loss or a score."""
        return [name for name in self.loss_columns + self._matching(_SCORE) if not _END_VALUE.match(name)]

    @property
    def loss_columns(self) -> list[str]:
        return [name for name in self._matching(_LOSS) if not _END_VALUE.match(name)]

    @property
    def setting_columns(self) -> list[str]:
        """Columns that may hold a setting: neither step, tokens, metric, LR log nor an id (varying ones drop out later)."""
        taken = {self.step, self.tokens, self.find("lr_at_step"), *self.metric_columns, *map(self.find, OWN_TEXTS)}
        return [name for name in self.source.columns if name not in taken]

    def _matching(self, pattern: re.Pattern[str]) -> list[str]:
        return [name for name in self.source.columns if pattern.search(name) and self.source.is_numeric(name)]


def split_runs(
    source: CurveTable, asked: str | None, mode: Literal["min", "max"] | None, own_metric: Metric | None
) -> Iterator[Rows]:
    """Yield the rows of each run of a table, in order of appearance; a run without values of the metric has no points.

    Parameters
    ----------
    asked : str or None
        Column with the curve; None chooses (training loss, validation loss, the only loss).
    mode : {"min", "max"} or None
        Direction; None reads it off the column's name.
    own_metric : Metric or None
        The metric of a file that states it.
    """
    layout = _Layout(source)
    if own_metric is not None and asked in (None, own_metric.name):
        column, metric = own_metric.name, own_metric
    else:
        column = _metric_column(layout, asked)
        metric = _metric_of(layout, column, mode)
    rows, names, bounds = layout.order()
    logged = _Logged(layout, column)
    for name, start, end in zip(names, bounds[:-1], bounds[1:], strict=True):
        mine = rows[start:end]
        kept = mine[logged.in_run(mine)]
        yield Rows(
            table=layout,
            run_id=name,
            metric=metric,
            steps=layout.steps[kept],
            values=layout.numbers(column)[kept],
            tokens=_if_any(layout, layout.tokens, kept),
            learning_rates=_if_any(layout, _own_lr_log(layout, mine), kept),
            rows=mine,
        )


class _Logged:
    """Says which rows hold a value of the metric (the rule is in :mod:`hpo.adapters.curve_files`)."""

    def __init__(self, layout: _Layout, column: str) -> None:
        values = layout.numbers(column)
        empty = layout.source.empty(column) if layout.source.is_numeric(column) else np.isnan(values)
        self._others: BoolArray = np.zeros(values.size, dtype=bool)
        for name in layout.loss_columns:
            if name != column:
                self._others |= ~np.isnan(layout.numbers(name))
        self._holds: BoolArray = ~empty & ~(np.isnan(values) & self._others)

    def in_run(self, rows: NDArray[np.int64]) -> BoolArray:
        """Return True for the rows (sorted by step, of one run) that hold a value, finite or not."""
        holds = self._holds[rows]
        reported = np.flatnonzero(holds | self._others[rows])
        # rows without any loss at the end: once one was due by the run's own rhythm, they are NaN
        rhythm = int(np.diff(reported, prepend=-1).max()) if reported.size else 1
        silent_from = int(reported[-1]) + 1 if reported.size else 0
        if rows.size - silent_from >= rhythm and (holds.any() or not reported.size):
            holds = holds.copy()
            holds[silent_from + rhythm - 1 :: rhythm] = True
        return holds


def _metric_column(layout: _Layout, asked: str | None) -> str:
    if asked is not None:
        aliases = next((names for names in (TRAIN_NAMES, VAL_NAMES) if asked.lower() in names), ())
        column = layout.find(asked) or layout.first_of(aliases)
        if column is None or column == layout.step or column.lower() in OWN_TEXTS:
            found = _names(layout.metric_columns) or _names(layout.source.columns)
            raise ValueError(f"{layout.source.path}: metric {asked!r} is not a column; found {found}")
        return column
    for names in (TRAIN_NAMES, VAL_NAMES):
        column = layout.first_of(names)
        if column is not None and np.isfinite(layout.numbers(column)).any():
            return column
    losses = [name for name in layout.loss_columns if np.isfinite(layout.numbers(name)).any()]
    if len(losses) == 1:
        return losses[0]
    written = layout.first_of(TRAIN_NAMES) or layout.first_of(VAL_NAMES)
    if not losses and written is not None:  # every value is NaN: a run that diverged at once
        return written
    found = _names(losses or layout.metric_columns or layout.source.columns)
    raise ValueError(f"{layout.source.path}: expected one loss column, or metric=; found {found}")


def _metric_of(layout: _Layout, column: str, mode: Literal["min", "max"] | None) -> Metric:
    name = column.lower()
    canonical = "train_loss" if name in TRAIN_NAMES else "val_loss" if name in VAL_NAMES else column
    values = layout.numbers(column)
    values = values[np.isfinite(values)]
    end = "window" if name in TRAIN_NAMES or name.startswith("train") else "last"
    if mode is None:
        mode = "max" if _SCORE.search(column) and not _LOSS.search(column) else "min"
    if mode == "max":
        inside = values.size > 0 and values.min() >= 0 and values.max() < 1
        return Metric(canonical, transform="log1m" if inside else "identity", end=end, mode="max")
    return Metric(canonical, transform="identity" if (values <= 0).any() else "log", end=end)


def _own_lr_log(layout: _Layout, rows: NDArray[np.int64]) -> str | None:
    """Column with the run's learning rates: ``lr_at_step``, or an ``lr`` column that varies within the run."""
    column = layout.lr_log
    if column is None or column.lower() == "lr_at_step":
        return column
    rates = layout.numbers(column)[rows]
    known = rates[np.isfinite(rates)]
    return column if known.size and known.min() != known.max() else None


def _if_any(layout: _Layout, column: str | None, rows: NDArray[np.int64]) -> FloatArray | None:
    if column is None:
        return None
    values = layout.numbers(column)[rows]
    return values if np.isfinite(values).any() else None


def _names(columns: list[str], at_most: int = 12) -> str:
    return ", ".join(columns[:at_most]) + (", …" if len(columns) > at_most else "")
