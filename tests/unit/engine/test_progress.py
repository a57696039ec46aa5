from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hpo.adapters.progress_log import Event, read_progress
from hpo.engine.config import SweepConfig
from hpo.engine.plan import Run, plan_sweep
from hpo.engine.progress import SweepProgress
from hpo.engine.thinning import Report
from hpo.engine.worker import Job, Outcome, write_outcome


@pytest.fixture
def run(tiny: dict[str, Any]) -> Run:
    """The first candidate of a small sweep."""
    return plan_sweep(SweepConfig.model_validate(tiny)).candidates[0]


@pytest.fixture
def job(run: Run, tmp_path: Path) -> Job:
    """Its job."""
    return Job(run.name, {}, tmp_path / "trial", stop_step=run.stop_step, n_steps=run.n_steps, trainable="a:b")


def test_every_listener_and_the_log_are_told_the_same_in_order(run: Run, job: Job, tmp_path: Path) -> None:
    told: list[Event] = []
    progress = SweepProgress([told.append], tmp_path / "logs" / "progress.jsonl")
    progress.begin(1e9, name="tiny", rule="select", at=0.2)
    progress.add(run.name, run, 3, number=0)
    progress.started(job)
    progress.reported(job, Report(5, 2.5, 4.0, 2.6))
    progress.ended(job)  # without an outcome it has not ended
    write_outcome(job.folder, Outcome("reached", run.stop_step, 1.0))
    progress.ended(job)
    progress.finished()
    assert [event["event"] for event in told] == ["driver", "run", "started", "reported", "ended", "finished"]
    assert read_progress(tmp_path / "logs" / "progress.jsonl") == told
    assert told[1] | {"step": 3, "n_steps": run.n_steps, "settings": run.searched, "flops": run.flops} == told[1]
    assert (told[3]["step"], told[3]["loss"]) == (5, 2.5)


def test_a_loss_that_is_not_finite_is_told_as_none(job: Job) -> None:
    told: list[Event] = []
    SweepProgress([told.append]).reported(job, Report(5, float("nan"), 4.0, 2.6))
    assert told[0]["loss"] is None


def test_the_same_decision_is_told_once(job: Job) -> None:
    told: list[Event] = []
    progress = SweepProgress([told.append])
    for forecast in (2.0, 2.0, 2.1, 2.1):
        progress.decided(job.name, "continue", "may_win", {"forecast": forecast, "fraction": 0.2})
    assert [event["forecast"] for event in told] == [2.0, 2.1]


def test_a_listener_that_fails_is_dropped_and_ends_nothing() -> None:
    told: list[Event] = []

    def broken(_event: Event) -> None:
        raise OSError("no space left")

    progress = SweepProgress([broken, told.append])
    progress.say("one")
    progress.say("two")
    assert [event["text"] for event in told] == ["no longer told of this sweep: OSError: no space left", "one", "two"]


def test_a_tick_is_a_sign_of_life(tmp_path: Path) -> None:
    log = tmp_path / "progress.jsonl"
    progress = SweepProgress([], log)
    progress.say("hello")
    os.utime(log, (0, 0))
    progress.tick()
    assert log.stat().st_mtime > 1e9
    os.utime(log, (0, 0))
    progress.tick()  # too soon after the last
    assert log.stat().st_mtime == 0
