"""Whether the best learning rate stays put as models grow: width and depth, standard parameterisation against CompleteP.

Five base learning rates at five shapes around one base shape, the same number of steps and tokens for all. The best rate of a
shape is the vertex of the parabola in log η through its three lowest losses (the grid's edge where the lowest is there). What
counts is how far it drifts from the base shape, in doublings, and what it costs to train the shape at the base's best rate.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline

from bench.own_runs import OwnRun
from hpo.adapters.curve_files import read_runs
from hpo.reporting.chart_grid import chart_grid
from hpo.reporting.line_chart import Line, line_chart
from proxies.architecture import Architecture

LRS = (1e-3, 3e-3, 9e-3, 2.7e-2, 8.1e-2)
WIDTHS, DEPTHS = (24, 48, 96), (2, 6, 18)
BASE: dict[str, Any] = {"base_width": WIDTHS[0], "base_depth": DEPTHS[0], "head_dim": 8, "ffn_ratio": 4.0}
SHAPES = tuple(dict.fromkeys([*((w, DEPTHS[0]) for w in WIDTHS), *((WIDTHS[0], d) for d in DEPTHS)]))
N_STEPS, BATCH, SEQ_LEN = 400, 8, 64
DECAY = 0.1
PARAMETERISATIONS = ("sp", "completep")


def transfer_runs() -> list[OwnRun]:
    """Return the runs, the small shapes first."""
    shapes = sorted(SHAPES, key=lambda shape: shape[0] ** 2 * shape[1])
    return [_run(p, width, depth, lr) for width, depth in shapes for p in PARAMETERISATIONS for lr in LRS]


def _run(parameterisation: str, width: int, depth: int, lr: float) -> OwnRun:
    model = {**BASE, "parameterisation": parameterisation, "depth": depth}
    n_params = Architecture(**{**model, "width": width}).n_params
    return OwnRun(
        run_id=f"transfer-{parameterisation}-w{width}-d{depth}-lr{lr:g}-seed0",
        group=parameterisation,
        family="own-transfer",
        width=width,
        tpp=N_STEPS * BATCH * SEQ_LEN / n_params,
        batch_sequences=BATCH,
        lr=lr,
        weight_decay=DECAY,
        model=model,
        data={"seq_len": SEQ_LEN},
        training={"evaluations": 10},
        notes={"lr": lr, "width": width, "depth": depth},
    )


def transfer_report(path: Path) -> dict[str, Any]:
    """Return the JSON-ready report on the runs in ``path``; shapes that lack a rate are left out.

    Returns
    -------
    dict
        ``shapes``: one entry a parameterisation and shape with ``losses`` (held-out, one a rate; None if not finite),
        ``best_lr``, ``drift`` (doublings of the best rate over the base shape's) and ``penalty_pct`` (excess loss at the base
        shape's best rate).
    """
    losses: dict[tuple[str, int, int], dict[float, float]] = defaultdict(dict)
    for run in read_runs(path, metric="val_loss"):
        about = run.settings
        losses[run.group, int(about["width"]), int(about["depth"])][about["lr"]] = float(run.values[-1])
    whole = {key: [by_lr[lr] for lr in LRS] for key, by_lr in losses.items() if set(LRS) <= set(by_lr)}
    rows = [_row(key, values, whole.get((key[0], WIDTHS[0], DEPTHS[0]))) for key, values in whole.items()]
    return {"lrs": list(LRS), "shapes": sorted(rows, key=lambda r: (r["parameterisation"], r["depth"], r["width"]))}


def _row(key: tuple[str, int, int], values: list[float], base: list[float] | None) -> dict[str, Any]:
    parameterisation, width, depth = key
    best = best_lr(values)
    known = {"parameterisation": parameterisation, "width": width, "depth": depth, "best_lr": best}
    known["losses"] = [value if np.isfinite(value) else None for value in values]
    if base is not None:
        known["drift"] = float(np.log2(best / best_lr(base)))
        known["penalty_pct"] = penalty_pct(values, best_lr(base))
    return known


def best_lr(losses: list[float]) -> float:
    """Return the learning rate at the lowest point of a parabola in log η, within half a grid step of the lowest loss."""
    y = np.where(np.isfinite(losses), losses, np.inf)
    k, x = int(np.argmin(y)), np.log(LRS)
    if k in (0, len(x) - 1) or not np.isfinite(y[k - 1 : k + 2]).all():
        return float(LRS[k])
    left, right = y[k - 1] - y[k], y[k + 1] - y[k]
    return float(np.exp(x[k] + 0.5 * (x[k + 1] - x[k]) * (left - right) / (left + right)))


def penalty_pct(losses: list[float], lr: float) -> float | None:
    """Return what training at ``lr`` costs over the best rate, by a cubic spline in log η; None if a loss is not finite."""
    if not np.isfinite(losses).all():
        return None
    x = np.log(LRS)
    spline = CubicSpline(x, losses)
    lowest = float(np.min(spline(np.linspace(x[0], x[-1], 401))))
    return 100 * (float(spline(np.log(lr))) / lowest - 1)


def transfer_table(report: dict[str, Any]) -> str:
    """Return the report as a Markdown table."""
    rates = [f"η {lr:g}" for lr in report["lrs"]]
    columns = ["parameterisation", "width", "depth", *rates, "best η", "drift, doublings", "cost of the base's η, %"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in report["shapes"]:
        losses = ["–" if value is None else f"{value:.3f}" for value in row["losses"]]
        end = [f"{row['best_lr']:.2g}", *("–" if row.get(k) is None else f"{row[k]:.2f}" for k in ("drift", "penalty_pct"))]
        head = [row["parameterisation"], str(row["width"]), str(row["depth"])]
        lines.append(f"| {' | '.join([*head, *losses, *end])} |")
    return "\n".join(lines)


def transfer_figure(report: dict[str, Any]) -> str:
    """Return an SVG document: held-out loss against log2 η, a panel for each parameterisation and axis."""
    charts = [_panel(report, p, axis) for p in PARAMETERISATIONS for axis in ("width", "depth") if _along(report, p, axis)]
    return chart_grid(charts, columns=2)


def _along(report: dict[str, Any], parameterisation: str, axis: str) -> list[dict[str, Any]]:
    fixed, at = ("depth", DEPTHS[0]) if axis == "width" else ("width", WIDTHS[0])
    return [row for row in report["shapes"] if row["parameterisation"] == parameterisation and row[fixed] == at]


def _panel(report: dict[str, Any], parameterisation: str, axis: str) -> str:
    rows = _along(report, parameterisation, axis)
    lines = []
    for row in rows:
        losses = np.array([np.nan if value is None else value for value in row["losses"]])
        lines.append(Line(f"{axis} {row[axis]}", np.log2(report["lrs"]), losses))
    lowest = min(value for row in rows for value in row["losses"] if value is not None)
    return line_chart(
        lines,
        title=f"{parameterisation}, {axis}",
        x_label="log2 of the base learning rate",
        y_label="held-out loss",
        y_range=(lowest - 0.05, lowest + 1.2),
    )
