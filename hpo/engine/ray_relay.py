"""Ray Tune's callbacks, passed on to whoever watches the trials."""

# ruff: noqa: ARG002 - Ray passes everything by keyword, so the names must be these

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ray import tune

from hpo.engine.trial_events import TrialEvents
from hpo.engine.worker import Job


class Relay(tune.Callback):
    """Tells ``events`` what happens to ``jobs``; runs in the driver's thread.

    Ray pickles its callbacks to restore them later, which never happens here: a pickled relay is empty.
    """

    def __init__(self, jobs: Sequence[Job], events: TrialEvents) -> None:
        self._jobs, self._events = jobs, events

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """Ray gave the trial a worker."""
        self._events.started(self._job(trial))

    def on_trial_result(self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any) -> None:
        """A report arrived."""
        if "step" in result:
            self._events.reported(self._job(trial), int(result["step"]), float(result["loss"]))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The trial function returned."""
        self._events.ended(self._job(trial))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        """The trial failed for the last time."""
        self._events.ended(self._job(trial))

    def _job(self, trial: Any) -> Job:
        index: int = trial.config["index"]
        return self._jobs[index]
