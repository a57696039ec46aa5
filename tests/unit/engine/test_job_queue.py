"""The queue of jobs: order, what may start, and jobs that come while others run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpo.engine.job_queue import JobQueue
from hpo.engine.worker import Job, Outcome, write_outcome


@pytest.fixture
def job(tmp_path: Path):
    return lambda name: Job(name, {}, tmp_path / name, 10, 10, "a:b")


def _names(queue: JobQueue) -> list[str]:
    return [job.name for job in iter(queue.take, None)]


def test_first_come_first_served_until_none_waits_and_none_runs(job):
    queue = JobQueue([job("a"), job("b")])
    assert _names(queue) == ["a", "b"]
    assert not queue.is_over
    queue.ended("a")
    queue.ended("b")
    assert queue.is_over


def test_what_waits_can_be_reordered_and_equals_keep_their_order(job):
    queue = JobQueue([job("a"), job("b"), job("c")])
    queue.sort(lambda one: 0 if one.name == "c" else 1)
    assert _names(queue) == ["c", "a", "b"]


def test_what_may_not_start_when_its_turn_comes_is_dropped(job):
    queue = JobQueue([job("a"), job("b"), job("c")], lambda one: one.name != "b")
    assert _names(queue) == ["a", "c"]
    assert set(queue.taken) == {"a", "c"}


def test_a_job_may_come_while_others_run(job):
    queue = JobQueue([job("a")])
    queue.take()
    queue.add(job("b"))
    queue.ended("a")
    assert not queue.is_over
    assert _names(queue) == ["b"]


@pytest.mark.parametrize("has_outcome", [False, True])
def test_a_job_added_while_it_runs_comes_again_unless_it_ends_well(job, has_outcome):
    one = job("a")
    queue = JobQueue([one])
    queue.take()
    queue.add(one)
    if has_outcome:
        write_outcome(one.folder, Outcome("reached", 10, 1.0))
    queue.ended("a")
    assert queue.is_over == has_outcome
