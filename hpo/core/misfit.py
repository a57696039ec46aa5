"""One run's misfit: the covariance K over t̂ of its departures from its family's shape.

K is estimated from the errors that references leave, shrunk to a Brownian motion in −log t̂ whose scale is estimated too. Runs
that follow the family badly count less in it, by the weights of a Student-t: a few wild runs of a study must not set the
interval, nor the weights of early against late points, of all others.

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

FloatArray = NDArray[np.float64]
JUDGED_FROM = 0.1
"""t̂ from which on errors tell the scale."""
_ENERGY_DOF = 3.0
"""A run's misfit over all of training counts as so many independent values."""
_TAIL_PASSES = 20


@dataclass(frozen=True)
class MisfitPrior:
    """Prior of K; the fields of :class:`hpo.core.shape.ShapeSettings` of the same names."""

    brownian_sd: float
    scale_weight: float
    covariance_weight: float
    tail_dof: float
    scale_dof: float = math.inf


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
        Of each run's squared errors in the covariance.
    """

    covariance: FloatArray
    scale: float
    dof: float
    shares: FloatArray


def fit_misfit(error: FloatArray, n_free: float, nodes: FloatArray, prior: MisfitPrior) -> Misfit:
    """Return what regression errors say of one run's misfit.

    Parameters
    ----------
    error : ndarray, shape (n_runs, n_nodes)
        What the fit leaves of each reference, on the model's scale.
    n_free : float
        Degrees of freedom the fit has left, Σ(1 − h_i).
    nodes : ndarray, shape (n_nodes,)
        t̂, below 1.
    """
    age = -np.log(nodes)
    judged = nodes >= JUDGED_FROM
    energy = np.mean(error[:, judged] ** 2 / age[judged], axis=1) if judged.any() else np.zeros(len(error))
    weights = _run_weights(energy, n_free, prior)
    variance = _variance(weights, energy, n_free, prior)
    brownian = variance * np.minimum(age[:, None], age[None, :])
    covariance = _pooled(brownian, prior.covariance_weight, (weights[:, None] * error).T @ error, n_free)
    dof = min(prior.scale_weight + n_free, min(prior.tail_dof, prior.scale_dof) + _ENERGY_DOF)
    shares = weights / max(prior.covariance_weight + n_free, 1e-12)  # 0 where the prior's weight is infinite
    return Misfit(np.asarray(covariance, dtype=np.float64), math.sqrt(variance), max(dof, 1.0), shares)


def _run_weights(energy: FloatArray, n_free: float, prior: MisfitPrior) -> FloatArray:
    """Return how much each run counts in K, by the EM steps of a Student-t; all alike where too few runs could tell.

    ``energy`` is a run's mean square error in units of a Brownian motion of sd 1, shape (n_runs,).
    """
    weights = np.ones_like(energy)
    if np.isinf(prior.tail_dof) or np.isinf(prior.scale_weight) or n_free <= prior.tail_dof:
        return weights
    for _ in range(_TAIL_PASSES):
        inside = _variance(weights, energy, n_free, prior) * n_free / energy.size  # errors in the sample are that much smaller
        weights = (prior.tail_dof + _ENERGY_DOF) / (prior.tail_dof + _ENERGY_DOF * energy / max(inside, 1e-300))
    return weights


def _variance(weights: FloatArray, energy: FloatArray, n_free: float, prior: MisfitPrior) -> float:
    return float(_pooled(prior.brownian_sd**2, prior.scale_weight, float(weights @ energy), n_free))


def _pooled(prior: Any, weight: float, sum_of_squares: Any, n: float) -> Any:
    """Return (weight · prior + sum of squares) / (weight + n), the prior itself where its weight is infinite."""
    return prior if np.isinf(weight) else (weight * prior + sum_of_squares) / max(weight + n, 1e-12)
