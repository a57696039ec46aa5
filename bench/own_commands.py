"""Our own runs as commands of ``hpo bench``: train what is missing, keep the curves, report; resumable at any point."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from bench.command_line import input_errors

if TYPE_CHECKING:
    from bench.own_runs import OwnRun

HERE = Path(__file__).parent
Runs = Annotated[Path, typer.Option(help="Folder of the training runs; what is there is not trained again.")]
Data = Annotated[Path, typer.Option(help="Folder for the thinned curves (Parquet).")]
Out = Annotated[Path, typer.Option(help="Folder for table, JSON and figure.")]
Workers = Annotated[int, typer.Option(help="Runs trained at a time, one thread each.")]
Minutes = Annotated[float | None, typer.Option(help="Leave after about this long; the next call goes on.")]
ReportOnly = Annotated[bool, typer.Option("--report-only", help="Train nothing; report on the curves in --data.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout instead of the table.")]


def own_ladder_command(
    runs: Runs = Path("runs/own-ladder"),
    data: Data = HERE / "data",
    out: Out = HERE / "results",
    workers: Workers = 1,
    minutes: Minutes = None,
    report_only: ReportOnly = False,
    as_json: Json = False,
) -> None:
    """Train our own ladder and its contrasts and say which collapse.

    Example: hpo bench own-ladder --minutes 30
    """
    from bench.own_ladder import ladder_runs
    from bench.own_report import ladder_figure, ladder_report, ladder_table

    curves = data / "own_ladder.parquet"
    with input_errors():
        if not report_only:
            _train_and_keep(ladder_runs(), runs, curves, workers, minutes)
        loose = data / "own_sweep.parquet" if (data / "own_sweep.parquet").is_file() else None
        found = ladder_report(_existing(curves), loose=loose)
        _tell(out, "own_ladder", Told(found, ladder_table(found), ladder_figure(curves, loose=loose)), as_json=as_json)


def own_sweep_command(
    runs: Runs = Path("runs/own-sweep"),
    data: Data = HERE / "data",
    out: Out = HERE / "results",
    workers: Workers = 1,
    minutes: Minutes = None,
    report_only: ReportOnly = False,
    as_json: Json = False,
) -> None:
    """Train our own sweep, all targets to the end, and compare how methods choose from its first part.

    Example: hpo bench own-sweep --workers 2 --minutes 30
    """
    from bench.figure import figure_svg
    from bench.own_sweep import finished_seeds, sweep_runs
    from bench.own_sweep_report import sweep_report, sweep_table

    curves = data / "own_sweep.parquet"
    with input_errors():
        if not report_only:
            _train(sweep_runs(), runs, workers, minutes)
            _keep(sweep_runs(finished_seeds(runs)), runs, curves)
        found = sweep_report(_existing(curves).parent)
        _tell(out, "own_sweep", Told(found, sweep_table(found), figure_svg(found)), as_json=as_json)


def own_transfer_command(
    runs: Runs = Path("runs/own-transfer"),
    data: Data = HERE / "data",
    out: Out = HERE / "results",
    workers: Workers = 1,
    minutes: Minutes = None,
    report_only: ReportOnly = False,
    as_json: Json = False,
) -> None:
    """Train models of several widths and depths at several learning rates and say how far the best one drifts.

    Example: hpo bench own-transfer --minutes 20
    """
    from bench.own_transfer import transfer_figure, transfer_report, transfer_runs, transfer_table

    curves = data / "own_transfer.parquet"
    with input_errors():
        if not report_only:
            _train_and_keep(transfer_runs(), runs, curves, workers, minutes)
        found = transfer_report(_existing(curves))
        _tell(out, "own_transfer", Told(found, transfer_table(found), transfer_figure(found)), as_json=as_json)


def own_demo_command(
    runs: Runs = Path("runs/own-demo"),
    config: Annotated[Path, typer.Option(help="The sweep that is repeated.")] = HERE / "demo.yaml",
    out: Out = HERE / "results",
    seeds: Annotated[int, typer.Option(min=1, help="Sweeps, each with other weights and another data order.")] = 5,
    minutes: Minutes = None,
    report_only: Annotated[bool, typer.Option("--report-only", help="Train nothing; judge again what is in --runs.")] = False,
    as_json: Json = False,
) -> None:
    """Run the demo once a seed, every candidate to its end, and say what its forecasts were worth by the present model.

    Example: hpo bench own-demo --minutes 30
    """
    from bench.own_demo import demo_report, demo_table, train_seeds

    with input_errors():
        if not report_only:
            train_seeds(config, runs, range(seeds), _seconds(minutes))
        found = demo_report(runs, range(seeds))
        _tell(out, "own_demo", Told(found, demo_table(found), None), as_json=as_json)


def _train_and_keep(every: Sequence[OwnRun], runs: Path, curves: Path, workers: int, minutes: float | None) -> None:
    from bench.own_runs import is_finished

    _train(every, runs, workers, minutes)
    _keep([run for run in every if is_finished(run, runs)], runs, curves)


def _train(every: Sequence[OwnRun], runs: Path, workers: int, minutes: float | None) -> None:
    from bench.own_runs import train_missing

    train_missing(every, runs, workers, _seconds(minutes))


def _seconds(minutes: float | None) -> float | None:
    if minutes is not None and not minutes > 0:
        raise ValueError(f"--minutes must be above 0; found {minutes}")
    return None if minutes is None else 60 * minutes


def _keep(finished: Sequence[OwnRun], runs: Path, curves: Path) -> None:
    from bench.own_runs import collect

    collect(finished, runs, curves)
    print(f"{len(finished)} runs in {curves}", file=sys.stderr)


def _existing(curves: Path) -> Path:
    if not curves.is_file():
        raise ValueError(f"{curves}: no such file; train first (without --report-only)")
    return curves


class Told(NamedTuple):
    """What a command found, as JSON-ready data, a Markdown table and, unless there is none, an SVG document."""

    found: dict[str, Any]
    table: str
    figure: str | None


def _tell(out: Path, name: str, told: Told, *, as_json: bool) -> None:
    """Write what was found to files of that name in ``out``, and print it."""
    from hpo.adapters.atomic import write_json, write_text

    try:
        write_json(out / f"{name}.json", told.found)
        write_text(out / f"{name}.md", told.table + "\n")
        if told.figure is not None:
            write_text(out / f"{name}.svg", told.figure)
    except OSError as error:
        raise ValueError(f"--out {out}: cannot be written ({error.strerror or error})") from None
    print(json.dumps(told.found, allow_nan=False) if as_json else told.table)
