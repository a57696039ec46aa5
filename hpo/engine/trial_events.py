"""What a watcher of trials is told."""

from __future__ import annotations

from typing import Protocol

from hpo.engine.thinning import Report
from hpo.engine.worker import Job


class TrialEvents(Protocol):
    """What happens to the trials, told in the driver's thread as it happens."""

    def tick(self) -> None:
        """Time has passed: told several times a second, whatever else happens."""

    def started(self, job: Job) -> None:
        """The job was given a worker, for the first time or again."""

    def reported(self, job: Job, report: Report) -> None:
        """The job reported; about 100 times in a whole run, non-finite losses included. It waits until this returns."""

    def ended(self, job: Job) -> None:
        """The job ended, well or not."""
