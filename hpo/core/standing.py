"""One trial's prefix set against its shape, by itself: what its final value is, how far it strays, which bins are spikes.

With V the covariance of what its bins depart by, θ̂ = 1ᵀV⁻¹d / 1ᵀV⁻¹1. :mod:`hpo.core.posterior` says it of several trials
together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri, dsyevr

FloatArray = NDArray[np.float64]
_FEWEST_OUTLIERS, _OUTLIER_SHARE = 3, 0.1
"""So many bins of a prefix may lose their weight, at least, or that share of them if it is more."""
OWN_COMPONENTS = 3
MOSTLY_NOISE = 0.5
LEAST_NOISE = 1e-3
"""Share of the scatter given the other bins that is taken for noise at least, where directions are ordered by noise."""


@dataclass(frozen=True)
class Standing:
    """What a prefix says of its trial by itself.

    Attributes
    ----------
    level, variance : float
        θ̂ and its variance.
    misfit : float
        Root mean square of its standardised residuals; 1 is as expected, 0 where it is one bin.
    scale : float
        By what to multiply its sd: how far it has strayed from its family so far, see :func:`own_scale`.
    noise_share : float
        Share of the variance that is noise of reports rather than misfit.
    """

    level: float
    variance: float
    misfit: float
    scale: float
    noise_share: float


@dataclass(frozen=True)
class Prefix:
    """One trial's prefix against its shape.

    Attributes
    ----------
    offset : ndarray, shape (n,)
        d = y − s at the observed bins.
    weights : ndarray, shape (n, n_nodes)
        Interpolation from nodes to bins.
    loadings : ndarray, shape (p,)
        Of the trial on the p shared deviations of the shape.
    own : float
        Variance of its own misfit, in units of K.
    noise : ndarray, shape (n,)
        Variance of each bin mean.
    template_noise : ndarray, shape (n, n), or None
        Covariance of the references' noise in the expected shape, in units of ``template_scale``.
    point : float
        Variance of one report.
    borrowed : ndarray, shape (n_references,), or None
        Weight of each reference in the expected shape.
    at_bins : ndarray, shape (n, n), or None
        W K Wᵀ, where it is known already.
    precision : ndarray, shape (n, n), or None
        Inverse of the covariance of all that the bins depart by, where it is known.
    template_scale : float
        What ``template_noise`` is to be multiplied by.
    standing : Standing or None
        What it says by itself, once that is known.
    """

    offset: FloatArray
    weights: FloatArray
    loadings: FloatArray
    own: float
    noise: FloatArray
    template_noise: FloatArray | None = None
    point: float = 0.0
    borrowed: FloatArray | None = None
    at_bins: FloatArray | None = None
    precision: FloatArray | None = None
    template_scale: float = 1.0
    standing: Standing | None = None

    def scatter(self, covariance: FloatArray, share: float) -> FloatArray:
        """Return the covariance of the bins, shape (n, n): ``share`` times K = ``covariance`` at the bins, and all noise."""
        at_bins = self.weights @ covariance @ self.weights.T if self.at_bins is None else self.at_bins
        noisy = share * at_bins
        if self.template_noise is not None:
            noisy += self.template_scale * self.template_noise
        noisy.flat[:: self.noise.size + 1] += self.noise
        return np.asarray(noisy, dtype=np.float64)


def tempered(prefix: Prefix, covariance: FloatArray, outlier_sd: float) -> Prefix:
    """Return the prefix with its precision, and with outlying bins (spikes) inflated until they no longer pull.

    Each bin is compared with what all the others say of it; one further than ``outlier_sd`` away gets its squared distance
    added to its noise.

    Parameters
    ----------
    covariance : ndarray, shape (n_nodes, n_nodes)
        K.
    """
    noise = prefix.noise.copy()
    inverse = _inverse(prefix.scatter(covariance, prefix.own + float(prefix.loadings @ prefix.loadings)))
    most = max(_FEWEST_OUTLIERS, int(_OUTLIER_SHARE * noise.size))
    for _ in range(most if noise.size >= 3 and outlier_sd < np.inf else 0):
        ones = inverse.sum(axis=1)
        total = ones.sum()
        scale = np.maximum(inverse.diagonal() - ones**2 / total, 1e-300)
        distance = np.abs(inverse @ prefix.offset - ones * (ones @ prefix.offset / total)) / scale
        worst = int(np.argmax(distance * np.sqrt(scale)))
        if distance[worst] * np.sqrt(scale[worst]) <= outlier_sd:
            break
        added = distance[worst] ** 2
        noise[worst] += added
        column = inverse[:, worst]
        inverse = inverse - np.outer(column, column) * (added / (1.0 + added * column[worst]))
    return replace(prefix, noise=noise, precision=inverse, standing=None)


def own_scale(prefix: Prefix, dof: float) -> float:
    """Return by what a trial's own misfit seems larger or smaller than K says; its precision must be known.

    Parameters
    ----------
    dof : float
        Of the law of the runs' scales: a run's misfit is λ^½ times one of covariance K, λ ~ inverse gamma (dof/2, dof/2).

    Notes
    -----
    Given m independent standardised components z of its departures so far, E λ ∝ (dof + Σz²)/(dof + m). Taken are the (at most
    :data:`OWN_COMPONENTS`) directions in which the noise N has the least share of what is seen, if less than
    :data:`MOSTLY_NOISE`: they are slow ones, and a run that strays there goes on to stray. With V the covariance of what is
    seen and Q = V⁻¹ − V⁻¹11ᵀV⁻¹/1ᵀV⁻¹1, these are the eigenvectors v of N^½QN^½ with the smallest eigenvalues μ, and
    z = vᵀN^½Qd/√μ. (That of the level itself, μ = 0, is left out.)
    """
    if prefix.offset.size < 2 or np.isinf(dof) or prefix.precision is None:
        return 1.0
    shares, z = slow_departures(prefix)
    z = z[shares < MOSTLY_NOISE]
    return math.sqrt((dof + float(z @ z)) / (dof + z.size))


def slow_departures(prefix: Prefix) -> tuple[FloatArray, FloatArray]:
    """Return the noise's shares and the standardised departures z of :func:`own_scale`, slowest first, at most three.

    At least two bins, and the precision known. Where a run follows its family, z ~ N(0, 1) each, independent.
    """
    if prefix.precision is None:
        raise ValueError("a prefix must have its precision")
    ones = prefix.precision.sum(axis=1)
    total = ones.sum()
    pull = prefix.precision @ prefix.offset - ones * (ones @ prefix.offset / total)
    root = np.sqrt(np.maximum(prefix.noise, LEAST_NOISE / prefix.precision.diagonal()))
    n = min(OWN_COMPONENTS, prefix.offset.size - 1)
    shares, directions = _lowest_but_one(root[:, None] * (prefix.precision - np.outer(ones, ones) / total) * root, n)
    return shares, directions.T @ (root * pull) / np.sqrt(np.maximum(shares, 1e-300))


def _lowest_but_one(matrix: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """Return the k smallest eigenvalues but one of a symmetric matrix, and their vectors; as scipy's ``eigh``, unchecked."""
    values, vectors, _, _, failed = dsyevr(matrix, range="I", il=2, iu=k + 1, lower=1)
    if failed:
        raise np.linalg.LinAlgError(f"eigenvalues did not converge (LAPACK dsyevr: {failed})")
    return values[:k], vectors[:, :k]


def aligned_alone(prefix: Prefix) -> tuple[float, float]:
    """Return θ̂ and its variance for one trial whose precision is known."""
    if prefix.precision is None:
        raise ValueError("a prefix must have its precision")
    ones = prefix.precision.sum(axis=1)
    total = float(ones.sum())
    return float(ones @ prefix.offset) / total, 1.0 / total


def standing_of(prefix: Prefix, scale_dof: float) -> Standing:
    """Return what a prefix, whose precision is known, says by itself; ``scale_dof`` is that of :func:`own_scale`."""
    level, variance = aligned_alone(prefix)
    return Standing(level, variance, _misfit(prefix, level), own_scale(prefix, scale_dof), _noise_share(prefix))


def _misfit(prefix: Prefix, level: float) -> float:
    """Return the root mean square of the standardised residuals of a prefix about its level."""
    off = prefix.offset - level
    square = max(float(off @ np.asarray(prefix.precision) @ off), 0.0)
    return math.sqrt(square / (off.size - 1)) if off.size > 1 else 0.0


def _noise_share(prefix: Prefix) -> float:
    """Return the share of noise in the variance of the level of a trial by itself."""
    ones = np.asarray(prefix.precision).sum(axis=1)
    of_noise = float(ones @ (prefix.noise * ones))
    if prefix.template_noise is not None:
        of_noise += prefix.template_scale * float(ones @ prefix.template_noise @ ones)
    return min(of_noise / float(ones.sum()), 1.0)


def _inverse(matrix: FloatArray) -> FloatArray:
    """Return the inverse of a symmetric positive definite matrix; by LU where rounding has made it indefinite."""
    factor, failed = dpotrf(matrix, lower=1, clean=1)
    if not failed:
        found, failed = dpotri(factor, lower=1)
    if failed:
        return np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    whole = found + found.T  # above its diagonal it is zero
    whole.flat[:: len(whole) + 1] *= 0.5
    return np.asarray(whole, dtype=np.float64)
