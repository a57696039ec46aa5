"""Has a finished run of a sweep left its family's curve? The monitor's verdict on each, for the report."""

from __future__ import annotations

import math

from hpo.adapters.curve_files import RecordedRun
from hpo.core.monitor import Monitor, Status
from hpo.reporting.report_text import Notice
from hpo.reporting.sweep_files import SweepRecord, TrialRecord

MAX_TRIALS = 12
MAX_POINTS = 5000
JUDGE_EVERY = 0.05


def family_alarms(sweep: SweepRecord) -> list[Notice]:
    """Return an alarm for each of the best finished candidates that has left the proxies' curve."""
    finished = sorted(
        (t for t in sweep.trials if t.final_loss is not None and t.run is not None), key=lambda t: t.final_loss or 0.0
    )
    found = [(trial, _status(sweep, trial.run)) for trial in finished[:MAX_TRIALS] if trial.run is not None]
    return [Notice("alarm", _text(trial, status)) for trial, status in found if status is not None and status.status == "alarm"]


def _status(sweep: SweepRecord, run: RecordedRun) -> Status | None:
    if sweep.model is None or not sweep.model.references or run.horizon is None:
        return None
    monitor = Monitor(sweep.model, run.recipe, total=run.horizon, metric=run.metric, family=run.family, judge_every=JUDGE_EVERY)
    stride = max(1, math.ceil(run.steps.size / MAX_POINTS))
    for step, value in zip(run.steps[::stride].tolist(), run.values[::stride].tolist(), strict=True):
        monitor.update(step, value)
    return monitor.judge()


def _text(trial: TrialRecord, status: Status) -> str:
    since = "" if status.onset is None else f" from {status.onset:.0%} of its training on"
    size = "" if status.size_pct is None else f" by {status.size_pct:+.2g} %"
    return f"Trial {trial.number} left the proxies' curve{since}{size}: {status.reason}."
