"""The error of asking a law beyond what it was measured on."""

from __future__ import annotations


class OutsideRangeError(ValueError):
    """A quantity outside the range that was measured; the caller may ask for it all the same."""
