"""A small line chart as SVG text, without a plotting library: series, bands, marks, and axes with round ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpo.reporting.label_places import FONT, Box, Place, box_of, label_places

FloatArray = NDArray[np.float64]
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000")
WIDTH, HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 34, 46
_EVERY = 4
_HALO = 'stroke="white" stroke-width="3" stroke-linejoin="round" paint-order="stroke"'
"""Of texts within the chart, so that no line runs through them."""


@dataclass(frozen=True)
class Line:
    """One series; ``band`` (same shape as ``y``) shades y ± band; a dashed line is drawn thinner.

    ``points`` draws its points instead of a line through them, each with its label in ``names``, if given and if there is room.
    """

    label: str
    x: ArrayLike
    y: ArrayLike
    band: ArrayLike | None = None
    dashed: bool = False
    points: bool = False
    names: Sequence[str] = ()


def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    x_label: str,
    y_label: str,
    marks: Sequence[tuple[float, str]] = (),
    y_range: tuple[float, float] | None = None,
    powers: str = "",
    width: int = WIDTH,
) -> str:
    """Return an SVG document.

    Parameters
    ----------
    marks : sequence of (x, label)
        Vertical lines.
    y_range : (low, high), optional
        By default what the lines need.
    powers : {"", "x", "y", "xy"}
        Axes whose values are log10 of what their ticks say.
    width : int
        Of the whole chart, in user units; the height is :data:`HEIGHT`.
    """
    xs = np.concatenate([np.asarray(line.x, dtype=np.float64) for line in lines])
    ys = np.concatenate([_edges(line) for line in lines])
    x_low, x_high = float(np.min(xs)), float(np.max(xs))
    low, high = y_range or (float(np.nanmin(ys)), float(np.nanmax(ys)))
    low, high = (low - 1, high + 1) if high <= low else (low, high + 0.04 * (high - low))
    frame = _Frame(x_low, x_high if x_high > x_low else x_low + 1, low, high, width)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{_LEFT}" y="20" font-size="14">{escape(title)}</text>',
        *_axes(frame, x_label, y_label, powers),
        *(part for k, line in enumerate(lines) for part in _draw(frame, line, COLOURS[k % len(COLOURS)])),
        *(_mark(frame, x) for x, _ in marks),
        *(_mark_label(frame, x, label, row) for row, (x, label) in enumerate(marks)),
        *_names(frame, lines),
        *_legend(frame, lines),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


@dataclass(frozen=True)
class _Frame:
    x_low: float
    x_high: float
    y_low: float
    y_high: float
    width: int

    @property
    def right(self) -> int:
        return self.width - _RIGHT

    def x(self, value: float) -> float:
        return _LEFT + (value - self.x_low) / (self.x_high - self.x_low) * (self.right - _LEFT)

    def y(self, value: float) -> float:
        share = (min(max(value, self.y_low), self.y_high) - self.y_low) / (self.y_high - self.y_low)
        return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)

    def points(self, x: FloatArray, y: FloatArray) -> str:
        finite = np.isfinite(y)
        return " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in zip(x[finite], y[finite], strict=True))


def _edges(line: Line) -> FloatArray:
    y = np.asarray(line.y, dtype=np.float64)
    band = np.zeros_like(y) if line.band is None else np.asarray(line.band, dtype=np.float64)
    return np.concatenate((y - band, y + band))


def _draw(frame: _Frame, line: Line, colour: str) -> list[str]:
    x, y = np.asarray(line.x, dtype=np.float64), np.asarray(line.y, dtype=np.float64)
    parts = []
    if line.band is not None:
        band = np.asarray(line.band, dtype=np.float64)
        around = frame.points(np.concatenate((x, x[::-1])), np.concatenate((y + band, (y - band)[::-1])))
        parts.append(f'<polygon points="{around}" fill="{colour}" fill-opacity="0.15"/>')
    if line.points:
        return parts + _dots(frame, line, colour)
    style = 'stroke-width="1" stroke-dasharray="5 4"' if line.dashed else 'stroke-width="1.6"'
    parts.append(f'<polyline points="{frame.points(x, y)}" fill="none" stroke="{colour}" {style}/>')
    return parts


def _dots(frame: _Frame, line: Line, colour: str) -> list[str]:
    return [f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3.5" fill="{colour}"/>' for across, down, _ in _named(frame, line)]


def _named(frame: _Frame, line: Line) -> list[tuple[float, float, str]]:
    """Return the points of a line in user units, each with its name or an empty text."""
    x, y = np.asarray(line.x, dtype=np.float64), np.asarray(line.y, dtype=np.float64)
    names = [*line.names, *[""] * (x.size - len(line.names))]
    return [(frame.x(a), frame.y(b), name) for a, b, name in zip(x, y, names, strict=True)]


def _names(frame: _Frame, lines: Sequence[Line]) -> list[str]:
    """Return the names of all points, where they cover neither each other nor a point nor the legend.

    A name that had to move away from its point has a thin line to it, so that it is not read as another's.
    """
    points = [point for line in lines if line.points for point in _named(frame, line)]
    legend = [box_of(place, text) for place, text, _ in _legend_places(frame, lines)]
    inside = Box(_LEFT, _TOP - 8, frame.width, HEIGHT - _BOTTOM)
    placed = label_places(points, inside, legend, _along(frame, lines))
    leaders = [_leader(place, place.point) for place, _ in placed if place.point is not None]
    return leaders + [
        f'<text x="{place.x:.1f}" y="{place.y:.1f}" text-anchor="{place.anchor}" font-size="{FONT}" {_HALO}>'
        f"{escape(name)}</text>"
        for place, name in placed
    ]


def _leader(place: Place, point: tuple[float, float]) -> str:
    near = place.x - 1 if place.anchor == "start" else place.x + 1
    return (
        f'<line x1="{point[0]:.1f}" y1="{point[1]:.1f}" x2="{near:.1f}" y2="{place.y - 0.3 * FONT:.1f}" '
        'stroke="#888" stroke-width="0.7"/>'
    )


def _along(frame: _Frame, lines: Sequence[Line]) -> list[Box]:
    """Return small boxes along all lines, every few units."""
    boxes = []
    for line in (line for line in lines if not line.points):
        corners = np.array([(frame.x(a), frame.y(b)) for a, b in zip(np.asarray(line.x), np.asarray(line.y), strict=True)])
        for begin, end in pairwise(corners[np.isfinite(corners).all(axis=1)]):
            steps = np.linspace(begin, end, 2 + int(np.linalg.norm(end - begin) / _EVERY))
            boxes += [Box(x - 1, y - 1, x + 1, y + 1) for x, y in steps.tolist()]
    return boxes


def _mark(frame: _Frame, x: float) -> str:
    at = frame.x(x)
    return f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}" stroke="#b00020" stroke-dasharray="2 3"/>'


def _mark_label(frame: _Frame, x: float, label: str, row: int) -> str:
    at = frame.x(x) + 3
    return f'<text x="{at:.1f}" y="{HEIGHT - _BOTTOM - 6 - 15 * row}" fill="#b00020" {_HALO}>{escape(label)}</text>'


def _axes(frame: _Frame, x_label: str, y_label: str, powers: str = "") -> list[str]:
    bottom = HEIGHT - _BOTTOM
    parts = [f'<path d="M{_LEFT},{_TOP} V{bottom} H{frame.right}" fill="none" stroke="#333"/>']
    parts += [
        f'<text x="{min(frame.x(value), frame.width - 4 * len(text)):.1f}" y="{bottom + 16}" text-anchor="middle">{text}</text>'
        for value, text in _labelled(frame.x_low, frame.x_high, is_power="x" in powers)
    ]
    for value, text in _labelled(frame.y_low, frame.y_high, is_power="y" in powers):
        at = frame.y(value)
        parts.append(f'<line x1="{_LEFT}" x2="{frame.right}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{text}</text>')
    middle = (_TOP + bottom) / 2
    parts.append(f'<text x="{(_LEFT + frame.width) / 2:.0f}" y="{HEIGHT - 10}" text-anchor="middle">{escape(x_label)}</text>')
    turn = f'transform="rotate(-90 14 {middle:.0f})"'
    parts.append(f'<text x="14" y="{middle:.0f}" text-anchor="middle" {turn}>{escape(y_label)}</text>')
    return parts


def _legend(frame: _Frame, lines: Sequence[Line]) -> list[str]:
    return [
        f'<text x="{place.x}" y="{place.y}" text-anchor="{place.anchor}" fill="{colour}" {_HALO}>{escape(text)}</text>'
        for place, text, colour in _legend_places(frame, lines)
    ]


def _legend_places(frame: _Frame, lines: Sequence[Line]) -> list[tuple[Place, str, str]]:
    shown = [(line.label, COLOURS[k % len(COLOURS)]) for k, line in enumerate(lines) if line.label][:12]
    return [(Place(frame.right - 4, _TOP + 14 * k + 6, "end"), label, colour) for k, (label, colour) in enumerate(shown)]


def _labelled(low: float, high: float, *, is_power: bool) -> list[tuple[float, str]]:
    """Return ticks with their texts; of powers of ten, round ones within [10^low, 10^high]."""
    if not is_power:
        return [(value, f"{value:.6g}") for value in _ticks(low, high)]
    if high - low < 0.7:
        return [(math.log10(value), f"{value:.6g}") for value in _ticks(10.0**low, 10.0**high)]
    digits = (1.0,) if high - low > 2.5 else (1.0, 2.0, 5.0)
    every = [(k + math.log10(digit), digit * 10.0**k) for k in range(math.floor(low), math.floor(high) + 1) for digit in digits]
    inside = [(at, f"{value:.3g}") for at, value in every if low - 1e-9 <= at <= high + 1e-9]
    return inside[:: 1 + len(inside) // 8]


def _ticks(low: float, high: float) -> list[float]:
    """Return three to eight round values within [low, high]."""
    rough = (high - low) / 5
    scale = 10.0 ** math.floor(math.log10(rough))
    step = next(scale * m for m in (1, 2, 5, 10) if scale * m >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]
