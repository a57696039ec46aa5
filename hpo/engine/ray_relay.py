"""Ray Tune's callbacks, passed on to whoever watches the trials."""

# ruff: noqa: ARG002 - Ray passes everything by keyword, so the names must be these

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray import tune

from hpo.engine.job_queue import JobQueue
from hpo.engine.thinning import Report
from hpo.engine.trial_events import TrialEvents
from hpo.engine.worker import Job


class Relay(tune.Callback):
    """Tells ``events`` what happens to the jobs of ``queue``; runs in the driver's thread.

    ``failed(job, error, is_last)`` is told first what went wrong with one, and whether it was its last attempt.

    Ray pickles its callbacks to restore them later, which never happens here: a pickled relay is empty.
    """

    def __init__(self, queue: JobQueue, events: TrialEvents, failed: Callable[[Job, str, bool], None]) -> None:
        self._queue, self._events, self._failed = queue, events, failed

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        """Ray looks for the next event, ten times a second at least."""
        self._events.tick()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Ray gave the trial a worker."""
        self._events.started(self._job(trial))

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
        """A report arrived; the trial waits until this returns."""
        if "step" in result:
            numbers = [float(result[key]) for key in ("loss", "mean_step", "mean_loss", "judged")]
            self._events.reported(self._job(trial), Report(int(result["step"]), *numbers))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The trial function returned."""
        self._events.ended(self._job(trial))

    def on_trial_recover(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The trial failed and will be started again."""
        self._failed(self._job(trial), _error_of(trial), False)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The trial failed for the last time."""
        self._failed(self._job(trial), _error_of(trial), True)
        self._events.ended(self._job(trial))

    def _job(self, trial: Any) -> Job:
        return self._queue.taken[trial.config["name"]]


def _error_of(trial: Any) -> str:
    """Return the text of a trial's errors, the last one last.

    Ray writes it to a folder of this machine and copies it to the storage later; ``trial.get_error()`` reads the copy.
    """
    try:
        written = Path(trial.error_file or "").read_text(encoding="utf-8", errors="replace")
    except OSError:
        written = ""
    return written or str(trial.get_error() or "")
