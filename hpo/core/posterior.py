"""From a prefix and a shape to a distribution of the final value: alignment by generalised least squares.

A prefix observes d = y − s = θ + (misfit) + noise at some t̂, θ = y(1) free. With V the covariance of misfit and noise,
θ̂ = 1ᵀV⁻¹d / 1ᵀV⁻¹1 and var θ̂ = 1/(1ᵀV⁻¹1): later points weigh more because the misfit is pinned at t̂ = 1, without any
hand-set window. With no misfit, V is the noise alone and θ̂ is the papers' early-align (log least squares).

Trials of one sweep share the shape's own uncertainty (its coefficients, its trend in size): :func:`align_jointly` keeps
that term common, so that differences between trials are known better than their levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, cho_factor, cho_solve, solve_triangular

FloatArray = NDArray[np.float64]
_OUTLIER_PASSES = 3
OWN_COMPONENTS = 3
MOSTLY = 0.5


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
        Covariance of the references' noise in the expected shape.
    point : float
        Variance of one report.
    """

    offset: FloatArray
    weights: FloatArray
    loadings: FloatArray
    own: float
    noise: FloatArray
    template_noise: FloatArray | None = None
    point: float = 0.0

    def scatter(self, misfit: FloatArray) -> FloatArray:
        """Return the covariance of the bins, shape (n, n): ``misfit`` (its covariance at the bins) and all noise."""
        noisy = misfit + np.diag(self.noise)
        return noisy if self.template_noise is None else noisy + self.template_noise


@dataclass(frozen=True)
class Alignment:
    """Final values on the model's scale.

    Attributes
    ----------
    level : ndarray, shape (n_trials,)
        θ̂.
    covariance : ndarray, shape (n_trials, n_trials)
        Its covariance.
    misfit : ndarray, shape (n_trials,)
        Root mean square of each prefix's standardised residuals; 1 is as expected, 0 where a prefix is one bin.
    scale : ndarray, shape (n_trials,)
        By what to multiply each trial's own sd: how far it has strayed from its family so far, see :func:`own_scale`.
    """

    level: FloatArray
    covariance: FloatArray
    misfit: FloatArray
    scale: FloatArray


def generalised_mean(d: FloatArray, covariance: FloatArray) -> tuple[float, float, FloatArray]:
    """Return θ̂, its variance and the weights a with θ̂ = aᵀd, for observations d of one level."""
    factor = cho_factor(covariance, lower=True)
    ones = cho_solve(factor, np.ones_like(d))
    total = float(ones.sum())
    weights = ones / total
    return float(weights @ d), 1.0 / total, weights


def tempered_noise(prefix: Prefix, covariance: FloatArray, outlier_sd: float) -> FloatArray:
    """Return the noise variances with outlying bins (spikes) inflated until they no longer pull.

    Each bin is compared with what all the others say of it; one further than ``outlier_sd`` away gets its squared distance
    added.
    """
    noise = prefix.noise.copy()
    spread = _spread(prefix, covariance)
    for _ in range(_OUTLIER_PASSES):
        if noise.size < 3 or np.isinf(outlier_sd):
            return noise
        inverse = np.linalg.inv(replace(prefix, noise=noise).scatter(spread))
        ones = inverse.sum(axis=1)
        projected = inverse - np.outer(ones, ones) / ones.sum()
        scale = np.maximum(np.diag(projected), 1e-300)
        distance = np.abs(projected @ prefix.offset) / scale
        worst = int(np.argmax(distance * np.sqrt(scale)))
        if distance[worst] * np.sqrt(scale[worst]) <= outlier_sd:
            return noise
        noise[worst] += distance[worst] ** 2
    return noise


def own_scale(prefix: Prefix, covariance: FloatArray, dof: float) -> float:
    """Return by what a trial's own misfit seems larger or smaller than K says.

    Parameters
    ----------
    covariance : ndarray, shape (n_nodes, n_nodes)
        K.
    dof : float
        Of the law of the runs' scales: a run's misfit is λ^½ times one of covariance K, λ ~ inverse gamma (dof/2, dof/2).

    Notes
    -----
    Given m independent standardised components z of its departures so far, E λ ∝ (dof + Σz²)/(dof + m). Taken are the (at most
    :data:`OWN_COMPONENTS`) directions in which misfit stands out most from noise, if it is most of what is seen there: they
    are slow ones, and a run that strays there goes on to stray.
    """
    n = prefix.offset.size
    if n < 2 or np.isinf(dof):
        return 1.0
    spread = _spread(prefix, covariance)
    root = np.linalg.cholesky(spread + np.diag(prefix.noise))
    ones, d = (solve_triangular(root, x, lower=True) for x in (np.ones(n), prefix.offset))
    level = ones / np.linalg.norm(ones)
    signal = solve_triangular(root, solve_triangular(root, spread, lower=True).T, lower=True)
    signal = signal - np.outer(level, level @ signal)
    shares, directions = np.linalg.eigh(signal - np.outer(signal @ level, level))
    slow = np.arange(n) >= n - OWN_COMPONENTS
    z = directions[:, slow & (shares > MOSTLY)].T @ (d - level * (level @ d))
    return float(np.sqrt((dof + z @ z) / (dof + z.size)))


def align_jointly(prefixes: Sequence[Prefix], covariance: FloatArray, scale_dof: float = np.inf) -> Alignment:
    """Return the joint distribution of the final values of trials that share one shape.

    Parameters
    ----------
    prefixes : sequence of Prefix
        Each with at least one bin.
    covariance : ndarray, shape (n_nodes, n_nodes)
        K.
    scale_dof : float
        Of :func:`own_scale`; infinite: all scales are 1.

    Notes
    -----
    d_i = θ_i + W_i (Σ_k f_ik u_k + r_i) + ε_i with u_k ~ N(0, K) shared and r_i ~ N(0, own_i K). The u_k are integrated out
    through their posterior on the nodes that any trial observes: one system of p × n_used unknowns, not of all trials' bins.
    """
    used = np.flatnonzero(np.any([np.any(p.weights != 0, axis=0) for p in prefixes], axis=0))
    k_used = covariance[np.ix_(used, used)]
    p = prefixes[0].loadings.size
    n_latent = p * used.size
    levels, variances, misfits, scales = (np.zeros(len(prefixes)) for _ in range(4))
    gram, pull = np.zeros((n_latent, n_latent)), np.zeros(n_latent)
    loadings = np.zeros((len(prefixes), n_latent))
    for i, prefix in enumerate(prefixes):
        w = prefix.weights[:, used]
        factor = cho_factor(prefix.scatter(prefix.own * (w @ k_used @ w.T)), lower=True)
        ones = cho_solve(factor, np.ones(len(w)))
        total = ones.sum()
        projected = cho_solve(factor, w) - np.outer(ones, ones @ w) / total  # (V⁻¹ − V⁻¹11ᵀV⁻¹/1ᵀV⁻¹1) W
        levels[i], variances[i] = ones @ prefix.offset / total, 1.0 / total
        gram += np.kron(np.outer(prefix.loadings, prefix.loadings), w.T @ projected)
        pull += np.kron(prefix.loadings, projected.T @ prefix.offset)
        loadings[i] = np.kron(prefix.loadings, ones @ w / total)
        misfits[i], scales[i] = _misfit(prefix, covariance), own_scale(prefix, covariance, scale_dof)
    mean_u, cov_u = _shared_deviation(gram, pull, k_used, p)
    level = levels - loadings @ mean_u
    return Alignment(level, np.diag(variances) + loadings @ cov_u @ loadings.T, misfits, scales)


def _shared_deviation(gram: FloatArray, pull: FloatArray, k_used: FloatArray, p: int) -> tuple[FloatArray, FloatArray]:
    """Return mean and covariance of the stacked u given Σ f fᵀ ⊗ WᵀQW and its pull, with prior I ⊗ K.

    Written as C = C₀ − C₀ G (I + C₀G)⁻¹ C₀, so that a zero or singular K needs no inverse.
    """
    prior = np.kron(np.eye(p), k_used)
    solve = np.linalg.solve(np.eye(len(prior)) + prior @ gram, prior)
    cov = 0.5 * (solve + solve.T)
    return cov @ pull, cov


def _spread(prefix: Prefix, covariance: FloatArray) -> FloatArray:
    """Return the covariance of a prefix's departures from its expected shape, noise left out."""
    scale = prefix.own + float(prefix.loadings @ prefix.loadings)
    return np.asarray(scale * (prefix.weights @ covariance @ prefix.weights.T), dtype=np.float64)


def _misfit(prefix: Prefix, covariance: FloatArray) -> float:
    n = prefix.offset.size
    if n < 2:
        return 0.0
    full = prefix.scatter(_spread(prefix, covariance))
    level, _, _ = generalised_mean(prefix.offset, full)
    off = prefix.offset - level
    squares = float(off @ cho_solve(cho_factor(full, lower=True), off))
    return float(np.sqrt(max(squares, 0.0) / (n - 1)))


@dataclass(frozen=True)
class Law:
    """Joint distribution of the final values of the judged trials: Student-t on the model's scale.

    Attributes
    ----------
    members : list of int
        Positions of the trials among all that were asked about.
    level, covariance : ndarray, shapes (n,) and (n, n)
    dofs : tuple of float
        Degrees of freedom of each trial's own law.
    """

    members: list[int]
    level: FloatArray
    covariance: FloatArray
    dofs: tuple[float, ...]

    @classmethod
    def of(cls, blocks: Sequence[tuple[list[int], FloatArray, FloatArray, float]]) -> Law:
        """Return the law of independent blocks of (members, level, covariance, degrees of freedom)."""
        members = [i for block in blocks for i in block[0]]
        level = np.concatenate([block[1] for block in blocks]) if blocks else np.zeros(0)
        covariance = block_diag(*(block[2] for block in blocks)) if blocks else np.zeros((0, 0))
        return cls(members, level, covariance, tuple(block[3] for block in blocks for _ in block[0]))

    def draw(self, rng: np.random.Generator, n_draws: int) -> FloatArray:
        """Return draws of the final values, shape (n_draws, n); one t scale a draw, with the fewest degrees of freedom."""
        dof = min(self.dofs)
        scale = np.sqrt(dof / rng.chisquare(dof, size=(n_draws, 1))) if np.isfinite(dof) else 1.0
        draws = self.level + scale * (rng.standard_normal((n_draws, self.level.size)) @ _root(self.covariance).T)
        return np.asarray(draws, dtype=np.float64)


def probability_best(draws: FloatArray, margin: float = 0.0) -> FloatArray:
    """Return P(trial has the lowest final value), shape (n_trials,), summing to 1; ties share.

    With a ``margin`` (on the model's scale) a trial counts as best when it is within the margin of the lowest: the
    probabilities then sum to more than 1.
    """
    lowest = np.min(draws, axis=1, keepdims=True)
    wins = draws <= lowest + margin
    if margin > 0:
        return np.asarray(wins.mean(axis=0))
    shared = wins.astype(np.float64)
    return np.asarray((shared / shared.sum(axis=1, keepdims=True)).mean(axis=0))


def _root(covariance: FloatArray) -> FloatArray:
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
