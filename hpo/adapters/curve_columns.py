"""Which column of a curve table is the step, the metric and the run, and each run's rows and settings.

Names are matched without regard to case. :func:`split_runs` sorts a table once and hands out slices, so that a file of
a million rows costs a few array operations a column, not a pass a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hpo.adapters.curve_column_names import (
    EPOCH_NAMES,
    LOSS,
    LR_NAMES,
    MOST_RUNS,
    RUN_NAMES,
    SCORE,
    STEP_NAMES,
    TOKEN_NAMES,
    TRAIN_NAMES,
    VAL_NAMES,
    Columns,
    canonical,
    first_of,
    likeliest_loss,
    listed,
    plain,
)
from hpo.adapters.curve_rows import LoggedRows, logged_last
from hpo.adapters.curve_tables import CurveTable, FloatArray
from hpo.core.metric import Metric

OWN_TEXTS = ("source", "family", "group", "run_id", "hp")
_END_VALUE = re.compile(r"final_", re.IGNORECASE)
_OFTEN = 0.1
"""Rows at a step that has one already, per step, from which it is said."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Rows:
    """The rows of one run: the metric's points sorted by step, and access to everything else recorded beside them.

    ``restarts`` are the steps at which the log went back; what was logged twice there counts as logged last, and so do steps
    that were logged ``again`` without going back. From the step ``blank_from`` on the metric's cells are blank where a value
    was due: they are taken for NaN.
    """

    table: Layout = field(repr=False)
    run_id: str
    metric: Metric
    metric_column: str
    steps: FloatArray
    values: FloatArray
    tokens: FloatArray | None
    learning_rates: FloatArray | None
    restarts: tuple[float, ...]
    blank_from: float | None
    again: int
    rows: NDArray[np.int64] = field(repr=False)

    @property
    def path(self) -> Path:
        """The file."""
        return self.table.source.path

    @property
    def counts_steps(self) -> bool:
        """True if the file counts its progress in steps, not in tokens or epochs."""
        return self.table.unit == "steps"

    @property
    def horizon_name(self) -> str:
        """Column with the last step of the full run, in the unit of its steps."""
        return f"total_{self.table.unit}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reader guessed and left out, in words; the same for all runs of a file but for the restarts."""
        guess = self.table.explanation(self.metric_column)
        again = listed([f"{step:g}" for step in self.restarts], 5)
        restarted = f"run {self.run_id}: restarted at {again}; where steps were logged twice the later ones count"
        blank = (
            ""
            if self.blank_from is None
            else f"run {self.run_id}: {self.metric_column} is blank from step {self.blank_from:g} on: taken for NaN"
        )
        return (
            *self.table.source.notes,
            *([guess] if guess else []),
            *([f"{self.path}: guessed that {self.table.run!r} names the runs"] if self.table.guesses_run else []),
            *([restarted] if self.restarts else []),
            *([blank] if blank else []),
            *([f"run {self.run_id}: {self._often}"] if self.again > _OFTEN * self.steps.size else []),
        )

    @property
    def _often(self) -> str:
        rows = self.again + self.steps.size
        return f"{rows} rows at {self.steps.size} steps (as where several processes write); of each step the last row counts"

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

    @cached_property
    def lr_log(self) -> tuple[FloatArray, FloatArray]:
        """Steps and learning rates of every row that logged one."""
        column = _own_lr_log(self.table, self.rows)
        if column is None:
            return np.zeros(0), np.zeros(0)
        known = self.rows[np.isfinite(self.table.numbers(column)[self.rows])]
        last, _ = logged_last(np.sort(known), self.table.steps)
        return self.table.steps[last], self.table.numbers(column)[last]

    @property
    def hp(self) -> dict[str, Any]:
        """The JSON object of the column ``hp`` (empty if absent)."""
        column = self.table.find("hp")
        if column is None:
            return {}
        raw = self._first_cell(column)
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


class Layout:
    """Columns of one table by their role, each looked up and converted at most once, however many runs ask."""

    def __init__(self, source: CurveTable, told: Columns) -> None:
        self.source = source
        self.told = told
        self._by_name = {name.lower(): name for name in reversed(source.columns)}
        self._by_plain_name = {plain(name): name for name in reversed(source.columns)}
        self._numbers: dict[str, FloatArray] = {}
        self._codes: dict[str, tuple[NDArray[np.int64], list[Any]]] = {}
        self.tokens = self._told("tokens", told.tokens) or self.first_of(TOKEN_NAMES)
        step = self._told("step", told.step) or self.first_of(STEP_NAMES)
        self.unit = "steps" if step is not None and step != self.tokens else "tokens" if self.tokens is not None else "epochs"
        step = step or self.tokens or self.first_of(EPOCH_NAMES)
        if step is None:
            raise ValueError(
                f"{source.path}: expected a step column ({', '.join(STEP_NAMES[:7])}, …), or --step; "
                f"found {listed(source.columns)}"
            )
        self.step = step
        self.run = self.find("run_id") or next((name for name in map(self.find, RUN_NAMES) if self._names_runs(name)), None)
        self.steps = self.numbers(step)
        if not np.isfinite(self.steps).any():
            raise ValueError(f"{source.path}: column {step}: expected numbers; found none")

    def _names_runs(self, column: str | None) -> bool:
        """Return True if a column holds a few names, one in every row, as those of the runs of one table."""
        if column is None or column in (self.step, self.tokens):
            return False
        codes, names = self.codes(column)
        return 1 < len(names) <= MOST_RUNS and bool((codes >= 0).all())

    def _told(self, role: str, name: str | None) -> str | None:
        """Return the column that the user names for a role, None if none is named."""
        if name is None:
            return None
        column = self.find(name)
        if column is None:
            raise ValueError(f"{self.source.path}: --{role} {name!r} is not a column; found {listed(self.source.columns)}")
        return column

    def explanation(self, metric: str) -> str | None:
        """Return which columns were guessed, None if they carry our own names or were told."""
        lr = self.lr_log
        roles = (
            ("step", self.step, self.told.step, ("step",)),
            ("loss", metric, self.told.loss, (canonical(metric), metric if self.loss_columns == ["loss"] else "")),
            ("lr", lr, self.told.lr, ("lr_at_step", "lr", None)),
        )
        if all(told is not None or column in own for _, column, told, own in roles):
            return None
        said = [f"{role} is column {column!r}" for role, column, told, _ in roles if column is not None and told is None]
        counted = "" if self.unit == "steps" else f" (progress counted in {self.unit})"
        others = [name for name in self.loss_columns if name != metric]
        besides = f"; other losses: {listed(others, 6)}" if others and self.told.loss is None else ""
        options = "/".join(f"--{role}" for role, column, told, _ in roles if column is not None and told is None)
        return f"{self.source.path}: guessed that {', '.join(said)}{counted}{besides} ({options} to say otherwise)"

    @property
    def guesses_run(self) -> bool:
        """True if the column that names the runs is not called ``run_id``."""
        return self.run is not None and self.run.lower() != "run_id"

    def find(self, name: str) -> str | None:
        """Return the column of that name without regard to case."""
        return self._by_name.get(name.lower())

    def first_of(self, names: tuple[str, ...]) -> str | None:
        """Return the first of the names that is a column."""
        return first_of(self._by_name, names) or first_of(self._by_plain_name, names)

    def numbers(self, column: str) -> FloatArray:
        """Return the column as numbers."""
        if column not in self._numbers:
            self._numbers[column] = self.source.numbers(column)
        return self._numbers[column]

    def codes(self, column: str) -> tuple[NDArray[np.int64], list[Any]]:
        """Return the column's codes and distinct values."""
        if column not in self._codes:
            self._codes[column] = self.source.codes(column)
        return self._codes[column]

    def order(self) -> tuple[NDArray[np.int64], list[str], NDArray[np.int64]]:
        """Return (rows grouped by run and sorted by step, the runs' ids, where each run starts and the end)."""
        column = self.run
        codes, names = (np.zeros(self.source.n_rows, dtype=np.int64), [self.source.name or self.source.path.stem])
        if column is not None:
            codes, found = self.codes(column)
            names = [str(name) for name in found]
            if (codes < 0).any():
                raise ValueError(f"{self.source.path}: column {column}: expected a run id in every row; found an empty cell")
        rows = np.flatnonzero(np.isfinite(self.steps))
        rows = rows[np.lexsort((self.steps[rows], codes[rows]))]
        bounds = np.searchsorted(codes[rows], np.arange(len(names) + 1))
        return rows, names, bounds

    @cached_property
    def lr_log(self) -> str | None:
        """Column with the learning rate at each row, if any; ``lr`` may be one (see :meth:`Rows.number`)."""
        column = self._told("lr", self.told.lr) or self.first_of(LR_NAMES)
        return column if column is not None and self.source.is_numeric(column) else None

    @cached_property
    def metric_columns(self) -> list[str]:
        """Numeric columns that look like a loss or a score."""
        return [name for name in self.loss_columns + self._matching(SCORE) if not _END_VALUE.match(name)]

    @cached_property
    def loss_columns(self) -> list[str]:
        """Numeric columns that look like a loss."""
        return [name for name in self._matching(LOSS) if not _END_VALUE.match(name)]

    @cached_property
    def setting_columns(self) -> list[str]:
        """Columns that may hold a setting: neither step, tokens, metric, LR log nor an id (varying ones drop out later)."""
        taken = {self.step, self.tokens, self.run, self.find("lr_at_step"), *self.metric_columns, *map(self.find, OWN_TEXTS)}
        return [name for name in self.source.columns if name not in taken]

    def _matching(self, pattern: re.Pattern[str]) -> list[str]:
        return [name for name in self.source.columns if pattern.search(name) and self.source.is_numeric(name)]


def split_runs(
    source: CurveTable, told: Columns, mode: Literal["min", "max"] | None, own_metric: Metric | None
) -> Iterator[Rows]:
    """Yield the rows of each run of a table, in order of appearance; a run without values of the metric has no points.

    Parameters
    ----------
    told : Columns
        Columns that the user names; without a loss one is chosen (training loss, validation loss, the only loss).
    mode : {"min", "max"} or None
        Direction; None reads it off the column's name.
    own_metric : Metric or None
        The metric of a file that states it.
    """
    layout = Layout(source, told)
    if own_metric is not None and told.loss in (None, own_metric.name):
        column, metric = own_metric.name, own_metric
    else:
        column = _metric_column(layout, told.loss)
        metric = _metric_of(layout, column, mode)
    rows, names, bounds = layout.order()
    logged = LoggedRows(layout, column)
    for name, start, end in zip(names, bounds[:-1], bounds[1:], strict=True):
        mine = rows[start:end]
        holds, blank = logged.in_run(mine)
        kept, restarts = logged_last(np.sort(mine[holds]), layout.steps)
        yield Rows(
            table=layout,
            run_id=name,
            metric=metric,
            metric_column=column,
            steps=layout.steps[kept],
            values=layout.numbers(column)[kept],
            tokens=_if_any(layout, layout.tokens, kept),
            learning_rates=_if_any(layout, _own_lr_log(layout, mine), kept),
            restarts=restarts,
            again=0 if restarts else int(holds.sum()) - kept.size,
            blank_from=None if blank is None else float(layout.steps[mine[blank]]),
            rows=mine,
        )


def _metric_column(layout: Layout, asked: str | None) -> str:
    if asked is not None:
        aliases = next((names for names in (TRAIN_NAMES, VAL_NAMES) if plain(asked) in names), ())
        column = layout.find(asked) or layout.first_of(aliases)
        if column is None or column == layout.step or column.lower() in OWN_TEXTS:
            found = listed(layout.metric_columns or layout.source.columns)
            raise ValueError(f"{layout.source.path}: metric {asked!r} is not a column; found {found}")
        return column
    losses = [name for name in layout.loss_columns if np.isfinite(layout.numbers(name)).any()]
    for names in (TRAIN_NAMES, VAL_NAMES):
        column = layout.first_of(tuple(name for name in names if layout.first_of((name,)) in losses))
        if column is not None:
            return column
    likeliest = likeliest_loss(losses)
    if likeliest is not None:
        return likeliest
    written = layout.first_of(TRAIN_NAMES) or layout.first_of(VAL_NAMES)
    if not losses and written is not None:  # every value is NaN: a run that diverged at once
        return written
    found = listed(losses or layout.metric_columns or layout.source.columns)
    raise ValueError(f"{layout.source.path}: expected one loss column, or --loss; found {found}")


def _metric_of(layout: Layout, column: str, mode: Literal["min", "max"] | None) -> Metric:
    values = layout.numbers(column)
    values = values[np.isfinite(values)]
    name = canonical(column)
    end = "window" if name == "train_loss" or name.lower().startswith("train") else "last"
    if mode is None:
        mode = "max" if SCORE.search(column) and not LOSS.search(column) else "min"
    if mode == "max":
        inside = values.size > 0 and values.min() >= 0 and values.max() < 1
        return Metric(name, transform="log1m" if inside else "identity", end=end, mode="max")
    return Metric(name, transform="identity" if (values <= 0).any() else "log", end=end)


def _own_lr_log(layout: Layout, rows: NDArray[np.int64]) -> str | None:
    """Column with the run's learning rates: ``lr_at_step``, or an ``lr`` column that varies within the run."""
    column = layout.lr_log
    if column is None or column.lower() == "lr_at_step":
        return column
    rates = layout.numbers(column)[rows]
    known = rates[np.isfinite(rates)]
    return column if known.size and known.min() != known.max() else None


def _if_any(layout: Layout, column: str | None, rows: NDArray[np.int64]) -> FloatArray | None:
    if column is None:
        return None
    values = layout.numbers(column)[rows]
    return values if np.isfinite(values).any() else None
