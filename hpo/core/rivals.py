"""One run against the others of its sweep: the probability that it ends lowest.

A forecast by itself says how a run will end; stopping it is about how it ends *compared* with the best of the others. Part of
what is unknown of a run is unknown of its rivals too (the family's shape), and what finished runs say about settings (the
landscape) bears on differences: both cancel or count in the joint law, so that a difference is known better than either end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.stats import qmc

from hpo.core.curve import Curve
from hpo.core.posterior import Law
from hpo.core.references import Reference

FloatArray = NDArray[np.float64]
N_POINTS = 512
MOST_FINISHED = 8
"""Finished runs that a run is compared with, at most: the best ones. Leaving others out errs towards letting it go on."""
MOST_RUNNING = 4
"""Running trials that a run is compared with, at most: those with the best forecasts."""
_TAIL_POWER = 4
DOF_STEPS = 10
"""Degrees of freedom are rounded down to this part of one, so that points are made once."""


@dataclass(frozen=True)
class Finished:
    """A finished run of the sweep and its final value on the model's scale."""

    run: Curve | Reference
    level: float


def probability_lowest(law: Law, margin: float = 0.0) -> float | None:
    """Return the probability that the first run asked about ends lowest, or within ``margin`` of the lowest rival.

    None if it was not judged or has no judged rival. Deterministic.

    Notes
    -----
    E[P(first | rivals)] over :data:`N_POINTS` quasi-random points of the rivals' joint law and of its common scale, which are
    drawn more densely, and count less, where the scale is large: the last step is in closed form, so that probabilities far
    below 1/N_POINTS are right as well.
    """
    if 0 not in law.members or len(law.members) < 2:
        return None
    first = law.members.index(0)
    others = np.arange(len(law.members)) != first
    covariance = law.covariance[np.ix_(others, others)]
    cross = law.covariance[first, others]
    values, vectors = np.linalg.eigh(covariance)
    root = np.sqrt(np.maximum(values, 0.0))
    dof = min(law.dofs)
    few = max(math.floor(DOF_STEPS * dof) / DOF_STEPS, 1.0 / DOF_STEPS) if np.isfinite(dof) else dof  # heavier tails, if any
    normal, scale, weight = _points(int(others.sum()), few)
    departures = scale[:, None] * (normal * root) @ vectors.T
    inverse = np.divide(1.0, values, out=np.zeros_like(values), where=values > 1e-12 * max(values.max(), 1e-300))
    gain = (vectors * inverse) @ (vectors.T @ cross)
    left = np.sqrt(max(float(law.covariance[first, first] - gain @ cross), 1e-24))
    gap = (law.level[others] + departures).min(axis=1) + margin - law.level[first] - departures @ gain
    return float(np.mean(weight * special.ndtr(gap / (scale * left))))


def _points(n: int, dof: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return standard normal points, shape (N_POINTS, n), the common scales of a Student-t and their weights, of mean 1."""
    normal, _ = _unit_points(n)
    return normal, *_scales(n, dof)


@lru_cache(maxsize=256)
def _scales(n: int, dof: float) -> tuple[FloatArray, FloatArray]:
    """Return the common scales that go with the points in ``n`` dimensions, and their weights, shape (N_POINTS,) each."""
    if np.isinf(dof):
        return np.ones(N_POINTS), np.ones(N_POINTS)
    _, uniform = _unit_points(n)
    weight = _TAIL_POWER * uniform ** (_TAIL_POWER - 1)
    chi_square = 2.0 * special.gammaincinv(0.5 * dof, uniform**_TAIL_POWER)
    scale = np.sqrt(dof / np.maximum(chi_square, 1e-300))
    return np.asarray(scale, dtype=np.float64), np.asarray(weight / weight.mean(), dtype=np.float64)


@lru_cache(maxsize=64)
def _unit_points(n: int) -> tuple[FloatArray, FloatArray]:
    """Return quasi-random standard normal points, shape (N_POINTS, n), and uniform ones, shape (N_POINTS,)."""
    uniform = qmc.Sobol(n + 1, seed=0).random(N_POINTS)
    return np.asarray(special.ndtri(uniform[:, :n]), dtype=np.float64), np.asarray(uniform[:, n], dtype=np.float64)
