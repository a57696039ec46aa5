"""``hpo bench outlook``: what sweeps were expected to find against what they found, as a table, JSON and a figure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.command_line import input_errors

HERE = Path(__file__).parent


def outlook_command(
    curves: Annotated[Path | None, typer.Option(help="Folder of recorded curves (default: $HPO_CURVES).")] = None,
    protocols: Annotated[str, typer.Option(help="Protocols, comma-separated (default: those of sweeps at one scale).")] = "",
    references: Annotated[int | None, typer.Option(min=3, help="Let every task learn from so many references only.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for table, JSON and figure.")] = HERE / "results",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout instead of the table.")] = False,
) -> None:
    """Compare what a sweep's outlook expects with what the sweep finds, on recorded runs.

    Example: hpo bench outlook --curves DIR
    """
    from bench.cli import curves_folder
    from bench.outlook import PROTOCOLS, outlook_report, outlook_table
    from hpo.adapters.atomic import write_json, write_text

    with input_errors():
        names = [name.strip() for name in protocols.split(",") if name.strip()] or list(PROTOCOLS)
        report = outlook_report(curves_folder(curves), names, references)
        table = outlook_table(report)
        stem = "outlook" if references is None else f"outlook_{references}_references"
        try:
            write_json(out / f"{stem}.json", report)
            write_text(out / f"{stem}.md", table + "\n")
            write_text(out / f"{stem}.svg", outlook_figure(report))
        except OSError as error:
            raise ValueError(f"--out {out}: cannot be written ({error.strerror or error})") from None
    print(json.dumps(report, allow_nan=False) if as_json else table)


def outlook_figure(report: Mapping[str, Any]) -> str:
    """Return an SVG document: actual against expected P(best) of the pick, and cost, one point a protocol and stop."""
    from hpo.reporting.chart_grid import chart_grid
    from hpo.reporting.line_chart import Line, line_chart

    panels = []
    for quantity, title in (("p_best_of_pick", "P(best) of the pick"), ("cost_share", "cost, share of the full sweep")):
        dots = [
            Line(
                {"before": "expected before", "model": "expected by a model"}[view],
                [row[view][quantity] for row in report["rows"]],
                [row["actual"][quantity] for row in report["rows"]],
                points=True,
            )
            for view in ("before", "model")
        ]
        equal = Line("", [0.0, 1.0], [0.0, 1.0], dashed=True)
        panels.append(line_chart([*dots, equal], title=title, x_label="expected", y_label="actual", y_range=(0.0, 1.2)))
    return chart_grid(panels, columns=2)
