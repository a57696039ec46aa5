"""A run's prefix set against its family's shape: offsets, their weights on the grid, and their noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hpo.core.curve import Curve
from hpo.core.noise import bin_noise
from hpo.core.posterior import Prefix, tempered_noise
from hpo.core.references import Family
from hpo.core.shape import Shape

FloatArray = NDArray[np.float64]


def prefixes_of(curves: Sequence[Curve], family: Family, shape: Shape) -> list[Prefix | None]:
    """Return the runs' prefixes against their family's shape, None for one without a bin where the shape begins."""
    mean, loadings, own, borrowed = shape.predict_all([c.recipe for c in curves])
    of_references = np.zeros(len(curves)) if shape.noise is None else borrowed**2 @ shape.noise.points
    return [
        _prefix(c, family, shape, mean[k], loadings[k], float(own[k]), float(of_references[k])) for k, c in enumerate(curves)
    ]


def _prefix(
    curve: Curve, family: Family, shape: Shape, mean: FloatArray, loadings: FloatArray, own: float, of_references: float
) -> Prefix | None:
    """Return one run's prefix; ``of_references`` is how much of their noise its expected shape has."""
    y = curve.metric.to_model(curve.means)
    use = (curve.fractions >= shape.nodes[0]) & np.isfinite(y)
    if not use.any():
        return None
    fractions = curve.fractions[use]
    weights = shape.interpolation(fractions)
    offset = y[use] - weights @ mean - family.mean_curve(curve.recipe, fractions)
    noise = shape.noise
    of_template = None if noise is None else of_references * weights @ noise.bins @ weights.T
    of_bins = bin_noise(curve, use, offset, *((0.0, 0.0) if noise is None else (noise.point, noise.weight)))
    prefix = Prefix(offset, weights, loadings, own, of_bins, of_template, float(of_bins[-1] * curve.counts[use][-1]))
    return replace(prefix, noise=tempered_noise(prefix, shape.covariance, shape.settings.outlier_sd))
