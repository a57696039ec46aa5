"""How a sweep ends without a winner: by what its trials did, or by trouble outside, after which it can go on."""

from __future__ import annotations

from collections.abc import Iterator


class SweepError(Exception):
    """The sweep ran and has no winner; its text is the line to show."""


class OutsideError(SweepError):
    """Ray, the storage or the machine failed, not a trial: what was trained is saved, and a resume goes on from there."""


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, then what it was raised from or in handling of, to the first of all."""
    known: BaseException | None = error
    while known is not None:
        yield known
        known = known.__cause__ or (None if known.__suppress_context__ else known.__context__)


def is_own(error: BaseException) -> bool:
    """True if the error was raised in this package's own code: a fault to be shown whole, not trouble outside."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and str(frame.tb_frame.f_globals.get("__name__", "")).split(".")[0] == __name__.split(".")[0]


def in_a_line(error: BaseException) -> str:
    """Return what an error says in one line that can be printed anywhere: its kind and the first line of its text."""
    lines = [line.strip() for line in text_of(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def text_of(error: BaseException) -> str:
    """Return an error's printable text; "" where it fails to say."""
    try:
        return printable(str(error))
    except Exception:  # noqa: BLE001 - errors are others' code too
        return ""


def printable(text: str) -> str:
    """Return a text with what has no UTF-8 replaced."""
    return text.encode("utf-8", errors="replace").decode("utf-8")
