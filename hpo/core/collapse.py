"""How well runs collapse: the spread of normalised curves, and the noise floor it is compared with.

    Δ(t̂) = std over runs of ℓ(t̂) / mean over runs of ℓ(t̂)          ℓ = L/L(T)
    σ(t̂) = std over seeds of L(t̂) / mean over seeds of L(t̂)        one size, one setting

Runs "supercollapse" where Δ < σ over the last part of training. Δ(1) = 0 by construction.

References
----------
arXiv 2507.02119.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpo.core.curve import Curve

FloatArray = NDArray[np.float64]


def loss_at(curve: Curve, fractions: ArrayLike) -> FloatArray:
    """Return the run's raw values at ``fractions``, linear in t̂ between bin means; NaN outside the points seen.

    Within a bin of either end the nearest bin mean serves.
    """
    t = np.asarray(fractions, dtype=np.float64)
    if curve.fractions.size == 0:
        return np.full_like(t, np.nan)
    slack = 0.01
    inside = (t >= curve.fractions[0] - slack) & (t <= curve.fractions[-1] + slack)
    return np.where(inside, np.interp(t, curve.fractions, curve.means), np.nan)


def normalised(curve: Curve, fractions: ArrayLike) -> FloatArray:
    """Return ℓ(t̂) = L(t̂)/L(T) of a complete run; exactly 1 at t̂ = 1.

    Raises
    ------
    ValueError
        The run is not complete.
    """
    if curve.final_loss is None:
        raise ValueError(f"a normalised curve needs a complete run; {curve.run_id!r} ends at {curve.fraction_seen}")
    ell = loss_at(curve, fractions) / curve.final_loss
    return np.where(np.asarray(fractions, dtype=np.float64) >= 1.0, 1.0, ell)


def collapse_spread(curves: Sequence[Curve], fractions: ArrayLike) -> FloatArray:
    """Return Δ(t̂) at ``fractions``, shape (n,): sample standard deviation over runs of ℓ, over its mean.

    Raises
    ------
    ValueError
        Fewer than two runs, or one that is not complete.
    """
    return _relative_spread([normalised(c, fractions) for c in curves], "runs")


def noise_floor(seeds: Sequence[Curve], fractions: ArrayLike) -> FloatArray:
    """Return σ(t̂) at ``fractions``, shape (n,), from runs that differ in their seed only.

    Raises
    ------
    ValueError
        Fewer than two runs.
    """
    return _relative_spread([loss_at(c, fractions) for c in seeds], "seeds")


def _relative_spread(rows: Sequence[FloatArray], of: str) -> FloatArray:
    if len(rows) < 2:
        raise ValueError(f"a spread needs at least two {of}; found {len(rows)}")
    table = np.stack(rows)
    return np.asarray(np.std(table, axis=0, ddof=1) / np.mean(table, axis=0), dtype=np.float64)
