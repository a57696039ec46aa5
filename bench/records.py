"""Recorded runs as the bench needs them: the curve, every field a protocol may ask for, and the value that decides.

What a method may see of a run is kept apart from what is only known afterwards: settings that are results (``final_*``, the
protocol's truth, anything that varies within a run) are taken out before a curve is handed to a method.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from bench.protocol import Protocol
from hpo.adapters.curve_files import RecordedRun, read_runs
from hpo.adapters.readers.registry import read_table
from hpo.core.curve import Curve

OWN_DATA = Path(__file__).parent / "data"
"""Curves that come with the bench; a file of the same name in the folder of curves goes first."""
_RESULT = re.compile(r"final_|own_start$|prefix_from$", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Record:
    """One recorded run.

    Attributes
    ----------
    run : RecordedRun
        The run, its settings cleared of results.
    fields : dict
        First value of every column, ``run_id`` included, and the keys of ``hp`` (a column goes before a key of the same name).
    ends : dict
        Last number of every numeric column.
    """

    run: RecordedRun
    fields: Mapping[str, Any] = field(repr=False)
    ends: Mapping[str, float] = field(repr=False)
    _prefixes: dict[float, Curve] = field(default_factory=dict, repr=False)

    @property
    def run_id(self) -> str:
        """The run's name."""
        return self.run.run_id

    @cached_property
    def full(self) -> Curve:
        """The whole curve, as recorded, of a run that has ended."""
        return self.run.curve().ended()

    @property
    def diverged(self) -> bool:
        """True if the last value is not finite (a run that recovers from a NaN has not diverged)."""
        return self.run.values.size > 0 and not math.isfinite(self.run.values[-1])

    @cached_property
    def own_end(self) -> float:
        """L(T) by the metric's own definition; NaN if the run diverged or ends too early to know it."""
        if self.diverged:
            return math.nan
        curve = self.run.curve()
        if curve.nonfinite_step is not None:
            finite = np.isfinite(self.run.values)
            curve = replace(self.run, steps=self.run.steps[finite], values=self.run.values[finite]).curve()
        return math.nan if curve.final_loss is None else curve.final_loss

    def truth(self, protocol: Protocol) -> float:
        """Return the value that decides the winner: infinite (the worst) if the run diverged, NaN if it is not known."""
        if self.diverged:
            return math.inf if protocol.mode == "min" else -math.inf
        if protocol.truth is None:
            return self.own_end
        value = self.fields.get(protocol.truth)
        if protocol.truth in self.ends:
            value = self.ends[protocol.truth]
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan

    def prefix(self, until: float) -> Curve:
        """Return what has been seen of the run at the fraction ``until`` of its training."""
        if until not in self._prefixes:
            self._prefixes[until] = self.run.curve(until)
        return self._prefixes[until]

    @property
    def batch_tokens(self) -> float | None:
        """Tokens a step, None if unknown."""
        return None if self.run.recipe is None else self.run.recipe.batch_tokens


def load_records(folder: Path, protocol: Protocol) -> list[Record]:
    """Return every run of the protocol's file that has values of its metric, in order of appearance.

    Raises
    ------
    ValueError
        Missing or damaged file, unknown metric, or a truth that no run knows.
    """
    path = folder / protocol.file
    if not path.is_file() and (OWN_DATA / protocol.file).is_file():
        path = OWN_DATA / protocol.file
    if not path.is_file():
        raise ValueError(f"protocol {protocol.name}: {path}: no such file in the folder of curves")
    records = list(_records(path, path.stat().st_mtime_ns, protocol.metric, protocol.mode, protocol.truth))
    name = protocol.truth
    if name is not None and not any(name in r.fields or name in r.ends for r in records):
        raise ValueError(f"protocol {protocol.name}: truth {name!r} is neither a key of hp nor a column of {path.name}")
    return records


@lru_cache(maxsize=16)
def _records(path: Path, _modified: int, metric: str, mode: Literal["min", "max"], truth: str | None) -> tuple[Record, ...]:
    runs = read_runs(path, metric=metric, mode=mode)
    fields, ends, logged = _tables(path, _modified)
    out = []
    for run in runs:
        known = fields.get(run.run_id, {})
        hp = {name: value for name, value in run.settings.items() if name not in known}
        settings = {k: v for k, v in run.settings.items() if k != truth and k not in logged and not _RESULT.match(k)}
        mine = Record(replace(run, settings=settings), {**hp, **known, "run_id": run.run_id}, ends.get(run.run_id, {}))
        out.append(mine)
    return tuple(out)


@lru_cache(maxsize=16)
def _tables(path: Path, _modified: int) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, float]], frozenset[str]]:
    """Return per run each column's first value and last number, and which numeric columns vary within a run."""
    frame = read_table(path).arrow.to_pandas()
    frame = frame.rename(columns={name: name.lower() for name in frame.columns if name.lower() in ("run_id", "step")})
    if "run_id" not in frame:
        frame["run_id"] = path.stem
    frame["run_id"] = frame["run_id"].astype(str)
    if "step" in frame:
        frame = frame.sort_values("step", kind="stable")
    runs = frame.drop(columns=["hp"], errors="ignore").groupby("run_id", sort=False)
    numeric = runs[list(frame.select_dtypes("number").columns)]
    varies = (numeric.min() != numeric.max()) & numeric.first().notna()
    return _known(runs.first()), _known(numeric.last()), frozenset(varies.columns[varies.any()])


def _known(table: pd.DataFrame) -> dict[str, dict[str, Any]]:
    rows = table.astype(object).where(table.notna(), None).to_dict(orient="index")
    return {str(run): {str(k): _plain(v) for k, v in row.items() if v is not None} for run, row in rows.items()}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
