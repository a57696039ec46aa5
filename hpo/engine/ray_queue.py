"""A job queue in the form in which Ray Tune asks for trials: while the experiment runs, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.tune.search import Searcher

from hpo.engine.job_queue import JobQueue
from hpo.engine.worker import Job


class QueueSearcher(Searcher):
    """Suggests the queue's jobs, each once ``fits(job, running)`` says that there is room beside those that run.

    A trial's config is the job's ``name`` and ``stop_step``. Ray saves its searchers to restore them later, which never happens
    here: nothing is saved.
    """

    def __init__(self, queue: JobQueue, fits: Callable[[Job, list[Job]], bool]) -> None:
        super().__init__()
        self._queue, self._fits = queue, fits
        self._names: dict[str, str] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override]
        """Return the config of the next trial, None to be asked again later, or that there will be none."""
        job = self._queue.take(lambda job: self._fits(job, self._queue.running))
        if job is None:
            return self.FINISHED if self._queue.is_over else None
        self._names[trial_id] = job.name
        return {"name": job.name, "stop_step": job.stop_step}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Note that a trial has ended, well or not, for the last time."""
        del result, error
        self._queue.ended(self._names.pop(trial_id, ""))

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Save nothing."""

    def save(self, checkpoint_path: str) -> None:
        """Save nothing."""

    def __getstate__(self) -> dict[str, Any]:
        return {}
