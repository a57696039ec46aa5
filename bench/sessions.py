"""Sessions of training runs that the bench starts by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


class WithoutCheckpoints:
    """The part of a session that keeps checkpoints, of runs that nothing interrupts."""

    def checkpoint(self, save: Callable[[Path], None]) -> bool:
        """Save nothing."""
        del save
        return False

    def restore(self) -> Path | None:
        """Return None: from the beginning."""
        return None
