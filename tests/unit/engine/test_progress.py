from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hpo.engine import progress
from hpo.engine.config import SweepConfig
from hpo.engine.plan import plan_sweep
from hpo.engine.thinning import Report
from hpo.engine.worker import Job


@pytest.fixture
def plain(tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A display that is piped, the job of its first candidate, what was written, and a clock to set."""
    run = plan_sweep(SweepConfig.model_validate(tiny)).candidates[0]
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    text = io.StringIO()
    shown = progress.SweepProgress(1e9, Console(file=text, width=200))
    job = Job(run.name, {}, tmp_path, stop_step=run.stop_step, n_steps=run.n_steps, trainable="a:b")
    shown.add(run.name, run, 0)
    shown.started(job)
    return shown, job, text, clock


def test_a_piped_sweep_is_never_silent_for_long_while_trials_report(plain):
    shown, job, text, clock = plain
    for second in range(60):
        clock[0] = float(second)
        shown.reported(job, Report(second + 1, 3.0, second + 1, 3.0))
    lines = text.getvalue().splitlines()
    assert len(lines) == 3
    assert f"{job.name}: step 16 of {job.stop_step}, loss 3.0000; sweep" in lines[0]


def test_reports_close_together_are_not_all_shown(plain):
    shown, job, text, clock = plain
    for step in range(1, 100):
        clock[0] = step / 100
        shown.reported(job, Report(step, 3.0, step, 3.0))
    assert text.getvalue() == ""
