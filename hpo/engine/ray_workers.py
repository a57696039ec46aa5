"""A trial that several processes train: a worker group of Ray Train inside a trial of Ray Tune.

The trial's own process takes no CPU; it starts the group, passes on to Tune what rank 0 reports, and waits. Rank 0 runs the job
as a single worker would (:func:`hpo.engine.worker.run_job`), so that everything about folders, checkpoints, marks and hanging
holds for a group too. A group lives and dies as one: what ends one worker ends all, and the trial is tried again from its
checkpoint.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

from hpo.adapters.distributed_session import FollowingSession, LeadingSession, Ranks
from hpo.adapters.training_session import last_logged_step
from hpo.core.session import Session
from hpo.engine.thinning import Report
from hpo.engine.trouble import in_a_line
from hpo.engine.worker import (
    Job,
    Outcome,
    TrainingFailed,
    call_training,
    import_function,
    is_out_of_memory,
    run_job,
    write_outcome,
)

_ROOM_PATIENCE_S = 7 * 24 * 3600
"""How long a group waits for room on the cluster."""
_STAY_AWAY, _GO = 0, 1


def run_group(job: Job, forward: Callable[[Report], None], storage: Path | str) -> None:
    """Train ``job`` with ``job.share.workers`` processes; how it ended is then in its folder, as of :func:`run_job`.

    Parameters
    ----------
    forward : callable
        Takes rank 0's thinned reports; rank 0 waits until it returns.
    storage : path or URI
        Where Ray Train keeps its own records.

    Raises
    ------
    RuntimeError
        A worker failed or died; the first one's trouble is its last line.
    """
    import ray

    if job.is_paused() or job.outcome is not None:
        return
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = str(_ROOM_PATIENCE_S)
    mailbox: Any = ray.remote(num_cpus=0)(_Mailbox)
    mailbox = mailbox.remote()
    failed: list[Exception] = []
    group = Thread(target=_train_group, args=(job, mailbox, storage, failed), daemon=True)
    group.start()
    while group.is_alive():
        report = ray.get(mailbox.receive.remote(0.5))
        if report is not None:
            forward(report)
            ray.get(mailbox.answer.remote())
    ray.kill(mailbox)
    if failed and job.outcome is None:
        _raise_first(job, failed[0])


class _Mailbox:
    """Passes one report at a time from rank 0 to the trial's process; the sender waits for the answer."""

    def __init__(self) -> None:
        self._reports: asyncio.Queue[Report] = asyncio.Queue()
        self._answered = asyncio.Event()

    async def send(self, report: Report) -> None:
        self._answered.clear()
        await self._reports.put(report)
        await self._answered.wait()

    async def receive(self, seconds: float) -> Report | None:
        try:
            return await asyncio.wait_for(self._reports.get(), seconds)
        except TimeoutError:
            return None

    async def answer(self) -> None:
        self._answered.set()


def _train_group(job: Job, mailbox: Any, storage: Path | str, failed: list[Exception]) -> None:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    share = job.share
    resources = {"CPU": share.cpu, **({"GPU": share.gpu} if share.gpu else {})}

    def in_worker() -> None:
        import ray
        import ray.train

        rank = ray.train.get_context().get_world_rank()
        if rank == 0:
            _lead(job, lambda report: ray.get(mailbox.send.remote(report)))
        else:
            _follow(job, rank)

    trainer = TorchTrainer(
        in_worker,
        scaling_config=ScalingConfig(num_workers=share.workers, use_gpu=share.gpu > 0, resources_per_worker=resources),
        run_config=RunConfig(
            name=f"group-{job.name}-{secrets.token_hex(4)}",  # a name that is there would be gone on with
            storage_path=str(storage),
            failure_config=FailureConfig(max_failures=0),  # Tune tries again
        ),
    )
    try:
        trainer.fit()
    except Exception as error:  # noqa: BLE001 - told by the trial's own thread
        failed.append(error)


def _lead(job: Job, forward: Callable[[Report], None]) -> None:
    """Run the job on rank 0."""
    ranks, began = Ranks(), False

    def leading(settings: Any, session: Session) -> None:
        nonlocal began
        train = job.function or import_function(job.trainable)
        began = True
        ranks.agree(_GO)
        train(settings, LeadingSession(session, ranks))

    outcome = run_job(replace(job, function=leading), forward)
    if not began:
        ranks.agree(_STAY_AWAY)
    elif outcome is not None and outcome.status in ("out_of_memory", "failed"):
        raise RuntimeError(outcome.message)  # the others wait for this rank: a failure ends them


def _follow(job: Job, rank: int) -> None:
    """Run the job on another rank."""
    ranks = Ranks()
    if ranks.agree() == _STAY_AWAY:
        return
    call_training(job, FollowingSession(job.folder, ranks), rank)


def _raise_first(job: Job, error: Exception) -> None:
    """Raise what the lowest rank raised; running out of memory is an outcome, on whatever rank it was."""
    failures = getattr(error, "worker_failures", None) or {0: error}
    for rank in sorted(failures):
        cause = getattr(failures[rank], "_base_exc", failures[rank])
        if is_out_of_memory(cause) or "OutOfMemory" in type(cause).__name__:
            write_outcome(job.folder, Outcome("out_of_memory", last_logged_step(job.folder), 0.0, f"rank {rank}: {cause}"))
            return
    own = {rank: getattr(one, "_base_exc", one) for rank, one in failures.items()}
    rank = min(own, key=lambda rank: (_is_echo(own[rank]), rank))
    said = str(own[rank]) if isinstance(own[rank], TrainingFailed) else in_a_line(own[rank])
    raise RuntimeError(f"{error}\nrank {rank}: {said}") from None


def _is_echo(error: BaseException) -> bool:
    """Return True for what a rank says when another one has left it in the middle of a collective."""
    return "Connection closed by peer" in str(error) or "Connection reset by peer" in str(error)
