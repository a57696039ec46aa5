"""Options that are lists or either of two kinds, and what happens when one is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpo.commands.output import fail
from hpo.core.out_of_range import OutsideRangeError
from hpo.core.quantities import LARGEST, SMALLEST

WAY_ON = "; --extrapolate goes on all the same"
"""Said after what lies outside the range that was measured."""


@contextmanager
def input_errors() -> Iterator[None]:
    """Turn a ``ValueError`` of the block, always the user's input here, into one line and exit code 2."""
    try:
        yield
    except OutsideRangeError as error:
        fail(f"{error}{WAY_ON}", 2)
    except ValueError as error:
        fail(str(error), 2)


def require_svg(path: Path) -> None:
    """Raise ``ValueError`` unless a figure's file is named as what is written into it."""
    if path.suffix.lower() != ".svg":
        raise ValueError(f"--figure: expected a name that ends in .svg; found {path}")


def require_other_file(output: Path | None, source: Path | None) -> None:
    """Raise ``ValueError`` where ``--output`` would overwrite the file that was read."""
    if output is not None and source is not None and output.resolve() == source.resolve():
        raise ValueError(f"--output: expected another file than the one read; found {output}")


def numbers(option: str, text: str | None) -> list[float] | None:
    """Return the numbers of a comma-separated list; None for None.

    Raises
    ------
    ValueError
        Something that is not a number above 0; names the option.
    """
    if text is None:
        return None
    return [_number(option, part.strip()) for part in text.split(",")]


def number_or_text(text: str | None) -> float | int | str | None:
    """Return a whole number, a number, or the text itself."""
    if text is None:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def positive(text: str) -> float | None:
    """Return the finite number above 0 that a text is, None if it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def _number(option: str, text: str) -> float:
    value = positive(text)
    if value is None:
        raise ValueError(f"{option}: expected finite numbers above 0, comma-separated; found {text or 'nothing'}")
    if not SMALLEST <= value <= LARGEST:
        raise ValueError(f"{option}: expected numbers within {SMALLEST:g} and {LARGEST:g}; found {text}")
    return value
