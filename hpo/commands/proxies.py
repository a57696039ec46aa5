"""``hpo proxies``: what a library of proxies holds, entry by entry, and how to remove some."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpo.commands.options import input_errors
from hpo.commands.output import fail, print_json

if TYPE_CHECKING:
    from hpo.adapters.proxy_library import Entry

app = typer.Typer(
    help="The library of proxies that sweeps keep and reuse (hpo sweep --library DIR).",
    no_args_is_help=True,
    add_completion=False,
)

Library = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the library.")]
Name = Annotated[str, typer.Argument(metavar="ENTRY", help="An entry such as 0123456789.v2, or an id alone.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]


@app.command("list", epilog="Example: hpo proxies list proxies/")
def list_command(library: Library, as_json: Json = False) -> None:
    """List the entries: what each is about, from which sweep, with how many runs of which sizes."""
    from hpo.adapters.proxy_library import ProxyLibrary

    with input_errors():
        _require_folder(library)
        entries, unreadable = ProxyLibrary(library).entries()
    for line in unreadable:
        typer.echo(f"hpo: {line}", err=True)
    if as_json:
        print_json({"entries": [_summary(entry) for entry in entries], "unreadable": unreadable})
        return
    for entry in entries:
        about = _summary(entry)
        typer.echo(f"{entry.name}  {about['n_references']} runs ({_sizes(entry)}), of {entry.run}, {entry.made}")
        typer.echo("  " + " · ".join(f"{part} {text}" for part, text in about["about"].items()))
    if not entries:
        typer.echo(f"{library}: no entries")


@app.command("show", epilog="Example: hpo proxies show proxies/ 0123456789 --json")
def show_command(
    library: Library,
    name: Name,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="MODEL.json", help="Write its model, for hpo forecast or monitor.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show one entry with its runs; of an id the last version."""
    from hpo.adapters.model_files import write_model
    from hpo.adapters.proxy_library import ProxyLibrary

    with input_errors():
        _require_folder(library)
        entry = ProxyLibrary(library).get(name)
    if output is not None:
        try:
            write_model(output, entry.model)
        except OSError as error:
            fail(f"--output: expected a file that can be written; found {output}: {error.strerror}", 2)
    runs = [_run(reference) for reference in entry.model.references]
    if as_json:
        print_json({**_summary(entry), "runs": runs})
        return
    lines = {"entry": entry.name, "made": entry.made, "sweep": entry.run, **entry.key.in_words}
    typer.echo("\n".join(f"{part:<10} {text}" for part, text in lines.items()))
    for run in runs:
        size = "size unknown" if run["n_params"] is None else f"{run['n_params']:.4g} parameters"
        settings = ", ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in run["settings"].items()
        )
        typer.echo(f"  {run['run']}: {size}, {settings}, final {run['final_loss']:.4f}")


@app.command("remove", epilog="Example: hpo proxies remove proxies/ 0123456789.v1")
def remove_command(library: Library, name: Name, as_json: Json = False) -> None:
    """Remove an entry; of an id all versions. Sweeps under way keep what they have taken."""
    from hpo.adapters.proxy_library import ProxyLibrary

    with input_errors():
        _require_folder(library)
        try:
            removed = ProxyLibrary(library).remove(name)
        except OSError as error:
            fail(f"DIR: expected a folder that can be written; found {library}: {error.strerror}", 2)
    if as_json:
        print_json({"removed": removed})
    else:
        typer.echo(f"removed {', '.join(removed)}")


def _require_folder(library: Path) -> None:
    if not library.is_dir():
        raise ValueError(
            f"DIR: expected the folder of a library; found {'a file' if library.exists() else 'nothing'} at {library}"
        )


def _summary(entry: Entry) -> dict[str, Any]:
    about = {"entry": entry.name, "made": entry.made, "run": entry.run, "about": entry.key.in_words}
    return {**about, "n_references": len(entry.model.references), "sizes": entry.sizes}


def _sizes(entry: Entry) -> str:
    return ", ".join(f"{n:.4g}" for n in entry.sizes) + " parameters" if entry.sizes else "sizes unknown"


def _run(reference: Any) -> dict[str, Any]:
    recipe = reference.recipe
    return {
        "run": reference.run_id,
        "n_params": None if recipe is None else recipe.n_params,
        "tpp": None if recipe is None else recipe.tpp,
        "tau": None if recipe is None else recipe.tau,
        "settings": dict(reference.settings),
        "final_loss": reference.final_loss,
    }
