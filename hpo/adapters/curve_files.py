"""Read recorded learning curves from logs and write them back: one row a logged point, one run a ``run_id``.

Logs of all formats become tables first (:mod:`hpo.adapters.readers`). The tidy columns are ``source, family, group, run_id,
seed, n_params, batch_tokens, seq_len, optimizer, lr, weight_decay, beta1, beta2, warmup_steps, schedule, total_steps,
total_tokens, step, tokens, train_loss, val_loss, lr_at_step, dataset, hp``; all but a step and a metric may be absent, and a
plain ``step,loss`` file is one run named after the file.

**Which rows hold a value.** Logs mix metrics in one table, so a metric without a number in a row can mean "not logged
here" or "was not a number". One rule for all formats:

- a row where *another* metric has a number, or the learning rate was logged, does not log this metric if its cell is
  empty or, beside another metric, NaN;
- an explicit ``nan``, ``inf`` or ``-inf`` otherwise is a non-finite value of the run;
- a row with a step and nothing measured is a non-finite value if the run never recovers (only such rows follow: pandas
  writes NaN as an empty cell), else not logged;
- so is an empty cell in a row that is filled as rows with a value are, if to the end of the log such rows stay empty for at
  least twice as long as ever before (three at least).
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from hpo.adapters.atomic import write_bytes
from hpo.adapters.curve_column_names import Columns
from hpo.adapters.curve_columns import Rows, split_runs
from hpo.adapters.curve_recipe import run_horizon, run_recipe
from hpo.adapters.curve_tables import CurveTable
from hpo.adapters.readers.registry import find_files, read_table
from hpo.adapters.schedule_names import schedule_text
from hpo.core.curve import Curve
from hpo.core.metric import Metric
from hpo.core.recipe import Recipe

FloatArray = NDArray[np.float64]

FILE_KEY = b"collapse_hpo.run"
"""Parquet metadata of files made by :func:`write_run`: ``schema`` and ``metric``; ``hp`` then holds exactly the settings."""
FILE_SCHEMA = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordedRun:
    """One run as recorded, raw points sorted by step.

    Attributes
    ----------
    steps, values : ndarray, shape (n,)
        Where and what was logged of ``metric``; values may be NaN or infinite.
    tokens, learning_rates : ndarray, shape (n,), or None
        At the same points, NaN where not logged.
    horizon : float or None
        Last step of the full run, in the unit of ``steps``; None if unknown.
    settings : dict
        Everything known of the run's settings, recorded end values (``final_full_val_loss``) included.
    restarts : tuple of float
        Steps at which the log went back and was written anew.
    notes : tuple of str
        What the reader guessed, and what it left out; no part of the run.
    """

    run_id: str
    steps: FloatArray = field(repr=False)
    values: FloatArray = field(repr=False)
    metric: Metric = field(default_factory=Metric)
    horizon: float | None = None
    family: str = ""
    group: str = ""
    tokens: FloatArray | None = field(default=None, repr=False)
    learning_rates: FloatArray | None = field(default=None, repr=False)
    recipe: Recipe | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    restarts: tuple[float, ...] = ()
    notes: tuple[str, ...] = field(default=(), repr=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RecordedRun):
            return NotImplemented
        mine, theirs = vars(self), vars(other)
        return all(_same(mine[name], theirs[name]) for name in mine if name not in ("restarts", "notes"))

    __hash__ = None  # type: ignore[assignment]

    def curve(self, until: float | None = None) -> Curve:
        """Return the curve of the run, or of its first part.

        Parameters
        ----------
        until : float, optional
            Keep the points with step ≤ ``until`` · horizon; an end value is then not passed on.

        Raises
        ------
        ValueError
            ``until`` not in (0, 1], or given while the horizon is unknown.
        """
        steps, values, end_value = self.steps, self.values, self._end_value()
        if until is not None:
            keep = self._seen(until)
            steps, values, end_value = steps[keep], values[keep], end_value if until == 1 else None
        return Curve.from_points(
            steps,
            values,
            horizon=self.horizon,
            recipe=self.recipe,
            settings={k: v for k, v in self.settings.items() if not k.startswith("final_")},
            metric=self.metric,
            run_id=self.run_id,
            family=self.family,
            end_value=end_value,
        )

    def _seen(self, until: float) -> NDArray[np.bool_]:
        if not 0 < until <= 1:
            raise ValueError(f"until must lie in (0, 1]; found {until!r}")
        if self.horizon is None:
            raise ValueError(f"run {self.run_id}: it can be cut only where its whole length is known (total_steps); found none")
        return np.ones(self.steps.size, dtype=bool) if until == 1 else self.steps <= until * self.horizon

    def _end_value(self) -> float | None:
        """Named end value of the metric; a metric that ends by "window" or "last" has none."""
        if self.metric.end in ("window", "last"):
            return None
        value = self.settings.get(self.metric.end)
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def read_runs(
    paths: str | Path | Iterable[str | Path],
    *,
    run: str | None = None,
    metric: str | None = None,
    mode: Literal["min", "max"] | None = None,
    columns: Columns | None = None,
    growing: bool = False,
) -> list[RecordedRun]:
    """Return the runs recorded in ``paths``, in order of appearance.

    Parameters
    ----------
    paths : path or iterable of paths
        Logs of any format in :data:`hpo.adapters.readers.registry.READERS`, wildcards, or folders of logs.
    run : str, optional
        Only the run of this id. Ids that occur in several files read as ``path:run_id``.
    metric : str, optional
        Column with the curve. By default the training loss if the file has one, else the validation loss, else the only
        column that looks like a loss. Runs without any value of the metric are left out.
    mode : {"min", "max"}, optional
        Direction of the metric; by default read off its name (accuracies and scores are maximised).
    columns : Columns, optional
        Columns of the step, the tokens and the learning rate; by default guessed, and :attr:`RecordedRun.notes` say how.
    growing : bool
        True while the logs are being written: an unfinished last line is left for later.

    Raises
    ------
    ValueError
        Missing file, no rows, no step column, unknown run or metric, binary or damaged content: one line naming the
        file, what was expected and what was found.
    """
    told = columns or Columns()
    told = told if metric is None else replace(told, loss=metric)
    tables = (read_table(path, growing=growing) for path in find_files(paths))
    runs = [one for table in tables for one in _runs_of(table, told, mode)]
    runs = _distinct_names(runs)
    if run is None:
        return [one for _, one in runs]
    chosen = [one for _, one in runs if one.run_id == run]
    if not chosen:
        raise ValueError(f"run {run!r} is not in these files; found {_listed(one.run_id for _, one in runs)}")
    return chosen


def write_run(path: str | os.PathLike[str], run: RecordedRun) -> None:
    """Write ``run`` to the Parquet file ``path`` in one step, in tidy columns; :func:`read_runs` returns an equal run.

    Raises
    ------
    ValueError
        Settings that are not JSON-ready, or a metric that would be called like another column.
    """
    n = run.steps.size
    columns = {name: _repeated(value, n) for name, value in _scalars(run).items()}
    arrays = {"step": run.steps, "tokens": run.tokens, run.metric.name: run.values, "lr_at_step": run.learning_rates}
    if run.metric.name in columns or len(arrays) != 4:
        raise ValueError(f"metric name must not be that of another column; found {run.metric.name!r}")
    for name, array in arrays.items():
        if array is not None:
            columns[name] = pa.array(np.asarray(array, dtype=np.float64), from_pandas=name in ("tokens", "lr_at_step"))
    about = json.dumps({"schema": FILE_SCHEMA, "metric": run.metric.to_dict()})
    buffer = io.BytesIO()
    parquet.write_table(pa.table(columns).replace_schema_metadata({FILE_KEY: about}), buffer, compression="zstd")
    write_bytes(path, buffer.getvalue())


def _repeated(value: str | float, n: int) -> pa.Array:
    """Return a column of one value; texts as a dictionary of one, so that a long ``hp`` is kept once."""
    if isinstance(value, float):
        return pa.array(np.full(n, value))
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, dtype=np.int32)), [value])


def _scalars(run: RecordedRun) -> dict[str, str | float]:
    """Per-run columns of the tidy layout; what is unknown is left out."""
    try:
        hp = json.dumps(run.settings)
    except (TypeError, ValueError) as error:
        raise ValueError(f"run {run.run_id}: settings must be JSON-ready ({error})") from None
    out: dict[str, Any] = {"run_id": run.run_id, "family": run.family, "group": run.group, "hp": hp}
    out["total_steps"] = run.horizon
    if run.recipe is not None:
        known = run.recipe
        out |= {name: getattr(known, name) for name in ("n_params", "batch_tokens", "lr", "weight_decay", "warmup_fraction")}
        out |= {name: getattr(known, name) for name in ("base_lr", "base_weight_decay", "flops_exact")}
        out |= {"total_tokens": known.n_tokens, "schedule": schedule_text(known.schedule)}
        if run.horizon is not None and known.warmup_fraction is not None:
            out["warmup_steps"] = known.warmup_fraction * run.horizon
    return {name: value if isinstance(value, str) else float(value) for name, value in out.items() if value is not None}


def _runs_of(table: CurveTable, told: Columns, mode: Literal["min", "max"] | None) -> list[tuple[Path, RecordedRun]]:
    about = _own_metadata(table)
    own_metric = None if about is None else Metric.from_dict(about["metric"])
    every = split_runs(table, told, mode, own_metric)
    runs = [(table.path, _recorded_run(rows, settings_are_hp=about is not None)) for rows in every if rows.steps.size]
    if not runs:
        raise ValueError(f"{table.path}: no run has a value of {told.loss or 'a metric'}")
    return runs


def _recorded_run(rows: Rows, *, settings_are_hp: bool) -> RecordedRun:
    horizon = run_horizon(rows)
    try:
        recipe = run_recipe(rows, horizon)
    except ValueError as error:
        raise ValueError(f"{rows.path}: run {rows.run_id}: {error}") from None
    return RecordedRun(
        run_id=rows.run_id,
        steps=rows.steps,
        values=rows.values,
        metric=rows.metric,
        horizon=horizon,
        family=rows.text("family") or "",
        group=rows.text("group") or "",
        tokens=rows.tokens,
        learning_rates=rows.learning_rates,
        recipe=recipe,
        settings=rows.hp if settings_are_hp else rows.settings,
        restarts=rows.restarts,
        notes=() if settings_are_hp else rows.notes,
    )


def _own_metadata(table: CurveTable) -> Mapping[str, Any] | None:
    text = (table.arrow.schema.metadata or {}).get(FILE_KEY)
    if text is None:
        return None
    about = json.loads(text)
    if not isinstance(about, dict) or about.get("schema") != FILE_SCHEMA:
        raise ValueError(f"{table.path}: expected a curve file of schema {FILE_SCHEMA}; found a newer or damaged one")
    return about


def _distinct_names(runs: list[tuple[Path, RecordedRun]]) -> list[tuple[Path, RecordedRun]]:
    """Give runs whose id occurs in several files the name ``path:run_id``."""
    homes: dict[str, set[Path]] = {}
    for path, one in runs:
        homes.setdefault(one.run_id, set()).add(path)
    return [(path, one if len(homes[one.run_id]) == 1 else _renamed(one, f"{path}:{one.run_id}")) for path, one in runs]


def _renamed(run: RecordedRun, run_id: str) -> RecordedRun:
    return RecordedRun(**{**vars(run), "run_id": run_id})


def _listed(names: Iterable[str], at_most: int = 8) -> str:
    every = list(names)
    return ", ".join(every[:at_most]) + (f", … ({len(every)} in all)" if len(every) > at_most else "")


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.array_equal(a, b, equal_nan=True)
    return bool(a == b)
