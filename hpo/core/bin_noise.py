"""How noisy the bins of a curve are about their surroundings: measured so that bends, steps and spikes hardly count."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.signal import savgol_filter

FloatArray = NDArray[np.float64]

NOISE_FLOOR = 3e-4
"""Sd of a bin about its neighbours that no curve goes below, on the model's scale: 0.03 %."""
_ABOUT = {11: (9, 3), 0: (3, 1)}
"""From so many bins on: window and degree of the running polynomial that noise is measured about (a bend is no noise)."""
_WITHOUT_BEGINNING = 24
"""Bins from which the first, where curves bend most, do without; the last always do: a step there would hide itself."""
CLIP_SD = 2.5


def noise_per_point(d: FloatArray, counts: FloatArray) -> float:
    """Return the variance of one point of d about its surroundings; clipped, so that steps and spikes hardly raise it.

    Bins are compared with a running cubic through nine (fewer than eleven bins: with their two neighbours).

    Parameters
    ----------
    d, counts : ndarray, shape (n,), n ≥ 5
        Bin means and the points in each.
    """
    off, expected = noise_about(d, counts)
    relative = np.abs(off) / np.sqrt(expected)
    clip = CLIP_SD * float(np.median(relative)) / 0.6745
    return float(np.mean(np.minimum(relative, clip) ** 2))


def noise_dof(n: int) -> float:
    """Return to how many degrees of freedom :func:`noise_per_point` knows the variance of white noise (simulated)."""
    return max(0.62 * n - (4.0 if n >= _WITHOUT_BEGINNING else 2.6), 0.45 * n)


def noise_about(d: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return each bin but the last few less what those around it say, and the variance that has per variance of a point."""
    rough = _roughness(d.size)
    return rough @ d, rough**2 @ (1.0 / counts)


@cache
def _roughness(n: int) -> FloatArray:
    """Return I − S without the rows at the ends, S a running polynomial that at the beginning is the first full window's."""
    window, degree = next(about for fewest, about in _ABOUT.items() if n >= fewest)
    rough = np.eye(n) - savgol_filter(np.eye(n), window, degree, axis=0, mode="interp")
    first = window // 2 if n >= _WITHOUT_BEGINNING or degree == 1 else 0
    return np.asarray(rough[first : n - window // 2], dtype=np.float64)
