"""Numbers of a sweep in words and short forms, the same in the terminal and in the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def about_left(seconds: float) -> str:
    """Return a span of time: ``0:42``, ``12:05``, ``3 h 10 min``, ``2.5 days``."""
    if seconds < 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes}:{rest:02d}"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{seconds / 86400:.1f} days"


def span_text(seconds: float) -> str:
    """Return a span of time with its units: ``42 s``, ``5 min 10 s``, ``3 h 10 min``, ``2.5 days``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if minutes < 10 else f"{minutes} min"
    return about_left(seconds)


def count_text(n: int) -> str:
    """Return a small number in letters."""
    return _NUMBERS[n] if 0 <= n < len(_NUMBERS) else str(n)


def number_text(value: Any) -> str:
    """Return a setting's value, numbers with four digits; "" for None."""
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def settings_text(settings: Mapping[str, Any], names: Sequence[str] | None = None) -> str:
    """Return settings in one line, those of ``names`` or all: ``lr 0.006, tau 1.8``."""
    kept = list(settings) if names is None else names
    return ", ".join(f"{name} {number_text(settings[name])}" for name in kept if name in settings)


def share_text(share: float) -> str:
    """Return a share in per cent, with one digit more where it is small: ``54 %``, ``1.6 %``."""
    return f"{100 * share:.0f} %" if abs(share) >= 0.0995 or share == 0 else f"{100 * share:.2g} %"
