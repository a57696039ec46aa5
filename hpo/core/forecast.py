"""Forecasts as records: the distribution of a run's final value, or the reason why there is none."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hpo.core.curve import Curve

FloatArray = NDArray[np.float64]
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

STATUS_REASONS = {
    "ok": "forecast from the family's curve",
    "complete": "the run is complete: this is its measured final value",
    "no_references": "the model has no complete reference runs",
    "no_family": "no reference has this metric, family and schedule",
    "unknown_horizon": "the run's horizon is unknown, so its fraction of training is",
    "past_horizon": "the run has gone past its stated horizon",
    "non_finite": "the run reported a non-finite value",
    "too_few_points": "no value yet where the references have any",
    "bad_misfit": "the run does not follow the family's curve",
    "misleading": "curves up to there would have ordered the finished runs worse than chance",
}
"""Every status of a forecast and what it means."""


@dataclass(frozen=True)
class Forecast:
    """Distribution of one run's final value, or why there is none.

    Attributes
    ----------
    status : str
        A key of :data:`STATUS_REASONS`; numbers are None unless it is ``"ok"`` or ``"complete"``.
    final_loss, sd, lower, upper : float or None
        Median, standard deviation and 90 % interval on the raw scale.
    quantiles : tuple of (probability, value)
        On the raw scale.
    level, level_sd, dof : float or None
        Location, scale and degrees of freedom of the Student-t on the model's scale (smaller is better).
    end_sd : float
        What the noise of the final value, a report like any other, adds to ``level_sd`` (in squares).
    shared_end_sd : float
        The same of the references' final values, which the forecast is as far off as they are on average.
    misfit : float or None
        Root mean square of the prefix's standardised residuals; near 1 when the run follows its family.
    family : str or None
        The family used.
    n_references : int
        References of that family.
    controls : tuple of str
        What the forecast was conditioned on.
    fraction : float or None
        t̂ of the last point used.
    """

    status: str
    reason: str
    run_id: str = ""
    fraction: float | None = None
    final_loss: float | None = None
    sd: float | None = None
    lower: float | None = None
    upper: float | None = None
    quantiles: tuple[tuple[float, float], ...] = ()
    level: float | None = None
    level_sd: float | None = None
    dof: float | None = None
    end_sd: float = 0.0
    shared_end_sd: float = 0.0
    misfit: float | None = None
    family: str | None = None
    n_references: int = 0
    controls: tuple[str, ...] = ()

    @property
    def is_judged(self) -> bool:
        """True if the final value is forecast or known."""
        return self.final_loss is not None

    def settled(self, against_own: bool = False) -> Forecast:
        """Return the forecast of the final level without the noise of its measurement; its raw interval stays as it is.

        For comparisons with levels that are free of that noise too: which run is better, not which will look so.

        Parameters
        ----------
        against_own : bool
            The level to compare with is settled against the references of this forecast (:mod:`hpo.core.finals`): both are then
            off by the same mean noise of their ends, which is left out as well.
        """
        if self.level_sd is None:
            return self
        left_out = self.end_sd**2 + (self.shared_end_sd**2 if against_own else 0.0)
        return replace(self, level_sd=math.sqrt(max(self.level_sd**2 - left_out, 0.0)), end_sd=0.0, shared_end_sd=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {**asdict(self), "quantiles": [list(q) for q in self.quantiles], "controls": list(self.controls)}


@dataclass(frozen=True)
class SweepForecast:
    """Forecasts of the trials of one sweep, made together.

    Attributes
    ----------
    forecasts : tuple of Forecast
        One a trial, in order.
    p_best : ndarray, shape (n_trials,)
        Probability of the best final value among the judged trials, from joint draws; NaN for abstained ones.
    draws : ndarray, shape (n_draws, n_trials)
        Joint draws of the final values on the model's scale, without the noise of their measurement that trials seem to have in
        common; NaN columns for abstained trials.
    """

    forecasts: tuple[Forecast, ...]
    p_best: FloatArray
    draws: FloatArray = field(repr=False)


def student_quantile(dof: float, probability: FloatArray | float) -> FloatArray:
    """Return quantiles of Student's t; of the normal for infinite ``dof``."""
    found = special.ndtri(probability) if np.isinf(dof) else special.stdtrit(dof, probability)
    return np.asarray(found, dtype=np.float64)


@lru_cache(256)
def _quantiles(dof: float) -> FloatArray:
    """Return Student's t at :data:`QUANTILES`."""
    return student_quantile(dof, np.array(QUANTILES))


def judged_forecast(curve: Curve, level: float, sd: float, dof: float, **about: Any) -> Forecast:
    """Return the forecast of a Student-t with location ``level``, scale ``sd`` and ``dof`` on the model's scale.

    ``about`` fills ``end_sd``, ``shared_end_sd``, ``misfit``, ``family``, ``n_references`` and ``controls``.
    """
    at = sorted(curve.metric.to_raw(level + max(sd, 1e-12) * _quantiles(dof)).tolist())
    final = float(curve.metric.to_raw(level))
    spread = sd * (1.0 if np.isinf(dof) else np.sqrt(dof / (dof - 2.0)) if dof > 2 else float(student_quantile(dof, 0.84)))
    return Forecast(
        status="ok",
        reason=STATUS_REASONS["ok"],
        run_id=curve.run_id,
        fraction=curve.fraction_seen,
        final_loss=final,
        sd=float(spread / curve.metric.slope(final)),
        lower=at[0],
        upper=at[-1],
        quantiles=tuple(zip(QUANTILES, at, strict=True)),
        level=level,
        level_sd=sd,
        dof=dof,
        **about,
    )


def completed_forecast(curve: Curve, final: float) -> Forecast:
    """Return the forecast of a complete run: its measured final value, known exactly."""
    return Forecast(
        status="complete",
        reason=STATUS_REASONS["complete"],
        run_id=curve.run_id,
        fraction=curve.fraction_seen,
        final_loss=final,
        sd=0.0,
        lower=final,
        upper=final,
        quantiles=tuple((q, final) for q in QUANTILES),
        level=float(curve.metric.to_model(final)),
        level_sd=0.0,
        dof=float("inf"),
    )


def abstained_forecast(status: str, curve: Curve, **about: Any) -> Forecast:
    """Return a forecast without numbers, for a ``status`` of :data:`STATUS_REASONS`."""
    return Forecast(status, STATUS_REASONS[status], curve.run_id, curve.fraction_seen, **about)
