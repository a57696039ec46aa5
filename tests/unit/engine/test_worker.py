"""One run inside a worker: how it may end, and what it leaves."""

from __future__ import annotations

import math
import pickle
import sys
import threading
import types
from dataclasses import replace
from pathlib import Path

import pytest

from hpo.adapters.training_session import read_log
from hpo.engine.stop_marks import mark_stopped, unmark
from hpo.engine.thinning import Report
from hpo.engine.worker import (
    Job,
    TrainingFailed,
    forget_outcome,
    import_function,
    is_out_of_memory,
    read_outcome,
    run_job,
    write_outcome,
)


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
    assert run_job(first, lambda report: None).status == "reached"
    assert first.outcome.step == 10
    later = job(_train, stop_step=50)
    assert later.outcome is None
    assert run_job(later, lambda report: None).step == 50
    assert read_log(tmp_path / "t")["step"].tolist() == list(range(1, 51))


def test_reports_carry_the_judged_metric_as_it_was_last_reported(job):
    def evaluated(settings, session):
        for step in range(1, 11):
            session.report(step=step, loss=1 / step, **({"val_loss": 2 / step} if step % 4 == 0 else {}))

    reports = []
    run_job(job(evaluated, n_reports=50, metric="val_loss"), reports.append)
    assert [report.loss for report in reports] == [1 / step for step in range(1, 11)]
    assert all(math.isnan(report.judged) for report in reports[:3])
    assert [report.judged for report in reports[3:]] == [0.5] * 4 + [0.25] * 3


def test_seconds_add_up_over_the_parts_of_a_run(job):
    one = run_job(job(_train, stop_step=10), lambda report: None)
    two = run_job(job(_train, stop_step=50), lambda report: None)
    assert two.seconds > one.seconds > 0


def test_a_function_that_never_asks_whether_to_stop_is_stopped(job):
    def stubborn(settings, session):
        for step in range(1, 51):
            session.report(step=step, loss=1.0)

    assert run_job(job(stubborn), lambda report: None).status == "reached"


def test_divergence_is_an_outcome(job):
    def diverges(settings, session):
        for step in range(1, 51):
            session.report(step=step, loss=math.nan if step == 7 else 1.0)
            if session.should_stop():
                return

    outcome = run_job(job(diverges), lambda report: None)
    assert (outcome.status, outcome.step) == ("diverged", 7)


def test_running_out_of_memory_is_an_outcome(job, tmp_path):
    def greedy(settings, session):
        session.report(step=1, loss=1.0)
        raise MemoryError("3 GB")

    outcome = run_job(job(greedy), lambda report: None)
    assert (outcome.status, outcome.message) == ("out_of_memory", "3 GB")
    assert "MemoryError" in (tmp_path / "t" / "error.txt").read_text()


def test_other_errors_are_the_callers_to_retry(job, tmp_path):
    def broken(settings, session):
        raise RuntimeError("no such luck")

    one = job(broken)
    with pytest.raises(RuntimeError, match="no such luck"):
        run_job(one, lambda report: None)
    assert one.outcome is None


class _UnwillingError(Exception):
    """An error that another process cannot make again."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")
        self.lock = threading.Lock()


class _UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (_UnwillingError(1, 2), "_UnwillingError: 1 and 2"),
        (_UnspeakableError(), "_UnspeakableError"),
        (StopIteration(), "StopIteration"),
        (
            RuntimeError("CUDA error: device-side assert triggered\n\nCompile with `TORCH_USE_CUDA_DSA`"),
            "CUDA error: device-side",
        ),
        (ValueError("no UTF-8: \ud800"), "ValueError: no UTF-8: ?"),
        (SystemExit("bad arguments"), "SystemExit: bad arguments"),
        (SystemExit(2), "SystemExit: 2"),
    ],
)
def test_whatever_is_raised_is_told_in_a_line_that_comes_through(job, tmp_path, error, told):
    def broken(settings, session):
        raise error

    with pytest.raises(TrainingFailed) as caught:
        run_job(job(broken), lambda report: None)
    again = pickle.loads(pickle.dumps(caught.value))
    assert told in str(again)
    assert "\n" not in str(again)
    assert "in broken" in (tmp_path / "t" / "error.txt").read_text(encoding="utf-8")


def test_leaving_the_process_at_the_end_is_a_return(job):
    def script(settings, session):
        for step in range(1, 11):
            session.report(step=step, loss=1.0)
        sys.exit()

    assert run_job(job(script), lambda report: None).status == "reached"


def test_ending_early_is_a_failure(job):
    def lazy(settings, session):
        session.report(step=1, loss=1.0)

    outcome = run_job(job(lazy), lambda report: None)
    assert outcome.status == "failed"
    assert "ended at step 1, before step 10" in outcome.message


def test_a_paused_run_does_not_begin(job, tmp_path):
    (tmp_path / "pause").touch()
    assert run_job(job(_train, pause_file=tmp_path / "pause"), lambda report: None) is None
    assert not (tmp_path / "t").exists()


def test_a_run_pauses_with_a_checkpoint_and_no_outcome(job, tmp_path, monkeypatch):
    monkeypatch.setattr("hpo.adapters.training_session._FLUSH_EVERY_S", 0.0)

    def forward(report: Report) -> None:
        if report.step == 5:
            (tmp_path / "pause").touch()

    one = job(_train, pause_file=tmp_path / "pause")
    assert run_job(one, forward) is None
    assert one.outcome is None
    assert [p.name for p in (tmp_path / "t").glob("checkpoint-*")] == ["checkpoint-5"]


def test_a_run_that_is_marked_stops_at_the_report_that_decided_it(job, tmp_path):
    def forward(report: Report) -> None:
        if report.step == 4:
            mark_stopped(tmp_path / "t", "cannot_win")

    outcome = run_job(job(_train), forward)
    assert (outcome.status, outcome.step, outcome.message) == ("stopped", 4, "cannot_win")
    assert [p.name for p in (tmp_path / "t").glob("checkpoint-*")] == ["checkpoint-4"]
    assert job(_train, stop_step=50).outcome == outcome  # until it is revived


def test_a_revived_run_goes_on_from_its_checkpoint(job, tmp_path):
    test_a_run_that_is_marked_stops_at_the_report_that_decided_it(job, tmp_path)
    unmark(tmp_path / "t")
    forget_outcome(tmp_path / "t")
    assert run_job(job(_train), lambda report: None).status == "reached"
    assert read_log(tmp_path / "t")["step"].tolist() == list(range(1, 11))


def test_a_run_that_is_revived_as_it_ends_leaves_no_outcome(job, tmp_path, monkeypatch):
    """The driver took the mark away, found no outcome to take away, and counts on the run to begin again."""

    def write_after_revival(folder, outcome):
        unmark(folder)
        write_outcome(folder, outcome)

    monkeypatch.setattr("hpo.engine.worker.write_outcome", write_after_revival)
    one = job(_train)
    assert run_job(one, lambda report: mark_stopped(tmp_path / "t", "cannot_win")) is None
    assert one.outcome is None


def test_a_run_that_is_marked_before_it_begins_does_not_train(job, tmp_path):
    (tmp_path / "t").mkdir()
    mark_stopped(tmp_path / "t", "stopped_by_hand")
    outcome = run_job(job(_train), lambda report: None)
    assert (outcome.status, outcome.step, outcome.message) == ("stopped", 0, "stopped_by_hand")


def test_a_mark_that_comes_too_late_changes_nothing(job, tmp_path):
    def forward(report: Report) -> None:
        if report.step == 10:
            mark_stopped(tmp_path / "t", "cannot_win")

    assert run_job(job(_train), forward).status == "reached"


def test_a_function_that_cannot_be_imported_is_called_as_it_is(job):
    one = replace(job(_train), trainable="no_such_module:train", function=_train)
    assert run_job(one, lambda report: None).status == "reached"


def test_reports_are_thinned_but_the_last_one_and_bad_ones_pass(job):
    seen: list[int] = []
    run_job(job(_train, stop_step=48, n_reports=10), lambda report: seen.append(report.step))
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


def test_a_machine_that_does_not_see_the_run_folder_trains_nothing_and_says_so(job, tmp_path):
    elsewhere = replace(job(_train), folder=tmp_path / "not mounted" / "trials" / "t")
    with pytest.raises(RuntimeError, match=r"trials is not there on .*: all machines must share the run folder"):
        run_job(elsewhere, lambda report: None)
    assert not (tmp_path / "not mounted").exists()
