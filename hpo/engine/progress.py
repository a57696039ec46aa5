"""What happens in a sweep, as events for whoever listens: the log in the run folder, a display, trackers.

The events are those of :mod:`hpo.adapters.progress_log`. Listeners are called in the driver's thread and should be quick. One
that raises is dropped with a word: nothing that only shows a sweep may end it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpo.adapters.progress_log import Event
from hpo.adapters.ray_log import EventLog
from hpo.engine.plan import Run
from hpo.engine.thinning import Report
from hpo.engine.worker import Job

Listener = Callable[[Event], None]
SIGN_OF_LIFE_S = 5.0
"""So often at least a driver at work touches its log."""
_FORECAST = ("lower", "upper", "p_best", "misfit", "n_references")


class SweepProgress:
    """Is told of trials as they run, as a :class:`hpo.engine.trial_events.TrialEvents` is, and passes it on as events.

    Parameters
    ----------
    listeners : sequence of callable
        Each is called with every event.
    log : Path, optional
        Where the events are kept; its time of change is a sign of life.
    """

    def __init__(self, listeners: Sequence[Listener] = (), log: Path | None = None) -> None:
        self._listeners = list(listeners)
        if log is not None:
            self._listeners.insert(0, EventLog(log).write)
        self._log, self._alive_at = log, 0.0
        self._total_flops = 0.0
        self._decided: dict[str, Event] = {}

    def begin(self, total_flops: float, **about: Any) -> None:
        """Tell that a driver begins, and the expected cost of the whole sweep."""
        self._total_flops = total_flops
        self._tell("driver", total_flops=total_flops, **about)

    def say(self, line: str) -> None:
        """Tell one line for people."""
        self._tell("said", text=line)

    def expect(self, total_flops: float) -> None:
        """Correct the expected cost of the whole sweep."""
        self._total_flops = total_flops
        self._tell("expect", flops=total_flops)

    def expect_more(self, flops: float) -> None:
        """Add to the expected cost of the whole sweep."""
        self.expect(self._total_flops + flops)

    def add(self, name: str, run: Run, done_step: int, *, number: int | None = None, is_new: bool = True) -> None:
        """Make a run known, of which ``done_step`` steps are there already (and counted already, unless it is new)."""
        about = {"role": run.role, "number": number, "settings": run.searched, "of": run.name, "counted": is_new}
        self._tell("run", name=name, step=done_step, n_steps=run.n_steps, stop_step=run.stop_step, flops=run.flops, **about)

    def started(self, job: Job) -> None:
        """Tell that the job was given a worker."""
        self._tell("started", name=job.name, until=job.stop_step)

    def reported(self, job: Job, report: Report) -> None:
        """Tell how far the job is; ``judged``, if known, is the metric by which it is judged, as it was last reported."""
        self._tell("reported", name=job.name, step=report.step, loss=_finite(report.loss), judged=_finite(report.judged))

    def decided(self, name: str, action: str, reason: str, numbers: Mapping[str, Any]) -> None:
        """Tell a decision about a run, unless it is the last one again.

        ``numbers`` may have ``fraction``, ``forecast`` (or ``final_loss``), ``lower``, ``upper``, ``p_best``, ``misfit``,
        ``n_references`` and ``is_tied``.
        """
        known = {key: _finite(numbers.get(key)) for key in ("fraction", *_FORECAST)}
        forecast = _finite(numbers.get("forecast", numbers.get("final_loss")))
        event = {"action": action, "reason": reason, "forecast": forecast, **known, "is_tied": numbers.get("is_tied")}
        if self._decided.get(name) != event:
            self._decided[name] = event
            self._tell("decided", name=name, **event)

    def suspected(self, name: str, why: Mapping[str, Any]) -> None:
        """Tell that a run has left its family's curve; ``why`` as in ``Suspicion.to_dict``."""
        self._tell("suspected", name=name, **why)

    def ended(self, job: Job) -> None:
        """Tell how the job ended, if it did."""
        outcome = job.outcome
        if outcome is not None:
            about = {"step": outcome.step, "message": outcome.message, "seconds": outcome.seconds}
            self._tell("ended", name=job.name, status=outcome.status, n_steps=job.n_steps, **about)

    def finished(self, *, winner: str | None = None, error: str | None = None) -> None:
        """Tell that the sweep is over."""
        self._tell("finished", winner=winner, error=error)

    def tick(self) -> None:
        """Give a sign of life."""
        now = time.monotonic()
        if self._log is not None and now - self._alive_at >= SIGN_OF_LIFE_S:
            self._alive_at = now
            with suppress(OSError):
                self._log.touch()

    def _tell(self, kind: str, /, **about: Any) -> None:
        event = {"event": kind, "time": round(time.time(), 3), **about}
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception as error:  # noqa: BLE001 - trackers are others' code and raise what they like
                self._listeners.remove(listener)
                self.say(f"no longer told of this sweep: {type(error).__name__}: {error}")


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
