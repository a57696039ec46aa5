"""Which job gets the next free worker: first come, first served, and open while others run."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hpo.engine.worker import Job


class JobQueue:
    """Jobs waiting and running, by name; a name is there once.

    Parameters
    ----------
    jobs : iterable of Job
        In order.
    may_start : callable, optional
        Asked when a job's turn has come; one that may not start is dropped.

    Attributes
    ----------
    taken : dict
        Every job that was handed out, by name, as it was handed out last.
    """

    def __init__(self, jobs: Iterable[Job], may_start: Callable[[Job], bool] = lambda _job: True) -> None:
        self._waiting = {job.name: job for job in jobs}
        self._running: dict[str, Job] = {}
        self._again: dict[str, Job] = {}
        self._may_start = may_start
        self.taken: dict[str, Job] = {}

    @property
    def n_running(self) -> int:
        """Number of jobs handed out and not ended."""
        return len(self._running)

    @property
    def running(self) -> list[Job]:
        """The jobs handed out and not ended."""
        return list(self._running.values())

    @property
    def is_over(self) -> bool:
        """True if nothing waits and nothing runs."""
        return not self._waiting and not self._running

    def add(self, job: Job) -> None:
        """Put a job at the end; one that runs now gets its turn after it, if it ends without an outcome."""
        if job.name in self._running:
            self._again[job.name] = job
        else:
            self._waiting[job.name] = job

    def sort(self, key: Callable[[Job], float]) -> None:
        """Reorder those that wait; equals keep their order."""
        self._waiting = {job.name: job for job in sorted(self._waiting.values(), key=key)}

    def take(self, fits: Callable[[Job], bool] = lambda _job: True) -> Job | None:
        """Hand out the next job, None if none waits or there is no room for the next."""
        while self._waiting:
            job = next(iter(self._waiting.values()))
            if not fits(job):
                return None
            del self._waiting[job.name]
            if self._may_start(job):
                self._running[job.name] = self.taken[job.name] = job
                return job
        return None

    def ended(self, name: str) -> None:
        """Note that a job has left its worker for good."""
        self._running.pop(name, None)
        again = self._again.pop(name, None)
        if again is not None and again.outcome is None:
            self._waiting[name] = again
