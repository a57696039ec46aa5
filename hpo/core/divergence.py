"""Sustained divergence: a run that rose well above its own best and stayed there.

One bad report proves nothing, so the rule wants :data:`PATIENCE` reports in a row, spanning at least :data:`SPAN` of the
training, each above the run's best level by the factor :data:`RISE`, by a good part of what the run has gained so far
(:data:`OF_FALL`), and by far more than the run has strayed before. A run that has values of 0 or below has no factor to rise
by: there it must be worse than it has ever been, after having gained more than its noise. The best
level is the lowest *median of three* reports in a row, so that one lucky value neither arms nor disarms the rule. How far the
run strays is told in two ways, because neither sees all of it: by the noise between neighbouring reports, a lower third of
their second differences (a lucky value and a steep start bend three reports in a row each), and by how far above its best
the run has been, an upper quartile (noise that lasts over several reports). Of the latter one report in :data:`APART` of the
training is remembered, so that a rise in a dense log does not become what is usual before it is seen.

Some runs rise by design: warm restarts, stages, folds end to end. Where most of the complete runs of a family have risen so
(:func:`has_risen`), a rise tells nothing there, and the forecast alone judges.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

PATIENCE = 3
RISE = 0.25
OF_FALL = 0.2
NOISE_FACTOR = 4.5
EXCURSION_FACTOR = 4.0
SPAN = 0.02
REMEMBERED = 32
APART = 0.01
"""Share of the training between two remembered excursions; a sixteenth of what is done, where that is less."""
BEND_OF_UNIT_NOISE = 1.055  # lower third of |second differences| of unit Gaussian noise: 0.4307 · √6


class DivergenceWatch:
    """Follows one run's finite values in order of step, in O(1) a report.

    Parameters
    ----------
    horizon : float or None
        T in the unit of the steps; without it the span is not asked for.
    """

    def __init__(self, horizon: float | None) -> None:
        self._horizon = horizon
        self._last: deque[float] = deque(maxlen=3)
        self._best, self._worst, self._lowest = np.inf, -np.inf, np.inf
        self._fall = 0.0
        self.has_risen = False
        self._streak = 0
        self._streak_start = np.nan
        self._step = np.nan
        self._bends: deque[float] = deque(maxlen=REMEMBERED)
        self._excursions: deque[float] = deque(maxlen=REMEMBERED)
        self._remembered_step = -np.inf

    @property
    def diverging(self) -> bool:
        """True while the last reports meet the rule."""
        if self._streak < PATIENCE:
            return False
        return self._horizon is None or (self._step - self._streak_start) >= SPAN * self._horizon * (1 - 1e-9)

    def add(self, step: float, value: float) -> None:
        """Take one finite value; steps increase."""
        self._step = step
        above = value - self._best
        self._lowest = min(self._lowest, value)
        if above > RISE * abs(self._best) and above > max(usual := self._usual(), self._of_fall(usual)):
            self._streak += 1
            self._streak_start = step if self._streak == 1 else self._streak_start
        else:
            self._streak = 0
            self._remember(value, above)
        self._last.append(value)
        if len(self._last) == 3:
            middle = sorted(self._last)[1]
            if middle < self._best:
                self._best, self._fall = middle, max(self._fall, self._worst - middle)
            self._worst = max(self._worst, middle) if self._streak == 0 else self._worst
        self.has_risen = self.has_risen or self.diverging

    def extend(self, steps: NDArray[np.float64], values: NDArray[np.float64]) -> None:
        """Take many finite values, as :meth:`add` on each; long logs are first thinned to block means."""
        if values.size > 4096:
            edges = np.linspace(0, values.size, 2049).astype(int)
            sums = np.add.reduceat(values, edges[:-1])
            steps, values = steps[edges[1:] - 1], sums / np.diff(edges)
        for step, value in zip(steps.tolist(), values.tolist(), strict=True):
            self.add(step, value)

    def _of_fall(self, usual: float) -> float:
        """Return how far above its best the run must be for what it has gained so far; infinite where that tells nothing."""
        if self._lowest > 0:
            return OF_FALL * self._fall
        return self._fall if self._fall > usual else np.inf

    def _remember(self, value: float, above: float) -> None:
        if len(self._last) >= 2:
            self._bends.append(abs(value - 2.0 * self._last[-1] + self._last[-2]))
        if np.isfinite(above) and self._step - self._remembered_step >= self._apart():
            self._excursions.append(above)
            self._remembered_step = self._step

    def _apart(self) -> float:
        """Return how many steps lie between two remembered excursions; 0, each report, without a horizon."""
        return 0.0 if self._horizon is None else min(APART * self._horizon, self._step / 16) * (1 - 1e-9)

    def _usual(self) -> float:
        """Return how far above its best the run gets by its noise; 0 while too little is known."""
        noise = NOISE_FACTOR * _quantile(self._bends, 1 / 3) / BEND_OF_UNIT_NOISE
        return max(noise, EXCURSION_FACTOR * _quantile(self._excursions, 3 / 4))


def has_risen(fractions: NDArray[np.float64], losses: NDArray[np.float64]) -> bool:
    """Return True if a run met the rule at any point of its training; shapes (n,), t̂ ascending and finite losses."""
    watch = DivergenceWatch(1.0)
    watch.extend(fractions, losses)
    return watch.has_risen


def _quantile(values: deque[float], share: float) -> float:
    return sorted(values)[int(share * len(values))] if len(values) >= 4 else 0.0
