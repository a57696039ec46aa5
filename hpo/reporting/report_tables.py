"""The tables of a sweep's report: cells to read, values to sort by, and the same as CSV to download."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hpo.reporting.decision_trail import reason_text
from hpo.reporting.stopping_points import StoppingPoint
from hpo.reporting.sweep_files import SweepRecord, rank
from hpo.reporting.sweep_words import number_text, share_text

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class Cell:
    """What a cell shows, the raw value that sorts it and goes to the CSV, and where it links to in the page."""

    text: str
    value: Any
    link: str = ""
    hint: str = ""


MAX_ROWS = 500
"""Rows of a table that are shown; all of them are in its CSV."""


@dataclass(frozen=True)
class Table:
    """A table with its columns' names; numeric columns are aligned to the right. ``strong`` names rows by position."""

    id: str
    title: str
    columns: tuple[str, ...]
    numeric: frozenset[str]
    rows: tuple[tuple[Cell, ...], ...]
    strong: frozenset[int] = frozenset()

    @property
    def shown(self) -> tuple[tuple[Cell, ...], ...]:
        """The first :data:`MAX_ROWS` rows."""
        return self.rows[:MAX_ROWS]

    @property
    def csv(self) -> str:
        """The table as CSV. A text that a spreadsheet would take for a formula is preceded by an apostrophe."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_csv_value(cell.value) for cell in row] for row in self.rows)
        return buffer.getvalue()

    @property
    def csv_uri(self) -> str:
        """The CSV as a data URI."""
        return "data:text/csv;charset=utf-8," + quote(self.csv)


def trials_table(sweep: SweepRecord) -> Table:
    """Return every candidate, the winner first, then by forecast."""
    names = list(dict.fromkeys(name for trial in sweep.trials for name in trial.settings))
    fixed = ("forecast", "lower", "upper", "P(best)", "measured", "loss at stop", "done")
    ranked = sorted(sweep.trials, key=rank)
    rows = []
    for t in ranked:
        f = t.forecast
        rows.append(
            (
                Cell(str(t.number), t.number, link=f"trail-{t.number}"),
                Cell(f"{t.state} (suspect)" if t.suspect else t.state, t.state, hint=str(t.suspect.get("reason") or "")),
                *(Cell(number_text(t.settings.get(name)), t.settings.get(name)) for name in names),
                *(_loss(f.get(key)) for key in ("final_loss", "lower", "upper")),
                Cell("" if f.get("p_best") is None else f"{f['p_best']:.3f}", f.get("p_best")),
                _loss(t.final_loss),
                _loss(t.loss_at_stop),
                Cell("" if t.fraction is None else share_text(t.fraction), t.fraction),
                Cell(t.reason.replace("_", " "), t.reason, hint=reason_text(t.reason) if t.reason else ""),
            )
        )
    numeric = {"trial", *fixed, *_numeric(names, [t.settings for t in sweep.trials])}
    strong = frozenset(i for i, t in enumerate(ranked) if t.state == "winner")
    columns = ("trial", "state", *names, *fixed, "reason")
    return Table("trials", "Candidates", columns, frozenset(numeric), tuple(rows), strong)


def proxies_table(sweep: SweepRecord) -> Table | None:
    """Return the proxies with what they taught: final loss and cost; None without any."""
    runs = list(sweep.proxies.values())
    if not runs:
        return None
    names = list(dict.fromkeys(name for run in runs for name in run.settings))
    rows = []
    for run in runs:
        n_params, flops = (None, None) if run.recipe is None else (run.recipe.n_params, run.recipe.flops)
        done = float(run.steps[-1]) if run.steps.size else 0.0
        flops = flops * done / run.horizon if flops and run.horizon else None
        rows.append(
            (
                Cell(run.run_id, run.run_id),
                Cell("" if n_params is None else f"{n_params:,.0f}", n_params),
                *(Cell(number_text(run.settings.get(name)), run.settings.get(name)) for name in names),
                Cell(f"{done:.0f}", done),
                _loss(run.curve().final_loss),
                Cell("" if flops is None else f"{flops:.2e}", flops),
            )
        )
    columns = ("proxy", "parameters", *names, "steps", "final loss", "FLOPs")
    numeric = {*columns} - {"proxy", *names} | _numeric(names, [run.settings for run in runs])
    return Table("proxies", "Proxies", columns, frozenset(numeric), tuple(rows))


def stopping_table(points: Sequence[StoppingPoint]) -> Table | None:
    """Return regret and forecast error at each stopping point; None without any."""
    if not points:
        return None
    columns = ("stopping point", "candidates", "error %", "bias %", "error apart %", "in 90 %", "regret %", "current best %")
    rows = tuple(
        (
            Cell(share_text(p.fraction), p.fraction),
            Cell(str(p.n_judged), p.n_judged),
            *(_pct(v) for v in (p.error_pct, p.bias_pct, p.apart_pct)),
            Cell(share_text(p.covered), p.covered),
            *(_pct(v) for v in (p.regret_pct, p.current_best_regret_pct)),
        )
        for p in points
    )
    return Table("stopping-points", "Stopping points", columns, frozenset(columns), rows)


def _loss(value: float | None) -> Cell:
    return Cell("" if value is None else f"{value:.4f}", value)


def _pct(value: float | None) -> Cell:
    return Cell("" if value is None else f"{value:.2f}", value)


def _numeric(names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the names whose values are numbers everywhere."""
    return {name for name in names if all(_is_number(one.get(name)) for one in settings)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _csv_value(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return "'" + value
    return "" if value is None else value
