"""One run inside a worker: how it may end, and what it leaves."""

from __future__ import annotations

import math
import sys
import types
from pathlib import Path

import pytest

from hpo.adapters.training_session import read_log
from hpo.engine.worker import Job, import_function, is_out_of_memory, read_outcome, run_job


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Return a maker of jobs that call a function of the test."""

    def make(train, stop_step: int = 10, n_steps: int = 50, **more) -> Job:
        module = types.ModuleType("ones_own_training")
        module.train = train
        monkeypatch.setitem(sys.modules, "ones_own_training", module)
        return Job("t", {}, tmp_path / "t", stop_step, n_steps, "ones_own_training:train", checkpoint_every_s=3600, **more)

    return make


def _train(settings, session):
    start = session.restore()
    first = int((start / "step").read_text()) if start else 0
    for step in range(first + 1, 51):
        session.report(step=step, loss=1 / step)
        session.checkpoint(lambda folder, step=step: (folder / "step").write_text(str(step)))
        if session.should_stop():
            return


def test_a_run_reaches_its_stop_and_goes_on_from_there(job, tmp_path):
    first = job(_train, stop_step=10)
    assert run_job(first, lambda step, loss: None).status == "reached"
    assert first.outcome.step == 10
    later = job(_train, stop_step=50)
    assert later.outcome is None
    assert run_job(later, lambda step, loss: None).step == 50
    assert read_log(tmp_path / "t")["step"].tolist() == list(range(1, 51))


def test_seconds_add_up_over_the_parts_of_a_run(job):
    one = run_job(job(_train, stop_step=10), lambda step, loss: None)
    two = run_job(job(_train, stop_step=50), lambda step, loss: None)
    assert two.seconds > one.seconds > 0


def test_a_function_that_never_asks_whether_to_stop_is_stopped(job):
    def stubborn(settings, session):
        for step in range(1, 51):
            session.report(step=step, loss=1.0)

    assert run_job(job(stubborn), lambda step, loss: None).status == "reached"


def test_divergence_is_an_outcome(job):
    def diverges(settings, session):
        for step in range(1, 51):
            session.report(step=step, loss=math.nan if step == 7 else 1.0)
            if session.should_stop():
                return

    outcome = run_job(job(diverges), lambda step, loss: None)
    assert (outcome.status, outcome.step) == ("diverged", 7)


def test_running_out_of_memory_is_an_outcome(job, tmp_path):
    def greedy(settings, session):
        session.report(step=1, loss=1.0)
        raise MemoryError("3 GB")

    outcome = run_job(job(greedy), lambda step, loss: None)
    assert (outcome.status, outcome.message) == ("out_of_memory", "3 GB")
    assert "MemoryError" in (tmp_path / "t" / "error.txt").read_text()


def test_other_errors_are_the_callers_to_retry(job, tmp_path):
    def broken(settings, session):
        raise RuntimeError("no such luck")

    one = job(broken)
    with pytest.raises(RuntimeError, match="no such luck"):
        run_job(one, lambda step, loss: None)
    assert one.outcome is None


def test_ending_early_is_a_failure(job):
    def lazy(settings, session):
        session.report(step=1, loss=1.0)

    outcome = run_job(job(lazy), lambda step, loss: None)
    assert outcome.status == "failed"
    assert "ended at step 1, before step 10" in outcome.message


def test_a_paused_run_does_not_begin(job, tmp_path):
    (tmp_path / "pause").touch()
    assert run_job(job(_train, pause_file=tmp_path / "pause"), lambda step, loss: None) is None
    assert not (tmp_path / "t").exists()


def test_a_run_pauses_with_a_checkpoint_and_no_outcome(job, tmp_path, monkeypatch):
    monkeypatch.setattr("hpo.adapters.training_session._FLUSH_EVERY_S", 0.0)

    def forward(step: int, loss: float) -> None:
        if step == 5:
            (tmp_path / "pause").touch()

    one = job(_train, pause_file=tmp_path / "pause")
    assert run_job(one, forward) is None
    assert one.outcome is None
    assert [p.name for p in (tmp_path / "t").glob("checkpoint-*")] == ["checkpoint-6"]


def test_reports_are_thinned_but_the_last_one_and_bad_ones_pass(job):
    seen: list[int] = []
    run_job(job(_train, stop_step=48, n_reports=10), lambda step, loss: seen.append(step))
    assert seen == [5, 10, 15, 20, 25, 30, 35, 40, 45, 48]


def test_an_unfinished_run_has_no_outcome(tmp_path):
    assert read_outcome(Path(tmp_path)) is None


class OutOfMemoryError(RuntimeError):
    """As torch and Ray call theirs."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), True),
        (RuntimeError("shapes do not match"), False),
    ],
)
def test_out_of_memory_is_told_apart(error, expected):
    assert is_out_of_memory(error) is expected


def test_functions_are_found_by_their_path():
    assert import_function("math:sqrt") is math.sqrt
    with pytest.raises(ValueError, match="no module nowhere"):
        import_function("nowhere:train")
    with pytest.raises(ValueError, match="a function pi in math; found float"):
        import_function("math:pi")
