"""One run's misfit: the covariance K over t̂ of its departures from its family's shape.

K is estimated from the errors that references leave, shrunk to a Brownian motion in −log t̂, whose scale is estimated too, and
an amplitude of the run's own along its family's curve (:mod:`hpo.core.amplitude`). Runs that follow the family badly count less
in it, by the weights of a Student-t: a few wild runs of a study must not set the interval, nor the weights of early against
late points, of all others. References scatter about their own true curves too; where that noise is known, K is estimated
without it.

Deviations
----------
A textbook inverse Wishart counts n references however much of their freedom the fit has used; with few references that makes
K too small. The degrees of freedom used here are n minus the effective number of coefficients, Σ(1 − h_i), plus the weight of
the prior scale: the prior's shape of K is worth more references than its scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from hpo.core.amplitude import TOLD_FROM, fit_amplitude

FloatArray = NDArray[np.float64]
JUDGED_FROM = 0.1
"""t̂ from which on errors tell the scale."""
_ENERGY_DOF = 3.0
"""A run's misfit over all of training counts as so many independent values."""
_TAIL_PASSES = 20
_SCALE_PASSES = 6
_NOISE_PASSES = 8


@dataclass(frozen=True)
class MisfitPrior:
    """Prior of K; the fields of :class:`hpo.core.shape.ShapeSettings` of the same names.

    Attributes
    ----------
    scale_free : float
        Degrees of freedom of the prior scale besides its weight.
    """

    brownian_sd: float
    scale_weight: float
    covariance_weight: float
    tail_dof: float
    scale_dof: float = math.inf
    amplitude_sd: float = 0.0
    scale_free: float = 0.0


@dataclass(frozen=True)
class Misfit:
    """A fitted K.

    Attributes
    ----------
    covariance : ndarray, shape (n_nodes, n_nodes)
    scale : float
        Sd of its Brownian motion.
    dof : float
        Degrees of freedom of a forecast from it.
    shares : ndarray, shape (n_runs,)
        Of the square of each row of ``taken`` in the covariance.
    taken : ndarray, shape (n_runs, n_nodes)
        The errors less what is likely noise.
    """

    covariance: FloatArray
    scale: float
    dof: float
    shares: FloatArray
    taken: FloatArray


@dataclass(frozen=True)
class RowNoise:
    """Noise in the errors: ``amount`` of each run, shape (n_runs,), times the covariance ``unit``, shape (n_nodes, n_nodes)."""

    unit: FloatArray
    amount: FloatArray


@dataclass(frozen=True)
class Modes:
    """A covariance K = LLᵀ and a noise N side by side: with L⁻¹NL⁻ᵀ = QΛQᵀ, K + aN = LQ(1 + aΛ)QᵀLᵀ for every amount a.

    Attributes
    ----------
    root : ndarray, shape (n, n)
        L.
    turned : ndarray, shape (n, n)
        LQ.
    vectors : ndarray, shape (n, n)
        Q.
    ratio : ndarray, shape (n,)
        The diagonal of Λ: noise in units of K.
    """

    root: FloatArray
    turned: FloatArray
    vectors: FloatArray
    ratio: FloatArray

    @classmethod
    def of(cls, covariance: FloatArray, noise: FloatArray) -> Modes:
        """Return the modes of a positive definite ``covariance`` and a ``noise``, shape (n, n) each."""
        ridge = 1e-12 * np.mean(np.diag(covariance)) * np.eye(len(covariance))
        root = np.asarray(np.linalg.cholesky(covariance + ridge), dtype=np.float64)
        half = solve_triangular(root, noise, lower=True, check_finite=False)
        values, vectors = np.linalg.eigh(solve_triangular(root, half.T, lower=True, check_finite=False))
        return cls(root, np.asarray(root @ vectors, dtype=np.float64), vectors, np.maximum(values, 0.0))

    def seen(self, rows: FloatArray) -> FloatArray:
        """Return the rows' coordinates, shape (n_rows, n): of variance 1 from K, Λ from N."""
        whitened = solve_triangular(self.root, rows.T, lower=True, check_finite=False)
        return np.asarray(whitened.T @ self.vectors, dtype=np.float64)


@dataclass(frozen=True)
class Scale:
    """The scale of the Brownian motion, and how much each run counts.

    Attributes
    ----------
    variance : float
    weights : ndarray, shape (n_runs,)
    """

    variance: float
    weights: FloatArray


def fit_misfit(
    error: FloatArray,
    n_free: float,
    nodes: FloatArray,
    prior: MisfitPrior,
    noise: RowNoise | None = None,
    modes: Modes | None = None,
    curve: FloatArray | None = None,
) -> Misfit:
    """Return what regression errors say of one run's misfit.

    Parameters
    ----------
    error : ndarray, shape (n_runs, n_nodes)
        What the fit leaves of each reference, on the model's scale.
    n_free : float
        Degrees of freedom the fit has left, Σ(1 − h_i).
    nodes : ndarray, shape (n_nodes,)
        t̂, below 1.
    noise : RowNoise, optional
        In the errors, for a run whose share in ``n_free`` is 1; none if left out.
    modes : Modes, optional
        Of :func:`noise_modes`, if they are known already.
    curve : ndarray, shape (n_nodes,), optional
        The family's, of :func:`hpo.core.amplitude.travelled`; without it runs have no amplitudes of their own.
    """
    scale = fit_scale(error, n_free, nodes, prior, noise, modes)
    expected = _prior_covariance(error, n_free, nodes, prior, noise, scale, curve)
    covariance, taken = _fit_covariance(error, n_free, expected, prior, noise, scale)
    dof = min(prior.scale_weight + prior.scale_free + n_free, min(prior.tail_dof, prior.scale_dof) + _ENERGY_DOF)
    shares = scale.weights / max(prior.covariance_weight + n_free, 1e-12)  # 0 where the prior's weight is infinite
    return Misfit(covariance, math.sqrt(scale.variance), max(dof, 1.0), shares, taken)


def fit_scale(
    error: FloatArray,
    n_free: float,
    nodes: FloatArray,
    prior: MisfitPrior,
    noise: RowNoise | None = None,
    modes: Modes | None = None,
) -> Scale:
    """Return the scale of the misfit and the runs' weights.

    Parameters as of :func:`fit_misfit`; ``modes`` is :func:`noise_modes` of the nodes and noise, which may serve several fits.

    Notes
    -----
    Without noise a run tells the scale by the mean of its squared errors over their age. With noise the same is taken of what
    an error e says of the misfit, Ge with G = K(K + N)⁻¹, less what noise leaves in it: noise of the final value, the same at
    all nodes, would drown the rest otherwise.
    """
    age, judged = -np.log(nodes), nodes >= JUDGED_FROM
    none = np.zeros(len(error))
    if not judged.any():
        return _scale(none, none, n_free, prior)
    if noise is None or prior.brownian_sd == 0 or np.isinf(prior.scale_weight):
        return _scale(np.mean(error[:, judged] ** 2 / age[judged], axis=1), none, n_free, prior)
    modes = noise_modes(nodes, noise) if modes is None else modes
    seen, found = modes.seen(error[:, judged]), Scale(prior.brownian_sd**2, none)
    counts = (modes.turned.T / age[judged]) @ modes.turned
    for _ in range(_SCALE_PASSES):
        gain = 1.0 / (1.0 + float(np.median(noise.amount)) / max(found.variance, 1e-300) * modes.ratio)
        weighed = seen * gain
        of_misfit = np.sum(gain**2 * np.diag(counts))
        energy = np.sum((weighed @ counts) * weighed, axis=1) / of_misfit
        of_noise = np.sum(gain**2 * modes.ratio * np.diag(counts)) / of_misfit
        last, found = found, _scale(energy, noise.amount * of_noise, n_free, prior)
        if abs(found.variance - last.variance) < 0.01 * last.variance:
            break
    return found


def noise_modes(nodes: FloatArray, noise: RowNoise) -> Modes:
    """Return the modes of a Brownian motion of sd 1 and of the noise at the nodes that tell the scale."""
    judged = nodes >= JUDGED_FROM
    age = -np.log(nodes[judged])
    return Modes.of(np.minimum(age[:, None], age[None, :]), noise.unit[np.ix_(judged, judged)])


def _scale(energy: FloatArray, noise: FloatArray, n_free: float, prior: MisfitPrior) -> Scale:
    """Return the pooled variance of a run's misfit and how much each run counts, by the EM steps of a Student-t.

    Parameters
    ----------
    energy, noise : ndarray, shape (n_runs,)
        A run's mean square error in units of a Brownian motion of sd 1, and how much of it is expected from noise alone.
    """
    weights, share = np.ones_like(energy), n_free / energy.size  # errors in the sample are that much smaller
    if not (np.isinf(prior.tail_dof) or np.isinf(prior.scale_weight) or n_free <= prior.tail_dof):  # else too few could tell
        for _ in range(_TAIL_PASSES):
            inside = np.maximum((_variance(weights, energy, noise, n_free, prior) + noise) * share, 1e-300)
            weights = (prior.tail_dof + _ENERGY_DOF) / (prior.tail_dof + _ENERGY_DOF * energy / inside)
    return Scale(_variance(weights, energy, noise, n_free, prior), weights)


def _variance(weights: FloatArray, energy: FloatArray, noise: FloatArray, n_free: float, prior: MisfitPrior) -> float:
    found = max(float(weights @ (energy - noise * n_free / energy.size)), 0.0)
    return float(_pooled(prior.brownian_sd**2, prior.scale_weight, found, n_free))


def _prior_covariance(
    error: FloatArray,
    n_free: float,
    nodes: FloatArray,
    prior: MisfitPrior,
    noise: RowNoise | None,
    scale: Scale,
    curve: FloatArray | None,
) -> FloatArray:
    """Return what K is shrunk to: a Brownian motion, and amplitudes along the curve as far as the errors show them."""
    age, told = -np.log(nodes), nodes >= TOLD_FROM
    brownian = np.asarray(scale.variance * np.minimum(age[:, None], age[None, :]), dtype=np.float64)
    if curve is None or scale.variance == 0 or np.isinf(prior.covariance_weight) or not told.any():
        return brownian
    block = np.ix_(told, told)
    seen = brownian[block] if noise is None else brownian[block] + float(np.median(noise.amount)) * noise.unit[block]
    amplitude = fit_amplitude(error[:, told], seen, curve[told], n_free, prior.amplitude_sd)
    return np.asarray(brownian + amplitude**2 * np.outer(curve, curve), dtype=np.float64)


def _fit_covariance(
    error: FloatArray, n_free: float, expected: FloatArray, prior: MisfitPrior, noise: RowNoise | None, scale: Scale
) -> tuple[FloatArray, FloatArray]:
    """Return K and the errors less their noise; ``expected`` is what K is shrunk to.

    Notes
    -----
    With noise of covariance N_i, an error e = r + ε says of its misfit r ~ N(Ge, K − GK), G = K(K + N_i)⁻¹: the EM steps of K
    under its inverse-Wishart prior, from the prior on. They stay positive definite; without noise one step is Σ w eeᵀ as ever.
    """
    weight, weights = prior.covariance_weight, scale.weights
    if noise is None or np.isinf(weight) or scale.variance == 0:
        pooled = _pooled(expected, weight, (weights[:, None] * error).T @ error, n_free)
        return np.asarray(pooled, dtype=np.float64), error
    covariance, taken = expected, error
    for _ in range(_NOISE_PASSES):
        taken, left = _without_noise(error, covariance, noise, weights)
        squares = (weights[:, None] * taken).T @ taken + n_free / len(error) * left
        last, covariance = covariance, _pooled(expected, weight, squares, n_free)
        covariance = 0.5 * (covariance + covariance.T)
        if np.max(np.abs(covariance - last)) < 0.01 * np.max(np.abs(last)):
            break
    return covariance, taken


def _without_noise(
    error: FloatArray, covariance: FloatArray, noise: RowNoise, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the expected misfit of each run given its error, and the weighted sum of what that leaves uncertain."""
    modes = Modes.of(covariance, noise.unit)
    scaled = noise.amount[:, None] * modes.ratio
    taken = (modes.seen(error) / (1.0 + scaled)) @ modes.turned.T
    left = (modes.turned * (weights @ (scaled / (1.0 + scaled)))) @ modes.turned.T
    return taken, left


def _pooled(prior: Any, weight: float, sum_of_squares: Any, n: float) -> Any:
    """Return (weight · prior + sum of squares) / (weight + n), the prior itself where its weight is infinite."""
    return prior if np.isinf(weight) else (weight * prior + sum_of_squares) / max(weight + n, 1e-12)
