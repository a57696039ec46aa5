"""Final values less their noise: what a finished run's whole curve says of the value it ended at.

The best of many noisy final values is mostly the luckiest one, and no honest forecast beats it. The incumbent should
therefore be the best *level*. Each reference is forecast from its whole curve by all others, in closed form; of the difference
to the value that was measured, the share that is noise of that measurement is taken off.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hpo.core.references import Family

FloatArray = NDArray[np.float64]
LEAST = 3
EARLIEST = 0.1
"""Fewer references than this say nothing of each other's noise, nor does what they did before this t̂."""


def settled_levels(family: Family, noise: FloatArray) -> FloatArray:
    """Return the final levels of a family's references less their noise, on the model's scale, shape (n,).

    Parameters
    ----------
    family : Family
        Of one schedule.
    noise : ndarray, shape (n,)
        Variance of each reference's measured final value; 0 keeps what was measured.

    Notes
    -----
    The leave-one-out errors of the shape's regression, E = R₋ᵢ, are misfit, noise of the curve and, the same at all t̂, noise σ²
    of the measured end. With the misfit a Brownian motion in −log t̂ of fitted scale, generalised least squares gives the
    end's own part of E and its variance f² ≥ σ²; the best estimate moves from the measured value by the share σ²/f² of it.
    """
    measured = family.references[0].metric.to_model([r.final_loss for r in family.references])
    shape = family.shape_for([])
    used = shape.nodes >= EARLIEST
    if len(family.references) < LEAST or not np.any(noise > 0) or not used.any():
        return measured
    leverage = 1.0 / np.diag(shape.inverse)
    errors = leverage[:, None] * shape.solved[:, used]
    weights, variance = _end_weights(errors, leverage, noise, -np.log(shape.nodes[used]))
    share = noise / (leverage * np.maximum(noise + variance, 1e-300))
    return np.asarray(measured + np.minimum(share, 1.0) * (errors @ weights), dtype=np.float64)


def _end_weights(errors: FloatArray, leverage: FloatArray, noise: FloatArray, age: FloatArray) -> tuple[FloatArray, float]:
    """Return the weights over nodes that give the part of an error common to all of them, and its variance without σ²."""
    of_points = float(np.median(noise))
    excess = errors**2 / leverage[:, None] - 2.0 * noise[:, None]
    scale = max(float(np.mean(excess) / np.mean(age)), 0.0)
    covariance = scale * np.minimum(age[:, None], age[None, :]) + (of_points + 1e-12) * np.eye(age.size)
    solved = np.linalg.solve(covariance, np.ones(age.size))
    total = float(solved.sum())
    return np.asarray(solved / total, dtype=np.float64), 1.0 / total
