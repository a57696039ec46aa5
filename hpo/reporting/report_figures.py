"""The figures of a sweep's report, as plain Plotly data: what they show is also said in words.

A colour is given as ``var:NAME``; the page puts in the CSS variable of that name, which differs between light and dark. Kinds
of trial differ in symbol or dash besides. Texts are escaped, because Plotly reads a subset of HTML in them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpo.core.shape import NODES
from hpo.reporting.stopping_points import StoppingPoint, picked_regret
from hpo.reporting.sweep_files import SweepRecord, TrialRecord
from hpo.reporting.sweep_words import count_text, settings_text, share_text

FloatArray = NDArray[np.float64]
MAX_ROWS = 20
"""Candidates in the figure of forecasts, the best first."""
MAX_CURVES = 60
SEEN_FROM = 0.08
"""The axis of the curves is fitted to what lies after this t̂."""
_LEGEND = {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}


@dataclass(frozen=True)
class Figure:
    """One figure: its heading, what it shows in a sentence (also read to those who cannot see it), and Plotly's data."""

    id: str
    title: str
    says: str
    data: list[dict[str, Any]] = field(repr=False)
    layout: dict[str, Any] = field(repr=False)
    note: str = ""


def forecast_figure(sweep: SweepRecord) -> Figure | None:
    """Return forecasts with their 90 % intervals, and final losses where they were measured; None without a forecast."""
    judged = [t for t in sweep.trials if t.forecast.get("final_loss") is not None]
    if not judged:
        return None
    ranked = sorted(judged, key=lambda t: (t.state != "winner", float(t.forecast["final_loss"])))
    shown = ranked[:MAX_ROWS]
    winner = [t for t in shown if t.state == "winner"]
    traces = [_intervals([t for t in shown if t.state != "winner"], "forecast", "var:other", "circle-open")]
    traces += [_intervals(winner, "forecast of the winner", "var:winner", "circle-open")] if winner else []
    known = [t for t in shown if t.final_loss is not None]
    traces += [_finals(known)] if known else []
    names = [_label(t) for t in reversed(shown)]
    layout = {
        "height": 130 + 24 * len(shown),
        "xaxis": {"title": {"text": "final loss"}, "range": _span(shown)},
        "yaxis": {"type": "category", "categoryorder": "array", "categoryarray": names, "showgrid": False},
        "legend": _LEGEND,
        "margin": {"l": 70, "t": 50},
    }
    more = f" The best {len(shown)} of {len(judged)} are shown." if len(judged) > len(shown) else ""
    return Figure("forecasts", "Forecast against actual", _forecasts_say(sweep) + more, traces, layout)


def _intervals(trials: Sequence[TrialRecord], name: str, colour: str, symbol: str) -> dict[str, Any]:
    centre = [float(t.forecast["final_loss"]) for t in trials]
    up = [max(0.0, (t.forecast.get("upper") or c) - c) for t, c in zip(trials, centre, strict=True)]
    down = [max(0.0, c - (t.forecast.get("lower") or c)) for t, c in zip(trials, centre, strict=True)]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{name}, 90 %",
        "x": centre,
        "y": [_label(t) for t in trials],
        "error_x": {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "color": colour, "thickness": 1.5},
        "marker": {"color": colour, "symbol": symbol, "size": 9, "line": {"width": 2}},
        "text": [hover(t) for t in trials],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _finals(trials: Sequence[TrialRecord]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "measured",
        "x": [t.final_loss for t in trials],
        "y": [_label(t) for t in trials],
        "marker": {"color": "var:actual", "symbol": "diamond", "size": 9},
        "text": [hover(t) for t in trials],
        "hovertemplate": "%{text}<extra></extra>",
    }


def _forecasts_say(sweep: SweepRecord) -> str:
    pairs = [
        (t.forecast, t.final_loss) for t in sweep.trials if t.final_loss is not None and t.forecast.get("lower") is not None
    ]
    pairs = [(f, final) for f, final in pairs if f.get("status") != "complete"]
    if not pairs:
        return "No candidate with a forecast has been trained to its end yet."
    inside = sum(f["lower"] <= final <= f["upper"] for f, final in pairs)
    errors = [100 * (f["final_loss"] - final) / abs(final) for f, final in pairs if final]
    mean = sum(errors) / len(errors) if errors else 0.0
    if len(pairs) == 1:
        where = "inside" if inside else "outside"
        return f"The one candidate trained to its end came out {where} its 90 % interval; its forecast was {_off(mean)}."
    says = f"{inside} of {len(pairs)} measured final losses lie inside their 90 % interval"
    return f"{says}; on average the forecasts were {_off(mean)}."


def _off(pct: float) -> str:
    return f"{abs(pct):.2g} % too {'high' if pct > 0 else 'low'}"


def curves_figure(sweep: SweepRecord) -> Figure | None:
    """Return the candidates' curves divided by their final loss, or its forecast, over the band of the references."""
    drawn = [t for t in sweep.trials if t.curve is not None and t.curve.fractions.size and end_of(t) is not None]
    band = _band(sweep)
    if not drawn and not band:
        return None
    ranked = sorted(drawn, key=lambda t: (t.state != "winner", end_of(t)))[:MAX_CURVES]
    traces = [*band, *(_curve(t) for t in reversed(ranked))]
    shown_late = [v for t in ranked for x, v in zip(*_points(t), strict=True) if x >= SEEN_FROM]
    layout = {
        "height": 420,
        "xaxis": {"title": {"text": "fraction of training done"}, "range": [0, 1.01], "tickformat": ".0%"},
        "yaxis": {"title": {"text": "loss ÷ final loss"}, "range": _padded(shown_late) if shown_late else None},
        "shapes": [_stop_line(sweep.at)],
        "annotations": [_stop_label(sweep.at)],
        "legend": _LEGEND,
        "margin": {"t": 50},
    }
    more = f" The best {len(ranked)} of {len(drawn)} are drawn." if len(drawn) > len(ranked) else ""
    n = 0 if sweep.model is None else len(sweep.model.references)
    says = f"Each candidate's loss divided by its final loss (by the forecast of it where it was stopped){_over_band(n)}.{more}"
    return Figure("curves", "Curves over the reference band", says, traces, layout)


def _over_band(n: int) -> str:
    return f"; the band holds the {n} proxy runs, whose shape the forecasts use" if n else ""


def end_of(trial: TrialRecord) -> float | None:
    """Return a trial's measured final loss, else the forecast of it; None without either, or where it is 0."""
    value = trial.final_loss if trial.final_loss is not None else trial.forecast.get("final_loss")
    return None if not value else float(value)


def _points(trial: TrialRecord) -> tuple[FloatArray, FloatArray]:
    curve, end = trial.curve, end_of(trial)
    if curve is None or end is None:
        return np.empty(0), np.empty(0)
    return curve.fractions, curve.means / end


def _curve(trial: TrialRecord) -> dict[str, Any]:
    x, y = _points(trial)
    is_winner = trial.state == "winner"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "winner" if is_winner else "other candidates",
        "legendgroup": "winner" if is_winner else "others",
        "showlegend": is_winner,
        "x": np.round(x, 4).tolist(),
        "y": np.round(y, 5).tolist(),
        "line": {"color": "var:winner" if is_winner else "var:faint", "width": 2.5 if is_winner else 1},
        "text": hover(trial),
        "hovertemplate": "%{text}<br>at %{x:.1%}: %{y:.4f} of its end<extra></extra>",
    }


def _band(sweep: SweepRecord) -> list[dict[str, Any]]:
    """Return the two edges of the references' normalised curves, of the family with most of them."""
    families = () if sweep.model is None else sweep.model.families
    largest = max(families, key=lambda f: len(f.references), default=None)
    if largest is None or largest.references[0].metric.transform != "log":
        return []
    rows = np.exp(np.stack([r.residuals for r in largest.references]))
    known = np.isfinite(rows).sum(axis=0) >= min(2, len(rows))
    x = np.round(np.append(NODES[known], 1.0), 4).tolist()
    low, high = (np.round(np.append(edge(rows[:, known], axis=0), 1.0), 5).tolist() for edge in (np.nanmin, np.nanmax))
    line = {"type": "scatter", "mode": "lines", "x": x, "hoverinfo": "skip", "legendgroup": "band"}
    edge_line = {"width": 0.5, "color": "var:band-edge"}
    return [
        {**line, "y": low, "line": edge_line, "showlegend": False},
        {**line, "y": high, "line": edge_line, "fill": "tonexty", "fillcolor": "var:band", "name": "proxies"},
    ]


def regret_figure(sweep: SweepRecord, points: Sequence[StoppingPoint]) -> Figure | None:
    """Return the regret of the pick against the stopping point; None unless at least two finished candidates tell it."""
    known = [p for p in points if p.regret_pct is not None]
    if not known:
        return None
    x = [p.fraction for p in known]
    traces = [
        _line(x, [p.current_best_regret_pct for p in known], "by the loss so far", "var:other", "dash"),
        _line(x, [p.regret_pct for p in known], "by forecast", "var:winner", "solid"),
    ]
    transfer = picked_regret(sweep.result, "transfer")
    if transfer is not None:
        traces.insert(0, _line([0.0, 1.0], [transfer, transfer], "transfer from the proxies", "var:actual", "dot"))
    return Figure(
        "regret", "Regret against the stopping point", _regret_says(sweep, known), traces, _layout_by_stop(sweep, "regret")
    )


def error_figure(sweep: SweepRecord, points: Sequence[StoppingPoint]) -> Figure | None:
    """Return the forecasts' error against the stopping point; None where no finished candidate can be forecast."""
    if not points:
        return None
    x = [p.fraction for p in points]
    traces = [_line(x, [p.error_pct for p in points], "of the final loss", "var:other", "dash")]
    if any(p.apart_pct is not None for p in points):
        traces.append(_line(x, [p.apart_pct for p in points], "less what all share", "var:winner", "solid"))
    return Figure(
        "errors",
        "Forecast error against the stopping point",
        _error_says(sweep, points),
        traces,
        _layout_by_stop(sweep, "error"),
    )


def _layout_by_stop(sweep: SweepRecord, what: str) -> dict[str, Any]:
    return {
        "height": 340,
        "xaxis": {"title": {"text": "stopping point (fraction of training)"}, "tickformat": ".0%", "range": [0, 1]},
        "yaxis": {"title": {"text": f"{what} (%)"}, "rangemode": "tozero"},
        "shapes": [_stop_line(sweep.at)],
        "annotations": [_stop_label(sweep.at)],
        "legend": _LEGEND,
        "margin": {"t": 50},
    }


def _regret_says(sweep: SweepRecord, points: Sequence[StoppingPoint]) -> str:
    here = _nearest(points, sweep.at)
    ours, current = _off_best(here.regret_pct or 0.0), _off_best(here.current_best_regret_pct or 0.0)
    says = (
        f"Of the {count_text(here.n_judged)} candidates trained to the end, the pick by forecast after "
        f"{share_text(here.fraction)} is {ours}, the pick by the loss so far is {current}."
    )
    is_partial = any(t.state == "stopped" and t.final_loss is None for t in sweep.trials)
    return says + (" Those that were stopped are not in it (--verify trains them too)." if is_partial else "")


def _off_best(regret_pct: float) -> str:
    return "the best" if regret_pct < 5e-4 else f"{regret_pct:.2g} % off the best"


def _error_says(sweep: SweepRecord, points: Sequence[StoppingPoint]) -> str:
    here = _nearest(points, sweep.at)
    says = f"After {share_text(here.fraction)} forecasts were {here.error_pct:.2g} % off on average"
    if here.apart_pct is None:
        return f"{says} (one candidate was trained to its end; --verify trains all)."
    if here.apart_pct > 0.8 * here.error_pct:
        return f"{says}; they share little of that, so it bears on the ranking."
    return f"{says}, {here.apart_pct:.2g} % once what all share is taken off: a common shift changes no ranking."


def _nearest(points: Sequence[StoppingPoint], fraction: float) -> StoppingPoint:
    return min(points, key=lambda p: abs(p.fraction - fraction))


def _line(x: Sequence[float], y: Sequence[float | None], name: str, colour: str, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(x) > 2 else "lines",
        "x": list(x),
        "y": list(y),
        "name": name,
        "line": {"color": colour, "dash": dash, "width": 2},
        "marker": {"size": 5},
        "hovertemplate": f"{escape(name)} at %{{x:.0%}}: %{{y:.2f}} %<extra></extra>",
    }


def _stop_line(at: float) -> dict[str, Any]:
    line = {"color": "var:ink-soft", "dash": "dash", "width": 1}
    return {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def _stop_label(at: float) -> dict[str, Any]:
    about = {"x": at, "y": 1, "yref": "paper", "xanchor": "left", "yanchor": "top", "showarrow": False}
    return {**about, "text": f" judged at {share_text(at)}", "font": {"size": 12, "color": "var:ink-soft"}}


def _label(trial: TrialRecord) -> str:
    return f"trial {trial.number}"


def hover(trial: TrialRecord) -> str:
    """Return what is said of a trial under the pointer, in Plotly's HTML."""
    lines = [f"<b>trial {trial.number}</b>: {escape(trial.state)}", escape(settings_text(trial.settings))]
    f = trial.forecast
    if f.get("final_loss") is not None:
        interval = "" if f.get("lower") is None else f" ({f['lower']:.4f} to {f['upper']:.4f})"
        lines.append(f"forecast {f['final_loss']:.4f}{interval}")
    lines += [] if trial.final_loss is None else [f"measured {trial.final_loss:.4f}"]
    return "<br>".join(lines)


def _span(trials: Sequence[TrialRecord]) -> list[float] | None:
    values = [v for t in trials for v in (*(t.forecast.get(k) for k in ("lower", "upper", "final_loss")), t.final_loss)]
    return _padded([float(v) for v in values if v is not None and math.isfinite(v)])


def _padded(values: Sequence[float]) -> list[float] | None:
    finite = np.array([v for v in values if math.isfinite(v)])
    if not finite.size:
        return None
    low, high = float(finite.min()), float(finite.max())
    if finite.size > 20:  # a few far out must not flatten the rest
        quarter, three = np.percentile(finite, (25, 75))
        high = min(high, float(three + 6 * (three - quarter)))
    pad = 0.05 * (high - low or abs(high) or 1.0)
    return [low - pad, high + pad]
