"""Which candidates of a sweep have left the proxies' curve: an alarm of the monitor marks a trial *suspect*.

A bad trial has a high forecast; a suspect one has a fault (of numerics, of data, of its learning rate) that its forecast does
not know of. So a mark is told wherever the trial is, and changes no decision by itself: a fault that costs something raises
the loss, and so the forecast, and that decides. Trials are held against the model of the proxies, once there is one; without
proxies nobody is. A resumed sweep finds its marks again in the runs' own logs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from hpo.adapters.model_files import read_model
from hpo.adapters.training_session import read_log
from hpo.core.model import CollapseModel
from hpo.core.monitor import Monitor, Status
from hpo.engine.plan import Run
from hpo.engine.runs_on_disk import TRAIN_LOSS, RunsOnDisk, judged_values, metric_of
from hpo.engine.thinning import Report, thinned
from hpo.engine.trouble import in_a_line

_logger = logging.getLogger("ray.hpo")
JUDGE_EVERY = 0.02
"""The test runs once per this share of a trial's training; it takes the driver a few milliseconds."""


@dataclass(frozen=True)
class Suspicion:
    """Why a trial is suspect.

    Attributes
    ----------
    kind : str
        A key of :data:`hpo.core.monitor.KINDS`.
    onset, detected_at : float or None
        t̂ where it began and where it was called.
    size_pct, cost_pct : float or None
        What it is and what it costs at the end, in percent of the loss; positive is worse.
    reason : str
        In words.
    """

    kind: str
    onset: float | None
    detected_at: float | None
    size_pct: float | None
    cost_pct: float | None
    reason: str

    @classmethod
    def of(cls, status: Status) -> Suspicion | None:
        """Return why a run with this status is suspect; None if it is not, or has ended by a loss that is not finite."""
        if status.status != "alarm" or status.kind is None or status.kind == "non_finite":
            return None
        keys = ("onset", "detected_at", "size_pct", "cost_pct", "reason")
        return cls(status.kind, **{key: getattr(status, key) for key in keys})

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return asdict(self)


class SmokeDetector:
    """Watches the candidates of one sweep.

    Parameters
    ----------
    runs : RunsOnDisk
        The sweep's runs; its folder holds the model, once it is fitted.
    tell : callable
        Called with a run and why it is suspect, once a run and driver.
    say : callable
        Called with one line, should the detector itself fail: it then watches no more, as what only warns may end no sweep.
    """

    def __init__(
        self, runs: RunsOnDisk, tell: Callable[[Run, Suspicion], None], say: Callable[[str], None] = lambda _line: None
    ) -> None:
        self._runs, self._tell, self._say, self._has_failed = runs, tell, say, False
        self._model: CollapseModel | None = None
        self._watched: dict[str, Monitor] = {}
        self._known: dict[str, tuple[int, Suspicion | None]] = {}
        self._told: set[str] = set()

    def reported(self, run: Run, report: Report) -> None:
        """Take a report of a running candidate: of its training loss, which tells nothing where another metric is judged."""
        if metric_of(self._runs.plan.config) != TRAIN_LOSS:
            return
        with self._harmlessly():
            monitor = self._watched.get(run.name) or self._caught_up(run, report.step)
            if monitor is not None:
                self._watched[run.name] = monitor
                monitor.update(report.mean_step, report.mean_loss)
        self._note(run)

    def ended(self, run: Run) -> None:
        """Forget a candidate's monitor; should it go on, its log has all there is to know.

        Of one that is suspect the log has the last word: a resumed sweep will read the same there.
        """
        with self._harmlessly():
            monitor = self._watched.pop(run.name, None)
            if monitor is not None and Suspicion.of(monitor.judge()) is None:
                self._known[run.name] = (self._runs.steps(run), None)
            elif monitor is not None:
                self.suspicion(run)

    def suspicion(self, run: Run) -> Suspicion | None:
        """Return why a candidate is suspect from all that is logged of it, None if it is not or nothing tells."""
        steps = self._runs.steps(run)
        if self._known.get(run.name, (-1, None))[0] != steps:
            with self._harmlessly():
                monitor = self._caught_up(run, steps + 1)
                if monitor is not None:  # else there may be a model later
                    self._known[run.name] = (steps, Suspicion.of(monitor.judge()))
            self._note(run)
        return self._known.get(run.name, (0, None))[1]

    @contextmanager
    def _harmlessly(self) -> Iterator[None]:
        """Within the block, let the detector's own failure cost no more than its warnings."""
        try:
            yield
        except Exception as error:
            _logger.exception("the detector of suspect trials failed")
            self._watched.clear()
            if not self._has_failed:
                self._say(f"trials are no longer watched for faults: {in_a_line(error)}")
            self._has_failed = True

    def _caught_up(self, run: Run, before_step: int) -> Monitor | None:
        """Return a monitor that knows what the run logged before a step; None without a model of the proxies."""
        if self._model is None and self._runs.folder.model.exists():
            self._model = read_model(self._runs.folder.model)
        if self._has_failed or self._model is None or not self._model.references:
            return None
        monitor = Monitor(
            self._model,
            run.recipe,
            total=float(run.n_steps),
            metric=metric_of(self._runs.plan.config),
            family=self._runs.plan.workload.family,
            judge_every=JUDGE_EVERY,
        )
        for report in self._logged(run, before_step):
            monitor.update(report.mean_step, report.mean_loss)
        return monitor

    def _logged(self, run: Run, before_step: int) -> list[Report]:
        log, job = read_log(self._runs.folder.trial(run.name)), self._runs.job(run, run.n_steps)
        values, told = judged_values(log, self._runs.plan.config.metric)
        steps, losses = log["step"][told].astype(int).tolist(), values[told].tolist()
        reports = thinned(steps, losses, run.n_steps, run.n_steps, job.n_reports, job.n_end_reports)
        return [report for report in reports if report.step < before_step]

    def _note(self, run: Run) -> None:
        monitor = self._watched.get(run.name)
        found = self._known.get(run.name, (0, None))[1] if monitor is None else Suspicion.of(monitor.status)
        if found is not None and run.name not in self._told:
            self._told.add(run.name)
            self._tell(run, found)
