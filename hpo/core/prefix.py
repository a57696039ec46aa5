"""A run's prefix set against its family's shape: offsets, their weights on the grid, and their noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hpo.core.curve import Curve
from hpo.core.noise import bin_noise
from hpo.core.references import Family
from hpo.core.shape import Shape
from hpo.core.standing import Prefix, standing_of, tempered

FloatArray = NDArray[np.float64]


def prefixes_of(curves: Sequence[Curve], family: Family, shape: Shape) -> list[Prefix | None]:
    """Return the runs' prefixes against their family's shape, None for one without a bin where the shape begins.

    What a curve says by itself is remembered: a run that has not reported again is often asked about among others.
    """
    mean, loadings, own, borrowed = shape.predict_all([c.recipe for c in curves])
    out: list[Prefix | None] = []
    for k, curve in enumerate(curves):
        expected = Expected(mean[k], loadings[k], float(own[k]), borrowed[k])
        _, prefix = shape.prefixes.get(id(curve), lambda c=curve, e=expected: (c, _prefix(c, family, shape, e)))  # type: ignore[misc]
        is_shared = len(curves) > 1 and prefix is not None  # by what runs share a shape's doubt depends on who they are
        out.append(replace(prefix, loadings=expected.loadings, own=expected.own) if is_shared and prefix else prefix)
    return out


@dataclass(frozen=True)
class Expected:
    """What a shape expects of one run: a row of each part of :meth:`hpo.core.shape.Shape.predict_all`."""

    mean: FloatArray
    loadings: FloatArray
    own: float
    borrowed: FloatArray


def _prefix(curve: Curve, family: Family, shape: Shape, expected: Expected) -> Prefix | None:
    y = curve.metric.to_model(curve.means)
    use = (curve.fractions >= max(shape.nodes[0], family.begins(curve.recipe))) & np.isfinite(y)
    if not use.any():
        return None
    fractions = curve.fractions[use]
    at = shape.at(fractions)
    offset = y[use] - at.weights @ expected.mean - family.mean_curve(curve.recipe, fractions)
    of_family = (0.0, 0.0) if shape.noise is None else (shape.noise.point, shape.noise.weight)
    noise = bin_noise(curve, use, offset, *of_family)
    borrowed = expected.borrowed
    of_template = None if shape.noise is None or at.noise is None else float(borrowed**2 @ shape.noise.points) * at.noise
    point = float(noise[-1] * curve.counts[use][-1])
    prefix = Prefix(offset, at.weights, expected.loadings, expected.own, noise, of_template, point, borrowed, at.covariance)
    judged = tempered(prefix, shape.covariance, shape.settings.outlier_sd)
    return replace(judged, standing=standing_of(judged, shape.settings.scale_dof))
