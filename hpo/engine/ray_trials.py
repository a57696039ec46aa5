"""Runs jobs as trials of one Ray Tune experiment on this machine, as many at once as its cores allow.

Ray only places, restarts and reports: what a run has done is in its own folder (:mod:`hpo.engine.worker`), so Ray's
state is never restored. Worker processes are used again from trial to trial, because starting one takes seconds.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from hpo.adapters.training_session import last_logged_step
from hpo.engine.config import InputError, ResourcesBlock
from hpo.engine.run_folder import RunFolder
from hpo.engine.trial_events import TrialEvents
from hpo.engine.worker import Job, Outcome, Status, is_out_of_memory, run_job, write_outcome

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C is a KeyboardInterrupt here; folders make it safe at any moment
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_WARN_THRESHOLD_S": "60",
}
_OBJECT_STORE_BYTES = 128 * 2**20


def available_cores() -> int:
    """Return the number of CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def ray_on_this_machine(run: RunFolder, resources: ResourcesBlock) -> Iterator[None]:
    """Start a private Ray on this machine, quiet and off the network, and take it down afterwards.

    Raises
    ------
    InputError
        One trial needs more than the machine has: it would wait for ever.
    """
    private = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # else Ray keeps one in the home folder
    for name, value in {**_ENVIRONMENT, **private}.items():
        os.environ.setdefault(name, value)
    os.environ["PYTHONPATH"] = os.pathsep.join(_import_paths())
    import ray

    with _logged_to(run.logs / "ray.log"):
        _start(ray)
        try:
            have: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
            for key, needed in (("CPU", resources.cpu), ("GPU", resources.gpu)):
                if needed > have.get(key, 0):
                    raise InputError.at(f"resources.{key.lower()}", f"at most the {have.get(key, 0):g} of this machine", needed)
            yield
        finally:
            ray.shutdown()


def _start(ray: Any) -> None:
    on_sigterm = signal.getsignal(signal.SIGTERM)
    ray.init(
        address="local",
        num_cpus=available_cores(),
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=_OBJECT_STORE_BYTES,
        _node_ip_address="127.0.0.1",
    )
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray has put its own there


def run_jobs(
    jobs: Sequence[Job], *, run: RunFolder, resources: ResourcesBlock, retries: int, events: TrialEvents, phase: str
) -> dict[str, Outcome]:
    """Run the jobs that have not ended yet, in order, and return the outcome of each by name.

    A worker that dies, or a training function that raises, is started again up to ``retries`` times from the run's
    latest checkpoint. Needs :func:`ray_on_this_machine`.

    Raises
    ------
    KeyboardInterrupt
        The jobs were asked to pause.
    """
    waiting = [job for job in jobs if job.outcome is None]
    if waiting:
        errors = _fit(waiting, run=run, resources=resources, retries=retries, events=events, phase=phase)
        if any(job.is_paused() for job in waiting):
            raise KeyboardInterrupt
        for job, error in zip(waiting, errors, strict=True):
            if job.outcome is None:
                write_outcome(job.folder, _failure(job, error))
    return {job.name: outcome for job in jobs if (outcome := job.outcome) is not None}


def _fit(
    jobs: Sequence[Job], *, run: RunFolder, resources: ResourcesBlock, retries: int, events: TrialEvents, phase: str
) -> list[Exception | None]:
    from ray import tune

    from hpo.engine.ray_relay import Relay

    def trial(config: dict[str, Any]) -> None:
        run_job(jobs[config["index"]], lambda step, loss: tune.report({"step": step, "loss": loss}))

    def name_of(ray_trial: Any) -> str:
        index: int = ray_trial.config["index"]
        return jobs[index].name

    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": resources.cpu, "gpu": resources.gpu}),
        param_space={"index": tune.grid_search(list(range(len(jobs))))},
        tune_config=tune.TuneConfig(
            reuse_actors=True,
            max_concurrent_trials=resources.max_concurrent,
            trial_name_creator=name_of,
            trial_dirname_creator=name_of,
        ),
        run_config=tune.RunConfig(
            name=phase,
            storage_path=str(run.ray),
            failure_config=tune.FailureConfig(max_failures=retries),
            callbacks=[Relay(jobs, events)],
            verbose=0,
        ),
    )
    results = tuner.fit()
    ended = [results[i] for i in range(len(results))]
    errors = {(result.config or {}).get("index"): result.error for result in ended}
    return [errors.get(index) for index in range(len(jobs))]


def _failure(job: Job, error: Exception | None) -> Outcome:
    last_step = last_logged_step(job.folder)
    if error is None:
        return Outcome("failed", last_step, 0.0, "ended without an outcome")
    status: Status = "out_of_memory" if is_out_of_memory(error) or "OutOfMemory" in str(error) else "failed"
    lines = [line for line in str(error).splitlines() if line.strip()]
    return Outcome(status, last_step, 0.0, lines[-1].strip() if lines else type(error).__name__)


def _import_paths() -> list[str]:
    """Return what workers need on their path to import what this process can: the current folder, and ours."""
    paths = [str(Path.cwd()), *(path for path in sys.path if path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return list(dict.fromkeys(path for path in paths if path))


@contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    """Send to a file what Ray logs, and what it prints on stdout, which belongs to the result."""
    with path.open("a", encoding="utf-8", buffering=1) as file, redirect_stdout(file):
        handler = logging.StreamHandler(file)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        loggers = [logging.getLogger(name) for name in ("ray", "ray.tune", "ray.train")]
        before = [(list(logger.handlers), logger.propagate) for logger in loggers]
        for logger in loggers:
            logger.handlers, logger.propagate = [handler], False
        try:
            yield
        finally:
            for logger, (handlers, propagate) in zip(loggers, before, strict=True):
                logger.handlers, logger.propagate = handlers, propagate
