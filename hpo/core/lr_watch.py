"""Whether the learning rate that a run logs follows the schedule it was given."""

from __future__ import annotations

import math
from collections import deque
from decimal import Decimal
from statistics import median

from hpo.core.recipe import Recipe
from hpo.core.schedules import MATCH_TOLERANCE

PATIENCE = 3
SPAN = 0.004
N_LEARNED = 33
SETTLED = 0.02


class LrWatch:
    """Compares logged learning rates with η(t̂) times a peak that the first reports past warm-up tell.

    Logs may hold a base or a scaled learning rate, so only the shape is compared: a report is off if it misses the schedule by
    more than 5 % of the peak, and the run is off after three such reports in a row over at least 0.4 % of training. Logs may
    also be rounded (``lr 0.0003``): the last digit that any report has had so far may be off by one.
    """

    def __init__(self, recipe: Recipe | None) -> None:
        known = recipe is not None and recipe.schedule.is_known
        self._schedule = recipe.schedule if recipe is not None and known else None
        self._warmup = (recipe.warmup_fraction or 0.0) if recipe is not None else 0.0
        self._peaks: deque[float] = deque(maxlen=N_LEARNED)
        self._streak: list[float] = []
        self._last_digit = math.inf
        self.off_since: float | None = None
        self.ratio: float | None = None

    def add(self, fraction: float, learning_rate: float) -> None:
        """Take one report, in order of t̂; nothing is learnt from a rate that the schedule says is near zero."""
        if self._schedule is None or self.off_since is not None or fraction < self._warmup + SETTLED:
            return
        eta = float(self._schedule(fraction, self._warmup))
        self._last_digit = min(self._last_digit, _last_digit(learning_rate))
        if len(self._peaks) < PATIENCE:
            if eta > 0.2 and learning_rate > 0:
                self._peaks.append(learning_rate / eta)
            return
        peak = median(self._peaks)
        if abs(learning_rate / peak - eta) <= MATCH_TOLERANCE + self._last_digit / peak:
            self._streak = []
            if eta > 0.2 and learning_rate > 0 and len(self._peaks) < N_LEARNED:
                self._peaks.append(learning_rate / eta)
            return
        self._streak.append(fraction)
        if len(self._streak) >= PATIENCE and fraction - self._streak[0] >= SPAN:
            self.off_since = self._streak[0]
            self.ratio = learning_rate / (peak * eta) if eta > 0 else None


def _last_digit(rate: float) -> float:
    """Return what the last digit of a rate stands for, as it is written; infinity for 0."""
    exponent = Decimal(repr(float(rate))).normalize().as_tuple().exponent
    return 10.0**exponent if rate and isinstance(exponent, int) else math.inf
