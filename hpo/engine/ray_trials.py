"""Runs jobs as trials of one Ray Tune experiment, as many at once as fit.

Ray only places, restarts and reports: what a run has done is in its own folder (:mod:`hpo.engine.worker`), so Ray's
state is never restored. Worker processes are used again from trial to trial, because starting one takes seconds.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpo.adapters.training_session import last_logged_step
from hpo.engine.config import SweepConfig
from hpo.engine.config_blocks import TrialResources
from hpo.engine.hang_watch import STACK_NAME, has_hung
from hpo.engine.job_queue import JobQueue
from hpo.engine.ray_cluster import Room
from hpo.engine.run_folder import RunFolder
from hpo.engine.thinning import Report
from hpo.engine.trial_events import TrialEvents
from hpo.engine.trouble import OutsideError, causes_of, in_a_line, is_own
from hpo.engine.worker import Job, Outcome, Status, TrainingFailed, is_out_of_memory, write_outcome

if TYPE_CHECKING:
    from ray.tune import PlacementGroupFactory

_logger = logging.getLogger("ray.hpo")
_RAISED = f"{TrainingFailed.__module__}.{TrainingFailed.__qualname__}: "
_ADVICE = " Some common causes include"
"""Where in Ray's word of a worker that died its general advice begins."""
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def run_jobs(
    queue: JobQueue, templates: Mapping[str, Job], *, run: RunFolder, config: SweepConfig, events: TrialEvents, phase: str
) -> None:
    """Run the queue until it is over; how each job ended is then in its folder.

    A worker that dies, or a training function that raises, is started again up to ``config.retries`` times from the run's
    latest checkpoint. Needs :func:`hpo.engine.ray_cluster.ray_for`.

    Parameters
    ----------
    templates : dict
        Every job that the queue may ever hand out, by name; the queue's own decide only where they stop.

    Raises
    ------
    KeyboardInterrupt
        The jobs were asked to pause.
    OSError
        A disk is full; nothing that ran into it counts as failed.
    OutsideError
        Ray or the study's storage failed.
    """
    if queue.is_over:
        return
    errors = _fit(queue, templates, run=run, config=config, events=events, phase=phase)
    if any(job.is_paused() for job in templates.values()):
        raise KeyboardInterrupt
    ended = list(queue.taken.values())
    for job in ended:
        if job.outcome is None:
            _raise_if_disk_full(job, errors.get(job.name))
    for job in ended:
        if job.outcome is None:
            write_outcome(job.folder, failure(job, errors.get(job.name)))


def _fit(
    queue: JobQueue, templates: Mapping[str, Job], *, run: RunFolder, config: SweepConfig, events: TrialEvents, phase: str
) -> dict[str, Exception]:
    from ray import tune

    from hpo.engine.ray_queue import QueueSearcher
    from hpo.engine.ray_relay import Relay

    storage = config.ray.storage_path or str(run.ray)

    def trial(wanted: dict[str, Any]) -> None:
        from hpo.engine.ray_workers import run_group
        from hpo.engine.worker import run_job

        def tell(report: Report) -> None:
            tune.report(vars(report))

        job = replace(templates[wanted["name"]], stop_step=wanted["stop_step"])
        if job.share.workers > 1:
            run_group(job, tell, storage)
        else:
            run_job(job, tell)

    tuner = tune.Tuner(
        tune.with_resources(trial, lambda wanted: _bundle(templates[wanted["name"]].share)),
        tune_config=tune.TuneConfig(
            num_samples=-1,
            search_alg=QueueSearcher(queue, Room(config).fits),
            reuse_actors=True,
            trial_name_creator=lambda ray_trial: str(ray_trial.config["name"]),
            trial_dirname_creator=lambda ray_trial: f"{ray_trial.config['name']}-{ray_trial.trial_id}",
        ),
        run_config=tune.RunConfig(
            name=phase,
            storage_path=storage,
            failure_config=tune.FailureConfig(max_failures=config.retries),
            callbacks=[Relay(queue, events, note_failure)],
            verbose=0,
        ),
    )
    try:
        results = tuner.fit()
    except Exception as error:
        _raise_behind(error)
        raise
    ended = [results[i] for i in range(len(results))]
    return {(result.config or {})["name"]: result.error for result in ended if result.error is not None}


def _bundle(share: TrialResources) -> PlacementGroupFactory:
    """Return what a trial's own process reserves: next to nothing where it only watches over a group of workers."""
    from ray.tune import PlacementGroupFactory

    if share.workers > 1:
        return PlacementGroupFactory([{"memory": 1.0}])
    return PlacementGroupFactory([{"CPU": share.cpu, **({"GPU": share.gpu} if share.gpu else {})}])


def failure(job: Job, error: Exception | str | None) -> Outcome:
    """Return the outcome of a job that left none, from what Ray says of its trial."""
    last_step = last_logged_step(job.folder)
    if has_hung(job.folder):
        return Outcome("failed", last_step, 0.0, f"hung: no step for {job.hang_s:g} s (stacks in {job.folder / STACK_NAME})")
    if error is None:
        return Outcome("failed", last_step, 0.0, "ended without an outcome")
    is_memory = (isinstance(error, Exception) and is_out_of_memory(error)) or "OutOfMemory" in str(error)
    status: Status = "out_of_memory" if is_memory else "failed"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[-1].removeprefix(_RAISED).split(_ADVICE)[0] if lines else type(error).__name__
    return Outcome(status, last_step, 0.0, said)


def note_failure(job: Job, error: str, is_last: bool) -> None:
    """Write the outcome of a job that failed for the last time, so that it is known while others run.

    A worker that was killed for its memory has had its last attempt: the next would end as this one did.
    """
    if job.outcome is not None or job.is_paused() or _full_disk(error) is not None:
        return
    outcome = failure(job, error)
    if is_last or outcome.status == "out_of_memory":
        write_outcome(job.folder, outcome)


def _full_disk(error: object) -> int | None:
    return next((number for number in _FULL_DISK if f"[Errno {number}]" in str(error)), None)


def _raise_behind(error: Exception) -> None:
    """Raise what led to an error of Ray's experiment, if it is no fault of ours: a full disk, the storage, or Ray itself."""
    *_, first = causes = list(causes_of(error))
    for cause in causes:
        if isinstance(cause, OutsideError) or (isinstance(cause, OSError) and cause.errno in _FULL_DISK):
            raise cause from None
    if not is_own(first):
        _logger.error("the experiment failed", exc_info=error)
        raise OutsideError(f"Ray failed: {in_a_line(first)}") from error


def _raise_if_disk_full(job: Job, error: Exception | None) -> None:
    """Raise the error of a full disk that ended a job: the sweep can go on once there is space."""
    number = _full_disk(error)
    if number is not None:
        raise OSError(number, os.strerror(number), str(job.folder))
