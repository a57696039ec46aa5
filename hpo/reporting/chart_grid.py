"""Several line charts in one SVG document, row by row."""

from __future__ import annotations

from collections.abc import Sequence

from hpo.reporting.line_chart import HEIGHT, WIDTH


def chart_grid(charts: Sequence[str], columns: int) -> str:
    """Return an SVG document that holds ``charts`` (of :func:`~hpo.reporting.line_chart.line_chart`), ``columns`` a row."""
    rows = -(-len(charts) // columns)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * WIDTH} {rows * HEIGHT}">']
    for k, chart in enumerate(charts):
        row, column = divmod(k, columns)
        inner = chart.replace("<svg ", f'<svg width="{WIDTH}" height="{HEIGHT}" ', 1)  # a nested svg needs its own size
        parts.append(f'<g transform="translate({column * WIDTH} {row * HEIGHT})">\n{inner}</g>')
    return "\n".join([*parts, "</svg>"]) + "\n"
