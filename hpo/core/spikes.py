"""Spikes of a curve: single values far off the line between their neighbours.

One bad report must change nothing, in a reference as little as in a running trial (there each bin is held against what all the
others say, :func:`hpo.core.standing.tempered`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
TALL = 10.0
"""Times the median bend nearby: a spike is taller. (Of Gaussian noise one value in some thousands is.)"""
OPPOSITE = 0.2
"""Share of a spike's bend that its neighbours bend the other way at least; a step does so on one side only."""
LEAST = 0.005
"""Height of the smallest spike that is worth a word: half a percent of a loss."""
NEARBY = 6
MOST = 0.1
"""Share of a curve's values that may be spikes; a curve with more is a rough one."""


def without_spikes(values: FloatArray, where: FloatArray) -> FloatArray:
    """Return the values with each spike replaced by the line between its neighbours; the first and last stay.

    Parameters
    ----------
    values, where : ndarray, shape (n,)
        On the model's scale, and their places, ascending (−log t̂ or any scale on which the curve bends slowly).

    Notes
    -----
    A spike of height h bends the curve by h where it is and by about −h/2 on either side; the tallest goes first. Its bend is
    compared with the median bend of up to :data:`NEARBY` values on either side, without its neighbours.
    """
    if values.size < 2 * NEARBY or not np.all(np.isfinite(values)):
        return values
    cleaned = values.copy()
    for _ in range(int(MOST * values.size)):
        bends = _bends(cleaned, where)
        heights = np.abs(bends) / np.maximum(_usual(np.abs(bends)), LEAST / TALL)
        back = -np.sign(bends[1:-1]) * np.stack((bends[:-2], bends[2:]))
        heights[1:-1] = np.where(np.all(back >= OPPOSITE * np.abs(bends[1:-1]), axis=0), heights[1:-1], 0.0)
        heights[[0, -1]] = 0.0
        tallest = int(np.argmax(heights))
        if heights[tallest] <= TALL:
            return cleaned
        cleaned[tallest + 1] -= bends[tallest]
    return values


def _bends(values: FloatArray, where: FloatArray) -> FloatArray:
    """Return how far each value but the first and last is from the line between its neighbours, shape (n − 2,)."""
    share = (where[1:-1] - where[:-2]) / (where[2:] - where[:-2])
    return np.asarray(values[1:-1] - (1.0 - share) * values[:-2] - share * values[2:], dtype=np.float64)


def _usual(sizes: FloatArray) -> FloatArray:
    """Return the median size near each, its own and its neighbours' left out."""
    padded = np.pad(sizes, NEARBY, constant_values=np.nan)
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * NEARBY + 1).copy()
    around[:, NEARBY - 1 : NEARBY + 2] = np.nan
    return np.asarray(np.nanmedian(around, axis=1), dtype=np.float64)
