"""A run's prefix set against its family's shape: offsets, their weights on the grid, and their noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hpo.core.curve import Curve
from hpo.core.noise import bin_noise
from hpo.core.posterior import Prefix, tempered
from hpo.core.references import Family
from hpo.core.shape import Shape

FloatArray = NDArray[np.float64]


def prefixes_of(curves: Sequence[Curve], family: Family, shape: Shape) -> list[Prefix | None]:
    """Return the runs' prefixes against their family's shape, None for one without a bin where the shape begins."""
    mean, loadings, own, borrowed = shape.predict_all([c.recipe for c in curves])
    return [_prefix(c, family, shape, mean[k], loadings[k], float(own[k]), borrowed[k]) for k, c in enumerate(curves)]


def _prefix(
    curve: Curve, family: Family, shape: Shape, mean: FloatArray, loadings: FloatArray, own: float, borrowed: FloatArray
) -> Prefix | None:
    y = curve.metric.to_model(curve.means)
    use = (curve.fractions >= max(shape.nodes[0], family.begins(curve.recipe))) & np.isfinite(y)
    if not use.any():
        return None
    fractions = curve.fractions[use]
    at = shape.at(fractions)
    offset = y[use] - at.weights @ mean - family.mean_curve(curve.recipe, fractions)
    of_family = (0.0, 0.0) if shape.noise is None else (shape.noise.point, shape.noise.weight)
    noise = bin_noise(curve, use, offset, *of_family)
    of_template = None if shape.noise is None or at.noise is None else float(borrowed**2 @ shape.noise.points) * at.noise
    point = float(noise[-1] * curve.counts[use][-1])
    prefix = Prefix(offset, at.weights, loadings, own, noise, of_template, point, borrowed, at.covariance)
    return tempered(prefix, shape.covariance, shape.settings.outlier_sd)
