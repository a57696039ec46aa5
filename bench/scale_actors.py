"""The same scheduler and search in a real ``tune.Tuner``: real actors, which only sleep and report recorded curves.

What a report costs the driver is its processor time over the whole experiment, Ray's included; what it costs a worker is how
long ``tune.report`` takes to return, when the report has been judged.
"""

from __future__ import annotations

import logging
import os
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
import ray
from numpy.typing import NDArray
from ray import tune
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search.optuna import OptunaSearch

from bench.scale_simulated import HORIZON, SEED, SPREAD, held_bytes
from hpo.adapters.ray_scheduler import CollapseScheduler
from hpo.adapters.ray_search import CollapseSearch

_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_WARN_THRESHOLD_S": "60",
}
_NOTED = ("began_s", "ended_s", "waited_s", "actor")
_NONE = SimpleNamespace(pruned=False)


@dataclass(frozen=True)
class Actors:
    """What real actors and their driver took.

    Attributes
    ----------
    n_actors, n_trials, n_reports, n_stopped : int
    is_plain : bool
        Under Ray's own scheduler and search.
    report_ms : float
        The driver's processor time a report, Ray's part and all else included.
    decided_p50_s, decided_p99_s : float
        Seconds for which a worker waits for the answer to a report.
    next_start_s : float
        Median seconds from a trial's last answer to the first step of the next one on the same actor.
    bytes_per_trial : float
        Growth of what the driver holds over the second half of the trials, a trial.
    utilisation : float
        Share of the actors' time between their first and their last step that they spent in steps.
    """

    n_actors: int
    n_trials: int
    n_reports: int
    n_stopped: int
    report_ms: float
    decided_p50_s: float
    decided_p99_s: float
    next_start_s: float
    bytes_per_trial: float
    utilisation: float
    is_plain: bool = False


class _Notes(tune.Callback):
    """Keeps what the workers report of their time, and what the driver holds at each trial's end."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.held: list[int] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"reports": [], "held": []}  # Ray saves its callbacks again and again

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: dict[str, Any], **info: Any) -> None:
        """A report arrived."""
        del iteration, trials, info
        self.reports.append({"trial": trial.trial_id, **{key: result[key] for key in _NOTED}})

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        """A trial has ended."""
        del iteration, trials, trial, info
        self.held.append(held_bytes())


def measure_actors(
    n_actors: int, n_trials: int, trial_s: float, n_reports: int, curves: NDArray[np.float64], *, is_plain: bool = False
) -> Mapping[str, Any]:
    """Run ``n_trials`` of ``trial_s`` seconds on so many actors of a private Ray on this machine; return :class:`Actors`.

    With ``is_plain`` under Ray's own scheduler, which stops nothing, and its own search: what Ray's driver takes without us.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = {
        "lr": optuna.distributions.FloatDistribution(1e-4, 1e-1, log=True),
        "curve": optuna.distributions.IntDistribution(0, len(curves) - 1),
    }
    make: Any = OptunaSearch if is_plain else CollapseSearch
    search = make(space, metric="loss", mode="min", sampler=optuna.samplers.RandomSampler(seed=SEED))
    ours, notes = CollapseScheduler(metric="loss", mode="min", time_attr="step", total=HORIZON), _Notes()
    scheduler = FIFOScheduler() if is_plain else ours  # type: ignore[no-untyped-call]
    config = tune.TuneConfig(
        metric="loss", mode="min", scheduler=scheduler, search_alg=search, num_samples=n_trials, reuse_actors=True
    )
    with tempfile.TemporaryDirectory() as folder, private_ray(n_actors):
        run = tune.RunConfig(name="scale", storage_path=folder, verbose=0, callbacks=[notes])
        tuner = tune.Tuner(_sleeper(trial_s / n_reports, HORIZON // n_reports, curves), tune_config=config, run_config=run)
        began_s = _cpu_s()
        tuner.fit()
        spent_s = _cpu_s() - began_s
    half = notes.held[len(notes.held) // 2 :]
    found = Actors(
        n_actors=n_actors,
        n_trials=n_trials,
        n_reports=len(notes.reports),
        n_stopped=sum((ours.decision(t) or _NONE).pruned for t in {note["trial"] for note in notes.reports}),
        report_ms=1e3 * spent_s / max(1, len(notes.reports)),
        is_plain=is_plain,
        bytes_per_trial=(half[-1] - half[0]) / max(1, len(half) - 1),
        **_waits(notes.reports),
    )
    return asdict(found)


@contextmanager
def private_ray(n_actors: int) -> Iterator[None]:
    """Start a quiet Ray off the network with so many processors, real or not, and end it afterwards."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(
        address="local",
        num_cpus=n_actors,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _node_ip_address="127.0.0.1",
    )
    try:
        yield
    finally:
        ray.shutdown()


def _sleeper(step_s: float, gap: int, curves: NDArray[np.float64]) -> Any:
    """Return a training function that sleeps and reports a recorded curve, with when and how long it waited; sent by value."""

    def train(config: dict[str, Any]) -> None:
        rng = np.random.default_rng(int(config["lr"] * 1e9))
        losses, waited = curves[config["curve"]] * (1 + SPREAD * abs(rng.standard_normal())), 0.0
        for step in range(gap, HORIZON + 1, gap):
            began = time.time()
            time.sleep(step_s)
            ended = time.time()
            about = {"began_s": began, "ended_s": ended, "waited_s": waited, "actor": os.getpid()}
            tune.report({"step": step, "loss": float(losses[step - 1]), **about})
            waited = time.time() - ended

    return train


def _waits(notes: list[dict[str, Any]]) -> dict[str, float]:
    """Return what the workers' notes say of waits, starts and use."""
    waited = [note["waited_s"] for note in notes if note["waited_s"] > 0]
    by_actor: dict[int, list[dict[str, Any]]] = {}
    for note in sorted(notes, key=lambda note: note["began_s"]):
        by_actor.setdefault(note["actor"], []).append(note)
    pairs = [(a, b) for own in by_actor.values() for a, b in pairwise(own) if a["trial"] != b["trial"]]
    there = sum(own[-1]["ended_s"] - own[0]["began_s"] for own in by_actor.values())
    return {
        "decided_p50_s": float(np.percentile(waited, 50)),
        "decided_p99_s": float(np.percentile(waited, 99)),
        "next_start_s": float(np.median([b["began_s"] - a["ended_s"] for a, b in pairs])) if pairs else float("nan"),
        "utilisation": sum(note["ended_s"] - note["began_s"] for note in notes) / there,
    }


def _cpu_s() -> float:
    """Return the processor seconds of this process, all its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
