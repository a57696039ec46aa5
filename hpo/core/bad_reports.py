"""A complete curve without its bad reports: what a reference teaches, its final value among it.

A final value that was one of the reports is a measurement like any other: one bad report there must change nothing either. A
final value of its own (what an objective returned, a loss over a whole validation set) stays as it is.
"""

from __future__ import annotations

from dataclasses import replace
from math import nan

import numpy as np
from numpy.typing import NDArray

from hpo.core.curve import END_WINDOW_FRACTION, END_WINDOW_POINTS, Curve
from hpo.core.spikes import LEAST, NEARBY, WIDE, without_spikes

MEDIAN_OF_PAIRS = 0.455
"""Median of the variance of two Gaussian values, over its mean."""


def without_bad_reports(curve: Curve) -> Curve:
    """Return a complete curve with its spikes replaced by what is around them, and its final value if it was one of them.

    The same object if there are none. A value is replaced only where it is far beyond the run's own noise and worth a word
    (:mod:`hpo.core.spikes`).
    """
    lone = _with_sound_last_report(curve)
    levels = np.asarray(lone.metric.to_model(lone.means), dtype=np.float64)
    sound = without_spikes(levels, np.log(np.maximum(lone.fractions, 1e-9)))  # a point at step 0 stays the first
    changed = sound != levels
    if not changed.any():
        return lone
    mended = replace(lone, means=np.where(changed, lone.metric.to_raw(sound), lone.means))
    end = _sound_end(mended, changed) if _ends_in_report(lone) else None
    return mended if end is None else replace(mended, end_value=end)


def _sound_end(curve: Curve, changed: NDArray[np.bool_]) -> float | None:
    """Return the final value of a curve whose bins are sound now, None if it was so before, or nearly."""
    if curve.metric.end != "window":
        return float(curve.means[-1]) if changed[-1] and curve.counts[-1] == 1 else None
    window = _window(curve)
    end = float(np.average(curve.means[window], weights=curve.counts[window]))
    moved = abs(float(np.diff(curve.metric.to_model([end, curve.current_value]))[0]))
    return end if changed[window].any() and moved > LEAST else None


def _ends_in_report(curve: Curve) -> bool:
    return curve.end_value in (None, curve.current_value)


def _with_sound_last_report(curve: Curve) -> Curve:
    """Return the curve with its last report, if that is the final value, replaced where it is far from others of its bin."""
    n = float(curve.counts[-1]) if curve.counts.size else 0.0
    if n < 2 or curve.metric.end == "window" or not _ends_in_report(curve):
        return curve
    others = (n * curve.means[-1] - curve.current_value) / (n - 1.0)
    last, level = (float(curve.metric.to_model(x)) for x in (curve.current_value, others))
    if not abs(last - level) > max(WIDE * _report_sd(curve), LEAST):
        return curve
    return replace(curve, means=np.append(curve.means[:-1], others), end_value=others)


def _report_sd(curve: Curve) -> float:
    """Return the standard deviation of a report within its bin, from the last few bins but one; NaN where they hold one each.

    Not too small where they hold two: such variances have a median of half their mean.
    """
    counts, variances, means = (x[-NEARBY - 1 : -1] for x in (curve.counts, curve.variances, curve.means))
    several = counts >= 2
    if not several.any():
        return nan
    own = variances[several] * counts[several] / (counts[several] - 1.0) * curve.metric.slope(means[several]) ** 2
    return float(np.sqrt(np.median(own) / MEDIAN_OF_PAIRS))


def _window(curve: Curve) -> NDArray[np.bool_]:
    """Return which bins hold the window that the final value is the mean of."""
    after = np.append(np.cumsum(curve.counts[::-1])[::-1][1:], 0.0)
    reaches = curve.fractions > curve.fractions[-1] - END_WINDOW_FRACTION
    return np.asarray((after < END_WINDOW_POINTS) | reaches, dtype=bool)
