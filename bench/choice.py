"""What a user may name: methods and rules, each from its table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def require_known(kind: str, names: Sequence[str], known: Iterable[str]) -> None:
    """Check that all ``names`` are ``known``.

    Raises
    ------
    ValueError
        One is not: one line that lists those which are.
    """
    known = tuple(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{kind} must be among {', '.join(known)}; found {unknown[0]!r}")
