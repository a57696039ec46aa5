"""Starts a private Ray on this machine, or joins a cluster that runs, and finds out at once whether its workers can work."""

from __future__ import annotations

import logging
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, TextIO

from hpo.engine.config import InputError, SweepConfig
from hpo.engine.config_blocks import TrialResources
from hpo.engine.run_folder import RunFolder
from hpo.engine.trouble import OutsideError, in_a_line
from hpo.engine.worker import Job

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_TRAIN_V2_ENABLED": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # Ctrl-C is a KeyboardInterrupt here; folders make it safe at any moment
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_MAX_PENDING_TRIALS_PG": "200",  # the queue hands out no more than fit
    "TUNE_WARN_THRESHOLD_S": "60",
}
_logger = logging.getLogger("ray.hpo")
_OBJECT_STORE_BYTES = 128 * 2**20
_IMPORT_PATIENCE_S = 120.0
_CONNECT_PATIENCE_S = 10.0
_LOOK_EVERY_S = 5.0
_ATTEMPTS = 2
_AHEAD, _AHEAD_ON_A_CLUSTER = 1, 4
"""Trials asked for beyond what fits: Ray then keeps the worker of a trial that ends, and a cluster sees that it should grow."""


def available_cores() -> int:
    """Return the number of CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def needs_of(share: TrialResources) -> dict[str, float]:
    """Return what a trial takes with all its workers, by Ray's names."""
    return {"CPU": share.workers * share.cpu, "GPU": share.workers * share.gpu}


class Room:
    """Whether one more trial may be with Ray; needs :func:`ray_for`.

    Those with Ray may take what the cluster has and a few more wait ahead, but none of several workers: it would hold a
    process while it waits. One trial is always with Ray.
    """

    def __init__(self, config: SweepConfig) -> None:
        self._limit = config.resources.max_concurrent or math.inf
        self._ahead = _AHEAD if config.ray.address is None else _AHEAD_ON_A_CLUSTER
        self._have: dict[str, float] = {}
        self._looked_at = -math.inf

    def fits(self, job: Job, running: Sequence[Job]) -> bool:
        """Return True if ``job`` may be handed to Ray beside those ``running``."""
        if not running:
            return True
        if time.monotonic() - self._looked_at > _LOOK_EVERY_S:
            import ray

            self._have, self._looked_at = ray.cluster_resources(), time.monotonic()  # type: ignore[no-untyped-call]
        share, taken = self._share(job), sum(self._share(other) for other in running)
        ahead = self._ahead * share if job.share.workers == 1 else 0.0
        return len(running) < self._limit and taken + share <= 1 + ahead + 1e-9

    def _share(self, job: Job) -> float:
        """Return what a job takes of what the cluster has, of what is scarcest; at most all, as a cluster may grow."""
        needed = {key: n for key, n in needs_of(job.share).items() if n > 0}
        return max(min(1.0, n / self._have[key]) if self._have.get(key, 0) > 0 else 1.0 for key, n in needed.items())


@contextmanager
def ray_for(run: RunFolder, config: SweepConfig) -> Iterator[None]:
    """Start a private Ray, quiet and off the network, or join the one at ``ray.address``; leave it afterwards.

    Where this process has a Ray already, that one is used and stays.

    Raises
    ------
    InputError
        One trial needs more than the machine has (it would wait for ever), the cluster or the storage cannot be reached, or
        workers cannot start or do not see the run folder.
    OutsideError
        A private Ray does not come up on this machine, now.
    """
    _check_storage(config.ray.storage_path)
    loaded = sys.modules.get("ray")
    if loaded is not None and loaded.is_initialized():
        with _environment(_ENVIRONMENT), _logged_to(run.logs / "ray.log"):
            yield
        return
    is_private = config.ray.address is None
    if is_private and loaded is None:  # Ray looks once, when it is imported
        for name, value in (("RAY_AUTH_MODE", "token"), ("RAY_AUTH_TOKEN", secrets.token_hex(32))):
            os.environ.setdefault(name, value)  # else it keeps a token in the home folder
    with _environment(_ENVIRONMENT):
        with _checked_environment():
            ray = _imported()  # which sets up its own logging, so it comes first
        with _logged_to(run.logs / "ray.log"):
            _start(ray, config)
            try:
                if is_private:
                    _check_size(ray, config)
                if config.ray.runtime_env or not is_private:
                    check_workers(run)
                yield
            finally:
                ray.shutdown()


@contextmanager
def _environment(defaults: Mapping[str, str]) -> Iterator[None]:
    """Within the block, have these variables where they are not set, and the path on which this process finds modules."""
    before = dict(os.environ)
    os.environ.update({name: value for name, value in defaults.items() if name not in before})
    os.environ["PYTHONPATH"] = os.pathsep.join(_import_paths())
    try:
        yield
    finally:
        for name in (*defaults, "PYTHONPATH"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


def check_workers(run: RunFolder, timeout_s: float = 60.0) -> None:
    """Start a worker on every machine and let it import this package and look for the run folder.

    Raises
    ------
    InputError
        A worker cannot: named with its machine and its own last words.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    token = run.logs / f".seen-by-workers-{secrets.token_hex(4)}"
    token.touch()

    def look(path: str) -> bool:
        import hpo.engine.worker  # noqa: F401 - that it can be imported is the question

        return os.path.exists(path)  # noqa: PTH110 - runs elsewhere

    probe = ray.remote(num_cpus=0, max_retries=0)(look)
    nodes = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}  # type: ignore[no-untyped-call]
    strategies = {node: NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes}
    answers = {node: probe.options(scheduling_strategy=strategies[node]).remote(str(token)) for node in nodes}
    try:
        for node, answer in answers.items():
            if not _answer_of(answer, nodes[node], timeout_s):
                raise InputError.at("--out", "a folder that all machines share", f"{run.path}, unseen by {nodes[node]}")
    finally:
        token.unlink(missing_ok=True)


def _answer_of(answer: Any, machine: str, timeout_s: float) -> bool:
    import ray

    try:
        seen: bool = ray.get(answer, timeout=timeout_s)
    except ray.exceptions.GetTimeoutError:
        raise InputError(f"workers on {machine} cannot start: none within {timeout_s:g} s") from None
    except ray.exceptions.RayError as error:
        raise InputError(f"workers on {machine} cannot start: {str(error).strip().splitlines()[-1]}") from None
    return seen


@contextmanager
def _checked_environment() -> Iterator[None]:
    """Import in a new process, beside the block, what a worker needs; where that fails, say so after it.

    Ray would start such workers for ever, and say nothing.
    """
    command = [sys.executable, "-P", "-c", "import ray._private.worker, hpo.engine.worker"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        yield
        try:
            _, said = process.communicate(timeout=_IMPORT_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            text = f"workers cannot start: importing what they need took over {_IMPORT_PATIENCE_S:g} s on this machine"
            raise OutsideError(text) from None
    if process.returncode != 0:
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        raise InputError(f"workers cannot start: {lines[-1] if lines else f'exit status {process.returncode}'}")


def _start(ray: Any, config: SweepConfig) -> None:
    on_sigterm = signal.getsignal(signal.SIGTERM)
    alone = {
        "num_cpus": available_cores(),
        "include_dashboard": False,
        "object_store_memory": _OBJECT_STORE_BYTES,
        "_node_ip_address": "127.0.0.1",
    }
    address = config.ray.address
    environment = dict(config.ray.runtime_env)
    if address is not None:  # workers of a private Ray inherit the path
        variables = {"PYTHONPATH": os.environ["PYTHONPATH"], **environment.get("env_vars", {})}
        environment = {**environment, "env_vars": variables}
    _check_address(address)
    _check_runtime_env(environment)
    options = {"runtime_env": environment or None, "log_to_driver": False}  # its log is ours: see _logged_to
    if address is None:
        _start_private(ray, address="local", **options, **alone)
    else:
        _join(ray, address=address, **options)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, on_sigterm)  # Ray has put its own there


def _start_private(ray: Any, **options: Any) -> None:
    """Start Ray here; where it fails once, once more: on a machine that is busy it gives up after half a minute."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            ray.init(**options)
            return
        except Exception as error:
            _logger.exception("Ray does not start (attempt %d)", attempt)
            ray.shutdown()
            if attempt == _ATTEMPTS:
                raise OutsideError(f"Ray does not start on this machine: {in_a_line(error)}") from error


def _join(ray: Any, **options: Any) -> None:
    try:
        ray.init(**options)
    except Exception as error:
        _logger.exception("no cluster at %s", options["address"])
        found = f"{options['address']} ({in_a_line(error)})"
        raise InputError.at("ray.address", "a Ray cluster that answers", found) from None


def _imported() -> Any:
    """Return Ray's module."""
    try:
        import ray
    except ImportError as error:
        raise InputError(f"Ray cannot be imported: {error}") from None
    return ray


def _check_runtime_env(environment: Mapping[str, Any]) -> None:
    """Refuse what Ray would refuse once it is up."""
    from ray.runtime_env import RuntimeEnv

    try:
        RuntimeEnv(**environment)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError.at("ray.runtime_env", "what Ray takes", in_a_line(error)) from None


def _check_address(address: str | None) -> None:
    """Refuse an address where nothing listens: Ray would try for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not (colon and port.isdigit()):
        return  # none, or a word such as auto
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_PATIENCE_S).close()
    except OSError as error:
        raise InputError.at("ray.address", "a Ray cluster that answers", f"{address} ({error.strerror or error})") from None


def _check_storage(path: str | None) -> None:
    """Refuse a storage path that Ray would stumble over, once everything has begun."""
    from pyarrow.fs import FileSystem

    if path is None:
        return
    try:
        system, place = FileSystem.from_uri(path)
        system.create_dir(place)
    except (OSError, ValueError) as error:
        found = f"{path} ({str(error).splitlines()[0]})"
        raise InputError.at("ray.storage_path", "a folder, or a URI of a storage, that can be written", found) from None


def _check_size(ray: Any, config: SweepConfig) -> None:
    have: dict[str, float] = ray.cluster_resources()
    blocks: list[tuple[str, TrialResources]] = [("resources", config.resources)]
    if config.proxies is not None and config.proxies.resources is not None:
        blocks.append(("proxies.resources", config.proxies.resources))
    for path, block in blocks:
        for key, needed in needs_of(block).items():
            if needed > have.get(key, 0):
                at = f"{path}.{key.lower()}"
                of_all = " for all workers together" if block.workers > 1 else ""
                raise InputError.at(at, f"at most the {have.get(key, 0):g} of this machine{of_all}", needed)


def _import_paths() -> list[str]:
    """Return what workers need on their path to import what this process can: the current folder, and ours."""
    paths = [str(Path.cwd()), *(path for path in sys.path if path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return list(dict.fromkeys(path for path in paths if path))


class _QuietHandler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - overrides
        """Say nothing where a record cannot be written: a full disk is told of elsewhere, once."""


@contextmanager
def _logged_to(path: Path) -> Iterator[None]:
    """Send to a file what Ray logs, and what it prints on stdout, which belongs to the result."""
    with path.open("a", encoding="utf-8", buffering=1) as file, redirect_stdout(file):
        handler = _QuietHandler(file)
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
