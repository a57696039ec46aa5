"""One BLAS thread while the core computes inside somebody else's process.

The core's matrices are small, and what decides sits beside training that keeps every processor busy. There OpenBLAS, which
comes with the wheels of NumPy and SciPy, is some thirty times slower with several threads than with one: they spin while they
wait for a processor. Their number is of the whole process, so it is lowered when the first computation begins and put back when
the last one ends. Another BLAS is left as it is.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

import numpy.linalg  # noqa: F401
import scipy.linalg  # noqa: F401 - each brings an OpenBLAS of its own, to be found when first looked for

P = ParamSpec("P")
R = TypeVar("R")
_AFFIXES = [(prefix, suffix) for prefix in ("scipy_", "") for suffix in ("64_", "")]
"""Of the names of OpenBLAS's functions, as builds differ."""


@dataclass(frozen=True)
class OpenBlas:
    """A loaded OpenBLAS: its functions that tell and set the number of threads."""

    get: Callable[[], int]
    set: Callable[[int], object]


def loaded_openblas() -> list[OpenBlas]:
    """Return every OpenBLAS that this process has loaded; none where the system does not say what is loaded."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    paths = sorted({line.split(maxsplit=5)[-1] for line in lines if "openblas" in line and ".so" in line})
    found = (_functions(path) for path in paths)
    return [one for one in found if one is not None]


def _functions(path: str) -> OpenBlas | None:
    try:
        library = ctypes.CDLL(path)
    except OSError:
        return None
    for prefix, suffix in _AFFIXES:
        tell: Any = getattr(library, f"{prefix}openblas_get_num_threads{suffix}", None)
        change: Any = getattr(library, f"{prefix}openblas_set_num_threads{suffix}", None)
        if tell is not None and change is not None:
            return OpenBlas(tell, change)
    return None


class OneBlasThread:
    """Context in which OpenBLAS computes in one thread; may be entered from several threads, and within itself.

    A library that is loaded after the first use is not seen. Costs a few microseconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._libraries: list[OpenBlas] | None = None
        self._before: list[int] = []
        self._n_inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._n_inside == 0:
                self._libraries = loaded_openblas() if self._libraries is None else self._libraries
                self._before = [library.get() for library in self._libraries]
                for library in self._libraries:
                    library.set(1)
            self._n_inside += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                for library, n_threads in zip(self._libraries or (), self._before, strict=True):
                    library.set(n_threads)


one_blas_thread = OneBlasThread()


def in_one_blas_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function, run within :data:`one_blas_thread`."""

    @wraps(function)
    def within(*arguments: P.args, **named: P.kwargs) -> R:
        with one_blas_thread:
            return function(*arguments, **named)

    return within
