"""``python -m proxies``: checks of the model family from the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(
    help="Checks of the proxy models.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

VERDICTS = {True: "flat", False: "grows or shrinks", None: "cannot be told: more sizes, further apart, or more seeds"}
EPILOG = "Example: python -m proxies coordinate-check --figure coordinate_check.svg"


@app.callback()
def _proxies() -> None:
    """Check the proxy models."""


@app.command("coordinate-check", epilog=EPILOG)
def coordinate_check_command(
    parameterisation: Annotated[str, typer.Option(help="Comma-separated, of sp, mup, completep.")] = "sp,mup,completep",
    widths: Annotated[str, typer.Option(help="Comma-separated; the smallest is the base width.")] = "32,64,128,256",
    depths: Annotated[str, typer.Option(help="Comma-separated; the smallest is the base depth.")] = "2,4,8,16",
    steps: Annotated[int, typer.Option(help="Updates before activations are compared.")] = 8,
    seeds: Annotated[int, typer.Option(help="Initialisations of each model; their spread is the exponents' margin.")] = 4,
    lr: Annotated[float, typer.Option(help="Base learning rate, constant.")] = 0.01,
    head_dim: Annotated[int, typer.Option(help="Size of an attention head; must divide every width.")] = 16,
    tied: Annotated[bool, typer.Option("--tied", help="Tie embedding and unembedding.")] = False,
    bias: Annotated[bool, typer.Option("--bias", help="Give matrices and LayerNorms biases.")] = False,
    figure: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Write a figure.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Train small models of several widths and depths for a few steps and say which activations grow with size.

    Exit code 0: no promise is broken (CompleteP is to be flat in width and depth, μP in width), 1: one is, 2: bad input.
    """
    from hpo.commands.options import require_svg
    from proxies.coordinate_ladder import CoordinateSettings, coordinate_check

    try:
        if figure is not None:
            require_svg(figure)
        settings = CoordinateSettings(
            parameterisations=tuple(name.strip() for name in parameterisation.split(",") if name.strip()),
            widths=_numbers("--widths", widths),
            depths=_numbers("--depths", depths),
            n_steps=steps,
            n_seeds=seeds,
            lr=lr,
            tied=tied,
            bias=bias,
            head_dim=head_dim,
        )
        found = coordinate_check(settings)
        if figure is not None:
            _write_figure(figure, found)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    print(json.dumps(found, allow_nan=False) if as_json else _table(found))
    if not found["holds"]:
        raise typer.Exit(1)


def _numbers(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"{name} must be whole numbers, comma-separated; found {text!r}") from None


def _write_figure(path: Path, found: dict[str, Any]) -> None:
    from hpo.adapters.atomic import write_bytes
    from hpo.reporting.coordinate_figure import coordinate_figure

    try:
        write_bytes(path, coordinate_figure(found).encode())
    except OSError as error:
        raise ValueError(f"--figure: expected a file that can be written; found {path}: {error.strerror}") from None


def _table(found: dict[str, Any]) -> str:
    means = f"mean of {found['n_seeds']} seeds ± its 95 % margin"
    head = f"exponent p of scale ∝ size^p after {found['n_steps']} updates, {means} (flat: |p| < {found['flat_below']})"
    names = ("stream", "stream_change", "logits", "logits_change")
    lines = [head, "", f"{'':<10} {'axis':<6} " + " ".join(f"{name:>13}" for name in names) + "  verdict"]
    for ladder in found["ladders"]:
        pairs = [f"{ladder['exponents'][name]:.2f} ± {ladder['margins'][name]:.2f}" for name in names]
        verdict = VERDICTS[ladder["flat"]]
        broken = "  PROMISED FLAT" if ladder["promised_flat"] and ladder["flat"] is False else ""
        numbers = " ".join(f"{pair:>13}" for pair in pairs)
        lines.append(f"{ladder['parameterisation']:<10} {ladder['axis']:<6} {numbers}  {verdict}{broken}")
    return "\n".join(lines)


if __name__ == "__main__":
    app(prog_name="python -m proxies")
