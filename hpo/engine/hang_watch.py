"""Ends a process whose training makes no step any more, and leaves where it hung.

The watch is CPython's own (:func:`faulthandler.dump_traceback_later`): a thread in C, so that it works where a lock, a dead
network mount or a device call holds up the interpreter itself. Only steps count as life, whatever else the process does. While
it waits for the driver's answer to a report it is not watched: a slow driver is no fault of the training.
"""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

STACK_NAME = "hang.txt"
_REARM_EVERY_S = 0.5


class HangWatch:
    """Watches the process it is in, once armed: between two calls of :meth:`step` ``timeout_s`` apart it ends.

    Parameters
    ----------
    stacks : file
        Where the threads' stacks then are.
    timeout_s : float or None
        None: nothing is watched.
    """

    def __init__(self, stacks: IO[str] | None, timeout_s: float | None) -> None:
        self._stacks, self._timeout_s, self._armed_at = stacks, timeout_s, 0.0

    def arm(self) -> None:
        """Begin to watch, or begin anew."""
        if self._timeout_s is not None and self._stacks is not None:
            self._armed_at = time.monotonic()
            faulthandler.dump_traceback_later(self._timeout_s, exit=True, file=self._stacks)

    def step(self) -> None:
        """Take a sign of life."""
        if self._timeout_s is not None and time.monotonic() - self._armed_at >= min(_REARM_EVERY_S, self._timeout_s / 4):
            self.arm()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Watch nothing within the block: the process waits for somebody else."""
        if self._timeout_s is not None:
            faulthandler.cancel_dump_traceback_later()
        try:
            yield
        finally:
            self.arm()


@contextmanager
def hang_watch(folder: Path, timeout_s: float | None) -> Iterator[HangWatch]:
    """Yield the watch over this process, armed; the stacks of one that hung are in ``hang.txt`` in ``folder``.

    One at a time in a process.
    """
    if timeout_s is None:
        yield HangWatch(None, None)
        return
    with (folder / STACK_NAME).open("w", encoding="utf-8") as stacks:
        watch = HangWatch(stacks, timeout_s)
        watch.arm()
        try:
            yield watch
        finally:
            faulthandler.cancel_dump_traceback_later()
    (folder / STACK_NAME).unlink(missing_ok=True)


def has_hung(folder: Path) -> bool:
    """Return True if the last process that trained in ``folder`` was ended by its watch."""
    stacks = folder / STACK_NAME
    return stacks.exists() and stacks.stat().st_size > 0
