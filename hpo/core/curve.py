"""One run's learning curve, binned on a fixed grid of training fractions.

A log of a million points and one of a hundred cost the same: points are gathered into :data:`BIN_EDGES` (log-spaced
early, 1 % wide later), each bin keeping a count, a mean and a variance. :class:`CurveStream` takes one report at a
time in O(1); :class:`Curve` is an immutable snapshot, built from a stream or at once by :meth:`Curve.from_points`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf, isfinite, nan
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpo.core.divergence import DivergenceWatch
from hpo.core.metric import Metric
from hpo.core.recipe import Recipe

FloatArray = NDArray[np.float64]

_EARLY = np.geomspace(0.001, 0.05, 16)
BIN_EDGES: FloatArray = np.concatenate(([0.0], _EARLY[:-1], np.arange(5, 101) / 100.0))
"""Edges of the bins in t̂; bin k holds ``BIN_EDGES[k] < t̂ ≤ BIN_EDGES[k + 1]``."""
N_BINS = BIN_EDGES.size - 1
END_WINDOW_FRACTION = 0.01
END_WINDOW_POINTS = 5
MOST_MISSING = 0.021
MOST_MISSING_ENDED = 0.05
"""Share of training that a complete run's log may lack at its end; of a run that is known to have ended."""
_ROUNDING = 1e-9
_EDGES: list[float] = BIN_EDGES.tolist()
_CELLS = 3200  # the end window is kept as sums over cells of 1/3200 of training: 32 cells in 1 %
_WINDOW_CELLS = round(END_WINDOW_FRACTION * _CELLS)


@dataclass(frozen=True)
class Curve:
    """A snapshot of one run, complete or not.

    Attributes
    ----------
    fractions, means, variances, counts : ndarray, shape (n_filled,)
        Per non-empty bin, in order of t̂: mean t̂ of its points, mean and (population) variance of the raw values,
        number of points.
    horizon : float or None
        T, in the unit of the steps; None if unknown (then t̂ is unknown and the arrays are empty).
    last_step : float
        Largest step seen, finite or not (−inf without points).
    current_value : float
        The loss so far: over the last 1 % of training, at least 5 points, for a window metric; else the last value.
    current_variance : float
        Squared standard error of ``current_value`` (0 where it is a single evaluated value).
    mean_gap : float
        Mean distance of points, in t̂ (0 with fewer than two).
    nonfinite_step : float or None
        First step whose value was NaN or infinite. Such values enter no bin.
    diverging : bool
        True if the last reports show sustained divergence (:mod:`hpo.core.divergence`).
    recent_gap : float
        Largest distance between the last :data:`END_WINDOW_POINTS` points, in t̂.
    has_ended : bool
        True if the run is known to report no more: see :meth:`ended`.
    """

    run_id: str
    family: str
    metric: Metric
    horizon: float | None
    recipe: Recipe | None
    settings: Mapping[str, Any]
    fractions: FloatArray = field(repr=False)
    means: FloatArray = field(repr=False)
    variances: FloatArray = field(repr=False)
    counts: FloatArray = field(repr=False)
    n_points: int
    last_step: float
    current_value: float
    current_variance: float
    mean_gap: float
    nonfinite_step: float | None = None
    diverging: bool = False
    end_value: float | None = None
    recent_gap: float = 0.0
    has_ended: bool = False

    @classmethod
    def from_points(
        cls,
        steps: ArrayLike,
        values: ArrayLike,
        *,
        horizon: float | None,
        recipe: Recipe | None = None,
        settings: Mapping[str, Any] | None = None,
        metric: Metric | None = None,
        run_id: str = "",
        family: str = "",
        end_value: float | None = None,
    ) -> Curve:
        """Return the curve of points given in any order.

        Parameters
        ----------
        steps, values : array_like, shape (n,)
            Steps or tokens, in the unit of ``horizon``, and raw values. Of several values at one step the first
            counts. Points whose step is not finite are refused.
        horizon : float or None
            T > 0, or None if it is unknown.

        Raises
        ------
        ValueError
            Shapes differ, a step is not finite or negative, or ``horizon`` is not positive.
        """
        x, v = _checked_points(steps, values)
        stream = CurveStream(horizon=horizon, recipe=recipe, settings=settings, metric=metric, run_id=run_id, family=family)
        stream.extend(x, v)
        return replace(stream.snapshot(), end_value=end_value)

    @property
    def fraction_seen(self) -> float | None:
        """t̂ of the last step, None while the horizon is unknown."""
        return None if self.horizon is None else max(self.last_step, 0.0) / self.horizon

    @property
    def is_complete(self) -> bool:
        """True if every value was finite and no further report is due: the last lies within one gap (≤ 2 %) of T.

        Logs often stop one report before T (steps 0, 200, …, T − 200). Of a run that has ended the gap may be larger (≤ 5 %).
        """
        seen = self.fraction_seen
        if seen is None or self.nonfinite_step is not None or self.n_points == 0:
            return False
        gap, most = (
            (max(self.mean_gap, self.recent_gap), MOST_MISSING_ENDED) if self.has_ended else (self.mean_gap, MOST_MISSING)
        )
        return seen >= 1.0 - min(max(0.005, 1.05 * gap), most)

    def ended(self) -> Curve:
        """Return the curve of a run that is known to report no more: it is complete if less than one of its gaps is missing.

        So a sparse or irregular log that ends at 96 % is whole, a dense one is not.
        """
        return self if self.has_ended else replace(self, has_ended=True)

    @property
    def final_loss(self) -> float | None:
        """L(T) by the metric's own definition, None while incomplete."""
        if not self.is_complete:
            return None
        return self.current_value if self.end_value is None else self.end_value


class CurveStream:
    """Gathers reports of one run; :meth:`add` is O(1) and memory does not grow with the number of points.

    Steps must come in increasing order; a step not beyond the last is ignored (the first value of a step counts, and
    a run resumed without its checkpoint repeats steps).
    """

    def __init__(
        self,
        *,
        horizon: float | None,
        recipe: Recipe | None = None,
        settings: Mapping[str, Any] | None = None,
        metric: Metric | None = None,
        run_id: str = "",
        family: str = "",
    ) -> None:
        if horizon is not None and not (np.isfinite(horizon) and horizon > 0):
            raise ValueError(f"horizon must be finite and above 0; found {horizon!r}")
        self._about: dict[str, Any] = {
            "run_id": run_id,
            "family": family,
            "metric": metric or Metric(),
            "horizon": horizon,
            "recipe": recipe,
            "settings": dict(settings or {}),
        }
        self._horizon = horizon
        self._bins = [[0.0] * N_BINS for _ in range(4)]  # count, sum of t̂, mean, sum of squared deviations
        self._recent: deque[tuple[float, float]] = deque(maxlen=END_WINDOW_POINTS)
        self._window: deque[tuple[int, float, int]] = deque()  # cells of the last 1 %: (index, sum, count)
        self._last_step = -inf
        self._first_step = nan
        self._n_points = 0
        self._nonfinite: float | None = None
        self._watch = DivergenceWatch(horizon)

    def add(self, step: float, value: float) -> bool:
        """Take one report; return False if it was ignored because its step is not beyond the last one."""
        if not step > self._last_step:
            return False
        self._last_step = float(step)
        if not isfinite(value):
            self._nonfinite = float(step) if self._nonfinite is None else self._nonfinite
            return True
        self._n_points += 1
        self._first_step = float(step) if self._n_points == 1 else self._first_step
        self._recent.append((float(step), float(value)))
        self._watch.add(float(step), self._about["metric"].to_loss(float(value)))
        if self._horizon is not None:
            self._add_to_bin(step / self._horizon, value)
            self._add_to_window(step / self._horizon, value)
        return True

    def extend(self, steps: FloatArray, values: FloatArray) -> None:
        """Take many reports, sorted by step and distinct; as :meth:`add` on each, but vectorised into the bins."""
        keep = steps > self._last_step
        x, v = steps[keep], values[keep]
        if x.size == 0:
            return
        finite = np.isfinite(v)
        if not finite.all() and self._nonfinite is None:
            self._nonfinite = float(x[~finite][0])
        self._last_step = float(x[-1])
        x, v = x[finite], v[finite]
        if x.size == 0:
            return
        self._first_step = float(x[0]) if self._n_points == 0 else self._first_step
        self._n_points += x.size
        self._recent.extend(zip(x[-END_WINDOW_POINTS:].tolist(), v[-END_WINDOW_POINTS:].tolist(), strict=True))
        self._watch.extend(x, self._about["metric"].to_loss(v))
        if self._horizon is None:
            return
        fractions = x / self._horizon
        self._merge_bins(fractions, v)
        late = fractions > fractions[-1] - 1.1 * END_WINDOW_FRACTION
        for t, value in zip(fractions[late].tolist(), v[late].tolist(), strict=True):
            self._add_to_window(t, value)

    def snapshot(self) -> Curve:
        """Return the curve as it stands."""
        sums = np.array(self._bins)
        count, position, mean, squares = sums[:, sums[0] > 0]
        current, variance = self._current()
        return Curve(
            fractions=position / count,
            means=mean.copy(),
            variances=squares / count,
            counts=count.copy(),
            n_points=self._n_points,
            last_step=self._last_step,
            current_value=current,
            current_variance=variance,
            mean_gap=self._gap(),
            recent_gap=self._recent_gap(),
            nonfinite_step=self._nonfinite,
            diverging=self._watch.diverging,
            **self._about,
        )

    def _add_to_bin(self, fraction: float, value: float) -> None:
        index = max(min(bisect_left(_EDGES, fraction - _ROUNDING), N_BINS) - 1, 0)
        count, position, mean, squares = self._bins
        count[index] += 1.0
        position[index] += fraction
        deviation = value - mean[index]
        mean[index] += deviation / count[index]
        squares[index] += deviation * (value - mean[index])

    def _merge_bins(self, fractions: FloatArray, values: FloatArray) -> None:
        index = np.clip(np.searchsorted(BIN_EDGES, fractions - _ROUNDING) - 1, 0, N_BINS - 1)
        count = np.bincount(index, minlength=N_BINS).astype(np.float64)
        held = np.maximum(count, 1)
        mean = np.bincount(index, values, N_BINS) / held
        squares = np.bincount(index, (values - mean[index]) ** 2, N_BINS)
        sums = np.array(self._bins)
        total = np.maximum(sums[0] + count, 1)
        gap = mean - sums[2]
        sums[3] += squares + gap**2 * sums[0] * count / total
        sums[2] += np.where(count > 0, gap * count / total, 0.0)
        sums[1] += np.bincount(index, fractions, N_BINS)
        sums[0] += count
        self._bins = sums.tolist()

    def _add_to_window(self, fraction: float, value: float) -> None:
        """Keep the last 1 % as at most 33 cells, so that memory stays bounded."""
        cell = ceil(fraction * _CELLS - _CELLS * _ROUNDING)
        if self._window and self._window[-1][0] == cell:
            _, total, count = self._window[-1]
            self._window[-1] = (cell, total + value, count + 1)
        else:
            self._window.append((cell, value, 1))
        while self._window[0][0] <= cell - _WINDOW_CELLS:
            self._window.popleft()

    def _current(self) -> tuple[float, float]:
        if not self._recent:
            return float("nan"), float("nan")
        if self._about["metric"].end != "window":
            return self._recent[-1][1], 0.0
        last = np.array([value for _, value in self._recent])
        cells = np.array([(total, count) for _, total, count in self._window]).reshape(-1, 2)
        if cells[:, 1].sum() <= END_WINDOW_POINTS:
            return float(last.mean()), float(last.var(ddof=1) / last.size) if last.size > 1 else 0.0
        return float(cells[:, 0].sum() / cells[:, 1].sum()), self._bin_noise() / float(cells[:, 1].sum())

    def _bin_noise(self) -> float:
        """Variance of one point about its bin, from the last filled bin with at least 3 points, else 0."""
        count, _, _, squares = self._bins
        usable = [k for k in range(N_BINS) if count[k] >= 3]
        return squares[usable[-1]] / (count[usable[-1]] - 1) if usable else 0.0

    def _gap(self) -> float:
        if self._horizon is None or self._n_points < 2:
            return 0.0
        return float((self._last_step - self._first_step) / (self._n_points - 1) / self._horizon)

    def _recent_gap(self) -> float:
        if self._horizon is None or self._n_points < 2:
            return 0.0
        steps = [step for step, _ in self._recent]
        return max(b - a for a, b in pairwise(steps)) / self._horizon


def _checked_points(steps: ArrayLike, values: ArrayLike) -> tuple[FloatArray, FloatArray]:
    x, v = np.asarray(steps, dtype=np.float64).ravel(), np.asarray(values, dtype=np.float64).ravel()
    if x.shape != v.shape:
        raise ValueError(f"steps and values must have one length; found {x.size} and {v.size}")
    if not np.all(np.isfinite(x)) or np.any(x < 0):
        raise ValueError("steps must be finite and not negative")
    _, first = np.unique(x, return_index=True)
    return x[first], v[first]
