"""From a prefix and a shape to a distribution of the final value: alignment by generalised least squares.

A prefix observes d = y − s = θ + (misfit) + noise at some t̂, θ = y(1) free. With V the covariance of misfit and noise,
θ̂ = 1ᵀV⁻¹d / 1ᵀV⁻¹1 and var θ̂ = 1/(1ᵀV⁻¹1): later points weigh more because the misfit is pinned at t̂ = 1, without any
hand-set window. With no misfit, V is the noise alone and θ̂ is the papers' early-align (log least squares).

Trials of one sweep share the shape's own uncertainty (its coefficients, its trend in size): :func:`align_jointly` keeps
that term common, so that differences between trials are known better than their levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.linalg.lapack import dpotrf, dtrtrs

from hpo.core.noise import FamilyNoise
from hpo.core.standing import Prefix, standing_of, tempered

FloatArray = NDArray[np.float64]
NOISE_DOF = 20.0
"""Degrees of freedom of the part of a forecast's variance that is noise of reports."""


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
    own : ndarray, shape (n_trials,)
        The part of its diagonal that no other trial shares.
    scale : ndarray, shape (n_trials,)
        By what to multiply each trial's own sd: how far it has strayed from its family so far
        (:func:`hpo.core.standing.own_scale`).
    noise_share : ndarray, shape (n_trials,)
        Share of each level's variance that is noise of reports rather than misfit.
    """

    level: FloatArray
    covariance: FloatArray
    misfit: FloatArray
    own: FloatArray
    scale: FloatArray
    noise_share: FloatArray

    def scaled(self, calibrations: FloatArray) -> FloatArray:
        """Return the covariance with each trial's own part scaled by itself, and what trials share by what is usual among them.

        A shared deviation is one for all: were it scaled by each trial, the difference of two would tell how large it is.

        Parameters
        ----------
        calibrations : ndarray, shape (n_trials,)
            By what to multiply each trial's sd besides its scale.
        """
        factors = (self.scale * calibrations) ** 2
        if factors.size == 1:
            return self.covariance * factors
        shared = self.covariance - np.diag(self.own)
        return np.asarray(float(np.median(factors)) * shared + np.diag(self.own * factors), dtype=np.float64)


def align_jointly(prefixes: Sequence[Prefix], covariance: FloatArray, scale_dof: float = np.inf) -> Alignment:
    """Return the joint distribution of the final values of trials that share one shape.

    Parameters
    ----------
    prefixes : sequence of Prefix
        Each with at least one bin.
    covariance : ndarray, shape (n_nodes, n_nodes)
        K.
    scale_dof : float
        Of :func:`hpo.core.standing.own_scale`; infinite: all scales are 1.

    Notes
    -----
    d_i = θ_i + W_i (Σ_k f_ik u_k + r_i) + ε_i with u_k ~ N(0, K) shared and r_i ~ N(0, own_i K). The u_k are integrated out
    through their posterior on the nodes that any trial observes: one system of p × n_used unknowns, not of all trials' bins,
    for v_k ~ N(0, 1) with u_k = R v_k and R Rᵀ = K. A trial by itself needs no u: its bins scatter by (own + |f|²) K.
    """
    alone = [p.standing or standing_of(_with_precision(p, covariance), scale_dof) for p in prefixes]
    misfits, scales, noisy = np.array([(one.misfit, one.scale, one.noise_share) for one in alone]).T
    if len(alone) == 1:
        level, variance = np.array([alone[0].level]), np.array([alone[0].variance])
        return Alignment(level, variance[:, None], misfits, variance, scales, noisy)
    used = np.flatnonzero(np.any([np.any(p.weights != 0, axis=0) for p in prefixes], axis=0))
    root = _factor(covariance[np.ix_(used, used)])
    p, n_used = prefixes[0].loadings.size, used.size
    levels, variances = np.zeros(len(prefixes)), np.zeros(len(prefixes))
    gram, pull = np.zeros((p, p, n_used, n_used)), np.zeros((p, n_used))
    loadings = np.zeros((len(prefixes), p, n_used))
    for members in _by_size(prefixes):
        known = _batch([prefixes[i] for i in members], covariance, used, root)
        f = np.stack([prefixes[i].loadings for i in members])
        levels[members], variances[members] = known.level, known.variance
        gram += np.tensordot(f[:, :, None] * f[:, None, :], known.gram, axes=(0, 0))
        pull += f.T @ known.pull
        loadings[members] = f[:, :, None] * known.weights[:, None, :]
    flat = loadings.reshape(len(prefixes), -1)
    whole = gram.transpose(0, 2, 1, 3).reshape(p * n_used, p * n_used)
    moved, spread = _shared_deviation(whole, pull.ravel(), flat)
    covariance_of_levels = np.diag(variances) + spread
    return Alignment(levels - moved, covariance_of_levels, misfits, variances, scales, noisy)


def noise_of_ends(prefixes: Sequence[Prefix], noise: FamilyNoise) -> tuple[FloatArray, FloatArray]:
    """Return the noise of final values still to be measured, a variance, and the covariance of the references' in the shape.

    Shapes (n,) and (n, n).
    """
    borrowed = np.stack([prefix.borrowed for prefix in prefixes if prefix.borrowed is not None])
    own = noise.end * np.array([prefix.point for prefix in prefixes])
    return own, noise.end * (borrowed * noise.points) @ borrowed.T


def _with_precision(prefix: Prefix, covariance: FloatArray) -> Prefix:
    return prefix if prefix.precision is not None else tempered(prefix, covariance, np.inf)


def mixed_dof(dof: float, noise_share: float) -> float:
    """Return the degrees of freedom of a forecast whose variance is misfit (of ``dof``) and, in part, noise of reports.

    Noise is known much better than how far one run strays: :data:`NOISE_DOF`. (Welch and Satterthwaite's sum of variances.)
    """
    if np.isinf(dof):
        return dof
    return 1.0 / ((1.0 - noise_share) ** 2 / dof + noise_share**2 / max(NOISE_DOF, dof))


def _by_size(prefixes: Sequence[Prefix]) -> list[list[int]]:
    """Return the positions of prefixes of one number of bins each."""
    sizes = [p.offset.size for p in prefixes]
    return [[i for i, size in enumerate(sizes) if size == one] for one in sorted(set(sizes))]


@dataclass(frozen=True)
class _Batch:
    """What trials of one number of bins say of their levels and of the shared v; the first axis of all is the trial."""

    level: FloatArray
    variance: FloatArray
    gram: FloatArray
    pull: FloatArray
    weights: FloatArray


def _batch(prefixes: Sequence[Prefix], covariance: FloatArray, used: NDArray[np.int64], root: FloatArray) -> _Batch:
    w = np.stack([p.weights[:, used] for p in prefixes]) @ root
    d = np.stack([p.offset for p in prefixes])
    inverse = np.linalg.inv(np.stack([p.scatter(covariance, p.own) for p in prefixes]))
    ones = inverse.sum(axis=2)
    total = ones.sum(axis=1)
    weights = (ones[:, None, :] @ w)[:, 0] / total[:, None]
    projected = inverse @ w - ones[:, :, None] * weights[:, None, :]  # (V⁻¹ − V⁻¹11ᵀV⁻¹/1ᵀV⁻¹1) W R
    turned = projected.transpose(0, 2, 1)
    level = np.sum(ones * d, axis=1) / total
    return _Batch(level, 1.0 / total, w.transpose(0, 2, 1) @ projected, (turned @ d[:, :, None])[:, :, 0], weights)


def _shared_deviation(gram: FloatArray, pull: FloatArray, flat: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return by how much the shared v moves the levels, shape (n,), and what it adds to their covariance, shape (n, n).

    Parameters
    ----------
    gram, pull : ndarray, shapes (p·n_used, p·n_used) and (p·n_used,)
        Σ f fᵀ ⊗ RᵀWᵀQWR and its right side.
    flat : ndarray, shape (n, p·n_used)
        What one unit of v adds to each level.

    Notes
    -----
    The posterior covariance of v is (I + G)⁻¹: of its Cholesky factor L only L⁻¹ of ``flat`` and ``pull`` is needed.
    """
    factor, _ = dpotrf(gram + np.eye(len(gram)), lower=1)
    solved, _ = dtrtrs(factor, np.column_stack((flat.T, pull)), lower=1)
    of_levels = solved[:, :-1]
    return of_levels.T @ solved[:, -1], of_levels.T @ of_levels


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
    def of(cls, blocks: Sequence[tuple[list[int], FloatArray, FloatArray, tuple[float, ...]]]) -> Law:
        """Return the law of independent blocks of (members, level, covariance, degrees of freedom of each)."""
        if len(blocks) == 1:
            return cls(*blocks[0])
        members = [i for block in blocks for i in block[0]]
        level = np.concatenate([block[1] for block in blocks]) if blocks else np.zeros(0)
        covariance = block_diag(*(block[2] for block in blocks)) if blocks else np.zeros((0, 0))
        return cls(members, level, covariance, tuple(dof for block in blocks for dof in block[3]))

    def of_members(self, keep: Sequence[int]) -> Law:
        """Return the law of the members at these positions among them."""
        members, dofs = [self.members[k] for k in keep], tuple(self.dofs[k] for k in keep)
        return Law(members, self.level[list(keep)], self.covariance[np.ix_(keep, keep)], dofs)

    def draw(self, rng: np.random.Generator, n_draws: int) -> FloatArray:
        """Return draws of the final values, shape (n_draws, n); one t scale a draw, with the fewest degrees of freedom.

        Draws come in pairs mirrored about the level (antithetic), which halves what their mean is off by and more.
        """
        dof, half = min(self.dofs), (n_draws + 1) // 2
        drawn = rng.standard_normal((half, self.level.size)) @ _root(self.covariance).T
        if np.isfinite(dof):
            drawn *= np.sqrt(dof / rng.chisquare(dof, size=(half, 1)))
        draws = np.empty((n_draws, self.level.size))
        np.add(self.level, drawn, out=draws[:half])
        np.subtract(self.level, drawn[: n_draws - half], out=draws[half:])
        return draws


def probability_best(draws: FloatArray, margin: float = 0.0) -> FloatArray:
    """Return P(trial has the lowest final value), shape (n_trials,), summing to 1; ties share.

    With a ``margin`` (on the model's scale) a trial counts as best when it is within the margin of the lowest: the
    probabilities then sum to more than 1.
    """
    lowest = np.min(draws, axis=1, keepdims=True)
    wins = draws <= lowest + margin
    counted = np.count_nonzero(wins, axis=0)
    if margin > 0 or counted.sum() == len(draws):
        return np.asarray(counted / len(draws), dtype=np.float64)
    shared = wins.astype(np.float64)
    return np.asarray((shared / shared.sum(axis=1, keepdims=True)).mean(axis=0))


def _factor(covariance: FloatArray) -> FloatArray:
    """Return R with R Rᵀ the covariance: Cholesky's, or :func:`_root` of one that is singular."""
    factor, failed = dpotrf(covariance, lower=1, clean=1)
    return _root(covariance) if failed else np.asarray(factor, dtype=np.float64)


def _root(covariance: FloatArray) -> FloatArray:
    """Return the symmetric root, which is one: the eigenvectors of runs that are alike are any, and turn by rounding."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
