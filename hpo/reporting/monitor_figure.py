"""The figure of ``hpo monitor``: the residual with its healthy band, the onset and the alarm."""

from __future__ import annotations

import numpy as np

from hpo.core.monitor import Status
from hpo.reporting.line_chart import Line, line_chart


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
    marks = [(status.onset, f"onset ({status.kind})")] if status.onset is not None else []
    marks += [(status.detected_at, "alarm")] if status.detected_at is not None else []
    return line_chart(
        [Line("residual", t, value), Line("healthy: ± 2 sd", t, np.zeros_like(t), band=2 * sd, dashed=True)],
        title=title,
        x_label="fraction of training t̂",
        y_label="ℓ_run − ℓ_ref",
        marks=marks,
    )
