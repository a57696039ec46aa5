"""How many trials are with Ray at once, and what each takes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hpo.engine.config import InputError, parse_config
from hpo.engine.config_blocks import TrialResources
from hpo.engine.job_queue import JobQueue
from hpo.engine.plan import plan_sweep
from hpo.engine.ray_cluster import Room, _check_storage
from hpo.engine.run_folder import RunFolder
from hpo.engine.runs_on_disk import RunsOnDisk
from hpo.engine.worker import Job


def _job(name: str = "a", **share) -> Job:
    return Job(name, {}, Path("nowhere"), 1, 1, "m:f", share=TrialResources(**share))


@pytest.fixture
def room(tiny):
    def make(have, **resources):
        made = Room(parse_config({**tiny, "resources": resources}))
        made._have, made._looked_at = have, time.monotonic()
        return made

    return make


def _fitting(room, job: Job) -> int:
    running: list[Job] = []
    while room.fits(job, running):
        running.append(job)
    return len(running)


def test_as_many_as_fit_and_one_ahead(room):
    assert _fitting(room({"CPU": 4.0}), _job()) == 5
    assert _fitting(room({"CPU": 4.0}), _job(cpu=2.0)) == 3
    assert _fitting(room({"CPU": 64.0, "GPU": 2.0}), _job(gpu=0.25)) == 9


def test_a_trial_of_several_workers_does_not_wait_ahead(room):
    assert _fitting(room({"CPU": 4.0}), _job(workers=2)) == 2
    assert _fitting(room({"CPU": 8.0, "GPU": 8.0}), _job(workers=4, gpu=1.0)) == 2


def test_max_concurrent_is_a_limit(room):
    assert _fitting(room({"CPU": 4.0}, max_concurrent=2), _job()) == 2


def test_one_trial_may_always_wait_for_a_cluster_that_grows(room):
    assert _fitting(room({"CPU": 1.0}), _job(gpu=1.0)) >= 1


def test_small_and_large_trials_share_what_there_is(room):
    made, small = room({"CPU": 4.0}), _job("small", cpu=0.5)
    assert made.fits(_job("large", workers=3), [small, small])
    assert not made.fits(_job("large", workers=3), [small, small, small])


def test_the_queue_keeps_its_order_while_the_next_has_no_room():
    queue = JobQueue([_job("large"), _job("small")])
    assert queue.take(lambda job: job.name != "large") is None
    assert queue.take() == _job("large")


def test_proxies_take_what_their_own_block_says(tiny, tmp_path):
    tiny["resources"], tiny["proxies"]["resources"] = {"cpu": 2.0, "gpu": 1.0}, {"cpu": 1.0, "gpu": 0.25}
    plan = plan_sweep(parse_config(tiny))
    runs = RunsOnDisk(plan, RunFolder(tmp_path))
    proxy, target = (runs.job(run, 1).share for run in (plan.proxies[0], plan.candidates[0]))
    assert (proxy.gpu, target.gpu, target.cpu) == (0.25, 1.0, 2.0)


def test_the_built_in_family_trains_in_one_process(tiny):
    with pytest.raises(InputError, match=r"resources.workers: expected 1 with model; found 2"):
        parse_config({**tiny, "resources": {"workers": 2}})


@pytest.mark.parametrize("path", ["s3x://bucket/path", "/proc/nothing/here"])
def test_a_storage_that_ray_would_stumble_over_is_bad_input(path):
    with pytest.raises(InputError, match=r"ray.storage_path: expected a folder, or a URI of a storage, that can be written"):
        _check_storage(path)


def test_a_folder_and_a_uri_of_one_are_storages(tmp_path):
    _check_storage(str(tmp_path / "with space"))
    _check_storage(f"file://{tmp_path}/deeper/still")
    assert (tmp_path / "deeper" / "still").is_dir()
