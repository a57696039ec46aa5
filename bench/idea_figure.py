"""The project's idea in one picture, from recorded runs of our own (``data/own_ladder.parquet``).

Three panels: the losses of three sizes as they were logged; the same curves divided by their final losses, against the fraction
of training; and below, the forecast of the largest from its first fifth, by a model that has seen the two smaller ones only.
``python -m bench.idea_figure docs/pictures/collapse.svg`` draws it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.records import OWN_DATA
from hpo.adapters.curve_files import RecordedRun, read_runs
from hpo.core.model import CollapseModel
from hpo.reporting.line_chart import HEIGHT, WIDTH, Line, line_chart

METRIC = "val_loss"
SIZES = ("ladder-w16", "ladder-w36", "ladder-w76")
SEEN = 0.2
WARM = 0.05
"""Curves are drawn from this fraction on; before it they would set the scale."""


def idea_svg() -> str:
    """Return the picture as SVG text."""
    runs = {run.run_id: run for run in read_runs(OWN_DATA / "own_ladder.parquet", metric=METRIC)}
    ladder = [runs[f"{name}-seed0"] for name in SIZES]
    references = [runs[f"{name}-seed{seed}"] for name in SIZES[:-1] for seed in (0, 1)]
    places = (_placed(_as_logged(ladder), WIDTH // 2, 0, 0), _placed(_normalised(ladder), WIDTH // 2, WIDTH // 2, 0))
    below = _placed(_forecast(ladder[-1], references), WIDTH, 0, HEIGHT)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {2 * HEIGHT}">'
    return "\n".join([head, *places, below, "</svg>"]) + "\n"


def _placed(chart: str, width: int, x: int, y: int) -> str:
    """Return a chart as part of a larger drawing."""
    return chart.replace("<svg ", f'<svg x="{x}" y="{y}" width="{width}" height="{HEIGHT}" ', 1)


def _as_logged(runs: Sequence[RecordedRun]) -> str:
    lines = [Line(_size(run), *_points(run, in_steps=True)) for run in runs]
    return line_chart(lines, title="as logged", x_label="step", y_label="loss", width=WIDTH // 2)


def _normalised(runs: Sequence[RecordedRun]) -> str:
    lines = []
    for run in runs:
        fraction, loss = _points(run)
        lines.append(Line(_size(run), fraction, loss / loss[-1]))
    y_label = "loss / final loss"
    return line_chart(lines, title="the same, normalised", x_label="fraction of training", y_label=y_label, width=WIDTH // 2)


def _forecast(target: RecordedRun, references: Sequence[RecordedRun]) -> str:
    """Draw the target, the part of it that was seen, and its forecast as a bar at the end."""
    made = CollapseModel.fit([run.curve() for run in references]).forecast(target.curve(SEEN))
    if made.final_loss is None or made.lower is None or made.upper is None:
        raise ValueError(f"the forecast of {target.run_id} abstained: {made.reason}")
    fraction, loss = _points(target)
    seen = fraction <= SEEN
    end = np.array([0.96, 1.0])
    middle, half = np.full(2, (made.lower + made.upper) / 2), np.full(2, (made.upper - made.lower) / 2)
    lines = [
        Line("seen", fraction[seen], loss[seen]),
        Line("forecast of the end, 90 %", end, middle, band=half),
        Line("what came", fraction[~seen], loss[~seen], dashed=True),
    ]
    title = f"{_size(target)}, forecast {made.final_loss:.3f}, actual {loss[-1]:.3f}"
    return line_chart(lines, title=title, x_label="fraction of training", y_label="loss")


def _points(run: RecordedRun, *, in_steps: bool = False) -> tuple[np.ndarray, np.ndarray]:
    fraction = run.steps / (run.horizon or run.steps[-1])
    keep = np.isfinite(run.values) & (fraction >= WARM)
    return (run.steps if in_steps else fraction)[keep], run.values[keep]


def _size(run: RecordedRun) -> str:
    n_params = 0 if run.recipe is None else run.recipe.n_params or 0
    return f"{n_params / 1000:.0f}k parameters"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(idea_svg(), encoding="utf-8")
