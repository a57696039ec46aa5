"""Ends a process whose training makes no step any more, and leaves where it hung.

The watch is CPython's own (:func:`faulthandler.dump_traceback_later`): a thread in C, so that it works where a lock, a dead
network mount or a device call holds up the interpreter itself. Only steps count as life, whatever else the process does.
"""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

STACK_NAME = "hang.txt"
_REARM_EVERY_S = 0.5


@contextmanager
def hang_watch(folder: Path, timeout_s: float | None) -> Iterator[Callable[[], None]]:
    """Yield the function to call at every step; between two calls ``timeout_s`` apart the process ends.

    Its threads' stacks are then in ``hang.txt`` in ``folder``. Without a timeout nothing is watched.
    One at a time in a process.
    """
    if timeout_s is None:
        yield lambda: None
        return
    armed_at = time.monotonic()
    with (folder / STACK_NAME).open("w", encoding="utf-8") as stacks:

        def arm() -> None:
            faulthandler.dump_traceback_later(timeout_s, exit=True, file=stacks)

        def step() -> None:
            nonlocal armed_at
            if time.monotonic() - armed_at >= min(_REARM_EVERY_S, timeout_s / 4):
                armed_at = time.monotonic()
                arm()

        arm()
        try:
            yield step
        finally:
            faulthandler.cancel_dump_traceback_later()
    (folder / STACK_NAME).unlink(missing_ok=True)


def has_hung(folder: Path) -> bool:
    """Return True if the last process that trained in ``folder`` was ended by its watch."""
    stacks = folder / STACK_NAME
    return stacks.exists() and stacks.stat().st_size > 0
