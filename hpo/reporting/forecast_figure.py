"""A study's forecasts as an interactive Plotly figure: how trials compare with the reference band, and how they end.

Colours are those of middle lightness in Okabe and Ito's colour-blind-safe palette, on a transparent ground, so that the figure
reads on white and on black; kinds of trial differ in symbol and dash besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.study import Study, StudyDirection

from hpo.adapters.optuna_pruner import CollapsePruner
from hpo.reporting.study_lines import Band, FloatArray, Kind, StudyLines, TrialLine, study_lines

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

INK, GRID = "#7a7a7a", "rgba(128,128,128,0.25)"
BAND_COLOURS = ((0, 114, 178), (0, 158, 115), (204, 121, 167), (213, 94, 0))
MAX_LINES = 300
"""Trials of a kind whose curves are drawn, evenly over their numbers."""
SEEN_FROM = 0.05
"""The curves' axis shows what lies after this t̂; what comes before is off its range, to be zoomed to."""
_NAMES = {
    "finished": "finished",
    "stopped": "stopped by forecast",
    "running": "running",
    "unjudged": "stopped without a forecast",
}
_COLOURS: dict[Kind, str] = {"finished": INK, "stopped": "#d55e00", "running": "#009e73", "unjudged": "#cc79a7"}
_SYMBOLS = {"finished": "circle", "stopped": "x", "running": "triangle-right", "unjudged": "x-open"}


def plot_forecasts(study: Study, pruner: CollapsePruner | None = None) -> Figure:
    """Return a Plotly figure of a study's forecasts: ``.show()`` it, or ``.write_html("forecasts.html")``.

    Left, every curve divided by its final value, or by the forecast of it where the trial was stopped (a cross shows where),
    over the band of the references it is compared with. Right, final values and forecasts with their 90 % intervals, and
    the best so far. Hovering says why a trial was stopped.

    Parameters
    ----------
    study : Study
        Forecasts are read from the attributes that ``hpo.report``, ``hpo.finish`` and the callbacks leave in stopped trials.
    pruner : CollapsePruner, optional
        Adds the references it was given, running trials, and trials stopped without :func:`hpo.finish`. Default: the study's.

    Raises
    ------
    ImportError
        Plotly is not installed.
    ValueError
        The study has several objectives, or no finished or stopped trial to draw.
    """
    try:
        from plotly import graph_objects
    except ImportError as error:
        raise ImportError("plot_forecasts needs Plotly: pip install 'collapse-hpo[plots]'") from error
    found = study_lines(study, pruner)
    if not found.lines:
        raise ValueError(f"study {study.study_name!r} must have a finished trial or one with a forecast; found none")
    maximises = study.direction == StudyDirection.MAXIMIZE
    traces = [
        *(trace for k, band in enumerate(found.bands) for trace in _band_traces(band, k)),
        *_curve_traces(found.lines),
        *_final_traces(found.lines),
        _best_trace(found.lines, maximises),
    ]
    made: Figure = graph_objects.Figure([t for t in traces if t is not None], _layout(study, found))
    return made


def _band_traces(band: Band, k: int) -> list[dict[str, Any]]:
    red, green, blue = BAND_COLOURS[k % len(BAND_COLOURS)]
    edge = {"type": "scatter", "mode": "lines", "x": band.fractions, "hoverinfo": "skip", "legendgroup": f"band{k}"}
    line = {"width": 0.5, "color": f"rgba({red},{green},{blue},0.6)"}
    name = f"{band.n_references} references: {band.name}"
    fill = {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.22)"}
    return [
        {**edge, "y": band.low, "line": line, "showlegend": False},
        {**edge, "y": band.high, "line": line, "name": name} | fill,
    ]


def _curve_traces(lines: Sequence[TrialLine]) -> list[dict[str, Any]]:
    """Return one trace a kind of trial, curves parted by gaps, and a cross where each was stopped."""
    traces = []
    for kind in ("finished", "running", "stopped"):
        kept = _thinned([x for x in lines if x.kind == kind and x.fractions.size])
        if not kept:
            continue
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": _joined([x.fractions for x in kept]),
                "y": _joined([x.normalised for x in kept]),
                "text": [t for x in kept for t in (*(f"trial {x.number}, step {s:.0f}" for s in x.steps), "")],
                "hovertemplate": "%{text}<br>t̂ %{x:.3f}: %{y:.5g}<extra></extra>",
                "line": {"color": _COLOURS[kind], "width": 1, "dash": "solid" if kind == "finished" else "dash"},
                "opacity": 0.55 if kind == "finished" else 0.9,
                "legendgroup": kind,
                "showlegend": False,
            }
        )
        if kind != "finished":
            traces.append(_points(kept, kind, [float(x.fractions[-1]) for x in kept], [float(x.normalised[-1]) for x in kept]))
    return traces


def _final_traces(lines: Sequence[TrialLine]) -> list[dict[str, Any]]:
    """Return final values and forecasts by trial number, on the second pair of axes."""
    traces = []
    for kind in ("finished", "stopped", "running", "unjudged"):
        kept = [x for x in lines if x.kind == kind]
        if not kept:
            continue
        trace = _points(kept, kind, [x.number for x in kept], [x.final for x in kept])
        trace |= {"xaxis": "x2", "yaxis": "y2", "name": f"{_NAMES[kind]} ({len(kept)})", "showlegend": True}
        if kind in ("stopped", "running"):
            up = [0.0 if x.upper is None else x.upper - x.final for x in kept]
            down = [0.0 if x.lower is None else x.final - x.lower for x in kept]
            bars = {"type": "data", "symmetric": False, "array": up, "arrayminus": down}
            trace["error_y"] = {**bars, "color": _COLOURS[kind], "thickness": 1, "width": 2}
        traces.append(trace)
    return traces


def _points(lines: Sequence[TrialLine], kind: str, x: list[Any], y: list[float]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": x,
        "y": y,
        "text": [line.text for line in lines],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"color": _COLOURS[kind], "symbol": _SYMBOLS[kind], "size": 7},  # type: ignore[index]
        "legendgroup": kind,
        "showlegend": False,
    }


def _best_trace(lines: Sequence[TrialLine], maximises: bool) -> dict[str, Any] | None:
    """Return the best final value so far of trials that break no constraint, in the order of trial numbers."""
    finished = [x for x in lines if x.kind == "finished" and x.is_feasible]
    if not finished:
        return None
    best = (np.maximum if maximises else np.minimum).accumulate([x.final for x in finished])
    last = max(x.number for x in lines)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*(x.number for x in finished), last],
        "y": [*best, best[-1]],
        "xaxis": "x2",
        "yaxis": "y2",
        "line": {"color": "#0072b2", "width": 2, "shape": "hv"},
        "name": "best so far",
        "hovertemplate": "best so far: %{y:.6g}<extra></extra>",
    }


def _layout(study: Study, found: StudyLines) -> dict[str, Any]:
    axis = {"gridcolor": GRID, "zeroline": False, "linecolor": INK, "ticks": "outside", "tickcolor": INK}
    title = f"{escape(study.study_name)}: {found.n_trials} trials, {found.n_stopped} stopped"
    return {
        "title": {"text": title, "font": {"size": 16}},
        "font": {"color": INK, "size": 13},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "template": "none",
        "height": 540,
        "margin": {"l": 70, "r": 20, "t": 60, "b": 120},
        "legend": {"orientation": "h", "y": -0.2, "yanchor": "top"},
        "hovermode": "closest",
        "xaxis": {**axis, "domain": [0, 0.47], "title": {"text": "fraction of training done (t̂)"}, "range": [0, 1.02]},
        "yaxis": {**axis, "title": {"text": found.axis}, "range": _range(_late(found))},
        "xaxis2": {**axis, "domain": [0.56, 1], "anchor": "y2", "title": {"text": "trial number"}},
        "yaxis2": {
            **axis,
            "anchor": "x2",
            "title": {"text": "final value or its forecast (units of the objective)"},
            "range": _range(_ends(found.lines)),
        },
    }


def _late(found: StudyLines) -> FloatArray:
    """Return the normalised values after :data:`SEEN_FROM`."""
    drawn = [(x.fractions, x.normalised) for x in found.lines]
    drawn += [(b.fractions, edge) for b in found.bands for edge in (b.low, b.high)]
    return np.concatenate([y[t >= SEEN_FROM] for t, y in drawn] or [np.empty(0)])


def _ends(lines: Sequence[TrialLine]) -> FloatArray:
    return np.array([v for x in lines for v in (x.final, x.lower, x.upper) if v is not None])


def _range(values: FloatArray) -> list[float] | None:
    """Return a range that shows the values but not their outliers; None leaves it to Plotly."""
    values = values[np.isfinite(values)]
    if not values.size:
        return None
    low, quarter, middle, three, high = np.percentile(values, (0, 25, 50, 75, 100))
    spread = max(three - quarter, 1e-9 * abs(middle))
    low, high = max(low, quarter - 4 * spread), min(high, three + 4 * spread)
    pad = 0.06 * max(high - low, 1e-9 * abs(middle))
    return [float(low - pad), float(high + pad)]


def _thinned(lines: list[TrialLine]) -> list[TrialLine]:
    if len(lines) <= MAX_LINES:
        return lines
    return [lines[i] for i in np.linspace(0, len(lines) - 1, MAX_LINES).round().astype(int)]


def _joined(rows: Sequence[FloatArray]) -> FloatArray:
    return np.concatenate([part for row in rows for part in (row, [np.nan])])
