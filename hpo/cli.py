"""The ``hpo`` command.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 ran and the answer is bad, 2 the input is wrong (one
line, no traceback), 130 interrupted. Heavy packages are imported inside the commands that need them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from bench.cli import app as bench
from hpo.commands import add_commands
from hpo.commands.output import fail as _fail
from hpo.commands.output import print_json as _print_json
from hpo.commands.output import speak_any_encoding
from hpo.commands.reading import LearningRate, Loss, Step, Tokens, Total, say_notes, with_total

if TYPE_CHECKING:
    from hpo.adapters.curve_column_names import Columns
    from hpo.adapters.curve_files import RecordedRun
    from hpo.core.forecast import Forecast
    from hpo.core.model import CollapseModel
    from hpo.engine.plan import Plan
    from hpo.engine.run_folder import RunFolder

app = typer.Typer(
    name="hpo",
    help="Hyperparameter sweeps that forecast a training run's final loss from its first part and stop what cannot win.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
RunId = Annotated[str | None, typer.Option("--run", metavar="ID", help="Only the run of this id.")]


def main() -> None:
    """Run the command line."""
    speak_any_encoding()
    try:
        outcome = app(prog_name="hpo", standalone_mode=False)
    except KeyboardInterrupt:
        _fail("interrupted", 130)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":  # of click, or of the copy that typer carries
            typer.echo(error.format_message(), err=True)
            raise SystemExit(2) from None
        _fail(error.format_message(), 2)  # a usage error of the command line itself
    sys.exit(outcome if isinstance(outcome, int) else 0)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"hpo {version('collapse-hpo')}")
        except PackageNotFoundError:
            typer.echo("hpo (not installed: run from its sources)")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Hyperparameter sweeps that forecast final losses."""


@app.command(epilog="Example: hpo sweep bench/demo.yaml --out runs/demo --verify")
def sweep(
    config: Annotated[Path | None, typer.Argument(metavar="[CONFIG]", help="YAML file that describes the sweep.")] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with the sweep in this folder.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Run folder; default runs/<name>-<time>.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the expected cost and savings; train nothing.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Afterwards train every candidate to the end as well.")] = False,
    settle: Annotated[int | None, typer.Option(metavar="SEEDS", help="Afterwards settle a tie by so many seeds each.")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="With --resume: what has failed trains again.")] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value.")] = None,
    log_to: Annotated[list[str] | None, typer.Option(metavar="tensorboard|wandb", help="Log every trial there too.")] = None,
    library: Annotated[Path | None, typer.Option(metavar="DIR", help="Reuse the proxies kept there; keep new ones.")] = None,
    as_json: Json = False,
) -> None:
    """Train proxies, forecast every candidate from its first part, and finish only what can win."""
    from hpo.engine.config import InputError, check_seeds

    try:
        if settle is not None:
            check_seeds("--settle", settle)
        if (config is None) == (resume is None):
            raise InputError.at("sweep", "either CONFIG or --resume RUN", "neither" if config is None else "both")
        if resume is not None:
            _refuse_with_resume({"--out": out, "--set": set_, "--log-to": log_to, "--dry-run": dry_run, "--library": library})
            _resume(resume, retry_failed=retry_failed, verify=verify, settle=settle or 0, as_json=as_json)
        elif retry_failed:
            raise InputError.at("--retry-failed", "--resume RUN with it", "a new sweep")
        elif config is not None:
            overrides = [*(set_ or []), *([f"log_to=[{', '.join(log_to)}]"] if log_to else [])]
            overrides += [] if library is None else [f"proxies.library.path={json.dumps(str(library))}"]
            _sweep(config, overrides, out, dry_run=dry_run, verify=verify, settle=settle or 0, as_json=as_json)
    except InputError as error:
        _fail(str(error), 2)


@app.command("sweep-control", epilog="Example: hpo sweep-control runs/demo extend trial-03 --to 0.4")
def sweep_control(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a sweep, running or interrupted.")],
    action: Annotated[str, typer.Argument(metavar="keep|stop|revive|extend", help="What to do with it.")],
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="A candidate: its name or number.")],
    to: Annotated[float | None, typer.Option(metavar="FRACTION", help="Of extend; default a tenth more than done.")] = None,
    wait: Annotated[float, typer.Option(metavar="SECONDS", help="Longest wait for the answer.", min=0.0)] = 15.0,
    as_json: Json = False,
) -> None:
    """Keep, stop, revive or extend a candidate of a running sweep, whatever its forecast says."""
    from hpo.engine.config import InputError
    from hpo.engine.control import control

    try:
        said = control(run, action, trial, to, wait)
    except InputError as error:
        _fail(str(error), 2)
    if as_json:
        _print_json(said)
    else:
        typer.echo(said["text"])
    if said["ok"] is False:
        raise typer.Exit(1)


@app.command(epilog="Example: hpo fit runs/demo/curves/proxy-*.parquet -o model.json")
def fit(
    curves: Annotated[list[str], typer.Argument(metavar="CURVES…", help="Files, folders or wildcards with complete runs.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL.json", help="Where to write the model.")],
    run: RunId = None,
    metric: Loss = None,
    step: Step = None,
    tokens: Tokens = None,
    lr: LearningRate = None,
    total: Total = None,
    as_json: Json = False,
) -> None:
    """Fit the normalised loss curve of complete runs and write it as a JSON file."""
    from hpo.adapters.curve_column_names import Columns
    from hpo.adapters.model_files import write_model
    from hpo.core.model import CollapseModel
    from hpo.core.references import why_not_reference

    runs = _read_runs(curves, total, run, Columns(step, metric, tokens, lr))
    read = [one.curve() for one in runs]
    model = CollapseModel.fit(read)
    left_out = [f"{curve.run_id}: {why}" for curve in read if (why := why_not_reference(curve))]
    said = "; ".join(left_out[:5]) + (f"; and {len(left_out) - 5} more" if len(left_out) > 5 else "")
    if not model.references:
        hint = "" if total else " (--total says where a run ends if its file does not)"
        _fail(f"CURVES: expected at least one complete run; found none: {said}{hint}", 2)
    if left_out:
        typer.echo(f"hpo: left out {len(left_out)} of {len(read)} runs: {said}", err=True)
    try:
        write_model(output, model)
    except OSError as error:
        _fail(f"--output: expected a file that can be written; found {output}: {error.strerror}", 2)
    say_notes(runs)
    families = {family.name: len(family.references) for family in model.families}
    if as_json:
        _print_json({"model": str(output), "n_references": len(model.references), "families": families})
    else:
        typer.echo(f"{output}: {len(model.references)} references")
        for name, count in families.items():
            typer.echo(f"  {name}: {count}")


@app.command(epilog="Example: hpo forecast runs/demo/curves/trial-03.parquet --model model.json --at 0.2 --json")
def forecast(
    curve: Annotated[str, typer.Argument(metavar="CURVE", help="File with the run to forecast.")],
    model: Annotated[Path, typer.Option(metavar="MODEL.json", help="Model written by hpo fit or hpo sweep.")],
    at: Annotated[float | None, typer.Option(metavar="FRACTION", help="Use only this first part of the run.")] = None,
    run: RunId = None,
    metric: Loss = None,
    step: Step = None,
    tokens: Tokens = None,
    lr: LearningRate = None,
    total: Total = None,
    as_json: Json = False,
) -> None:
    """Forecast a run's final loss from what it has logged, or from its first part."""
    from hpo.adapters.curve_column_names import Columns
    from hpo.adapters.model_files import read_model
    from hpo.commands.little_known import as_little_known
    from hpo.core.named_schedule import with_named_schedule

    if at is not None and not 0 < at <= 1:
        _fail(f"--at: expected a fraction in (0, 1]; found {at:g}", 2)
    runs = _read_runs([curve], total, run, Columns(step, metric, tokens, lr))
    if len(runs) > 1:
        names = ", ".join(one.run_id for one in runs[:5])
        _fail(f"CURVE: expected one run (choose it by --run ID); found {len(runs)}: {names}{', …' if len(runs) > 5 else ''}", 2)
    try:
        fitted = read_model(model)
        others = fitted.without(runs[0].run_id)
        recipes = [r.recipe for r in others.references if r.metric.name == runs[0].metric.name]
        asked, left_out = as_little_known(runs[0], recipes)
        made = others.forecast(with_named_schedule(asked.curve(at), recipes))
    except ValueError as error:
        _fail(str(error), 2)
    say_notes(runs)
    if others is not fitted:
        typer.echo(f"hpo: run {runs[0].run_id} is one of the model's references; it was left out", err=True)
    if left_out:
        typer.echo(f"hpo: run {runs[0].run_id}: {left_out}", err=True)
    record = _forecast_record(made, runs[0])
    record["reason"] += "".join(f"; {words}" for words in (left_out, _unlike(made, asked, others)) if words)
    if as_json:
        _print_json(record)
    else:
        typer.echo("\n".join(_forecast_lines(record)))


add_commands(app)
app.add_typer(bench, name="bench")


def _sweep(
    config: Path, overrides: list[str], out: Path | None, *, dry_run: bool, verify: bool, settle: int, as_json: bool
) -> None:
    from hpo.engine.config import InputError, load_config, with_absolute_paths
    from hpo.engine.plan import plan_sweep
    from hpo.engine.reuse import with_library
    from hpo.engine.run_folder import discard, new_run_folder
    from hpo.engine.workload import check_device

    checked = with_absolute_paths(load_config(config, overrides))
    plan = plan_sweep(checked)
    reused, said = with_library(plan)
    if dry_run:
        _show_estimate(plan, reused, said, as_json=as_json)
        return
    _require_sweep_packages()
    check_device(checked)
    folder = new_run_folder(out, checked)
    try:
        _drive(plan, folder, resume=False, verify=verify, settle=settle, as_json=as_json)
    except InputError:  # before anything was trained: the storage, or a machine too small
        discard(folder)
        raise


def _resume(path: Path, *, retry_failed: bool, **how: Any) -> None:
    from hpo.engine.plan import plan_sweep
    from hpo.engine.run_folder import existing_run_folder

    folder = existing_run_folder(path)
    plan = plan_sweep(folder.read_config())
    _require_sweep_packages()
    _drive(plan, folder, resume=True, retry_failed=retry_failed, **how)


def _drive(plan: Plan, folder: RunFolder, *, as_json: bool, **how: Any) -> None:
    from hpo.commands.sweep_display import displayed
    from hpo.commands.whole_tables import print_whole
    from hpo.engine.run_folder import locked
    from hpo.engine.sweep import OutsideError, SweepError, run_sweep
    from hpo.engine.tables import summary_lines, trials_table

    with locked(folder):
        try:
            with displayed(plan, folder) as progress:
                result = run_sweep(plan, folder, progress, **how)
        except KeyboardInterrupt:
            _fail(f"interrupted; everything is saved, go on with: {folder.resume_command}", 130)
        except OutsideError as error:
            _fail_sweep(f"{error} (logs in {folder.logs}); go on with: {folder.resume_command}", plan, folder, as_json=as_json)
        except SweepError as error:
            _fail_sweep(f"{error} (logs in {folder.logs})", plan, folder, as_json=as_json)
        except OSError as error:
            what = f"{error.strerror or error}: {error.filename or folder.path}"
            _fail_sweep(f"{what}; go on with: {folder.resume_command}", plan, folder, as_json=as_json)
    if as_json:
        _print_json(result)
    else:
        print_whole(trials_table(result))
        typer.echo("\n".join([*summary_lines(result), f"run folder        {folder.path}"]))


def _fail_sweep(line: str, plan: Plan, folder: RunFolder, *, as_json: bool) -> NoReturn:
    """Leave with a line and, as JSON, a document that says the same and how far every run came."""
    from hpo.engine.result import failed_result
    from hpo.engine.runs_on_disk import RunsOnDisk

    if as_json:
        _print_json(failed_result(RunsOnDisk(plan, folder), line))
    _fail(line, 1)


def _show_estimate(plan: Plan, reused: Plan, library: Mapping[str, Any], *, as_json: bool) -> None:
    from hpo.engine.cost import estimate
    from hpo.engine.outlook import configured_outlook
    from hpo.engine.sweep import trials_at_once
    from hpo.engine.tables import estimate_lines

    outlook = configured_outlook(plan)
    kept = None if outlook is None else outlook["kept"]
    expected = {**estimate(reused, trials_at_once(plan), kept).to_dict(), "outlook": outlook, **library}
    if as_json:
        _print_json(expected)
    else:
        typer.echo("\n".join(estimate_lines(expected)))


def _refuse_with_resume(options: Mapping[str, object]) -> None:
    from hpo.engine.config import InputError

    for option, given in options.items():
        if given:
            raise InputError.at(option, "no such option with --resume: a run keeps its configuration", "both")


def _require_sweep_packages() -> None:
    """Leave with one line if torch or Ray is missing; start again through a link if Ray could not start workers from here."""
    from importlib.util import find_spec

    from hpo.engine.interpreter import restart_in_startable_path

    missing = [name for name in ("ray", "torch") if find_spec(name) is None]
    if missing:
        _fail(f"hpo sweep needs {' and '.join(missing)}: pip install 'collapse-hpo[sweep]'", 2)
    restart_in_startable_path(sys.argv[1:])


def _read_runs(paths: list[str], total: str | None, run: str | None, columns: Columns) -> list[RecordedRun]:
    """Return the runs of the files; ``total`` is the horizon of those that do not tell it ("last": their own last step)."""
    from hpo.adapters.curve_files import read_runs

    try:
        return with_total(read_runs(paths, run=run, columns=columns), total)
    except ValueError as error:
        _fail(str(error), 2)


def _forecast_record(made: Forecast, run: RecordedRun) -> dict[str, Any]:
    from hpo.engine.result import error_pct
    from hpo.engine.study_record import finite_or_none

    keys = ("final_loss", "sd", "lower", "upper", "status", "family", "n_references", "misfit", "fraction", "reason")
    actual = run.curve().final_loss
    known = {} if actual is None else {"actual": actual, "error_pct": error_pct(made.final_loss, actual)}
    record = {"run_id": run.run_id, **{key: getattr(made, key) for key in keys}, **known}
    return {key: finite_or_none(value) if isinstance(value, float) else value for key, value in record.items()}


def _unlike(made: Forecast, run: RecordedRun, model: CollapseModel) -> str:
    """Return what a run without a family is, and what the model has."""
    if made.status != "no_family":
        return ""
    schedule = str(run.recipe.schedule) or "no named schedule" if run.recipe is not None else "no recipe"
    own = " · ".join(part for part in (run.family, schedule, run.metric.name) if part)
    return f"the run: {own}; the model: {', '.join(family.name for family in model.families[:4])}"


def _forecast_lines(record: dict[str, Any]) -> list[str]:
    if record["final_loss"] is None:
        return [f"{record['run_id']}: no forecast ({record['status']}: {record['reason']})"]
    interval = f"90 % {record['lower']:.4f} to {record['upper']:.4f}"
    references = f"{record['n_references']} reference{'' if record['n_references'] == 1 else 's'}"
    lines = [
        f"{record['run_id']}: final loss {record['final_loss']:.4f} ± {record['sd']:.4f}, {interval}",
        f"  from {record['fraction']:.1%} of training and {references} of {record['family']}",
    ]
    if record.get("error_pct") is not None:
        lines.append(f"  actual {record['actual']:.4f}, error {record['error_pct']:+.2f} %")
    return lines
