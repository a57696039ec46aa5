"""Figures of what compute buys: iso-loss and iso-FLOP lines, a scaling fit with its interval, the Pareto frontier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hpo.reporting.chart_grid import chart_grid
from hpo.reporting.line_chart import Line, line_chart

Row = Mapping[str, Any]
Interval = Callable[[float], tuple[float, float]]


def compression_figure(rows: Sequence[Row], curve: Sequence[Row]) -> str:
    """Return an SVG document of two panels: compute at equal loss, and loss at equal compute, against parameters.

    Parameters
    ----------
    rows : sequence of mapping
        The fields of :class:`hpo.core.laws.Compression` at the tokens per parameter to point out.
    curve : sequence of mapping
        The same, densely, ascending in ``tpp``: the lines.
    """
    iso_loss = _against_params(rows, curve, "params_ratio", "flops_ratio", "equal loss: compute for a smaller model", "FLOPs")
    iso_flops = _against_params(
        rows,
        curve,
        "iso_flop_params_ratio",
        "iso_flop_reducible_loss_ratio",
        "equal FLOPs: loss of a smaller model",
        "L − E",
    )
    return chart_grid([iso_loss, iso_flops], columns=2)


def _against_params(rows: Sequence[Row], curve: Sequence[Row], across: str, up: str, title: str, quantity: str) -> str:
    (at_x, at_y), (x, y) = (
        (np.log10([row[across] for row in some]), np.log10([row[up] for row in some])) for some in (rows, curve)
    )
    names = [f"{row['tpp']:g} TPP" for row in rows]
    return line_chart(
        [Line("", x, y), Line("", at_x, at_y, points=True, names=names)],
        title=title,
        x_label="parameters, over those of the compute-optimal model",
        y_label=f"{quantity}, over the optimum's",
        powers="xy",
    )


def scaling_figure(models: Sequence[Row], quality: str, law: Callable[[float], float], interval: Interval) -> str:
    """Return an SVG document of models on a log-log plane, the law through them and the 90 % interval of a new model.

    Parameters
    ----------
    models : sequence of mapping
        ``name``, ``flops`` and the field ``quality``, "loss" or "accuracy" (then 100 − accuracy is drawn).
    law, interval : callable
        Value and interval of what is drawn, of FLOPs.
    """
    flops = np.array([model["flops"] for model in models])
    drawn = np.array([100 - model[quality] if quality == "accuracy" else model[quality] for model in models])
    grid = np.geomspace(flops.min(), flops.max(), 60)
    ends = np.log10([interval(x) for x in grid])
    middle = np.log10([law(x) for x in grid])
    label = "100 − accuracy, %" if quality == "accuracy" else "loss"
    return line_chart(
        [
            Line("law, 90 % of a new model", np.log10(grid), middle, band=0.5 * (ends[:, 1] - ends[:, 0])),
            Line("models", np.log10(flops), np.log10(drawn), points=True, names=_few([str(m["name"]) for m in models])),
        ],
        title=f"{label} against compute",
        x_label="training FLOPs",
        y_label=label,
        powers="xy",
    )


def frontier_figure(models: Sequence[Row], quality: str) -> str:
    """Return an SVG document of models by compute; the line is the best quality to be had for so much.

    Parameters
    ----------
    models : sequence of mapping
        ``name``, ``flops``, ``on_frontier`` and the field ``quality``, "loss" or "accuracy".
    """
    ordered = sorted(models, key=lambda model: (float(model["flops"]), float(model[quality])))
    on, off = ([m for m in ordered if m["on_frontier"] is wanted] for wanted in (True, False))
    steps = np.repeat(np.arange(len(on)), 2)
    lines = [Line("", np.repeat(_log_flops(on), 2)[1:], np.array([on[k][quality] for k in steps])[:-1], dashed=True)]
    for label, chosen in (("on the frontier", on), ("beaten by one no dearer", off)):
        if chosen:
            names = _few([str(m["name"]) for m in chosen])
            lines.append(Line(label, _log_flops(chosen), [m[quality] for m in chosen], points=True, names=names))
    unit = "average accuracy, %" if quality == "accuracy" else "loss"
    low, high = min(m[quality] for m in models), max(m[quality] for m in models)
    room = 0.15 * (high - low) or 0.1 * abs(high)
    return line_chart(
        lines,
        title=f"{unit.removesuffix(', %')} against compute",
        x_label="training FLOPs",
        y_label=unit,
        powers="x",
        y_range=(low - 0.3 * room, high + room),
    )


def _log_flops(models: Sequence[Row]) -> list[float]:
    return [float(np.log10(model["flops"])) for model in models]


def _few(names: list[str]) -> list[str]:
    """Return the names, or none where they would cover each other."""
    return names if len(names) <= 20 else []
