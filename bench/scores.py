"""How good a method's answer is: the choice it makes, the order it gives, the values and intervals it forecasts.

**Ties.** Targets with equal scores (identical prefixes, a random choice) are chosen between with equal chances: hit, regret
and cost are expected values. Constant scores have rank correlation 0.

**Diverged targets.** Their truth is the worst there is: never a hit; as a pick they count the regret of the worst finite
target (and the cap, in ``regret_capped_pct``).

**Abstentions.** A target that a method does not judge is ranked by its current value, shifted by the median drop to the
forecasts of the judged ones (which is the current best where none is judged). ``decided`` is the share judged.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from bench.methods.view import Prediction
from hpo.core.metric import Metric

FloatArray = NDArray[np.float64]
TIE = 1e-12
REGRET_CAP_PCT = 10.0


def with_fallback(score: FloatArray, current: FloatArray) -> FloatArray:
    """Return scores without NaN: what is not judged is ranked by its current value (+inf where there is none)."""
    judged = np.isfinite(score) & np.isfinite(current)
    drop = float(np.median(score[judged] - current[judged])) if judged.any() else 0.0
    shifted = np.where(np.isnan(current), np.inf, current + drop)
    return np.where(np.isnan(score), shifted, score)


def pick_weights(score: FloatArray) -> FloatArray:
    """Return the chance of each target to be picked, shape (n,), summing to 1: equal among the lowest scores."""
    lowest = np.min(score)
    tied = score <= lowest + TIE * max(1.0, abs(lowest)) if np.isfinite(lowest) else score == lowest
    return np.asarray(tied / tied.sum(), dtype=np.float64)


def selection_scores(
    weights: FloatArray, score: FloatArray, truth: FloatArray, mode: str, noise: float
) -> dict[str, float | None]:
    """Return hit, regret_pct, regret_capped_pct and rho of a choice.

    Parameters
    ----------
    weights : ndarray, shape (n,)
        Of :func:`pick_weights`.
    score, truth : ndarray, shape (n,)
        What the method said (lower is better), and the raw values that decide; ±inf for diverged targets.
    noise : float
        Relative seed noise: a pick within it of the best is a hit.
    """
    cost = truth if mode == "min" else -truth
    finite = np.isfinite(cost)
    best, worst = cost[finite].min(), cost[finite].max()
    scale = max(abs(float(best)), 1e-300)
    regret = (np.where(finite, cost, worst) - best) / scale
    hit = finite & (regret <= noise + TIE)
    capped = np.where(finite, np.minimum(100 * regret, REGRET_CAP_PCT), REGRET_CAP_PCT)
    return {
        "hit": float(weights @ hit),
        "regret_pct": float(100 * (weights @ regret)),
        "regret_capped_pct": float(weights @ capped),
        "rho": rank_correlation(score, cost),
    }


def rank_correlation(score: FloatArray, cost: FloatArray) -> float | None:
    """Return Spearman's ρ with mid-ranks; 0 for constant scores, None with fewer than three targets or constant truth."""
    if score.size < 3 or np.all(cost == cost[0]):
        return None
    a, b = stats.rankdata(score), stats.rankdata(cost)
    if np.all(a == a[0]):
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def value_scores(made: Prediction, final: FloatArray, metric: Metric) -> dict[str, float | None]:
    """Return mae_pct, mdae_pct (median), bias_pct, coverage90 and crps of the forecasts of the targets' own final values.

    ``crps`` is relative (a share of L(T)): that of the Student-t on the metric's model scale, turned into relative raw units
    at L(T). None where there is nothing to average.
    """
    known = np.isfinite(made.level) & np.isfinite(final) & np.isfinite(metric.to_model(final))
    if not known.any():
        return dict.fromkeys(("mae_pct", "mdae_pct", "bias_pct", "coverage90", "crps"))
    level, truth = made.level[known], final[known]
    scale = np.maximum(np.abs(truth), 1e-300)
    with np.errstate(over="ignore"):
        off_pct = 100 * (metric.to_raw(level) - truth) / scale
    out: dict[str, float | None] = {
        "mae_pct": _finite(np.mean(np.abs(off_pct))),
        "mdae_pct": _finite(np.median(np.abs(off_pct))),
        "bias_pct": _finite(np.mean(off_pct)),
    }
    sd, dof = made.sd[known], made.dof[known]
    if np.isnan(sd).all():
        return out | {"coverage90": None, "crps": None}
    has = ~np.isnan(sd)
    off = metric.to_model(truth[has]) - level[has]
    half = sd[has] * stats.t.ppf(0.95, dof[has])
    crps = student_crps(off, sd[has], dof[has]) / (metric.slope(truth[has]) * scale[has])
    return out | {"coverage90": float(np.mean(np.abs(off) <= half)), "crps": _finite(np.mean(crps))}


def _finite(value: np.floating | float) -> float | None:
    return float(value) if np.isfinite(value) else None


def student_crps(off: FloatArray, scale: FloatArray, dof: FloatArray) -> FloatArray:
    """Return the CRPS of Student-t forecasts (Gaussian for infinite ``dof``), in the unit of ``off``.

    Parameters
    ----------
    off : ndarray, shape (n,)
        Observation minus location.
    scale, dof : ndarray, shape (n,)
        ``scale`` 0 is a point forecast; ``dof`` below 1.1 counts as 1.1 (the CRPS is infinite from 1 down).

    References
    ----------
    Jordan, Krüger, Lerch (2019), doi:10.18637/jss.v090.i12.
    """
    nu = np.minimum(np.maximum(dof, 1.1), 1e6)
    spread = np.maximum(scale, 1e-15)
    z = off / spread
    ratio = np.exp(special.betaln(0.5, nu - 0.5) - 2 * special.betaln(0.5, nu / 2))
    tail = 2 * stats.t.pdf(z, nu) * (nu + z**2) / (nu - 1)
    return np.asarray(spread * (z * (2 * stats.t.cdf(z, nu) - 1) + tail - 2 * np.sqrt(nu) / (nu - 1) * ratio))
