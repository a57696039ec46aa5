"""The contract between a training function and whatever runs it.

A training function is ``train(settings, session)``. It reports every step, offers a checkpoint as often as it likes
(the session saves when one is due) and leaves when asked to::

    def train(settings, session):
        start = session.restore()                      # a folder, or None at the beginning
        for step in ...:
            ...
            session.report(step=step, loss=loss, tokens=tokens)
            session.checkpoint(save)                   # save(folder) writes the files; called only when due
            if session.should_stop():
                return
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class StopTraining(Exception):  # noqa: N818 - a signal, not an error
    """Raised by ``report`` when a training function goes on although it was asked to stop."""


class Session(Protocol):
    """What a training function may ask of its surroundings."""

    def report(self, *, step: int, loss: float, tokens: float | None = None, **extra: float) -> None:
        """Log one step (1-based: after the step-th update). The first value of a step counts; NaN and inf are allowed."""

    def checkpoint(self, save: Callable[[Path], None]) -> bool:
        """Save through ``save(folder)`` if a checkpoint is due, atomically; return True if it did."""

    def restore(self) -> Path | None:
        """Return the folder of the latest complete checkpoint, or None."""

    def should_stop(self) -> bool:
        """Return True once the run should end here."""
