"""The figure of ``hpo check``: normalised curves above, their spread and what is allowed below."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hpo.core.check import JUDGED_FROM, CheckReport, normalised_logs
from hpo.core.curve import Curve
from hpo.reporting.line_chart import HEIGHT, WIDTH, Line, line_chart

LARGEST_DELTA_PCT = 10.0


def check_figure(curves: Sequence[Curve], report: CheckReport) -> str:
    """Return an SVG document of ℓ(t̂) run by run and Δ(t̂) against the tolerance; the report must have a spread."""
    if report.spread is None:
        raise ValueError("a figure needs the spread of curves; this report is from recipes")
    t, logs = normalised_logs(curves)
    late = t >= 0.05
    upper = line_chart(
        [Line(c.run_id if len(curves) <= 12 else "", t[late], np.exp(row[late])) for c, row in zip(curves, logs, strict=True)],
        title="Normalised loss",
        x_label="fraction of training t̂",
        y_label="ℓ = L/L(T)",
    )
    spread, ends = report.spread, [float(t[0]), 1.0]
    delta = np.minimum(100 * spread.delta, LARGEST_DELTA_PCT)
    lower = line_chart(
        [
            Line("Δ, noise subtracted", spread.fractions, delta),
            Line(f"allowed ({report.allowed:.2%})", ends, [100 * report.allowed] * 2, dashed=True),
            Line(f"noise floor ({report.noise_floor:.2%})", ends, [100 * (report.noise_floor or 0.0)] * 2, dashed=True),
        ],
        title=f"Spread: {'collapse' if report.collapse else 'no collapse'} (judged from t̂ = {JUDGED_FROM})",
        x_label="fraction of training t̂",
        y_label="Δ (%)",
        marks=[(JUDGED_FROM, "")],
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {2 * HEIGHT}">'
    return f'{head}\n{_inner(upper)}<g transform="translate(0 {HEIGHT})">\n{_inner(lower)}</g>\n</svg>\n'


def _inner(svg: str) -> str:
    """Return a chart to be placed in another: a nested svg needs its own size."""
    return svg.replace("<svg ", f'<svg width="{WIDTH}" height="{HEIGHT}" ', 1)
