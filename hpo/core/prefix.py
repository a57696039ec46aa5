"""A run's prefix set against its family's shape: offsets, their weights on the grid, and their noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hpo.core.curve import Curve
from hpo.core.posterior import Prefix, tempered_noise
from hpo.core.references import Family
from hpo.core.shape import Shape, coordinates_of

FloatArray = NDArray[np.float64]


def prefixes_of(curves: Sequence[Curve], family: Family, shape: Shape) -> list[Prefix | None]:
    """Return the runs' prefixes against their family's shape, None for one without a bin where the shape begins."""
    if len(curves) == 1:
        mean, loadings, own = shape.predict_one(curves[0].recipe)
    else:
        mean, loadings, own = shape.predict([coordinates_of(c.recipe) for c in curves])
    return [_prefix(c, family, shape, mean[k], loadings[k], float(own[k])) for k, c in enumerate(curves)]


def _prefix(curve: Curve, family: Family, shape: Shape, mean: FloatArray, loadings: FloatArray, own: float) -> Prefix | None:
    y = curve.metric.to_model(curve.means)
    use = (curve.fractions >= shape.nodes[0]) & np.isfinite(y)
    if not use.any():
        return None
    fractions = curve.fractions[use]
    weights = shape.interpolation(fractions)
    offset = y[use] - weights @ mean - family.mean_curve(curve.recipe, fractions)
    prefix = Prefix(offset, weights, loadings, own, bin_noise(curve, use, offset))
    return replace(prefix, noise=tempered_noise(prefix, shape.covariance, shape.settings.outlier_sd))


def bin_noise(curve: Curve, use: NDArray[np.bool_], offset: FloatArray) -> FloatArray:
    """Return the variance of each used bin's mean on the model's scale, shape (n_used,).

    One variance a point for the whole prefix: pooled within bins where bins hold several points, else from second
    differences of ``offset`` (robust: a spike does not raise it).
    """
    counts = curve.counts[use]
    slope = curve.metric.slope(curve.means[use])
    several = counts >= 3
    if several.sum() >= 2:
        per_point = float(np.median((curve.variances[use] * counts / (counts - 1 + ~several) * slope**2)[several]))
    elif offset.size >= 5:
        per_point = float((np.median(np.abs(np.diff(offset, 2))) / 0.6745) ** 2 / 6.0)
    else:
        per_point = 0.0
    return np.asarray(max(per_point, 1e-12) / counts, dtype=np.float64)
