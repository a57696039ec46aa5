"""A run's prefix set against its family's shape: offsets, their weights on the grid, and their noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hpo.core.curve import Curve
from hpo.core.posterior import Prefix, tempered_noise
from hpo.core.shape import Shape, controls_of
from hpo.core.surrogate import surrogate_mean

FloatArray = NDArray[np.float64]


def prefix_of(curve: Curve, shape: Shape) -> Prefix | None:
    """Return a run's prefix against a shape: bins at or after the shape's first node; None if there is none."""
    y = curve.metric.to_model(curve.means)
    use = (curve.fractions >= shape.nodes[0]) & np.isfinite(y)
    if not use.any():
        return None
    fractions = curve.fractions[use]
    weights = shape.interpolation(fractions)
    features = shape.features(controls_of(curve))
    offset = y[use] - weights @ (features @ shape.coefficients)
    if shape.surrogate is not None:
        offset = offset - surrogate_mean(shape.surrogate, curve.recipe, fractions)
    loading = np.linalg.cholesky(shape.uncertainty).T @ features
    prefix = Prefix(offset, weights, loading, bin_noise(curve, use, offset))
    return replace(prefix, noise=tempered_noise(prefix, shape.covariance, shape.outlier_sd))


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
