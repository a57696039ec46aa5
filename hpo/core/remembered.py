"""Answers kept for those who ask again, up to a number of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")
MOST = 1024


class Remembered(Generic[Key, Answer]):
    """Answers by key; one more than ``most`` and the oldest is forgotten. Unlike a cached method it can be pickled."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._known: dict[Key, Answer] = {}

    def get(self, key: Key, make: Callable[[], Answer]) -> Answer:
        """Return the answer for ``key``, made now if it is not known."""
        if key not in self._known:
            if len(self._known) >= self._most:
                del self._known[next(iter(self._known))]
            self._known[key] = make()
        return self._known[key]
