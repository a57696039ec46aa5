"""Decisions from forecasts, under one error budget per sweep.

The error that matters is stopping the trial that would have won. Its probability, summed over everything that a sweep stops,
is kept below α: each stopped trial spends its own P(best) from one budget. Multiplicity is in the trials, not in the looks,
so nothing is spent by looking again.

Two rules share it. :func:`select` judges everybody at once, at the stopping fraction, and keeps the smallest set that holds
the best with probability at least 1 − α. :func:`decide` judges one trial as it goes, against the best final value known; a
single stop may spend at most a share of what is left, so that the budget lasts for any number of trials (:func:`allowance`).
Its P(best) is that of the joint law of the trial and its rivals where the caller has one.

Precedence in both: a non-finite value stops · sustained divergence stops (in :func:`decide`, unless the trial is still better
than the best final value) · before the minimum fraction or in warm-up nothing else does · a forecast that abstains never stops
anything · the forecast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from scipy import special

from hpo.core.curve import Curve
from hpo.core.forecast import STATUS_REASONS, Forecast, SweepForecast
from hpo.core.posterior import probability_best
from hpo.core.quantities import is_real, is_whole

Action = Literal["continue", "pause", "stop"]
Number = float | int | str | None
SHARE = 0.2
"""Largest share of the error budget that the first stop of :func:`decide` may spend, see :func:`allowance`."""
LIKELY = 0.5
"""A trial more likely than this to beat the best final value, by its forecast alone, goes on without another question."""

REASONS = {
    "non_finite": "a reported value is NaN or infinite",
    "diverging": "the value rose far above the run's own best and stayed there",
    "too_early": "before the minimum fraction or still in warm-up",
    "too_few_references": "fewer references than the stated minimum",
    "no_incumbent": "no finished trial to compare with",
    "may_win": "stopping it would spend more error than allowed",
    "cannot_win": "its forecast final value is worse than the best",
    "selected": "in the smallest set that holds the best",
    "not_selected": "outside the set that holds the best",
    "capped": "left out by keep_max although it might win",
    "complete": "the run is complete",
    **{status: text for status, text in STATUS_REASONS.items() if status != "ok"},
}
"""Every reason code of a decision and what it says."""


@dataclass(frozen=True)
class StoppingSettings:
    """How forecasts become decisions.

    Attributes
    ----------
    min_fraction : float
        No forecast stops a run before this t̂.
    alpha : float
        Error budget: bound on the sum over stopped trials of their probability of being best.
    margin : float
        Relative: a trial is stopped only if it is worse than the best by more than this (0.01 = 1 % of a log loss).
    min_references : int
        Fewer references of its family than this and a trial is not judged.
    keep_min, keep_max : int, int or None
        Of :func:`select`: at least and at most so many go on. What the cap cuts off is reported as error spent.
    """

    min_fraction: float = 0.1
    alpha: float = 0.05
    margin: float = 0.0
    min_references: int = 3
    keep_min: int = 1
    keep_max: int | None = None

    def __post_init__(self) -> None:
        for name in ("min_fraction", "alpha", "margin"):
            _require(is_real(getattr(self, name)), name, "a number", getattr(self, name))
        _require(0 < self.min_fraction < 1, "min_fraction", "inside (0, 1)", self.min_fraction)
        _require(0 < self.alpha < 1, "alpha", "inside (0, 1)", self.alpha)
        _require(0 <= self.margin < 1, "margin", "in [0, 1)", self.margin)
        for name in ("min_references", "keep_min"):
            count = getattr(self, name)
            _require(is_whole(count) and count >= 1, name, "a whole number of at least 1", count)
        most = self.keep_max
        _require(most is None or (is_whole(most) and most >= self.keep_min), "keep_max", "at least keep_min", most)


@dataclass(frozen=True)
class SweepState:
    """What a sweep knows when one of its trials is judged.

    Attributes
    ----------
    best_level : float or None
        Lowest final value of the finished trials, on the model's scale; None before any has finished.
    error_spent : float
        Sum of P(best) over the trials stopped so far.
    n_open : int or None
        How many trials may still be stopped, the judged one among them; None where nobody knows how many are to come.
    """

    best_level: float | None = None
    error_spent: float = 0.0
    n_open: int | None = None


@dataclass(frozen=True)
class Decision:
    """An action, its reason code (a key of :data:`REASONS`) and the numbers it rests on."""

    action: Action
    reason: str
    numbers: dict[str, Number] = field(default_factory=dict)

    @property
    def error_spent(self) -> float:
        """What this decision takes from the sweep's error budget."""
        spent = self.numbers.get("p_best") if self.action == "stop" else None
        return float(spent) if isinstance(spent, int | float) else 0.0


@dataclass(frozen=True)
class Selection:
    """Outcome of :func:`select`; every field but ``error_spent`` refers to trials by position.

    Attributes
    ----------
    decisions : tuple of Decision
        One a trial.
    kept, stopped : tuple of int
        Kept ones ordered by P(best), abstained ones last.
    tie_set : tuple of int
        Smallest set of judged trials that holds the best with probability at least 1 − α: what the forecasts cannot tell apart.
    error_spent : float
        Sum of P(best) over the stopped trials; above α only where ``keep_max`` cut deeper.
    """

    decisions: tuple[Decision, ...]
    kept: tuple[int, ...]
    stopped: tuple[int, ...]
    tie_set: tuple[int, ...]
    error_spent: float

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reason code of each trial."""
        return tuple(d.reason for d in self.decisions)


def check_values(curve: Curve) -> Decision | None:
    """Return the decision that the values alone make: stop on a non-finite value or sustained divergence, else None."""
    numbers = {"fraction": curve.fraction_seen, "last_step": curve.last_step}
    if curve.nonfinite_step is not None:
        return Decision("stop", "non_finite", {**numbers, "step": curve.nonfinite_step})
    if curve.diverging:
        return Decision("stop", "diverging", {**numbers, "value": curve.current_value})
    return None


def decide(
    curve: Curve,
    forecast: Forecast | None,
    state: SweepState,
    settings: StoppingSettings,
    chance: Callable[[], float | None] | None = None,
) -> Decision:
    """Return the decision for one running trial.

    Parameters
    ----------
    curve : Curve
        The trial so far.
    forecast : Forecast or None
        Of that curve; None while it is too early to make one (see :func:`is_too_early`).
    chance : callable, optional
        Returns the trial's probability of ending lowest among its rivals, the margin included, by their joint law
        (:mod:`hpo.core.rivals`); None if that is not known. Asked only where the forecast by itself leaves it open. Without
        one, P(best) is the forecast's probability of beating the best final value known.
    """
    by_values = _stop_by_values(curve, state)
    if by_values is not None:
        return by_values
    if is_too_early(curve, settings):
        return Decision("continue", "too_early", {"fraction": curve.fraction_seen})
    if forecast is None:
        raise ValueError("forecast must be given once a trial is past its minimum fraction")
    numbers = forecast_numbers(forecast)
    if not forecast.is_judged or forecast.status == "complete":
        return Decision("continue", forecast.status, numbers)
    if forecast.n_references < settings.min_references:
        return Decision("continue", "too_few_references", numbers)
    p_best = _chance(forecast, state, settings, chance)
    if p_best is None:
        return Decision("continue", "no_incumbent", numbers)
    allowed = allowance(settings.alpha, state.error_spent, state.n_open)
    numbers |= {"p_best": p_best, "allowed": allowed, "incumbent_level": state.best_level}
    return Decision("stop", "cannot_win", numbers) if p_best <= allowed else Decision("continue", "may_win", numbers)


def allowance(alpha: float, spent: float, n_open: int | None = None) -> float:
    """Return the P(best) that the next stop may spend, given what the stops so far have: α/5 at first.

    Of n stops that each spend all they may the last one spends 4 α/((n + 4)(n + 3)): these sum to α however many there are,
    and fall with the square of n only, so that the budget lasts for thousands. A stop that spends next to nothing takes nothing
    from those after it. Where it is known that ``n_open`` trials at most may be stopped yet, an equal share of what is left
    if that is more.
    """
    left = alpha - spent
    if left <= 0:
        return 0.0
    for_any_number = left * left / (left + (1.0 / SHARE - 1.0) * alpha)
    return for_any_number if n_open is None else max(for_any_number, left / max(n_open, 1))


def _chance(
    forecast: Forecast, state: SweepState, settings: StoppingSettings, chance: Callable[[], float | None] | None
) -> float | None:
    """Return P(best) of a judged trial, None if there is nobody to compare it with."""
    best = state.best_level
    alone = None if best is None else probability_below(forecast, best + math.log1p(settings.margin))
    if chance is None or (alone is not None and alone > LIKELY):
        return alone
    jointly = chance()
    return alone if jointly is None else jointly


def is_decided_early(curve: Curve, state: SweepState, settings: StoppingSettings) -> bool:
    """True if :func:`decide` needs no forecast: the values alone stop the run, or it is too early for one."""
    return _stop_by_values(curve, state) is not None or is_too_early(curve, settings)


def is_too_early(curve: Curve, settings: StoppingSettings) -> bool:
    """True before the minimum fraction or within warm-up; an unknown horizon is not early, it is unknown."""
    if curve.fraction_seen is None:
        return False
    warmup = 0.0 if curve.recipe is None else curve.recipe.warmup_fraction or 0.0
    return curve.fraction_seen < max(settings.min_fraction, warmup) - 1e-9


def _stop_by_values(curve: Curve, state: SweepState) -> Decision | None:
    """Return :func:`check_values`, but for a run that has risen and is still better than the best final value."""
    found = check_values(curve)
    if found is None or found.reason != "diverging" or state.best_level is None:
        return found
    return None if float(curve.metric.to_model(curve.current_value)) < state.best_level else found


def probability_below(forecast: Forecast, level: float) -> float:
    """Return P(final value ≤ ``level``) of a judged forecast, on the model's scale."""
    if forecast.level is None or forecast.level_sd is None or forecast.dof is None:
        raise ValueError(f"forecast of run {forecast.run_id!r} has no distribution: {forecast.status}")
    if forecast.level_sd == 0:
        return float(forecast.level <= level)
    z = (level - forecast.level) / forecast.level_sd
    return float(special.ndtr(z) if math.isinf(forecast.dof) else special.stdtr(forecast.dof, z))


def select(curves: Sequence[Curve], forecast: SweepForecast, settings: StoppingSettings) -> Selection:
    """Return which trials of a sweep go on, all judged together at the stopping fraction.

    Kept is the smallest set of judged trials that holds the best with probability ≥ 1 − α, at least ``keep_min``, at most
    ``keep_max``; trials that could not be judged go on besides, whatever the cap: nothing is stopped by a guess. With a
    margin, a trial counts as best where it comes within the margin of the best.
    """
    by_values = [check_values(c) for c in curves]
    judged = [
        i
        for i, f in enumerate(forecast.forecasts)
        if by_values[i] is None and f.is_judged and (f.status == "complete" or f.n_references >= settings.min_references)
    ]
    p_best = _p_best(forecast, judged, settings.margin)
    order = sorted(judged, key=lambda i: (-p_best[i], _level(forecast.forecasts[i]), i))
    tie_set = tuple(order[: _smallest_set([p_best[i] for i in order], settings.alpha)])
    keep = max(len(tie_set), min(settings.keep_min, len(order)))
    capped = keep if settings.keep_max is None else min(keep, settings.keep_max)
    kept, decisions = order[:capped], []
    for i, f in enumerate(forecast.forecasts):
        numbers = forecast_numbers(f) | ({"p_best": p_best[i]} if i in p_best else {})
        ready = by_values[i]
        if ready is not None:
            decisions.append(ready)
        elif i not in p_best:
            decisions.append(Decision("continue", f.status if not f.is_judged else "too_few_references", numbers))
        elif i in kept:
            decisions.append(Decision("continue", "selected", numbers))
        else:
            decisions.append(Decision("stop", "capped" if i in order[:keep] else "not_selected", numbers))
    unjudged = [i for i, d in enumerate(decisions) if d.action == "continue" and i not in p_best]
    stopped = tuple(i for i, d in enumerate(decisions) if d.action == "stop")
    spent = float(sum(p_best.get(i, 0.0) for i in stopped))
    return Selection(tuple(decisions), (*kept, *unjudged), stopped, tie_set, spent)


def _p_best(forecast: SweepForecast, judged: Sequence[int], margin: float) -> dict[int, float]:
    """Return P(best) among the judged trials only, by position."""
    if not judged:
        return {}
    p_best = probability_best(forecast.draws[:, list(judged)], math.log1p(margin))
    return {i: float(p) for i, p in zip(judged, p_best, strict=True)}


def _smallest_set(descending: Sequence[float], alpha: float) -> int:
    """Return how many of the leading probabilities are needed for their rest to sum to at most ``alpha``."""
    rest = sum(descending)
    for count, p in enumerate(descending):
        if rest <= alpha:
            return max(count, 1)
        rest -= p
    return len(descending)


def forecast_numbers(forecast: Forecast) -> dict[str, Number]:
    """Return the numbers of a forecast that a decision is logged with."""
    return {
        "fraction": forecast.fraction,
        "forecast": forecast.final_loss,
        "lower": forecast.lower,
        "upper": forecast.upper,
        "misfit": forecast.misfit,
        "family": forecast.family,
        "n_references": forecast.n_references,
    }


def _level(forecast: Forecast) -> float:
    return math.inf if forecast.level is None else forecast.level


def _require(ok: bool, name: str, expected: str, found: float | None) -> None:
    if not ok:
        raise ValueError(f"{name} must be {expected}; found {found!r}")
