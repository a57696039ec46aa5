"""What our own ladder shows: which runs collapse, how far apart their curves are, as JSON, a table and a figure.

Two numbers a comparison. ``max_delta_pct`` is :func:`hpo.core.check.check_curves`' Δ over all runs, noise subtracted, with its
verdict. ``deviation_pct`` is plainer: the mean log ℓ of each condition over its seeds, and the widest gap between conditions,
in percent, at its worst over t̂ ≥ 0.2; nothing is subtracted. Curves are averaged over 9 % of training for it, because single
held-out losses of models this small jump by half a percent. ``seed_pct`` is the same gap between seeds: its noise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.own_ladder import MIDDLE, Comparison, comparisons, ladder_runs
from bench.own_sweep import LRS, TAUS
from hpo.adapters.curve_files import RecordedRun, read_runs
from hpo.core.check import JUDGED_FROM, check_curves, normalised_logs
from hpo.reporting.chart_grid import chart_grid
from hpo.reporting.line_chart import Line, line_chart

FloatArray = NDArray[np.float64]
WINDOW = 9
SHOWN_AT = (0.2, 0.3, 0.5, 0.7)
PANELS = ("ladder", "tau", "tau_by", "tpp", "batch_tau", "batch_decay")
LOOSE = Comparison("loose", "the same controls at a context of 64", ("proxy", "target"), (24, 32, 48), False)
"""A family that does not collapse: the sizes of our own sweep, at the one setting that all of them have."""
LOOSE_LR, LOOSE_TAU = LRS[2], TAUS[0]


def ladder_report(path: Path, metric: str = "val_loss", loose: Path | None = None) -> dict[str, Any]:
    """Return the JSON-ready report on the runs in ``path``; comparisons whose runs are not all there are left out, and said.

    ``loose`` holds the runs of our own sweep, for a family that does not collapse.

    Raises
    ------
    ValueError
        A file that cannot be read as curves.
    """
    runs = read_runs(path, metric=metric)
    rows, left_out = [], []
    for comparison in comparisons():
        chosen = members(comparison, runs)
        if len(chosen) < 2:
            left_out.append(comparison.name)
        else:
            rows.append(_row(comparison, chosen))
    if loose is not None:
        rows.append(_row(LOOSE, loose_runs(loose, metric)))
    return {"metric": metric, "n_runs": len(runs), "comparisons": rows, "left_out": left_out}


def members(comparison: Comparison, runs: Sequence[RecordedRun]) -> list[RecordedRun]:
    """Return the runs of a comparison; none where one of its conditions has no run yet."""
    mine = [run for run in runs if run.group in comparison.groups and run.settings["width"] in comparison.widths]
    designed = [run for run in ladder_runs() if run.group in comparison.groups and run.width in comparison.widths]
    return mine if {condition(run.run_id) for run in designed} <= {condition(run.run_id) for run in mine} else []


def loose_runs(path: Path, metric: str = "val_loss") -> list[RecordedRun]:
    """Return the runs of our own sweep at the setting that all its sizes have."""
    runs = read_runs(path, metric=metric)
    return [run for run in runs if (run.settings["lr"], run.settings["tau"]) == (LOOSE_LR, LOOSE_TAU)]


def condition(run_id: str) -> str:
    """Return what a run's name says of it apart from its seed."""
    return run_id.rpartition("-seed")[0]


def _row(comparison: Comparison, runs: Sequence[RecordedRun]) -> dict[str, Any]:
    report = check_curves([run.curve() for run in runs])
    t, by_condition = mean_logs(runs)
    gap = spread_between(list(by_condition.values()))
    late = t >= JUDGED_FROM - 1e-9
    spread = report.spread
    return {
        "name": comparison.name,
        "title": comparison.title,
        "expected": comparison.expected,
        "runs": sorted(run.run_id for run in runs),
        "n_params": sorted({int(run.recipe.n_params) for run in runs if run.recipe is not None and run.recipe.n_params}),
        "collapse": report.collapse,
        "max_delta_pct": None if spread is None else 100 * spread.worst,
        "noise_floor_pct": None if report.noise_floor is None else 100 * report.noise_floor,
        "mismatched": report.mismatched,
        "deviation_pct": None if len(by_condition) < 2 else 100 * float(gap[late].max()),
        "deviation_at": {str(at): 100 * float(np.interp(at, t, gap)) for at in SHOWN_AT} if len(by_condition) > 1 else {},
        "seed_pct": _seed_gap(runs),
        "reason": report.reason,
    }


def mean_logs(runs: Sequence[RecordedRun]) -> tuple[FloatArray, dict[str, FloatArray]]:
    """Return t̂ and the mean log ℓ over the seeds of each condition, smooth as in :func:`smooth_logs`."""
    t, logs = smooth_logs(runs)
    rows: dict[str, list[FloatArray]] = defaultdict(list)
    for run, row in zip(runs, logs, strict=True):
        rows[condition(run.run_id)].append(row)
    return t, {name: np.mean(some, axis=0) for name, some in rows.items()}


def smooth_logs(runs: Sequence[RecordedRun]) -> tuple[FloatArray, FloatArray]:
    """Return t̂ and log ℓ of each run, centred means over :data:`WINDOW` percent of training, narrower towards the ends."""
    t, logs = normalised_logs([run.curve() for run in runs])
    half = np.minimum(np.minimum(np.arange(t.size), np.arange(t.size)[::-1]), WINDOW // 2)
    sums = np.concatenate((np.zeros((len(logs), 1)), np.cumsum(logs, axis=1)), axis=1)
    at = np.arange(t.size)
    return t, (sums[:, at + half + 1] - sums[:, at - half]) / (2 * half + 1)


def spread_between(rows: Sequence[FloatArray]) -> FloatArray:
    """Return the widest gap between rows at each place."""
    table = np.stack(rows)
    return np.asarray(table.max(axis=0) - table.min(axis=0), dtype=np.float64)


def _seed_gap(runs: Sequence[RecordedRun]) -> float | None:
    """Return the largest gap between seeds of one condition over t̂ ≥ 0.2, in percent, the mean over conditions."""
    by_condition: dict[str, list[RecordedRun]] = defaultdict(list)
    for run in runs:
        by_condition[condition(run.run_id)].append(run)
    gaps = []
    for group in by_condition.values():
        if len(group) > 1:
            t, logs = smooth_logs(group)
            gaps.append(float(spread_between(list(logs))[t >= JUDGED_FROM - 1e-9].max()))
    return 100 * float(np.mean(gaps)) if gaps else None


def ladder_table(report: dict[str, Any]) -> str:
    """Return the report as a Markdown table."""
    columns = ["comparison", "N", "should collapse", "collapses", "Δ", "floor", "gap", "at .2", ".3", ".5", ".7"]
    columns += ["between seeds", "controls off"]
    head = (
        f"{report['n_runs']} runs, {report['metric']}. Δ: spread of all runs, noise subtracted, at its worst over t̂ ≥ 0.2; "
        f"gap: widest difference between conditions' mean curves over {WINDOW} % of training, nothing subtracted. All in %."
    )
    lines = [head, "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in report["comparisons"]:
        at = " | ".join(_number(row["deviation_at"].get(str(t))) for t in SHOWN_AT)
        sizes = ", ".join(f"{n / 1000:.0f}k" for n in row["n_params"])
        head = f"| {row['title']} | {sizes} | {_word(row['expected'])} | {_word(row['collapse'])} | "
        numbers = [row["max_delta_pct"], row["noise_floor_pct"], row["deviation_pct"]]
        tail = f" | {at} | {_number(row['seed_pct'])} | {', '.join(row['mismatched']) or 'none'} |"
        lines.append(head + " | ".join(map(_number, numbers)) + tail)
    if report["left_out"]:
        lines += ["", f"Not yet: {', '.join(report['left_out'])}."]
    return "\n".join(lines)


def ladder_figure(path: Path, metric: str = "val_loss", loose: Path | None = None) -> str:
    """Return an SVG document: normalised curves of the ladder and of each contrast, one line a condition."""
    runs = read_runs(path, metric=metric)
    shown = [(c, members(c, runs)) for c in comparisons() if c.name in PANELS]
    matched = [run for run in runs if run.group == "matched" and run.settings["width"] == MIDDLE]
    panels = [_panel(c, [*(matched if c.name == "tau_by" else []), *chosen]) for c, chosen in shown if chosen]
    extra = [] if loose is None else [_panel(LOOSE, loose_runs(loose, metric))]
    return chart_grid([*panels[:1], *extra, *panels[1:]], columns=2)


def _panel(comparison: Comparison, runs: Sequence[RecordedRun]) -> str:
    t, rows = mean_logs(runs)
    late = t >= 0.15
    lines = [
        Line(name.removeprefix("ladder-").removeprefix("sweep-"), t[late], np.exp(row[late])) for name, row in rows.items()
    ]
    return line_chart(lines, title=comparison.title, x_label="fraction of training t̂", y_label="ℓ = L/L(T)")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _word(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "?"}[value]
