"""How long a sweep may take, and what may still begin within it.

The budget is for the whole sweep, finishing included: what explores stops beginning while there is still time to train one
candidate to its end, at the speed measured so far. One candidate is always finished, whatever the clock says.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress

from hpo.adapters.atomic import write_json
from hpo.engine.plan import Run
from hpo.engine.run_folder import RunFolder
from hpo.engine.runs_on_disk import RunsOnDisk

SAVE_EVERY_S = 15.0
"""What a driver that is killed has spent and nobody knows of, at most."""


class Stopwatch:
    """Wall-clock of a run over all its drivers."""

    def __init__(self, folder: RunFolder) -> None:
        self._path = folder.seconds
        self._before_s = float(json.loads(self._path.read_text(encoding="utf-8"))) if self._path.exists() else 0.0
        self._started = self._saved_at = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds spent so far."""
        return self._before_s + time.monotonic() - self._started

    def save(self) -> None:
        """Remember them for the next driver."""
        write_json(self._path, self.seconds)
        self._saved_at = time.monotonic()

    def tick(self) -> None:
        """Remember them now and then: a driver that is killed cannot."""
        if time.monotonic() - self._saved_at >= SAVE_EVERY_S:
            with suppress(OSError):  # a full disk is told of by what needs the room
                self.save()


class TimeBudget:
    """The time left of ``budget_s`` seconds (None: without end) on ``stopwatch``, for the runs of one sweep."""

    def __init__(self, budget_s: float | None, stopwatch: Stopwatch, runs: RunsOnDisk) -> None:
        self._budget_s, self._stopwatch, self._runs = budget_s, stopwatch, runs
        self._speeds: dict[str, float] = {}

    @property
    def is_over(self) -> bool:
        """True once the time is up."""
        return self._budget_s is not None and self._stopwatch.seconds >= self._budget_s

    def leaves_time_for(self, flops: float) -> bool:
        """Return True if one run of so many FLOPs still fits, as fast as the runs so far; True while nothing was measured."""
        if self._budget_s is None:
            return True
        speed = self._flops_per_s()
        return self._stopwatch.seconds + (0.0 if speed is None else flops / speed) < self._budget_s

    def may_explore(self, run: Run) -> bool:
        """Return True if ``run`` may begin and still leave time to finish the dearest candidate from its stopping point."""
        finishing = max(c.flops - c.flops_at(c.stop_step) for c in self._runs.plan.candidates)
        return self.leaves_time_for(run.flops_at(run.stop_step) + finishing)

    def _flops_per_s(self) -> float | None:
        """Return the speed of the median run that has ended, candidates before proxies."""
        plan = self._runs.plan
        return self._median_speed(plan.candidates) or self._median_speed(plan.proxies)

    def _median_speed(self, runs: tuple[Run, ...]) -> float | None:
        for run in runs:
            outcome = None if run.name in self._speeds else self._runs.outcome(run)
            if outcome is not None and outcome.status == "reached" and outcome.seconds > 0:
                self._speeds[run.name] = run.flops_at(outcome.step) / outcome.seconds
        known = sorted(self._speeds[run.name] for run in runs if run.name in self._speeds)
        return known[len(known) // 2] if known else None


def always(_run: Run) -> bool:
    """Return True: a run that may begin whenever its turn comes."""
    return True


MayStart = Callable[[Run], bool]
