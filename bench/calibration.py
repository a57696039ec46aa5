"""Are the probabilities right? P(A beats B) over all pairs of targets, and the coverage of the intervals over tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from bench.methods.view import Prediction

FloatArray = NDArray[np.float64]
_CLIP = 1e-4
_STEEPEST = 100.0
N_BOOTSTRAP = 2000


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of targets: the forecast probability that the first ends better, and whether it did. Shape (n_pairs,) each."""

    probability: FloatArray
    outcome: FloatArray


def pairs_of(made: Prediction, cost: FloatArray) -> Pairs:
    """Return the pairs of a task whose two targets have a forecast with an interval and different truths.

    Parameters
    ----------
    cost : ndarray, shape (n,)
        The truths, lower is better; pairs with a diverged target are left out.
    """
    known = np.flatnonzero(np.isfinite(made.level) & (made.sd > 0) & np.isfinite(cost))
    i, j = (known[k] for k in np.triu_indices(known.size, 1))
    differ = cost[i] != cost[j]
    i, j = i[differ], j[differ]
    return Pairs(_probability(made, i, j), (cost[i] < cost[j]).astype(np.float64))


def _probability(made: Prediction, i: NDArray[np.int64], j: NDArray[np.int64]) -> FloatArray:
    if made.draws is None:  # independent Gaussians
        z = (made.level[j] - made.level[i]) / np.hypot(made.sd[i], made.sd[j])
        return np.asarray(special.ndtr(z), dtype=np.float64)
    draws = made.draws[:4000]
    out = [np.mean(draws[:, a] < draws[:, b]) + 0.5 * np.mean(draws[:, a] == draws[:, b]) for a, b in zip(i, j, strict=True)]
    return np.array(out, dtype=np.float64)


def pair_calibration(pairs: Sequence[Pairs]) -> dict[str, float | int | None]:
    """Return n_pairs, calibration slope, Brier score and its skill against saying one half, over the pairs of all tasks.

    The slope b is that of a logistic regression of the outcome on the log odds, without intercept (which of two targets comes
    first is arbitrary): below 1 the probabilities are too sure, above 1 not sure enough.
    """
    p = np.concatenate([one.probability for one in pairs]) if pairs else np.zeros(0)
    won = np.concatenate([one.outcome for one in pairs]) if pairs else np.zeros(0)
    if p.size == 0:
        return {"n_pairs": 0, "slope": None, "brier": None, "brier_skill": None}
    brier = float(np.mean((p - won) ** 2))
    slope = _slope(special.logit(np.clip(p, _CLIP, 1 - _CLIP)), won)
    return {"n_pairs": int(p.size), "slope": slope, "brier": brier, "brier_skill": 1.0 - brier / 0.25}


def _slope(odds: FloatArray, won: FloatArray) -> float | None:
    """Return the logistic slope, None where it is not finite (all pairs ordered rightly, or all odds even)."""

    def score(b: float) -> float:
        return float(odds @ (won - special.expit(b * odds)))

    if not score(_STEEPEST) < 0 < score(-_STEEPEST):
        return None
    return float(optimize.brentq(score, -_STEEPEST, _STEEPEST))


def bootstrap_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Return the bootstrap interval over tasks of a mean; None with fewer than two tasks. The same for the same values."""
    x = np.asarray(values, dtype=np.float64)
    if x.size < 2:
        return None
    rng = np.random.default_rng(0)
    means = x[rng.integers(0, x.size, size=(N_BOOTSTRAP, x.size))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
