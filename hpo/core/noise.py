"""The noise of a run's reports: of one report, of each bin of its curve, and of its final value.

A reference is not its true curve. Its bins scatter about it, and the final value that it is measured against does too; what
neighbouring bins do not share is told here, so that the misfit between runs can be estimated without it
(:mod:`hpo.core.misfit`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpo.core.curve import Curve

FloatArray = NDArray[np.float64]
FEWEST_BINS = 10
"""So few bins say nothing of noise."""
NEGLIGIBLE = 5e-4
BEND_OF_UNIT_NOISE = 3.016  # median |third difference| of unit Gaussian noise: 0.6745 · √20
LOG_VARIANCE = 5.4
"""Variance of the log of a variance that is told by the median of one bin's differences; that of n bins has 1/n of it."""
MOST_WEIGHT = 6.0
"""What the runs of a family scatter by counts for at most so many bins of a prefix's own."""


def bin_noise(
    curve: Curve, use: NDArray[np.bool_], offset: FloatArray, expected: float = 0.0, weight: float = 0.0
) -> FloatArray:
    """Return the variance of each used bin's mean on the model's scale, shape (n_used,).

    One variance a point for the whole prefix: pooled within bins where bins hold several points, else from second
    differences of ``offset`` (robust: a spike does not raise it).

    Parameters
    ----------
    expected, weight : float
        Variance of a point in runs of the same family, and how many bins of the prefix's own it counts for where it is larger.
    """
    counts = curve.counts[use]
    slope = curve.metric.slope(curve.means[use])
    several = counts >= 3
    if several.sum() >= 2:
        per_point = _median((curve.variances[use] * counts / (counts - 1 + ~several) * slope**2)[several])
        n_told = float(several.sum())
    elif offset.size >= 5:
        per_point = (_median(np.abs(offset[2:] - 2.0 * offset[1:-1] + offset[:-2])) / 0.6745) ** 2 / 6.0
        n_told = 0.5 * (offset.size - 2)  # neighbouring differences share two bins of three, and a median knows half as much
    else:
        per_point = n_told = 0.0
    if weight > 0:
        logs = n_told * math.log(max(per_point, 1e-12)) + weight * math.log(max(expected, 1e-12))
        per_point = max(per_point, math.exp(logs / (n_told + weight)))
    return np.asarray(max(per_point, 1e-12) / counts, dtype=np.float64)


def _median(values: FloatArray) -> float:
    """Return the median, without what :func:`numpy.median` takes to start: this is asked of every running trial's bins."""
    ordered, half = np.sort(values), values.size // 2
    return float(ordered[half]) if values.size % 2 else 0.5 * float(ordered[half - 1] + ordered[half])


def point_noise(curve: Curve) -> float:
    """Return the variance of one report of a complete curve on the model's scale, 0 where too little or nothing is seen.

    From the scatter within bins or, where they hold few reports, from third differences (robust, and blind to any smooth
    bend) of the last half.
    """
    late = curve.fractions >= 0.5
    counts, levels = curve.counts[late], curve.metric.to_model(curve.means[late])
    if late.sum() < FEWEST_BINS or not np.all(np.isfinite(levels)):
        return 0.0
    if np.median(counts) >= 3:
        found = float(np.median(bin_noise(curve, late, levels) * counts))
    else:
        found = float((np.median(np.abs(np.diff(levels, 3))) / BEND_OF_UNIT_NOISE) ** 2 * np.median(counts))
    return found if found > NEGLIGIBLE**2 else 0.0


def measurement_noise(curve: Curve) -> float:
    """Return the variance of a complete curve's final value, on the model's scale, if that value is one of its reports.

    For a window metric, of the mean over the window; else of one report (:func:`point_noise`).
    """
    if curve.final_loss is None:
        return 0.0
    if curve.metric.end == "window":
        return float(curve.current_variance * curve.metric.slope(curve.final_loss) ** 2)
    return point_noise(curve)


@dataclass(frozen=True)
class CurveNoise:
    """The noise of a complete curve.

    Attributes
    ----------
    point, end : float
        Variance of one report and of the final value, on the model's scale; 0 where it is none, or not known.
    fractions, variances : ndarray, shape (n_filled,)
        t̂ of the curve's bins, and the variance of the mean of each.
    """

    point: float = 0.0
    end: float = 0.0
    fractions: FloatArray = field(default_factory=lambda: np.zeros(0), repr=False)
    variances: FloatArray = field(default_factory=lambda: np.zeros(0), repr=False)

    @classmethod
    def of(cls, curve: Curve, is_end_reported: bool = True) -> CurveNoise:
        """Return the noise of a complete curve.

        Parameters
        ----------
        is_end_reported : bool
            False: the final value is another measurement than the reports, whose noise they do not tell.
        """
        point = point_noise(curve)
        named = curve.metric.end not in ("window", "last") and curve.end_value not in (None, curve.current_value)
        end = min(measurement_noise(curve), point) if is_end_reported and not named else 0.0
        return cls(point, end, curve.fractions, point / curve.counts)

    def at(self, nodes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the covariance of the curve's interpolated values at ``nodes``, and with the final value's noise.

        Returns
        -------
        bins : ndarray, shape (n_nodes, n_nodes)
        linked : ndarray, shape (n_nodes,)
            Covariance of each with the final value, which the last bin holds.
        """
        if self.point == 0.0:
            return np.zeros((nodes.size, nodes.size)), np.zeros(nodes.size)
        weights = _interpolation(nodes, self.fractions)
        last = min(float(self.variances[-1]), self.end)
        return (weights * self.variances) @ weights.T, weights[:, -1] * last

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {
            "point": self.point,
            "end": self.end,
            "fractions": self.fractions.tolist(),
            "variances": self.variances.tolist(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CurveNoise:
        """Return the noise of :meth:`to_dict`; ``ValueError`` if it does not fit."""
        rows = [np.array([float(x) for x in data[key]], dtype=np.float64) for key in ("fractions", "variances")]
        made = cls(float(data["point"]), float(data["end"]), *rows)
        told = np.concatenate([*rows, [made.point, made.end]])
        if rows[0].shape != rows[1].shape or not np.all((told >= 0) & np.isfinite(told)):
            raise ValueError("the noise of a reference must be two rows of one length, and not negative")
        return made


def _interpolation(nodes: FloatArray, fractions: FloatArray) -> FloatArray:
    """Return W, shape (n_nodes, n_bins): ``np.interp`` in log t̂ from bins to nodes is W @ (values of the bins)."""
    grid, where = np.log(np.maximum(fractions, 1e-9)), np.log(nodes)
    right = np.clip(np.searchsorted(grid, where), 1, max(grid.size - 1, 1))
    weights = np.zeros((nodes.size, grid.size))
    rows = np.arange(nodes.size)
    if grid.size == 1:
        weights[:, 0] = 1.0
        return weights
    share = np.clip((where - grid[right - 1]) / (grid[right] - grid[right - 1]), 0.0, 1.0)
    weights[rows, right - 1] = 1.0 - share
    weights[rows, right] += share
    return weights


@dataclass(frozen=True)
class FamilyNoise:
    """The noise of a family's references: one structure, and how much of it each has.

    Attributes
    ----------
    bins : ndarray, shape (n_nodes, n_nodes)
        Covariance of a reference's values at the nodes about its true curve, in units of its variance of a report.
    rows : ndarray, shape (n_nodes, n_nodes)
        The same of y(t̂) − y(1): with the noise of the final value.
    end : float
        Variance of the final value, in the same units.
    points : ndarray, shape (n_references,)
        Variance of a report of each reference, at most that of a typical one: what scatters more may be misfit.
    weight : float
        How many bins of a prefix's own the typical variance is worth: few where references differ in their noise.
    """

    bins: FloatArray
    rows: FloatArray
    end: float
    points: FloatArray
    weight: float

    @property
    def point(self) -> float:
        """Variance of a report of a typical reference."""
        return float(np.max(self.points))

    @classmethod
    def of(cls, noises: Sequence[CurveNoise], nodes: FloatArray) -> FamilyNoise | None:
        """Return the noise at ``nodes``, None where there is none or it is not known."""
        noisy = [noise for noise in noises if noise.point > 0]
        if not noisy:
            return None
        units = [[part / noise.point for part in noise.at(nodes)] for noise in noisy]
        bins, linked = (np.asarray(np.mean([unit[k] for unit in units], axis=0), dtype=np.float64) for k in (0, 1))
        end = float(np.mean([noise.end / noise.point for noise in noisy]))
        rows = bins - linked[:, None] - linked[None, :] + end
        points = np.array([noise.point for noise in noises])
        return cls(bins, rows, end, np.minimum(points, np.median(points)), _weight(points))


def _weight(points: FloatArray) -> float:
    if points.size < 2:
        return 1.0
    apart = float(np.var(np.log(np.maximum(points, NEGLIGIBLE**2)), ddof=1))
    return min(MOST_WEIGHT, LOG_VARIANCE / max(apart, 1e-12))
