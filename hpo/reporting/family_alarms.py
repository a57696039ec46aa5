"""Has a candidate of a sweep left its family's curve? The monitor's verdict on each, for the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from hpo.adapters.curve_files import RecordedRun
from hpo.core.monitor import Monitor, Status
from hpo.reporting.report_text import Notice
from hpo.reporting.sweep_files import SweepRecord, TrialRecord

MAX_TRIALS = 12
MAX_POINTS = 5000
JUDGE_EVERY = 0.05


def family_alarms(sweep: SweepRecord) -> list[Notice]:
    """Return an alarm for each candidate that has left the proxies' curve.

    The sweep has marked them (:mod:`hpo.engine.smoke_detector` there); in a run folder of an older version, where it has not,
    the best finished ones are held against the model here.
    """
    if any(trial.suspect for trial in sweep.trials) or _has_marks(sweep):
        return [Notice("alarm", _text(trial, trial.suspect)) for trial in sweep.trials if trial.suspect]
    finished = sorted(
        (t for t in sweep.trials if t.final_loss is not None and t.run is not None), key=lambda t: t.final_loss or 0.0
    )
    found = [(trial, _status(sweep, trial.run)) for trial in finished[:MAX_TRIALS] if trial.run is not None]
    alarms = [(trial, status) for trial, status in found if status is not None and status.status == "alarm"]
    return [Notice("alarm", _text(trial, asdict(status))) for trial, status in alarms]


def _has_marks(sweep: SweepRecord) -> bool:
    return any("suspect" in trial for trial in (sweep.result or {}).get("trials", []))


def _status(sweep: SweepRecord, run: RecordedRun) -> Status | None:
    if sweep.model is None or not sweep.model.references or run.horizon is None:
        return None
    monitor = Monitor(sweep.model, run.recipe, total=run.horizon, metric=run.metric, family=run.family, judge_every=JUDGE_EVERY)
    stride = max(1, math.ceil(run.steps.size / MAX_POINTS))
    for step, value in zip(run.steps[::stride].tolist(), run.values[::stride].tolist(), strict=True):
        monitor.update(step, value)
    return monitor.judge()


def _text(trial: TrialRecord, why: Mapping[str, Any]) -> str:
    onset, size, reason = (why.get(key) for key in ("onset", "size_pct", "reason"))
    since = "" if onset is None else f" from {onset:.0%} of its training on"
    by = "" if size is None else f" by {size:+.2g} %"
    return f"Trial {trial.number} is suspect: it left the proxies' curve{since}{by}: {reason or why.get('kind')}."
