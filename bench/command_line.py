"""What every bench command does with an input that is wrong: one line on stderr and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def input_errors() -> Iterator[None]:
    """Turn a ``ValueError`` of the block, always the user's input here, into one line and exit code 2."""
    try:
        yield
    except ValueError as error:
        print(f"hpo: {' '.join(str(error).split())}", file=sys.stderr)  # as the other commands of `hpo` say it
        raise typer.Exit(2) from None
