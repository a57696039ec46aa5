"""Spikes of a curve: one value, or two, far off the line between their neighbours.

One bad report must change nothing, in a reference as little as in a running trial (there each bin is held against what all the
others say, :func:`hpo.core.standing.tempered`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
TALL = 10.0
"""Times the median bend nearby: a spike of one value is taller, one of two twice that. (Of Gaussian noise 1 of 1,000 is.)"""
OPPOSITE = 0.2
"""Share of a spike's bend that its neighbours bend the other way at least; a step does so on one side only."""
LEAST = 0.005
"""Height of the smallest spike that is worth a word: half a percent of a loss."""
NEARBY = 6
MOST = 0.1
"""Share of a curve's values that may be spikes; a curve with more is a rough one."""
WIDE = 8.0
"""Robust standard deviations of what lines miss that the end must be off; of 7,256 recorded curves none is."""
UNHEARD = 2.0
"""Times the furthest that the line was off before, by which the end must be."""
LINE = 6
"""Values before the one that a line through them foretells."""
MISSES = 24
BEGUN = 0.25
"""Share of what is far by which the last value but one may be off at most, for the last to be a bad report and no change."""


def without_spikes(values: FloatArray, where: FloatArray) -> FloatArray:
    """Return the values with each spike replaced by the line between its neighbours; the first stays.

    Parameters
    ----------
    values, where : ndarray, shape (n,)
        On the model's scale, and their places, ascending (−log t̂ or any scale on which the curve bends slowly).

    Notes
    -----
    A spike, of one value or of two, lies off the line between its neighbours by its height h, and bends the curve by about −h/2
    at each of them; the tallest goes first. Its height is compared with the median bend of up to :data:`NEARBY` values on
    either side. The last two values have too few neighbours: they are held against the line through those before them.
    """
    if values.size < 2 * NEARBY or not np.all(np.isfinite(values)):
        return values
    return _with_sound_end(_without_inner_spikes(values, where), where)


def _without_inner_spikes(values: FloatArray, where: FloatArray) -> FloatArray:
    cleaned = values.copy()
    for _ in range(int(MOST * values.size)):
        bends = _bends(cleaned, where)
        usual = np.maximum(_usual(np.abs(bends)), LEAST / TALL)
        spike = _tallest(cleaned, where, bends, usual, 1) or _tallest(cleaned, where, bends, usual, 2)
        if spike is None:
            return cleaned
        outside = [spike.start - 1, spike.stop]
        cleaned[spike] = np.interp(where[spike], where[outside], cleaned[outside])
    return values


def _tallest(values: FloatArray, where: FloatArray, bends: FloatArray, usual: FloatArray, width: int) -> slice | None:
    """Return the tallest spike of so many values, None if there is none."""
    left = np.arange(1, values.size - width - 2)  # the last value before a spike; it has a bend itself, as the first after it
    right, within = left + width + 1, left + np.arange(1, width + 1)[:, None]
    share = (where[within] - where[left]) / (where[right] - where[left])
    off = values[within] - (1.0 - share) * values[left] - share * values[right]
    height = np.abs(off).min(axis=0)
    back = (-np.sign(off[0]) * bends[[left - 1, right - 1]]).min(axis=0)
    is_spike = np.all(off * off[0] > 0, axis=0) & (back >= OPPOSITE * height)
    times = np.where(is_spike, height / usual[within - 1].max(axis=0), 0.0)
    k = int(np.argmax(times))
    return slice(int(left[k]) + 1, int(right[k])) if times[k] > width * TALL else None


def _with_sound_end(values: FloatArray, where: FloatArray) -> FloatArray:
    """Return the values with the last, or the last but one, replaced by what the line before it says if it alone is far off.

    Where both are off, or the last goes on where the one before it began to go, that is a change, and stays.
    """
    far, end = _far(values[:-2], where[:-2]), values.copy()
    missed = values[-2:] - _line(values[None, -LINE - 2 : -2], where[None, -LINE - 2 : -2], where[-2:])
    early, late = (abs(float(x)) / far for x in missed)
    if early > 1.0 >= late:
        end[-2] = np.interp(where[-2], where[[-3, -1]], values[[-3, -1]])
    elif late > 1.0 and early <= BEGUN:
        foretold = float(_line(values[None, -LINE - 1 : -1], where[None, -LINE - 1 : -1], where[-1:])[0])
        end[-1] = foretold if abs(values[-1] - foretold) > far else end[-1]
    return end


def _far(values: FloatArray, where: FloatArray) -> float:
    """Return how far off the line before it a value must be to be no part of the curve."""
    lines, places = (np.lib.stride_tricks.sliding_window_view(x, LINE)[:-1][-MISSES:] for x in (values, where))
    after = slice(values.size - len(lines), None)
    missed = np.abs(values[after] - _line(lines, places, where[after]))
    return float(max(WIDE * np.median(missed) / 0.6745, UNHEARD * missed.max(), LEAST))


def _line(values: FloatArray, where: FloatArray, at: FloatArray) -> FloatArray:
    """Return at each of ``at``, shape (n,), the line of median slope through a row of values, shape (n or 1, LINE).

    One outlier among them does not move it.
    """
    i, k = np.triu_indices(LINE, 1)
    slope = np.median((values[:, k] - values[:, i]) / (where[:, k] - where[:, i]), axis=1)
    return np.asarray(np.median(values + slope[:, None] * (at[:, None] - where), axis=1), dtype=np.float64)


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
