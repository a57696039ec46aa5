"""How large a sweep one driver carries: scheduler, search and study driven on a simulated clock, with recorded curves.

Workers are simulated, everything the driver does is real: :class:`hpo.CollapseSearch` suggests each trial (an Optuna study in
memory), :class:`hpo.CollapseScheduler` takes and judges every report, and the trial waits until it has, as Ray's do. The driver
serves one report at a time; what that takes on this machine passes on the simulated clock too, so workers queue for a driver
that cannot follow. Each trial is a recorded curve, its final value moved by a few per cent. Ray itself is left out: its two or
three milliseconds a report come on top, and are told apart (``--ray-ms``).

    python -m bench.scale --workers 1000 --trials 10000 --json
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray

from bench.scale_report import scale_lines, write_scale
from hpo.adapters.curve_files import read_runs
from hpo.adapters.ray_scheduler import CollapseScheduler
from hpo.adapters.ray_search import CollapseSearch

SEED = 0
HORIZON = 100
RECORDED = "multipowerlaw.parquet"


@dataclass(frozen=True)
class Load:
    """A sweep to be carried.

    Attributes
    ----------
    n_workers, n_trials : int
        Simulated workers, and trials in all.
    trial_s : float
        Seconds that a whole trial trains, on average; workers differ by ± 20 %.
    start_s : float
        Seconds from one trial to the next on a worker.
    ray_ms : float
        What Ray's own driver adds to each report.
    """

    n_workers: int
    n_trials: int
    trial_s: float = 600.0
    start_s: float = 0.5
    ray_ms: float = 2.5


@dataclass(frozen=True)
class Measured:
    """What the driver took and the workers got.

    Attributes
    ----------
    n_reports, n_stopped : int
        Reports served, and trials stopped by forecast.
    report_ms, p50_ms, p99_ms, max_ms : float
        Milliseconds of the driver's own processor time a report: mean, percentiles, worst (a report that fits the model anew).
    suggest_ms : float
        Mean of a suggestion.
    bytes_per_trial : float or None
        Growth of the driver's memory over its second half, a trial, the study in memory included; None where it was not traced.
    utilisation : float
        Share of the workers' time spent training, start-up left out.
    hours, driver_busy : float
        Simulated hours until the last trial, and the share of them that the driver worked.
    """

    n_reports: int
    n_stopped: int
    report_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    suggest_ms: float
    bytes_per_trial: float | None
    utilisation: float
    hours: float
    driver_busy: float


class SimulatedSweep:
    """One sweep on simulated workers; :meth:`run` plays it."""

    def __init__(self, load: Load, curves: NDArray[np.float64], log: Path, *, traces_memory: bool = True) -> None:
        self._load, self._curves = load, curves
        self._rng = np.random.default_rng(SEED)
        space = {"lr": optuna.distributions.FloatDistribution(1e-4, 1e-1, log=True)}
        sampler = optuna.samplers.RandomSampler(seed=SEED)
        self._search = CollapseSearch(space, metric="loss", mode="min", sampler=sampler)
        self._scheduler = CollapseScheduler(metric="loss", mode="min", total=HORIZON, log=log)
        self._controller = SimpleNamespace(search_alg=self._search, _resumed=False)
        self._driver_free_at = self._driver_s = self._trained_s = 0.0
        self._report_s: list[float] = []
        self._suggest_s: list[float] = []
        self._traces, self._memory = traces_memory, [(0, 0)]
        self._n_begun = self._n_ended = self._n_stopped = 0

    def run(self) -> Measured:
        """Play the sweep to its last trial and return what it took."""
        if self._traces:
            tracemalloc.start()
        events: list[tuple[float, int, SimpleNamespace | None, int]] = []
        speeds = self._load.trial_s / HORIZON * self._rng.uniform(0.8, 1.2, self._load.n_workers)
        for worker in range(min(self._load.n_workers, self._load.n_trials)):
            heapq.heappush(events, (0.0, worker, None, 0))
        now = 0.0
        while events:
            now, worker, trial, step = heapq.heappop(events)
            if trial is None:
                if self._n_begun < self._load.n_trials:
                    trial, begun_at = self._begin(now)
                    heapq.heappush(events, (begun_at + self._load.start_s + speeds[worker], worker, trial, 1))
                continue
            self._trained_s += speeds[worker]
            goes_on, served_at = self._report(now, trial, step)
            after = (served_at + speeds[worker], worker, trial, step + 1) if goes_on else (served_at, worker, None, 0)
            heapq.heappush(events, after)
        return self._measured(now)

    def _begin(self, now: float) -> tuple[SimpleNamespace, float]:
        began = time.process_time()
        trial_id = f"t{self._n_begun:05d}"
        config = self._search.suggest(trial_id) or {}
        losses = self._curves[self._n_begun % len(self._curves)] * (1 + 0.03 * abs(self._rng.standard_normal()))
        trial = SimpleNamespace(trial_id=trial_id, config=config, losses=losses)
        self._scheduler.on_trial_add(self._controller, trial)
        self._n_begun += 1
        self._suggest_s.append(time.process_time() - began)
        return trial, self._served(now, self._suggest_s[-1])

    def _report(self, now: float, trial: SimpleNamespace, step: int) -> tuple[bool, float]:
        """Serve a report; return whether the trial goes on, and when it has been served."""
        began = time.process_time()
        result: dict[str, Any] = {"training_iteration": step, "loss": float(trial.losses[step - 1])}
        stops = self._scheduler.on_trial_result(self._controller, trial, result) == self._scheduler.STOP
        if stops or step == HORIZON:
            self._scheduler.on_trial_complete(self._controller, trial, result)
            self._search.on_trial_complete(trial.trial_id, {**result, "done": True})
            self._n_ended += 1
            self._n_stopped += stops
            self._remember()
        else:
            self._search.on_trial_result(trial.trial_id, result)
        self._report_s.append(time.process_time() - began)
        return not (stops or step == HORIZON), self._served(now, self._report_s[-1] + self._load.ray_ms / 1e3)

    def _served(self, now: float, seconds: float) -> float:
        """Return when a request of ``now`` has been served by the one driver."""
        self._driver_free_at = max(now, self._driver_free_at) + seconds
        self._driver_s += seconds
        return self._driver_free_at

    def _remember(self) -> None:
        if self._traces and self._n_ended % max(1, self._load.n_trials // 20) == 0:
            self._memory.append((self._n_ended, tracemalloc.get_traced_memory()[0]))

    def _measured(self, makespan_s: float) -> Measured:
        if self._traces:
            tracemalloc.stop()
        half = [point for point in self._memory if point[0] >= self._load.n_trials // 2] or self._memory
        (n0, m0), (n1, m1) = half[0], half[-1]
        report_ms = 1e3 * np.array(self._report_s)
        started_s = self._load.start_s * self._load.n_trials
        return Measured(
            n_reports=len(report_ms),
            n_stopped=self._n_stopped,
            report_ms=float(report_ms.mean()),
            p50_ms=float(np.percentile(report_ms, 50)),
            p99_ms=float(np.percentile(report_ms, 99)),
            max_ms=float(report_ms.max()),
            suggest_ms=float(1e3 * np.mean(self._suggest_s)),
            bytes_per_trial=(m1 - m0) / max(1, n1 - n0) if self._traces else None,
            utilisation=self._trained_s / max(1e-9, self._load.n_workers * makespan_s - started_s),
            hours=makespan_s / 3600,
            driver_busy=self._driver_s / makespan_s,
        )


def recorded_curves(folder: Path, name: str = RECORDED) -> NDArray[np.float64]:
    """Return the train losses of the recorded runs of a file, each as :data:`HORIZON` means; shape (n_runs, HORIZON).

    Raises
    ------
    ValueError
        No such file, or no run in it that is long enough.
    """
    made = [_means(run.steps, run.values) for run in read_runs([folder / name])]
    usable = [curve for curve in made if curve is not None]
    if not usable:
        raise ValueError(f"{folder / name}: expected recorded runs of at least {HORIZON} points; found none")
    return np.array(usable)


def _means(steps: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    finite = np.isfinite(values) & (values > 0)
    if finite.sum() < HORIZON:
        return None
    t = steps[finite] / steps[finite][-1]
    place = np.clip(np.ceil(t * HORIZON).astype(int), 1, HORIZON) - 1
    counts = np.bincount(place, minlength=HORIZON)
    sums = np.bincount(place, weights=values[finite], minlength=HORIZON)
    if np.any(counts == 0):
        grid = np.arange(1, HORIZON + 1) / HORIZON
        return np.asarray(np.interp(grid, t, values[finite]), dtype=np.float64)
    return np.asarray(sums / counts, dtype=np.float64)


def measure(loads: Sequence[Load], curves: NDArray[np.float64], *, traces_memory: bool = True) -> list[Mapping[str, Any]]:
    """Return each load with what it took."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    found: list[Mapping[str, Any]] = []
    for load in loads:
        with tempfile.TemporaryDirectory() as folder:
            sweep = SimulatedSweep(load, curves, Path(folder) / "events.jsonl", traces_memory=traces_memory)
            found.append({"load": asdict(load), "measured": asdict(sweep.run())})
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one load, or a ladder of them, and print a table or one JSON document."""
    parser = argparse.ArgumentParser(prog="bench.scale", description="How large a sweep one driver carries.")
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--trials", type=int, nargs="+", default=[1000])
    parser.add_argument("--trial-s", type=float, default=600.0, help="seconds that a whole trial trains")
    parser.add_argument("--ray-ms", type=float, default=2.5, help="what Ray's driver adds to each report")
    parser.add_argument("--curves", type=Path, default=Path(os.environ.get("HPO_CURVES", "../shared/curves")))
    parser.add_argument("--no-memory", action="store_true", help="do not trace memory: processor times without its cost")
    parser.add_argument("--out", type=Path, help="folder for scale.md and scale.svg")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    try:
        curves = recorded_curves(given.curves)
    except ValueError as error:
        parser.error(str(error))
    loads = [Load(w, n, trial_s=given.trial_s, ray_ms=given.ray_ms) for n in given.trials for w in given.workers]
    found = measure(loads, curves, traces_memory=not given.no_memory)
    if given.out is not None:
        write_scale(given.out, found)
    print(json.dumps(found, indent=2, allow_nan=False) if given.json else "\n".join(scale_lines(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
