"""What is made of a trial that failed in Ray's hands."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpo.engine.ray_trials import failure, note_failure
from hpo.engine.worker import Job, run_job

KILLED = """ray.exceptions.RayActorError: The actor died unexpectedly.
ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory."""


@pytest.fixture
def job(tmp_path: Path) -> Job:
    (tmp_path / "t").mkdir()
    return Job("t", {}, tmp_path / "t", 10, 10, "no_such_module:train", hang_s=3.0)


def test_a_worker_killed_for_its_memory_is_told_apart_and_not_tried_again(job):
    note_failure(job, KILLED, is_last=False)
    assert job.outcome.status == "out_of_memory"
    assert run_job(job, lambda report: None) == job.outcome  # the attempt that Ray makes all the same does nothing


def test_any_other_failure_ends_a_trial_only_at_its_last_attempt(job):
    note_failure(job, "RuntimeError: no such luck", is_last=False)
    assert job.outcome is None
    note_failure(job, "Traceback …\nRuntimeError: no such luck\n", is_last=True)
    assert (job.outcome.status, job.outcome.message) == ("failed", "RuntimeError: no such luck")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("Traceback …\nhpo.engine.worker.TrainingFailed: KeyError: 'lr'\n", "KeyError: 'lr'"),
        ("The actor died. Worker exit detail: end of file. Some common causes include: (1) …", None),
    ],
)
def test_a_failure_is_told_without_what_is_rays_or_ours(job, error, told):
    assert failure(job, error).message == (told or "The actor died. Worker exit detail: end of file.")


@pytest.mark.parametrize("number", [28, 122, 27])
def test_a_full_disk_fails_nobody(job, number):
    note_failure(job, f"OSError: [Errno {number}] …: 'trials/t/checkpoint-7'", is_last=True)
    assert job.outcome is None


def test_a_hang_is_named_with_its_stacks(job):
    (job.folder / "hang.txt").write_text("Thread 0x1: stuck")
    assert failure(job, "The actor died").message == f"hung: no step for 3 s (stacks in {job.folder}/hang.txt)"
