"""Which of a run's reports leave its worker, and what they say of the steps between them.

The driver is told of about a hundred reports of a whole run, each with the loss at that step and the mean since the last
report, with the mean's own step. Means keep what thinning would lose: a forecast from a hundred of them is nearly one from
every step. The last per cent is told in finer parts where ``n_end_reports`` asks for it, so that its mean, the final loss, is
that of all its steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hpo.core.curve import END_WINDOW_FRACTION


@dataclass(frozen=True)
class Report:
    """A step with its loss, and the mean over the steps since the last report, told at their mean step.

    ``judged`` is the metric that the sweep judges by, as it was last reported; NaN before.
    """

    step: int
    loss: float
    mean_step: float
    mean_loss: float
    judged: float = math.nan


class Thinner:
    """Takes every step of a run and passes on a thinned subset.

    Parameters
    ----------
    n_steps, stop_step : int
        The whole run, and where it stops now: that step, and every non-finite loss, always pass.
    n_reports, n_end_reports : int
        About how many reports a whole run passes on, and its last per cent besides (0: no finer than the rest).
    forward : callable
        Takes each :class:`Report` that passes.
    """

    def __init__(
        self, n_steps: int, stop_step: int, n_reports: int, n_end_reports: int, forward: Callable[[Report], None]
    ) -> None:
        self._stride = -(-n_steps // n_reports)
        self._stop_step, self._forward = stop_step, forward
        self._end_from = n_steps * (1 - END_WINDOW_FRACTION) if n_end_reports else math.inf
        self._end_stride = max(1, math.floor(n_steps * END_WINDOW_FRACTION / n_end_reports)) if n_end_reports else 1
        self._n_since, self._steps_since, self._losses_since = 0, 0, 0.0
        self._before: int | None = None

    def take(self, step: int, loss: float, judged: float = math.nan) -> None:
        """Take the next step of the run, and the judged metric as last reported; not every step need be told."""
        self._n_since += 1
        self._steps_since += step
        self._losses_since += loss
        if self._passes(step) or not math.isfinite(loss):
            means = self._steps_since / self._n_since, self._losses_since / self._n_since
            self._forward(Report(step, loss, *means, judged))
            self._n_since, self._steps_since, self._losses_since = 0, 0, 0.0
        self._before = step

    def _passes(self, step: int) -> bool:
        is_end = step > self._end_from and self._comes_to(step, self._end_stride)
        return self._comes_to(step, self._stride) or step >= self._stop_step or is_end

    def _comes_to(self, step: int, stride: int) -> bool:
        """Return True where a multiple of the stride lies between the step before and this one."""
        before = step - 1 if self._before is None else self._before
        return step // stride > before // stride


def thinned(
    steps: Iterable[int], losses: Iterable[float], n_steps: int, stop_step: int, n_reports: int, n_end_reports: int
) -> list[Report]:
    """Return the reports that a logged run passes on, or has passed on, were it not interrupted."""
    found: list[Report] = []
    thinner = Thinner(n_steps, stop_step, n_reports, n_end_reports, found.append)
    for step, loss in zip(steps, losses, strict=True):
        thinner.take(step, loss)
    return found
