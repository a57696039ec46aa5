"""From a study's values to what the core minimises, and back: the one place of the Optuna side that knows the direction.

A value is first turned so that smaller is better, then put on a scale where the shape model works: the log of a positive
loss, the log of 1 − x for an accuracy in [0, 1), or the value itself. In the last case values are divided by how far finished
trials of the study still fall after a tenth of their training, because the priors of the shape model are sized for logs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import exp, inf, isfinite, log1p
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from hpo.core.curve import Curve
from hpo.core.metric import Metric

Kind = Literal["log", "log1m", "identity"]
KINDS = ("log", "log1m", "identity")
TYPICAL_FALL = 0.2
"""Fall of log loss after a tenth of training for which the core's priors are sized; values without a log are scaled to it."""
WORTH_A_LOG = 0.3
"""Range of all values, in logs, below which they are compared as they are, scaled by their own fall."""


@dataclass(frozen=True)
class Extremes:
    """Smallest and largest finite value seen, smaller being better; ``low > high`` while nothing was seen."""

    low: float = inf
    high: float = -inf

    def including(self, other: Extremes) -> Extremes:
        """Return the extremes of both."""
        return Extremes(min(self.low, other.low), max(self.high, other.high))


def extremes_of(losses: ArrayLike) -> Extremes:
    """Return the extremes of the finite ones among ``losses``, shape (n,)."""
    values = np.asarray(losses, dtype=np.float64)
    finite = values[np.isfinite(values)]
    return Extremes(float(finite.min(initial=inf)), float(finite.max(initial=-inf)))


def kind_for(seen: Extremes) -> Kind:
    """Return the scale that values, smaller being better, allow and need.

    All above 0: the log. All in (−1, 0], accuracies turned around: log(1 − x). Anything else, or a range over which such a log
    is as good as straight (:data:`WORTH_A_LOG`): the value itself.
    """
    if seen.low > 0:
        spans = seen.high < seen.low or seen.high >= seen.low * exp(WORTH_A_LOG)
        return "log" if spans else "identity"
    if seen.low > -1 and seen.high <= 0:
        return "log1m" if log1p(seen.high) - log1p(seen.low) >= WORTH_A_LOG else "identity"
    return "identity"


@dataclass(frozen=True)
class Scale:
    """An affine map from a study's values to the core's: ``offset + factor · value``, and the metric the core then sees.

    Parameters
    ----------
    factor, offset : float
        ``factor`` holds the sign of the direction.
    metric : Metric
        Of the mapped values.
    """

    factor: float
    offset: float
    metric: Metric = field(default_factory=Metric)

    @classmethod
    def for_study(cls, sign: float, kind: Kind, spread: float = 1.0) -> Scale:
        """Return the scale of a study learning from its own trials.

        Parameters
        ----------
        sign : float
            1 where the study minimises, −1 where it maximises.
        kind : str
            One of :data:`KINDS`.
        spread : float
            Divides the values where ``kind`` is ``"identity"``.
        """
        metric = Metric(name=f"objective_{kind}", transform="identity" if kind == "identity" else "log", end="value")
        offset = 1.0 if kind == "log1m" else 0.0
        return cls(sign / spread if kind == "identity" else sign, offset, metric)

    @classmethod
    def for_metric(cls, sign: float, metric: Metric) -> Scale:
        """Return the scale under which a study's values are those of ``metric``, turned around where directions differ."""
        return cls(sign if metric.mode == "min" else -sign, 0.0, metric)

    @property
    def kind(self) -> Kind:
        """What the core works on."""
        return "log1m" if self.offset else self.metric.transform

    @property
    def uses_objective_value(self) -> bool:
        """True if a finished trial's end value is what its objective returned, not what it reported last."""
        return self.metric.end not in ("window", "last")

    def with_spread(self, spread: float) -> Scale:
        """Return the identity scale with values divided by ``spread``."""
        return replace(self, factor=self.factor / abs(self.factor) / spread)

    def to_core(self, value: float) -> float:
        """Return the core's value of a study's value."""
        return self.offset + self.factor * value

    def to_study(self, value: float | None) -> float | None:
        """Return the study's value of a core value; None stays None."""
        return None if value is None else (value - self.offset) / self.factor

    def interval(self, lower: float | None, upper: float | None) -> tuple[float | None, float | None]:
        """Return an interval of core values as study values, in ascending order."""
        ends = self.to_study(lower), self.to_study(upper)
        return ends if self.factor > 0 else ends[::-1]

    def level(self, value: float) -> float:
        """Return the model-scale level of a study's value; NaN outside the scale's domain."""
        return float(self.metric.to_model(self.to_core(value)))

    def worse_by(self, level: float, margin: float) -> float:
        """Return the level that is worse than ``level`` by the relative ``margin``."""
        return level + (log1p(margin) if self.metric.transform != "identity" else margin * abs(level))


def late_fall(curve: Curve) -> float:
    """Return how far a complete curve still falls after a tenth of training: the larger of its fall and its late spread."""
    late = curve.fractions >= 0.1
    if curve.final_loss is None or not late.any():
        return 0.0
    means = curve.means[late]
    return max(abs(float(means[0]) - curve.final_loss), 2.0 * float(means.std()))


def jsonable(value: Any) -> Any:
    """Return a number as JSON takes it: NaN and infinities as their names."""
    return repr(value) if isinstance(value, float) and not isfinite(value) else value
