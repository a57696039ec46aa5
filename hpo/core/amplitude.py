"""How far one run goes along its family's curve: more or less than the others do, by a factor of its own.

A run that learns nothing stays where it began, another falls twice as far as its family's mean: what is left of either after
the shape is a multiple of the shape itself, r_i = a_i·s̄(t̂). Where references differ so, a run's own fall tells how much is
still to come. Where they do not, it is noise; so how much they differ, σ_a, is learned, by its likelihood given each
reference's least-squares a_i under a half-Cauchy prior.

Only where nothing but their label tells runs apart. Sizes and timescales bend curves in ways of their own, which look like
amplitudes early and are none: on our own models of 1e4 to 1e5 parameters the larger size was forecast 4 % too low.

Before :data:`BURN_IN` the curve counts as flat: how fast a run leaves its start (warm-up, burn-in, the unigram plateau) says
nothing of how far it will go. Measured on language models (bench/LOG.md): with the early part, their errors grow by half.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BURN_IN = 0.06
TOLD_FROM = 0.1
"""t̂ from which on errors tell the amplitudes."""
GRID: FloatArray = np.array([0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8])
"""Values of σ_a that are weighed."""
_EDGES: FloatArray = np.array([0.0, 0.005, 0.015, 0.035, 0.075, 0.15, 0.3, 0.6, np.inf])


def travelled(residuals: FloatArray, nodes: FloatArray) -> FloatArray:
    """Return s̄, shape (n_nodes,): the mean of the references' y(t̂) − y(1), flat before :data:`BURN_IN`.

    Parameters
    ----------
    residuals : ndarray, shape (n_runs, n_nodes)
    nodes : ndarray, shape (n_nodes,)
        t̂ ascending.
    """
    mean = np.mean(residuals, axis=0)
    return np.where(nodes < BURN_IN, np.interp(BURN_IN, nodes, mean), mean)


def fit_amplitude(errors: FloatArray, covariance: FloatArray, curve: FloatArray, n_free: float, prior_sd: float) -> float:
    """Return σ_a, by its posterior mean.

    Parameters
    ----------
    errors : ndarray, shape (n_runs, n_nodes)
        What the regression leaves of each reference, from :data:`TOLD_FROM` on.
    covariance : ndarray, shape (n_nodes, n_nodes)
        Of such an error without amplitudes: a Brownian motion and noise.
    curve : ndarray, shape (n_nodes,)
        s̄ of :func:`travelled` at the same nodes.
    n_free : float
        Degrees of freedom that the regression has left: errors in the sample are that much smaller.
    prior_sd : float
        Scale of the half-Cauchy; 0: no amplitudes.
    """
    ridge = 1e-9 * float(np.mean(np.diag(covariance))) * np.eye(len(covariance))
    weights = np.linalg.solve(covariance + ridge, curve)
    told = float(weights @ curve)
    if prior_sd == 0 or not told > 0:
        return 0.0
    energy = float(np.sum((errors @ weights / told) ** 2))  # Σ a_i², each of variance (σ_a² + 1/told)·n_free/n_runs
    total = GRID**2 + 1.0 / told
    log_posterior = -0.5 * (n_free * np.log(total) + energy / total) + np.log(np.diff(np.arctan(_EDGES / prior_sd)))
    mass = np.exp(log_posterior - np.max(log_posterior))
    return float(mass @ GRID / mass.sum())
