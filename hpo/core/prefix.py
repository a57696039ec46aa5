"""A run's prefix set against its family's shape: offsets, their weights on the grid, and their noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpo.core.curve import Curve
from hpo.core.noise import bin_noise
from hpo.core.references import Family
from hpo.core.shape import Shape
from hpo.core.standing import Prefix, Standing, standing_of, tempered

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Expected:
    """What a shape expects of one run: a row of each part of :meth:`hpo.core.shape.Shape.predict_all`."""

    mean: FloatArray
    loadings: FloatArray
    own: float
    borrowed: FloatArray


@dataclass(frozen=True)
class Told:
    """What a curve says by itself, without what follows from its bins alone: this is kept of many runs.

    Attributes
    ----------
    fractions, offset, noise : ndarray, shape (n,)
        t̂ of its bins, and as of :class:`hpo.core.standing.Prefix`.
    template_scale, point : float
    standing : Standing
    """

    fractions: FloatArray
    offset: FloatArray
    noise: FloatArray
    template_scale: float
    point: float
    standing: Standing


def prefixes_of(curves: Sequence[Curve], family: Family, shape: Shape) -> list[Prefix | None]:
    """Return the runs' prefixes against their family's shape, None for one without a bin where the shape begins.

    What a curve says by itself is remembered: a run that has not reported again is often asked about among others.
    """
    mean, loadings, own, borrowed = shape.predict_all([c.recipe for c in curves])
    rows = [Expected(mean[k], loadings[k], float(own[k]), borrowed[k]) for k in range(len(curves))]
    return [_prefix(curve, family, shape, expected) for curve, expected in zip(curves, rows, strict=True)]


def _prefix(curve: Curve, family: Family, shape: Shape, expected: Expected) -> Prefix | None:
    _, told = shape.told.get(id(curve), lambda: (curve, _told(curve, family, shape, expected)))
    if told is None:
        return None
    at = shape.at(told.fractions)
    return Prefix(
        told.offset,
        at.weights,
        expected.loadings,
        expected.own,
        told.noise,
        at.noise,
        told.point,
        expected.borrowed,
        at.covariance,
        template_scale=told.template_scale,
        standing=told.standing,
    )


def _told(curve: Curve, family: Family, shape: Shape, expected: Expected) -> Told | None:
    y = curve.metric.to_model(curve.means)
    use = (curve.fractions >= max(shape.nodes[0], family.begins(curve.recipe))) & np.isfinite(y)
    if not use.any():
        return None
    fractions = curve.fractions[use]
    at = shape.at(fractions)
    offset = y[use] - at.weights @ expected.mean - family.mean_curve(curve.recipe, fractions)
    of_family = (0.0, 0.0) if shape.noise is None else (shape.noise.point, shape.noise.weight)
    noise = bin_noise(curve, use, offset, *of_family)
    scale = 0.0 if shape.noise is None else float(expected.borrowed**2 @ shape.noise.points)
    prefix = Prefix(
        offset, at.weights, expected.loadings, expected.own, noise, at.noise, at_bins=at.covariance, template_scale=scale
    )
    judged = tempered(prefix, shape.covariance, shape.settings.outlier_sd)
    point = float(noise[-1] * curve.counts[use][-1])
    return Told(fractions, offset, judged.noise, scale, point, standing_of(judged, shape.settings.scale_dof))
