"""A replay's scores against the stop fraction, as a self-contained SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

PANELS = (("regret_pct", "regret of the pick, %"), ("rho", "rank correlation"), ("mae_pct", "error of the final value, %"))
_COLOURS = ("#9a9a9a", "#d55e00", "#e69f00", "#cc79a7", "#56b4e9", "#0072b2", "#f0e442", "#009e73", "#000000", "#7f3c8d")
_WIDTH, _HEIGHT, _LEFT, _TOP = 300.0, 210.0, 52.0, 34.0


def write_figure(path: Path, result: Mapping[str, Any]) -> None:
    """Write the means over tasks of regret, rank correlation and final-value error, one line a method.

    Raises
    ------
    ValueError
        The file cannot be written.
    """
    try:
        path.write_text(figure_svg(result), encoding="utf-8")
    except OSError as error:
        raise ValueError(f"--figure {path}: cannot be written ({error.strerror or error})") from None


def figure_svg(result: Mapping[str, Any]) -> str:
    """Return the figure as SVG text."""
    summary: Mapping[str, Mapping[str, Any]] = result["summary"]
    names = list(summary)
    panels = [_panel(k, key, title, summary) for k, (key, title) in enumerate(PANELS)]
    width = len(PANELS) * (_WIDTH + _LEFT + 20)
    legend, rows = _legend(names, width)
    height = _TOP + _HEIGHT + 54 + 16 * rows
    title = escape(f"{result['protocol']['name']} ({result['protocol']['role']}, {len(result['tasks'])} tasks)")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="white"/><text x="{_LEFT}" y="14" font-size="13">{title}</text>'
        + "".join(panels + legend)
        + "</svg>\n"
    )


def _legend(names: Sequence[str], width: float) -> tuple[list[str], int]:
    """Return the legend's parts, wrapped at ``width``, and how many rows they take."""
    parts, x, row = [], _LEFT, 0
    for k, name in enumerate(names):
        needed = 6.6 * len(name) + 30
        if x + needed > width and x > _LEFT:
            x, row = _LEFT, row + 1
        y = _TOP + _HEIGHT + 56 + 16 * row
        parts.append(f'<text x="{x:.0f}" y="{y:.0f}" fill="{_colour(k)}">&#9644; {escape(name)}</text>')
        x += needed
    return parts, row + 1


def _panel(index: int, key: str, title: str, summary: Mapping[str, Mapping[str, Any]]) -> str:
    series = {
        name: [(float(stop), row[key]) for stop, row in by_stop.items() if row.get(key) is not None]
        for name, by_stop in summary.items()
    }
    points = [point for line in series.values() for point in line]
    left = index * (_WIDTH + _LEFT + 20) + _LEFT
    frame = f'<rect x="{left}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#888"/>'
    label = f'<text x="{left}" y="{_TOP - 5}">{escape(title)}</text>'
    if not points:
        return frame + label
    low, high = _range([value for _, value in points])
    stops = sorted({stop for stop, _ in points})
    across = [left + _WIDTH * (0.05 + 0.9 * (s - stops[0]) / max(stops[-1] - stops[0], 1e-9)) for s in stops]
    where = dict(zip(stops, across, strict=True))

    def height_of(value: float) -> float:
        return _TOP + _HEIGHT * (1 - (min(max(value, low), high) - low) / (high - low))

    parts = [frame, label]
    parts += [f'<text x="{where[s]:.0f}" y="{_TOP + _HEIGHT + 14}" text-anchor="middle">{s:g}</text>' for s in stops]
    for value in _ticks(low, high):
        parts.append(f'<text x="{left - 4}" y="{height_of(value) + 4:.0f}" text-anchor="end">{value:.3g}</text>')
    parts.append(f'<text x="{left + _WIDTH / 2}" y="{_TOP + _HEIGHT + 30}" text-anchor="middle">stopped at</text>')
    for k, line in enumerate(series.values()):
        path = " ".join(f"{where[stop]:.1f},{height_of(value):.1f}" for stop, value in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{_colour(k)}" stroke-width="2"/>')
        parts += [f'<circle cx="{where[s]:.1f}" cy="{height_of(v):.1f}" r="3" fill="{_colour(k)}"/>' for s, v in line]
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """Return four to seven round values within [low, high]."""
    rough = (high - low) / 5
    scale = 10.0 ** np.floor(np.log10(rough))
    step = next(scale * m for m in (1, 2, 5, 10) if scale * m >= rough * 0.999)
    return [float(k * step) for k in range(int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9)) + 1)]


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return the axis limits: outliers beyond five times the upper quartile are drawn at the edge."""
    low, high = min(*values, 0.0), max(values)
    high = min(high, 5 * float(np.quantile(values, 0.75)) + 1e-9) if high > 0 else high
    return low, high if high > low else low + 1.0


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]
