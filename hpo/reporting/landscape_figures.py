"""The figures of a sweep's landscape: the posterior of the final loss over what was searched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpo.reporting.posterior_slices import Posterior, Slice
from hpo.reporting.report_figures import Figure, end_of, hover
from hpo.reporting.sweep_files import SweepRecord, TrialRecord
from hpo.reporting.sweep_words import settings_text

FloatArray = NDArray[np.float64]


def landscape_figures(sweep: SweepRecord, posterior: Posterior | None) -> list[Figure]:
    """Return the posterior of the final loss over what was searched: the plane of two parameters, and a slice along each."""
    if posterior is None:
        return []
    return [f for f in (_plane(sweep, posterior), *(_slice(sweep, posterior, s) for s in posterior.slices)) if f is not None]


def _plane(sweep: SweepRecord, posterior: Posterior) -> Figure | None:
    plane = posterior.plane
    if plane is None:
        return None
    heat = {
        "type": "contour",
        "x": plane.x.tolist(),
        "y": plane.y.tolist(),
        "z": np.round(plane.loss, 5).tolist(),
        "customdata": np.round(plane.sd_pct, 3).tolist(),
        "colorscale": "Cividis",
        "ncontours": 14,
        "contours": {"coloring": "heatmap"},
        "line": {"width": 0.5, "color": "rgba(255,255,255,0.5)"},
        "colorbar": {"title": {"text": "final loss", "side": "right"}, "thickness": 12, "outlinewidth": 0},
        "hovertemplate": "final loss %{z:.4f} ± %{customdata:.2f} %<extra></extra>",
    }
    trials = [t for t in sweep.trials if {plane.x_name, plane.y_name} <= set(t.settings)]
    layout = {
        "height": 430,
        "xaxis": {"title": {"text": escape(plane.x_name)}, **_axis(plane.x, plane.x_is_log), "showgrid": False},
        "yaxis": {"title": {"text": escape(plane.y_name)}, **_axis(plane.y, plane.y_is_log), "showgrid": False},
        "showlegend": False,
    }
    low = np.unravel_index(int(np.argmin(plane.loss)), plane.loss.shape)
    says = (
        f"Lowest near {plane.x_name} {plane.x[low[1]]:.3g}, {plane.y_name} {plane.y[low[0]]:.3g} "
        f"(final loss {plane.loss[low]:.4f} ± {plane.sd_pct[low]:.2g} %). Points are the candidates, the star is the winner; "
        "between them the proxies' landscape speaks."
    )
    return Figure(
        "landscape", "Landscape of the final loss", says, [heat, *_markers(trials, plane.x_name, plane.y_name)], layout
    )


def _markers(trials: Sequence[TrialRecord], x_name: str, y_name: str) -> list[dict[str, Any]]:
    found = []
    small = 9 if len(trials) <= 40 else 5
    for is_winner, symbol, size in ((False, "circle", small), (True, "star", 18)):
        kept = [t for t in trials if (t.state == "winner") == is_winner]
        found.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [t.settings[x_name] for t in kept],
                "y": [t.settings[y_name] for t in kept],
                "marker": {"symbol": symbol, "size": size, "color": "#ffffff", "line": {"width": 1.5, "color": "#000000"}},
                "text": [hover(t) for t in kept],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    return found


def _slice(sweep: SweepRecord, posterior: Posterior, one: Slice) -> Figure | None:
    trials = [t for t in sweep.trials if one.parameter in t.settings and end_of(t) is not None]
    about = next((t for t in sweep.trials if t.name == posterior.about), None)
    others = settings_text(about.settings, [n for n in about.settings if n != one.parameter]) if about is not None else ""
    edge = {"type": "scatter", "mode": "lines", "x": one.values.tolist(), "hoverinfo": "skip", "showlegend": False}
    band = {"width": 0}
    traces = [
        {**edge, "y": np.round(one.lower, 5).tolist(), "line": band},
        {**edge, "y": np.round(one.upper, 5).tolist(), "line": band, "fill": "tonexty", "fillcolor": "var:band"},
        {**edge, "y": np.round(one.loss, 5).tolist(), "line": {"color": "var:winner", "width": 2}},
        *_ends(trials, one.parameter, about),
    ]
    low = int(np.argmin(one.loss))
    fall = 100 * (max(one.loss[0], one.loss[-1]) / one.loss[low] - 1)
    says = f"Best near {one.values[low]:.3g}; the worse end is {fall:.2g} % above it." + (
        f" At {others}; trials with other settings are faint." if others else ""
    )
    layout = {
        "height": 340,
        "xaxis": {"title": {"text": escape(one.parameter)}, **_axis(one.values, one.is_log)},
        "yaxis": {"title": {"text": "final loss"}},
        "showlegend": False,
    }
    return Figure(f"slice-{posterior.slices.index(one)}", f"Along {one.parameter}", says, traces, layout)


def _ends(trials: Sequence[TrialRecord], name: str, about: TrialRecord | None) -> list[dict[str, Any]]:
    """Return the trials' ends, measured and forecast, those on the slice strong and the others faint."""
    kinds = (("measured", "diamond", "var:actual", True), ("forecast", "circle-open", "var:other", False))
    groups = [(kind, on_slice) for kind in kinds for on_slice in (False, True)]
    traces = []
    for (word, symbol, colour, is_known), on_slice in groups:
        kept = [t for t in trials if (t.final_loss is not None) == is_known and _is_on_slice(t, name, about) == on_slice]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [t.settings[name] for t in kept],
                "y": [end_of(t) for t in kept],
                "marker": {"symbol": symbol, "color": colour, "size": 9 if on_slice else 7},
                "opacity": 1 if on_slice else 0.35,
                "text": [hover(t) for t in kept],
                "hovertemplate": f"{word}<br>%{{text}}<extra></extra>",
            }
        )
    return traces


def _is_on_slice(trial: TrialRecord, name: str, about: TrialRecord | None) -> bool:
    if about is None:
        return True
    return {**trial.settings, name: None} == {**about.settings, name: None}


def _axis(values: FloatArray, log: bool) -> dict[str, Any]:
    """Return an axis over the values with a little room; ticks where a log axis would have too few."""
    low, high = float(values[0]), float(values[-1])
    if not log:
        pad = 0.06 * (high - low)
        return {"range": [low - pad, high + pad]}
    a, b = math.log10(low), math.log10(high)
    pad = 0.06 * (b - a)
    leading = (1, 2, 5) if b - a < 1.4 else (1, 3) if b - a < 2.5 else (1,)
    ticks = [m * 10.0**k for k in range(math.floor(a) - 1, math.ceil(b) + 1) for m in leading]
    shown = [t for t in ticks if a - pad <= math.log10(t) <= b + pad]
    told = {"tickvals": shown, "ticktext": [f"{t:.3g}" for t in shown]} if b - a < 3 else {}
    return {"type": "log", "range": [a - pad, b + pad], **told}
