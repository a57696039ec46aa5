"""Ctrl-C and SIGTERM: ask the trials to save and leave, at once the second time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType


@contextmanager
def pause_on_signal(flag: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Within the block, the first SIGINT or SIGTERM creates the file ``flag``, a second one raises KeyboardInterrupt.

    Does nothing outside the main thread, where Python delivers no signals.
    """
    flag.unlink(missing_ok=True)

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if flag.exists():
            raise KeyboardInterrupt
        flag.touch()
        say("interrupted: every trial saves a checkpoint after its current step (again to leave at once)")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        flag.unlink(missing_ok=True)
