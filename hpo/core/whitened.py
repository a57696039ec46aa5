"""The forms that a change may have, and residuals made white: what :mod:`hpo.core.change` is computed with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
RECOVERY = 0.02
"""Time constant of a transient, in t̂."""


def form_values(form: str, fractions: FloatArray, onsets: IntArray) -> FloatArray:
    """Return each onset's form on the bins, shape (n, n_onsets): 0 before the onset, at most 1 from it on."""
    bins = np.arange(fractions.size)[:, None]
    after = bins >= onsets[None, :]
    if form == "step":
        return np.asarray(after, dtype=np.float64)
    if form == "spike":
        return np.asarray(bins == onsets[None, :], dtype=np.float64)
    if form == "pulse":
        return np.asarray(after & (bins <= onsets[None, :] + 1), dtype=np.float64)
    if form == "transient":
        since = np.maximum(fractions[:, None] - fractions[onsets][None, :], 0.0)
        return np.asarray(np.where(after, np.exp(-since / RECOVERY), 0.0), dtype=np.float64)
    start = fractions[onsets - 1][None, :]
    ramp = (fractions[:, None] - start) / (fractions[-1] - start)
    return np.asarray(np.where(after, ramp, 0.0), dtype=np.float64)


@dataclass(frozen=True)
class Whitened:
    """Residuals made white and freed of their level.

    Attributes
    ----------
    factor : ndarray, shape (n, n)
        L.
    ones : ndarray, shape (n,)
        L⁻¹1.
    d : ndarray, shape (n,)
        L⁻¹d without its component along ``ones``.
    level : float
        θ̂ if nothing changed.
    """

    factor: FloatArray
    ones: FloatArray
    d: FloatArray
    level: float

    @classmethod
    def of(cls, d: FloatArray, covariance: FloatArray) -> Whitened:
        """Return d whitened by its covariance (positive definite)."""
        factor = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        both = solve_triangular(factor, np.column_stack((d, np.ones(d.size))), lower=True)
        white, ones = both[:, 0], both[:, 1]
        level = float(ones @ white) / float(ones @ ones)
        return cls(factor, ones, white - level * ones, level)

    def signatures(self, forms: FloatArray) -> FloatArray:
        """Return L⁻¹x of each column x without its component along ``ones``."""
        white = solve_triangular(self.factor, forms, lower=True)
        return np.asarray(white - np.outer(self.ones, self.ones @ white) / float(self.ones @ self.ones), dtype=np.float64)
