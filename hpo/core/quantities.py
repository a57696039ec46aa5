"""What a quantity that somebody states may be: bounds within which the arithmetic of plans and costs stays finite."""

from __future__ import annotations

import math
from numbers import Integral, Real

LARGEST, SMALLEST = 1e40, 1e-40
"""Quantities outside are mistakes: products and quotients of a handful of those inside still have a number."""
WHOLE = 2**53
"""Whole numbers from here on have no exact float."""


def is_real(value: object) -> bool:
    """True for a number, NumPy's too, that is no truth value."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """True for a whole number, NumPy's too, that is no truth value."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def require_positive(name: str, value: object) -> None:
    """Raise ``ValueError`` unless ``value`` is a finite number above 0, from :data:`SMALLEST` to :data:`LARGEST`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be finite and above 0; found {value!r}")
    if not SMALLEST <= value <= LARGEST:
        raise ValueError(f"{name} must lie within {SMALLEST:g} and {LARGEST:g}; found {_short(value)}")


def _short(value: float) -> str:
    """Return a number as text, a whole one of hundreds of digits too."""
    try:
        return f"{value:g}"
    except OverflowError:
        return "a whole number beyond 1e308"
