"""τ_opt(TPP) from one's own sweeps: the best timescale of each sweep, then a power law through them.

A *sweep* is the set of finished runs that share size, tokens and schedule. Its best τ is the vertex of a parabola in log τ
through the lowest final losses at each τ near the minimum. A sweep whose best run sits at the edge of its τ only bounds the
optimum; it is reported and left out of the law.

References: arXiv 2505.13738.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from hpo.core.power_law import PowerLawFit, fit_power_law

FloatArray = NDArray[np.float64]

SAME_TAU = 0.02
"""Relative difference below which two τ are one setting."""
_MEANING = {"lowest": "the lowest tau best", "highest": "the highest tau best", "too few": "fewer than three tau"}
REACH = math.log(4.0)
"""The parabola is fitted to runs within this distance in log τ of the best one: farther out the loss is not quadratic."""


@dataclass(frozen=True, kw_only=True)
class TauOptimum:
    """The best τ of one sweep.

    Attributes
    ----------
    name : str
        The sweep.
    tpp : float
        Its tokens per parameter.
    tau : float
        Vertex of the parabola, or the best run's τ where there is no parabola.
    sd_log_tau : float or None
        Standard error of log τ; None where τ is only a bound.
    status : {"interior", "lowest", "highest", "too few"}
        ``lowest``: the best run has the sweep's lowest τ, so the optimum may lie below; ``highest`` likewise; ``too few``:
        fewer than three distinct τ.
    n_runs, n_tau : int
        Runs, and distinct τ.
    """

    name: str
    tpp: float
    tau: float
    sd_log_tau: float | None
    status: str
    n_runs: int
    n_tau: int

    def interval(self, level: float = 0.9) -> tuple[float, float] | None:
        """Return the interval of τ, or None where it is only a bound."""
        if self.sd_log_tau is None:
            return None
        half = float(stats.norm.ppf(0.5 + level / 2)) * self.sd_log_tau
        return self.tau * math.exp(-half), self.tau * math.exp(half)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        bounds = self.interval()
        return {**asdict(self), "interval": None if bounds is None else list(bounds)}


def tau_optimum(tau: ArrayLike, loss: ArrayLike, *, tpp: float, name: str = "") -> TauOptimum:
    """Return the best τ of one sweep.

    Parameters
    ----------
    tau, loss : array_like, shape (n,)
        Positive τ and the final losses there, lower is better; runs with a non-finite loss are left out. Where several runs
        share a τ (other settings, seeds) the lowest loss counts.
    tpp : float
        Tokens per parameter of the sweep.

    Raises
    ------
    ValueError
        τ not positive, or no finite loss.
    """
    t, y = np.asarray(tau, dtype=np.float64), np.asarray(loss, dtype=np.float64)
    if t.shape != y.shape or t.ndim != 1 or not (np.isfinite(t) & (t > 0)).all() or not np.isfinite(y).any():
        raise ValueError(f"a sweep of tau needs runs with tau above 0 and a finite final loss; found tau {t.tolist()}")
    log_tau, lowest = _profile(np.log(t[np.isfinite(y)]), y[np.isfinite(y)])
    best = int(np.argmin(lowest))
    found: dict[str, Any] = {"name": name, "tpp": tpp, "n_runs": int(t.size), "n_tau": int(log_tau.size)}
    if log_tau.size < 3 or best in (0, log_tau.size - 1):
        status = "too few" if log_tau.size < 3 else "lowest" if best == 0 else "highest"
        return TauOptimum(**found, tau=math.exp(log_tau[best]), sd_log_tau=None, status=status)
    vertex, sd = _vertex(log_tau, lowest, best)
    return TauOptimum(**found, tau=math.exp(vertex), sd_log_tau=sd, status="interior")


def fit_tau_law(optima: Sequence[TauOptimum], *, exponent: float | None = None) -> PowerLawFit:
    """Return τ_opt = c·TPP^k through the interior optima, weighted by their errors.

    Parameters
    ----------
    exponent : float, optional
        Keep this exponent and fit c alone (as Celerity did to the published law): the only way with sweeps at one TPP.

    Raises
    ------
    ValueError
        No interior optimum, or interior optima at one TPP only while the exponent is to be fitted.
    """
    inside = [o for o in optima if o.sd_log_tau is not None]
    if not inside:
        kinds = [(status, sum(o.status == status for o in optima)) for status in ("lowest", "highest", "too few")]
        found = ", ".join(f"{count} with {_MEANING[status]}" for status, count in kinds if count) or "no sweep"
        raise ValueError(f"fitting tau needs a sweep whose best tau lies inside its range; found {found}")
    tpp = [o.tpp for o in inside]
    if exponent is None and max(tpp) / min(tpp) < 1.05:
        raise ValueError(
            f"fitting the exponent of tau needs sweeps at two tpp, or a given exponent; found tpp {tpp[0]:.4g} only"
        )
    names = {"x_name": "tpp", "y_name": "tau", "source": "fitted sweeps"}
    return fit_power_law(
        tpp, [o.tau for o in inside], sd_log_y=[o.sd_log_tau or 0.0 for o in inside], exponent=exponent, **names
    )


def _profile(log_tau: FloatArray, loss: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the distinct log τ, ascending, and the lowest loss at each. Neighbours closer than SAME_TAU are one."""
    order = np.argsort(log_tau, kind="stable")
    t, y = log_tau[order], loss[order]
    group = np.concatenate([[0], np.cumsum(np.diff(t) > SAME_TAU)])
    n = int(group[-1]) + 1
    return (
        np.array([t[group == g].mean() for g in range(n)]),
        np.array([y[group == g].min() for g in range(n)]),
    )


def _vertex(log_tau: FloatArray, loss: FloatArray, best: int) -> tuple[float, float]:
    """Return the vertex of the parabola near the minimum, kept between the best τ's neighbours, and its standard error.

    The error is the delta method's where points are left over to show scatter. It is never below a quarter of the spacing of
    the τ: between its points the shape of the loss is assumed, not seen.
    """
    near = np.abs(log_tau - log_tau[best]) <= REACH
    near[best - 1 : best + 2] = True
    u = log_tau[near] - log_tau[best]
    design = np.stack([np.ones_like(u), u, u**2], axis=1)
    (_, b, c), *_ = np.linalg.lstsq(design, loss[near], rcond=None)
    below, above = log_tau[best - 1] - log_tau[best], log_tau[best + 1] - log_tau[best]
    vertex = float(np.clip(-b / (2 * c), below, above)) if c > 0 else 0.0
    sd = (above - below) / 8
    if c > 0 and u.size > 3:
        residuals = loss[near] - design @ np.linalg.lstsq(design, loss[near], rcond=None)[0]
        covariance = np.linalg.inv(design.T @ design) * float(residuals @ residuals) / (u.size - 3)
        gradient = np.array([0.0, -1 / (2 * c), b / (2 * c**2)])
        sd = max(sd, float(np.sqrt(gradient @ covariance @ gradient)))
    return float(log_tau[best]) + vertex, float(sd)
