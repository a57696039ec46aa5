"""What a method sees of a task, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from hpo.core.curve import Curve
from hpo.core.metric import Metric

FloatArray = NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class TaskView:
    """A task at one stop fraction: prefixes of the targets, whole references, nothing else.

    Attributes
    ----------
    stop : float
        Fraction of training at which the targets were cut.
    targets : tuple of Curve
        Prefixes, with recipe and settings.
    references : tuple of Curve
        Whole curves.
    reference_prefixes : tuple of Curve
        The references cut at the same fraction, for a method's own errors.
    rng : numpy.random.Generator
    """

    stop: float
    targets: tuple[Curve, ...]
    references: tuple[Curve, ...]
    reference_prefixes: tuple[Curve, ...]
    rng: np.random.Generator
    _memory: dict[Hashable, object] = field(default_factory=dict, repr=False)

    @property
    def metric(self) -> Metric:
        """The metric of all curves."""
        return self.targets[0].metric

    def remember(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return ``compute()``, done once a replay for each key; use it for fits that depend on references only."""
        if key not in self._memory:
            self._memory[key] = compute()
        return cast("T", self._memory[key])


@dataclass(frozen=True, eq=False)
class Prediction:
    """A method's answer on a task; every array has shape (n_targets,).

    Attributes
    ----------
    score : ndarray
        Lower is better; NaN where the method abstains; equal scores are ties, +inf a run known to have diverged.
    level, sd, dof : ndarray
        Location, scale and degrees of freedom of a Student-t for the final value on the metric's model scale; NaN where there
        is none (``dof`` inf: Gaussian; ``sd`` NaN: a value without an interval).
    draws : ndarray, shape (n_draws, n_targets), or None
        Joint draws of the final values on the model's scale.
    """

    score: FloatArray
    level: FloatArray
    sd: FloatArray
    dof: FloatArray
    draws: FloatArray | None = None

    @classmethod
    def ranking(cls, score: FloatArray) -> Prediction:
        """Return an answer that ranks and forecasts no value."""
        unknown = np.full_like(score, np.nan)
        return cls(score, unknown, unknown, unknown)

    @classmethod
    def gaussian(cls, level: FloatArray, sd: float) -> Prediction:
        """Return an answer that ranks by its forecasts, all with one standard deviation."""
        return cls(level, level, np.where(np.isfinite(level), sd, np.nan), np.full_like(level, np.inf))


@dataclass(frozen=True)
class Method:
    """A named method, and what its answer costs."""

    name: str
    predict: Callable[[TaskView], Prediction]
    looks: bool = True
    learns: bool = True


def names(curves: Sequence[Curve]) -> tuple[str, ...]:
    """Return the run ids: what identifies a set of references within a replay."""
    return tuple(curve.run_id for curve in curves)


def current_levels(curves: Sequence[Curve]) -> FloatArray:
    """Return the values so far on the model's scale, shape (n,); +inf after a non-finite one, NaN without points."""
    level = np.array([float(c.metric.to_model(c.current_value)) for c in curves])
    return np.where([_is_dead(c) for c in curves], np.inf, level)


def _is_dead(curve: Curve) -> bool:
    if curve.nonfinite_step is None:
        return False
    last_finite = curve.fractions[-1] * (curve.horizon or 0.0) if curve.fractions.size else 0.0
    return bool(last_finite <= curve.nonfinite_step)


def final_levels(curves: Sequence[Curve]) -> FloatArray:
    """Return L(T) of whole curves on the model's scale, NaN where a run is not complete, shape (n,)."""
    ends = [np.nan if c.final_loss is None else c.final_loss for c in curves]
    return curves[0].metric.to_model(ends) if ends else np.zeros(0)


def residual_sd(errors: FloatArray) -> float:
    """Return the root mean square of the finite errors, NaN with fewer than two: the Gaussian interval of every baseline."""
    known = errors[np.isfinite(errors)]
    return float(np.sqrt(np.mean(known**2))) if known.size >= 2 else float("nan")


def folds(n: int, at_most: int = 8) -> list[NDArray[np.int64]]:
    """Return the indices left out in each round: one by one, or ``at_most`` interleaved groups."""
    k = min(n, at_most)
    return [np.arange(start, n, k) for start in range(k)]
