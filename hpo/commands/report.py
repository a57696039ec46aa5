"""``hpo report``: builds ``report.html`` in the folder of a sweep, finished or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpo.commands.output import fail

if TYPE_CHECKING:
    from hpo.engine.run_folder import RunFolder

EPILOG = "Example: hpo report runs/demo"
NAME = "report.html"
HOW = "pip install 'collapse-hpo[sweep]'"
_PACKAGES = ("jinja2", "markupsafe")


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a sweep: running, interrupted, failed or finished.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: RUN/report.html.")] = None,
) -> None:
    """Write a sweep's report: one HTML file that needs no network."""
    if not (run / "config.yaml").is_file():
        fail(f"RUN: expected the folder of a sweep, with its config.yaml; found {run}", 2)
    path = output or run / NAME
    try:
        missing = write_report(run, path)
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        fail(f"hpo report needs {error.name}: {HOW}", 2)
    except OSError as error:
        fail(f"--output: expected a file that can be written; found {path}: {error.strerror}", 2)
    if missing:
        typer.echo(f"hpo: {missing}", err=True)
    typer.echo(str(path))


def write_report(run: Path, path: Path) -> str:
    """Write the report of the sweep in ``run``; return a line on what is left out of it and how to get it, or "".

    Raises
    ------
    ModuleNotFoundError
        Jinja2 is not installed.
    OSError
        The file cannot be written.
    """
    from hpo.adapters.atomic import write_text
    from hpo.reporting.report_page import page, plotly_script
    from hpo.reporting.sweep_files import read_sweep

    script = plotly_script()
    write_text(path, page(read_sweep(run), script))
    return "" if script else f"the report has no figures without plotly: {HOW}, then hpo report {run}"


def report_after_sweep(folder: RunFolder, say: Callable[[str], None]) -> None:
    """Write the report at a sweep's end; what is missing or goes wrong is said, and never fails the sweep."""
    try:
        missing = write_report(folder.path, folder.path / NAME)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with a picture of it, the sweep itself is done
        if isinstance(error, ModuleNotFoundError) and error.name in _PACKAGES:
            say(f"no report without {error.name}: {HOW}, then hpo report {folder.path}")
        else:
            say(f"no report: {type(error).__name__}: {error}")
    else:
        say(missing or f"report {folder.path / NAME}")
