"""``hpo check``: whether runs collapse, and what is off where they do not."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpo.commands.options import require_svg
from hpo.commands.output import fail, print_json
from hpo.commands.reading import LearningRate, Loss, Step, Tokens, Total, say_notes, with_total

if TYPE_CHECKING:
    from rich.table import Table

    from hpo.adapters.curve_files import RecordedRun
    from hpo.core.check import CheckReport
    from hpo.core.controls import Controls

Curves = Annotated[list[str] | None, typer.Argument(metavar="CURVES…", help="Files, folders or wildcards with complete runs.")]
Runs = Annotated[list[str] | None, typer.Option(metavar="ID", help="Only runs of this id; repeatable, wildcards allowed.")]
Tolerance = Annotated[
    float | None, typer.Option(metavar="PERCENT", help="Largest Δ that counts as collapse; default: noise floor, at least 0.5.")
]
Recipes = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Recipes (YAML, JSON, CSV): checked alone, or in place of the curves' own.")
]
Figure = Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Write a figure of the curves and their spread.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]

EPILOG = "Example: hpo check runs/ladder/*.parquet --json"


def check(
    curves: Curves = None,
    metric: Loss = None,
    step: Step = None,
    tokens: Tokens = None,
    lr: LearningRate = None,
    run: Runs = None,
    total: Total = None,
    tolerance: Tolerance = None,
    recipes: Recipes = None,
    figure: Figure = None,
    as_json: Json = False,
) -> None:
    """Judge whether runs collapse onto one normalised curve, and name the control or the run that breaks it.

    Exit code 0: they do (from recipes alone: nothing mismatched), 1: they do not, 2: the input is wrong, or recipes share
    nothing that could be compared.
    """
    from hpo.adapters.curve_column_names import Columns
    from hpo.adapters.curve_files import read_runs
    from hpo.core.check import check_recipes

    try:
        known = _recipes(recipes)
        if not curves:
            if recipes is None:
                raise ValueError("expected CURVES, or --recipes FILE; found neither")
            report, chosen = check_recipes(known), []
        else:
            read = read_runs(curves, metric=metric, columns=Columns(step=step, tokens=tokens, lr=lr))
            chosen = with_total(_chosen(read, run), total)
            share = None if tolerance is None else tolerance / 100
            report = _checked(chosen, share, known, hints=total is None)
        if figure is not None:
            _write_figure(figure, chosen, report)
    except ValueError as error:
        fail(str(error), 2)
    say_notes(chosen)
    if as_json:
        print_json(report.to_dict())
    else:
        _print_report(report)
    good = not report.mismatched if report.collapse is None else report.collapse
    if not good:
        raise typer.Exit(1)


def _checked(runs: list[RecordedRun], share: float | None, known: list[Controls], *, hints: bool) -> CheckReport:
    from hpo.core.check import check_curves

    try:
        return check_curves([one.curve() for one in runs], share, known)
    except ValueError as error:
        hint = hints and any(one.horizon is None for one in runs)
        raise ValueError(f"{error}{' (--total says where a run ends if its file does not)' if hint else ''}") from None


def _recipes(path: Path | None) -> list[Controls]:
    from hpo.adapters.recipe_files import read_recipes

    return [] if path is None else read_recipes(path)


def _chosen(runs: list[RecordedRun], wanted: Sequence[str] | None) -> list[RecordedRun]:
    if not wanted:
        return runs
    for pattern in wanted:
        if not any(fnmatchcase(one.run_id, pattern) for one in runs):
            names = ", ".join(one.run_id for one in runs[:8])
            raise ValueError(f"--run: no run is called {pattern!r}; found {names}{', …' if len(runs) > 8 else ''}")
    return [one for one in runs if any(fnmatchcase(one.run_id, pattern) for pattern in wanted)]


def _print_report(report: CheckReport) -> None:
    from hpo.commands.whole_tables import print_whole

    verdict = {True: "collapse", False: "no collapse", None: _of_recipes(report)}
    typer.echo(f"{verdict[report.collapse]}: {report.reason}")
    print_whole(_runs_table(report))
    if report.spread is not None:
        print_whole(_spread_table(report))


def _of_recipes(report: CheckReport) -> str:
    if report.mismatched:
        return "recipes do not match"
    compared = all(match.matches for match in report.matches)
    return "recipes match" if compared else "recipes match as far as they could be compared"


def _runs_table(report: CheckReport) -> Table:
    from rich.table import Table

    table = Table("run", "N", "TPP", "τ", "schedule", "warm-up", "off")
    for run_id, row in report.controls.items():
        off = [f"{name} ×{value:.3g}" if isinstance(value, float) else name for name, value in row["off"].items()]
        off += ["breaks the collapse"] if run_id in report.outliers else []
        numbers = (_short(row[key]) for key in ("n_params", "tpp", "tau"))
        table.add_row(run_id, *numbers, row["schedule"] or "?", _short(row["warmup_fraction"]), ", ".join(off))
    return table


def _spread_table(report: CheckReport) -> Table:
    from rich.table import Table

    spread = report.spread
    assert spread is not None  # noqa: S101 - the caller has checked
    shown = [k for k, t in enumerate(spread.fractions) if round(100 * t) % 10 == 0]
    table = Table("t̂", *(f"{spread.fractions[k]:.1f}" for k in shown))
    table.add_row("Δ %", *(f"{100 * spread.delta[k]:.2f}" for k in shown))
    return table


def _short(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}"


def _write_figure(path: Path, runs: Sequence[RecordedRun], report: CheckReport) -> None:
    from hpo.adapters.atomic import write_bytes
    from hpo.reporting.check_figure import check_figure

    if report.spread is None:
        raise ValueError("--figure: needs CURVES; found recipes only")
    used = [one.curve() for one in runs if one.run_id not in report.left_out]
    require_svg(path)
    try:
        write_bytes(path, check_figure(used, report).encode())
    except OSError as error:
        raise ValueError(f"--figure: expected a file that can be written; found {path}: {error.strerror}") from None


if __name__ == "__main__":
    typer.run(check)
