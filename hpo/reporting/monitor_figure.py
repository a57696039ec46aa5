"""The figure of ``hpo monitor``: the residual with its healthy band, the onset and the alarm."""

from __future__ import annotations

import numpy as np

from hpo.core.monitor import Status
from hpo.reporting.line_chart import Line, line_chart

_BELOW, _ABOVE = 0.1, 0.08
"""Room for the marks' labels and the legend, in units of the height that is drawn in."""


def monitor_figure(status: Status, title: str) -> str:
    """Return an SVG document.

    Raises
    ------
    ValueError
        A status without residuals (it abstained).
    """
    if not status.residual:
        raise ValueError(f"a figure needs residuals; there are none: {status.reason}")
    t, value, sd = np.array(status.residual).T
    low, high = float(np.min([value, -2 * sd])), float(np.max([value, 2 * sd]))
    marks = [(status.onset, f"onset ({status.kind})")] if status.onset is not None else []
    marks += [(status.detected_at, "alarm")] if status.detected_at is not None else []
    return line_chart(
        [Line("residual", t, value), Line("healthy: ± 2 sd", t, np.zeros_like(t), band=2 * sd, dashed=True)],
        title=title,
        x_label="fraction of training t̂",
        y_label="ℓ_run − ℓ_ref",
        marks=marks,
        y_range=(low - _BELOW * (high - low), high + _ABOVE * (high - low)),
    )
