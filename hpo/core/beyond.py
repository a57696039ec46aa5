"""What stays uncertain of runs that are longer or larger than all references, whatever references agree on.

References of one length cannot tell how the order of settings moves with it, and differences between trials tie a sweep
together, so that their errors seem to average out; but beyond the references all trials err together.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from hpo.core.coordinates import SAME_KIND, Kind, unlike

FloatArray = NDArray[np.float64]
DRIFT_TILT = 0.002
"""How far final values drift apart over an e-fold of size or length (sd, of log loss), by e-folds of the learning rate."""
KEPT, DRIFT_SD = 0.8, 0.01
"""Share of its variance that the level of runs of a new size or length keeps, up to this sd of log loss an e-fold (squared)."""


def distances(kinds: Sequence[Kind], known: Collection[Kind]) -> FloatArray:
    """Return how far the nearest of the ``known`` kinds is from each in size and length, in e-folds, shape (n,)."""
    nearest = {kind: min((unlike(kind, one) for one in known), default=0.0) for kind in set(kinds)}
    return np.array([nearest[kind] for kind in kinds])


def far_out(apart: FloatArray) -> FloatArray:
    """Return distances in e-folds as they count for drifts: none up to :data:`hpo.core.coordinates.SAME_KIND`, at most one."""
    return np.where(apart > SAME_KIND, np.minimum(apart, 1.0), 0.0)


def drift_apart(rates: FloatArray, apart: FloatArray, unit: float = 1.0) -> FloatArray:
    """Return the covariance of how differences between trials change with size and length, shape (n, n).

    Parameters
    ----------
    rates : ndarray, shape (n,)
        Log learning rates about the references' mean.
    apart : ndarray, shape (n,)
        Each trial's distance from the nearest reference in size or length, in e-folds.
    unit : float
        Of the model's scale (:mod:`hpo.core.unit`).
    """
    tilted = np.sqrt(far_out(apart)) * rates
    return np.asarray((unit * DRIFT_TILT) ** 2 * np.outer(tilted, tilted), dtype=np.float64)


def kept_level(before: FloatArray, after: FloatArray, apart: FloatArray, unit: float = 1.0) -> FloatArray:
    """Return the variance that trials have in common after all, shape (n, n), to be added to ``after``.

    Their mean stays as uncertain as one trial by itself, as far as levels drift with size and length.

    Parameters
    ----------
    before, after : ndarray, shape (n, n)
        Covariance of their final values without and with the landscape.
    apart, unit
        As of :func:`drift_apart`.
    """
    new = np.where(np.diag(before) > 0, far_out(apart), 0.0)
    if not new.any():
        return np.zeros_like(after)
    lost = KEPT * np.mean(np.diag(before)[new > 0]) - np.mean(np.diag(after)[new > 0])
    drift = np.sqrt(new)
    scale = min(max(float(lost) / float(np.mean(new[new > 0])), 0.0), (unit * DRIFT_SD) ** 2)
    return np.asarray(scale * np.outer(drift, drift), dtype=np.float64)
