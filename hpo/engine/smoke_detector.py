"""Which candidates of a sweep have left the proxies' curve: an alarm of the monitor marks a trial *suspect*.

A bad trial has a high forecast; a suspect one has a fault (of numerics, of data, of its learning rate) that its forecast does
not know of. So a mark is told wherever the trial is, and changes no decision by itself: a fault that costs something raises
the loss, and so the forecast, and that decides. Trials are held against the model of the proxies, once there is one; without
proxies nobody is. A resumed sweep finds its marks again in the runs' own logs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from hpo.adapters.model_files import read_model
from hpo.adapters.training_session import read_log
from hpo.core.model import CollapseModel
from hpo.core.monitor import Monitor, Status
from hpo.engine.plan import Run
from hpo.engine.runs_on_disk import TRAIN_LOSS, RunsOnDisk, judged_values, metric_of
from hpo.engine.thinning import Report, thinned

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
    """

    def __init__(self, runs: RunsOnDisk, tell: Callable[[Run, Suspicion], None]) -> None:
        self._runs, self._tell = runs, tell
        self._model: CollapseModel | None = None
        self._watched: dict[str, Monitor] = {}
        self._known: dict[str, tuple[int, Suspicion | None]] = {}
        self._told: set[str] = set()

    def reported(self, run: Run, report: Report) -> None:
        """Take a report of a running candidate: of its training loss, which tells nothing where another metric is judged."""
        if metric_of(self._runs.plan.config) != TRAIN_LOSS:
            return
        monitor = self._watched.get(run.name)
        if monitor is None:
            monitor = self._caught_up(run, report.step)
            if monitor is None:
                return
            self._watched[run.name] = monitor
        monitor.update(report.mean_step, report.mean_loss)
        self._note(run, monitor)

    def ended(self, run: Run) -> None:
        """Forget a candidate's monitor; should it go on, its log has all there is to know."""
        monitor = self._watched.pop(run.name, None)
        if monitor is not None:
            monitor.judge()
            self._known[run.name] = (self._runs.steps(run), Suspicion.of(monitor.status))
            self._note(run, monitor)

    def suspicion(self, run: Run) -> Suspicion | None:
        """Return why a candidate is suspect from all that is logged of it, None if it is not or nothing tells."""
        steps = self._runs.steps(run)
        if self._known.get(run.name, (-1, None))[0] != steps:
            monitor = self._caught_up(run, steps + 1)
            if monitor is None:  # there may be a model later
                return None
            self._known[run.name] = (steps, Suspicion.of(monitor.judge()))
            self._note(run, monitor)
        return self._known[run.name][1]

    def _caught_up(self, run: Run, before_step: int) -> Monitor | None:
        """Return a monitor that knows what the run logged before a step; None without a model of the proxies."""
        if self._model is None and self._runs.folder.model.exists():
            self._model = read_model(self._runs.folder.model)
        if self._model is None or not self._model.references:
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

    def _note(self, run: Run, monitor: Monitor) -> None:
        found = Suspicion.of(monitor.status)
        if found is not None and run.name not in self._told:
            self._told.add(run.name)
            self._tell(run, found)
