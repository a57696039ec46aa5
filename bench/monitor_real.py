"""What detectors say of three real faults in our own training (:mod:`bench.monitor_faults`), and of the run without one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.monitor import watch
from bench.monitor_runs import OWN, Healthy, window_noise
from hpo.adapters.curve_files import RecordedRun, read_runs
from hpo.core.model import CollapseModel
from hpo.core.template import template_of_model

FAULTS = OWN / "own_faults.parquet"


def real_faults(path: Path = FAULTS) -> list[dict[str, Any]]:
    """Return a row a run and metric: its fault (None: without one), where it began, and t̂ of each detector's first alarm.

    Runs are held against the two references of the file. Rates are not told, so that only the loss speaks.

    Raises
    ------
    ValueError
        A file without references.
    """
    return [row for metric in ("train_loss", "val_loss") for row in _rows(read_runs(path, metric=metric), metric)]


def _rows(runs: list[RecordedRun], metric: str) -> list[dict[str, Any]]:
    model = CollapseModel.fit([one.curve() for one in runs if one.group == "reference"])
    healthy = next(one for one in runs if one.group == "healthy")
    template = template_of_model(model, healthy.metric, healthy.recipe, healthy.family)
    sigma = None if template is None else window_noise(healthy, template)
    if template is None or sigma is None:
        raise ValueError(f"expected references for {healthy.run_id} in its file; found none that fit")
    rows = []
    for run in runs:
        if run.group == "reference":
            continue
        one = Healthy(f"own faults {metric}", "test", replace(run, recipe=healthy.recipe), template, sigma)
        outcome = watch(one, run.values)
        onset = run.settings.get("onset")
        rows.append({"metric": metric, "fault": run.settings.get("fault"), "onset": onset, "alarms": outcome.alarms})
    return rows


def lines_of(rows: list[dict[str, Any]]) -> list[str]:
    """Return the rows as text."""
    out = ["real faults in our own training, from t̂ = 0.6 on: first alarm"]
    for row in rows:
        said = "  ".join(f"{name}: {'-' if at is None else f'{at:.3f}'}" for name, at in row["alarms"].items())
        out.append(f"  {row['metric']:<11}{row['fault'] or 'no fault':<25}{said}")
    return out
