"""Logs as commands read them: the options that name columns, and what a reader says, on stderr."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from hpo.commands.options import positive

if TYPE_CHECKING:
    from hpo.adapters.curve_files import RecordedRun

Loss = Annotated[str | None, typer.Option("--metric", "--loss", metavar="COLUMN", help="Column with the curve.")]
Step = Annotated[str | None, typer.Option("--step", metavar="COLUMN", help="Column with the step.")]
Tokens = Annotated[str | None, typer.Option("--tokens", metavar="COLUMN", help="Column with the tokens seen.")]
LearningRate = Annotated[str | None, typer.Option("--lr", metavar="COLUMN", help="Column with the learning rate.")]
Total = Annotated[
    str | None, typer.Option("--total", metavar="STEPS|last", help="Steps of the whole run, where its file does not say.")
]

AT_MOST_NOTES = 8
_CONTROL = dict.fromkeys([*range(32), *range(127, 160), 0x2028, 0x2029], " ")


def say_notes(runs: Sequence[RecordedRun]) -> None:
    """Print what the readers have to say on stderr: guesses, damage and restarts.

    Each note is said once, the same guess in several files once, and not too many. Commands call this once all is well: an
    error is one line alone.
    """
    notes = list(dict.fromkeys(note for one in runs for note in one.notes))
    alike = Counter(_without_file(note) for note in notes)
    first = {_without_file(note): note for note in reversed(notes)}
    said = [
        note + (f" (and in {alike[key] - 1} other files)" if alike[key] > 1 else "") for key, note in reversed(first.items())
    ]
    for note in said[:AT_MOST_NOTES]:
        typer.echo(f"hpo: {note.translate(_CONTROL)}", err=True)
    if len(said) > AT_MOST_NOTES:
        typer.echo(f"hpo: and {len(said) - AT_MOST_NOTES} more notes on these logs", err=True)


def with_total(runs: Sequence[RecordedRun], total: str | None) -> list[RecordedRun]:
    """Return the runs, those whose file does not say where they end with ``--total`` as horizon ("last": their own last step).

    Raises
    ------
    ValueError
        Neither "last" nor a number of steps above 0.
    """
    horizon = _horizon(total)
    if total is None:
        return list(runs)
    return [one if one.horizon is not None else replace(one, horizon=horizon or float(one.steps[-1])) for one in runs]


def _horizon(total: str | None) -> float | None:
    if total is None or total == "last":
        return None
    number = positive(total)
    if number is None:
        raise ValueError(f"--total: expected a number of steps above 0, or last; found {total}")
    return number


def _without_file(note: str) -> str:
    """Return what a note says after the file's name, the whole note where it says where in the file."""
    return note.partition(": ")[2] if ": guessed that " in note else note
