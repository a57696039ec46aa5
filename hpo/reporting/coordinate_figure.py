"""The figure of a coordinate check: activation scales against width and depth, one line a parameterisation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hpo.reporting.chart_grid import chart_grid
from hpo.reporting.line_chart import Line, line_chart

ROWS = (("stream", "residual stream"), ("logits", "logits"))
AXES = ("width", "depth")


def coordinate_figure(found: Mapping[str, Any]) -> str:
    """Return an SVG document of two rows (residual stream, logits) and two columns (width, depth).

    Parameters
    ----------
    found : mapping
        ``n_steps``, and ``ladders`` with ``parameterisation``, ``axis``, ``sizes`` and ``scales``. Scales after the last
        update are shown in doublings over those of the smallest model.
    """
    panels = [_panel(found, axis, quantity, label) for quantity, label in ROWS for axis in AXES]
    return chart_grid(panels, columns=len(AXES))


def _panel(found: Mapping[str, Any], axis: str, quantity: str, label: str) -> str:
    shown = {
        ladder["parameterisation"]: (np.log2(ladder["sizes"]), _doublings(ladder["scales"][quantity]))
        for ladder in found["ladders"]
        if ladder["axis"] == axis
    }
    every = [value for _, values in shown.values() for value in values]
    return line_chart(
        [Line(name, x, y, dashed=name == "mup") for name, (x, y) in shown.items()],  # μP may lie under another
        title=f"{label} against {axis}, after {found['n_steps']} updates",
        x_label=f"log2 {axis}",
        y_label="doublings of its RMS",
        y_range=(min(-0.75, *every), max(0.75, *every)),
    )


def _doublings(scales: list[list[float]]) -> list[float]:
    return [math.log2(one[-1] / scales[0][-1]) for one in scales]
