"""A sweep on a simulated clock: trials arrive in random order on a few workers, and a rule stops them as they go.

Every trial reports at the same fractions of its training; a worker whose trial ended takes the next one. A rule sees reports
in the order in which they would come in, and nothing of the future.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from bench.records import Record
from bench.tasks import Task

FloatArray = NDArray[np.float64]


class Rule(Protocol):
    """Decides which running trials are stopped."""

    def begin(self, trial: int) -> None:
        """Take note that a trial starts."""

    def report(self, trial: int, look: int) -> bool:
        """Return True if the trial is stopped at its report number ``look`` (from 0)."""
        ...

    def end(self, trial: int) -> None:
        """Take note that a trial has run to its end."""


@dataclass(frozen=True, eq=False)
class Sweep:
    """A task as a rule may see it: the trials' reports up to now are the rule's to ask for, by trial and look.

    Attributes
    ----------
    looks : ndarray, shape (n_looks,)
        Fractions of training at which trials report; the last is 1.
    seed : int
        For rules that draw.
    """

    task: Task
    mode: Literal["min", "max"]
    looks: FloatArray
    seed: int = 0

    @property
    def trials(self) -> tuple[Record, ...]:
        """The trials' runs."""
        return self.task.targets

    @cached_property
    def values(self) -> FloatArray:
        """Raw value that each trial reports at each look, NaN once it has diverged, shape (n_trials, n_looks)."""
        return np.array([[_reported(record, float(look)) for look in self.looks] for record in self.trials])


@dataclass
class Outcome:
    """How far each trial ran: ``reach`` in fractions of its training, shape (n_trials,), and which ran to the end."""

    reach: FloatArray
    completed: NDArray[np.bool_]
    order: list[int] = field(default_factory=list)


def simulate(sweep: Sweep, rule: Rule, *, n_workers: int, order: Sequence[int]) -> Outcome:
    """Return how far each trial ran under ``rule``, taken up in ``order`` by ``n_workers`` workers.

    Time is steps; of events at one time the trial that was started first comes first.
    """
    horizons, looks = sweep.task.horizons, sweep.looks
    reach, completed = np.zeros(len(sweep.trials)), np.zeros(len(sweep.trials), dtype=bool)
    waiting = list(reversed(order))
    events: list[tuple[float, int, int, int]] = []  # time, place in the order, trial, look
    place = {trial: k for k, trial in enumerate(order)}

    def start(now: float) -> None:
        if waiting:
            trial = waiting.pop()
            rule.begin(trial)
            heapq.heappush(events, (now + looks[0] * horizons[trial], place[trial], trial, 0))

    for _ in range(n_workers):
        start(0.0)
    while events:
        now, _, trial, look = heapq.heappop(events)
        reach[trial] = looks[look]
        stopped = rule.report(trial, look)
        last = look + 1 == looks.size
        if last:
            completed[trial] = True
            rule.end(trial)
        if stopped or last:
            start(now)
        else:
            step = (looks[look + 1] - looks[look]) * horizons[trial]
            heapq.heappush(events, (now + step, place[trial], trial, look + 1))
    return Outcome(reach, completed, list(order))


def in_two_phases(sweep: Sweep, stop: float, kept: Sequence[int]) -> Outcome:
    """Return the outcome of running every trial to ``stop`` and the ``kept`` ones to their end."""
    completed = np.isin(np.arange(len(sweep.trials)), np.asarray(kept, dtype=np.int64))
    return Outcome(np.where(completed, 1.0, stop), completed)


def _reported(record: Record, look: float) -> float:
    curve = record.prefix(look)
    dead = curve.nonfinite_step is not None
    return float("nan") if dead or curve.n_points == 0 else float(curve.current_value)


RuleMaker = Callable[[Sweep], Rule]
