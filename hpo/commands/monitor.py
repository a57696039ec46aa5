"""``hpo monitor``: watch a run against its family's curve, from a finished log or a growing one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpo.commands.follow import growing
from hpo.commands.options import require_svg
from hpo.commands.output import fail, print_json
from hpo.commands.reading import LearningRate, Loss, Step, Tokens, say_notes
from hpo.commands.yardstick import Yardstick

if TYPE_CHECKING:
    from hpo.adapters.curve_column_names import Columns
    from hpo.adapters.curve_files import RecordedRun
    from hpo.core.monitor import Monitor, Status

CurveFile = Annotated[str, typer.Argument(metavar="CURVE", help="The run's log: a file or folder of any format read here.")]
Model = Annotated[Path | None, typer.Option(metavar="MODEL.json", help="Model of the run's family, written by hpo fit.")]
Reference = Annotated[
    list[str] | None, typer.Option(metavar="CURVE", help="Finished runs instead of a model: one, or several; repeatable.")
]
SameData = Annotated[
    bool,
    typer.Option(
        "--same-data",
        help="The reference runs saw the same batches in the same order: take off the noise that they share, at once "
        "instead of when the run shows it.",
    ),
]
ReferenceRun = Annotated[str | None, typer.Option(metavar="ID", help="Which runs of the reference logs; may be a wildcard.")]
RunId = Annotated[str | None, typer.Option("--run", metavar="ID", help="Only the run of this id.")]
Validation = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Validation loss in the same log and model, to tell overfitting.")
]
Total = Annotated[float | None, typer.Option(metavar="STEPS", help="Length of the whole run, where the log does not say.")]
Follow = Annotated[bool, typer.Option("--follow", help="Go on reading while the file grows, until the run ends or alarms.")]
Poll = Annotated[float, typer.Option(metavar="SECONDS", help="How often --follow looks at the file.")]
OnAlarm = Annotated[str | None, typer.Option(metavar="CMD", help="Shell command to run once at the first alarm.")]
Force = Annotated[bool, typer.Option("--force", help="Accept a reference of another family or metric.")]
Figure = Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Write a figure of the residual.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]

EPILOG = "Example: hpo monitor run/log.csv --model model.json --follow --on-alarm 'touch ALARM'"


def monitor(
    curve: CurveFile,
    model: Model = None,
    reference: Reference = None,
    reference_run: ReferenceRun = None,
    same_data: SameData = False,
    run: RunId = None,
    metric: Loss = None,
    step: Step = None,
    tokens: Tokens = None,
    lr: LearningRate = None,
    validation: Validation = None,
    total: Total = None,
    follow: Follow = False,
    poll: Poll = 1.0,
    on_alarm: OnAlarm = None,
    force: Force = False,
    figure: Figure = None,
    as_json: Json = False,
) -> None:
    """Say whether a run has left its family's curve: since when, how far, what kind of fault, what it costs.

    Exit code 0: it follows the curve, 1: it does not (with --follow: as soon as it does not), 2: the input is wrong.
    """
    from hpo.adapters.curve_column_names import Columns
    from hpo.core.monitor import with_validation

    try:
        _require_arguments(model, reference, same_data, total, poll)
        if figure is not None:
            require_svg(figure)
        columns = Columns(step=step, tokens=tokens, lr=lr)
        read = partial(_read, curve, run, columns=columns, growing=follow)
        first = read(metric)
        yardstick = Yardstick(
            model=model,
            references=reference or (),
            reference_run=reference_run,
            same_data=same_data,
            total=total,
            force=force,
        )
        watches, assumed = yardstick.monitor_of(first)
        if validation is not None:
            _require_column(partial(read, validation), growing=follow)
        say_notes([replace(first, notes=(*first.notes, *assumed))])
        rest = growing(curve, partial(read, metric), poll) if follow else iter(())
        status = _watch(watches, first, rest, on_alarm)
        if validation is not None:
            other = read(validation)
            beside = yardstick.monitor_of(other)[0]()
            _feed(beside, other, 0)
            status = with_validation(status, beside.judge())
        if figure is not None:
            _write_figure(figure, status, first.run_id)
    except ValueError as error:
        fail(str(error), 2)
    if as_json:
        print_json(status.to_dict())
    else:
        typer.echo("\n".join(status_lines(first.run_id, status)))
    if status.status == "alarm":
        raise typer.Exit(1)


def _require_arguments(
    model: Path | None, reference: list[str] | None, same_data: bool, total: float | None, poll: float
) -> None:
    if (model is None) == (not reference):
        raise ValueError(f"expected --model or --reference; found {'neither' if model is None else 'both'}")
    if same_data and not reference:
        raise ValueError("--same-data: expected --reference, the runs themselves; found --model")
    if total is not None and not total > 0:
        raise ValueError(f"--total: expected a number of steps above 0; found {total:g}")
    if not poll > 0:
        raise ValueError(f"--poll: expected seconds above 0; found {poll:g}")


def _read(path: str, run: str | None, metric: str | None, *, columns: Columns, growing: bool) -> RecordedRun:
    from hpo.adapters.curve_files import read_runs

    runs = read_runs([path], run=run, metric=metric, columns=columns, growing=growing)
    if len(runs) > 1:
        names = ", ".join(one.run_id for one in runs[:5])
        raise ValueError(
            f"{path}: expected one run (choose it by --run ID); found {len(runs)}: {names}{', …' if len(runs) > 5 else ''}"
        )
    return runs[0]


def _require_column(read: Callable[[], RecordedRun], *, growing: bool) -> None:
    """Read the validation loss before anything is watched or run; a growing log may have none yet, and that is said."""
    try:
        read()
    except ValueError as error:
        if not growing:
            raise
        typer.echo(f"hpo: --validation: {error} (looked for again at the end)", err=True)


def _watch(make: Callable[[], Monitor], first: RecordedRun, rest: Iterator[RecordedRun], on_alarm: str | None) -> Status:
    """Feed the log, then what is appended to it; stop following at an alarm or at the end of the run.

    A log that went back to an earlier step (a restarted run) is watched anew, from what now counts.
    """
    watch, seen, following = make(), first, False
    _feed(watch, first, 0)
    status = watch.judge()
    for now in rest:
        following = True
        if status.status == "alarm" or _is_over(watch):
            break
        start = seen.steps.size
        if start > now.steps.size or (now.steps[:start] != seen.steps).any():
            watch, start = make(), 0
        _feed(watch, now, start)
        seen = now
        status = watch.judge()
        _say(status)
    if status.status == "alarm" and on_alarm is not None:
        _run_command(on_alarm)
    if following:
        print(file=sys.stderr, flush=True)
    return status


def _run_command(command: str) -> None:
    """Run the user's command; what it prints goes to stderr, as stdout is for the status, and its failure is said."""
    code = subprocess.run(command, shell=True, check=False, stdout=2).returncode  # noqa: S602 - the user's own command line
    if code != 0:
        typer.echo(f"hpo: --on-alarm: expected a command that ends with 0; it ended with {code}", err=True)


def _feed(watch: Monitor, run: RecordedRun, start: int) -> None:
    rates = run.learning_rates
    if start == 0:
        watch.mark_restarts(run.restarts)
    for k in range(start, run.steps.size):
        watch.update(float(run.steps[k]), float(run.values[k]), lr=None if rates is None else float(rates[k]))


def _is_over(watch: Monitor) -> bool:
    return (watch.status.fraction or 0.0) >= 1.0 - 1e-9


def _say(status: Status) -> None:
    if sys.stderr.isatty():
        at = 0.0 if status.fraction is None else status.fraction
        print(f"\r{at:6.1%} {status.status}: {status.reason[:90]:<90}", end="", file=sys.stderr, flush=True)


def status_lines(run_id: str, status: Status) -> list[str]:
    """Return the status as text for people."""
    at = "" if status.fraction is None else f" at {status.fraction:.1%} of training"
    lines = [f"{run_id}: {status.status}{at}: {status.reason}"]
    if status.status == "alarm":
        where = "" if status.onset is None else f", began near t̂ = {status.onset:.3f}"
        called = "" if status.detected_at is None else f", called at {status.detected_at:.3f}"
        lines.append(f"  {status.kind}{where}{called}")
    if status.size_pct is not None and status.size_sigma is not None:
        lines.append(
            f"  size {status.size_pct:+.2f} % of the loss, {status.size_sigma:+.1f} times the noise of 1 % of training"
        )
    if status.final_loss is not None:
        lines.append(f"  final loss {status.final_loss:.4f} (90 %: {status.lower:.4f} to {status.upper:.4f})")
    if status.cost_pct is not None:
        lines.append(f"  the deviation costs {status.cost_pct:+.2f} % of it, if it stays as it is")
    return lines


def _write_figure(path: Path, status: Status, run_id: str) -> None:
    from hpo.adapters.atomic import write_bytes
    from hpo.reporting.monitor_figure import monitor_figure

    if not status.residual:
        typer.echo(f"hpo: no figure is written: {status.reason}", err=True)
        return
    try:
        write_bytes(path, monitor_figure(status, run_id).encode())
    except OSError as error:
        raise ValueError(f"--figure: expected a file that can be written; found {path}: {error.strerror}") from None


if __name__ == "__main__":
    typer.run(monitor)
