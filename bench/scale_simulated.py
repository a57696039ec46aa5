"""One driver with simulated workers: its scheduler, search and study are real, time is a simulated clock.

The driver serves one report at a time; what that takes on this machine passes on the simulated clock too, so workers queue for
a driver that cannot follow. Each trial is a recorded curve, its final value moved by a few per cent.
"""

from __future__ import annotations

import heapq
import math
import sys
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray

SEED = 0
HORIZON = 100
SPREAD = 0.03
"""Final values are this much worse, relative, times a half-normal number."""
MARKS = 20
TENTHS = 10
_PAGE = 4096


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
    n_reports : int
        Reports of a whole trial, evenly; a divisor of :data:`HORIZON`.
    """

    n_workers: int
    n_trials: int
    trial_s: float = 600.0
    start_s: float = 0.5
    ray_ms: float = 2.5
    n_reports: int = HORIZON

    def __post_init__(self) -> None:
        if self.n_reports < 1 or HORIZON % self.n_reports:
            raise ValueError(f"n_reports must be a divisor of {HORIZON}; found {self.n_reports}")


@dataclass(frozen=True)
class Measured:
    """What the driver took and the workers got.

    Attributes
    ----------
    n_reports, n_ended, n_stopped : int
        Reports served, trials that ended (all, if there was time), and trials stopped by forecast.
    report_ms, p50_ms, p99_ms, max_ms : float
        Milliseconds of the driver's own processor time a report: mean, percentiles, worst (a report that fits the model anew).
    by_tenth_ms : list of float
        Mean over each tenth of the reports, in their order: whether it grows with the number of trials.
    judged_ms : float
        Median over the reports for which a forecast was made, not the model as well.
    suggest_ms : float
        Mean of a suggestion.
    decided_p50_s, decided_p99_s : float
        Simulated seconds from a report to its answer, the wait for the driver included.
    bytes_per_trial : float
        Growth of the driver's memory (study included) from half of the trials on, while as many run, a trial that ended.
    utilisation : float
        Share of the workers' time spent training, from the start until no trial was left to be begun; start-up left out.
    hours, driver_busy : float
        Simulated hours until then, and the share of them that the driver worked.
    """

    n_reports: int
    n_ended: int
    n_stopped: int
    report_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    by_tenth_ms: list[float]
    judged_ms: float
    suggest_ms: float
    decided_p50_s: float
    decided_p99_s: float
    bytes_per_trial: float
    utilisation: float
    hours: float
    driver_busy: float


class _Noted:
    """Numbers noted one by one, in memory that is all taken at the start: what is measured grows by itself alone."""

    def __init__(self, most: int) -> None:
        self._values = np.full(most, math.nan)
        self._n = 0

    def append(self, value: float) -> None:
        self._values[self._n] = value
        self._n += 1

    def all(self) -> NDArray[np.float64]:
        return self._values[: self._n]

    def __len__(self) -> int:
        return self._n


class SimulatedSweep:
    """One sweep on simulated workers; :meth:`run` plays it.

    Parameters
    ----------
    curves : ndarray, shape (n_curves, HORIZON)
        Losses of recorded runs.
    log : Path
        Of the scheduler's events.
    traces_memory : bool
        Count Python's own allocations, which takes as much time again; else what the process holds.
    tells : bool
        Say on stderr how far it has come.
    within_s : float
        Seconds by this machine's clock after which the play ends, with whatever trials have ended.
    """

    def __init__(
        self,
        load: Load,
        curves: NDArray[np.float64],
        log: Path,
        *,
        traces_memory: bool = False,
        tells: bool = False,
        within_s: float = math.inf,
    ) -> None:
        from hpo.adapters.ray_scheduler import CollapseScheduler  # loads Ray, for which real actors need a token set before
        from hpo.adapters.ray_search import CollapseSearch

        self._load, self._curves = load, curves
        self._rng = np.random.default_rng(SEED)
        space = {"lr": optuna.distributions.FloatDistribution(1e-4, 1e-1, log=True)}
        sampler = optuna.samplers.RandomSampler(seed=SEED)
        self._search = CollapseSearch(space, metric="loss", mode="min", sampler=sampler)
        self._scheduler = CollapseScheduler(metric="loss", mode="min", total=HORIZON, log=log)
        self._controller = SimpleNamespace(search_alg=self._search, _resumed=False)
        self._driver_free_at = self._driver_s = self._trained_s = 0.0
        self._report_s, self._waited_s, self._judged_s = (_Noted(load.n_trials * load.n_reports) for _ in range(3))
        self._suggest_s: list[float] = []
        self._traces, self._tells, self._within_s = traces_memory, tells, within_s
        self._memory: list[tuple[int, int]] = []
        self._n_begun = self._n_ended = self._n_stopped = self._last_begun = 0
        self._full_until: tuple[float, float, float] | None = None

    def run(self) -> Measured:
        """Play the sweep to its last trial, or for so long, and return what it took."""
        deadline = time.monotonic() + self._within_s
        if self._traces:
            tracemalloc.start()
        self._remember()
        events: list[tuple[float, int, SimpleNamespace | None, int]] = []
        gap = HORIZON // self._load.n_reports
        speeds = self._load.trial_s / self._load.n_reports * self._rng.uniform(0.8, 1.2, self._load.n_workers)
        for worker in range(min(self._load.n_workers, self._load.n_trials)):
            heapq.heappush(events, (0.0, worker, None, 0))
        while events and (len(self._report_s) < TENTHS or time.monotonic() < deadline):
            now, worker, trial, step = heapq.heappop(events)
            if trial is None:
                if self._n_begun < self._load.n_trials:
                    trial, begun_at = self._begin(now)
                    heapq.heappush(events, (begun_at + self._load.start_s + speeds[worker], worker, trial, gap))
                elif self._full_until is None:
                    self._full_until = now, self._trained_s, self._driver_s
                continue
            self._trained_s += speeds[worker]
            goes_on, served_at = self._report(now, trial, step)
            after = (served_at + speeds[worker], worker, trial, step + gap) if goes_on else (served_at, worker, None, 0)
            heapq.heappush(events, after)
        return self._measured()

    def _begin(self, now: float) -> tuple[SimpleNamespace, float]:
        began = time.process_time()
        trial_id = f"t{self._n_begun:05d}"
        config = self._search.suggest(trial_id) or {}
        losses = self._curves[self._n_begun % len(self._curves)] * (1 + SPREAD * abs(self._rng.standard_normal()))
        trial = SimpleNamespace(trial_id=trial_id, config=config, losses=losses)
        self._scheduler.on_trial_add(self._controller, trial)
        self._n_begun += 1
        self._suggest_s.append(time.process_time() - began)
        if self._n_begun == self._load.n_trials:
            self._last_begun = len(self._memory)
            self._remember()
        return trial, self._served(now, self._suggest_s[-1])

    def _report(self, now: float, trial: SimpleNamespace, step: int) -> tuple[bool, float]:
        """Serve a report; return whether the trial goes on, and when it has been served."""
        began, before = time.process_time(), self._scheduler.decision(trial.trial_id)
        result: dict[str, Any] = {"training_iteration": step, "loss": float(trial.losses[step - 1])}
        stops = self._scheduler.on_trial_result(self._controller, trial, result) == self._scheduler.STOP
        decided = self._scheduler.decision(trial.trial_id)
        if decided is not before and decided is not None and decided.forecast is not None:
            self._judged_s.append(time.process_time() - began)
        if stops or step == HORIZON:
            self._scheduler.on_trial_complete(self._controller, trial, result)
            self._search.on_trial_complete(trial.trial_id, {**result, "done": True})
            self._n_ended += 1
            self._n_stopped += stops
            if self._n_ended % max(1, self._load.n_trials // MARKS) == 0:
                self._remember()
        else:
            self._search.on_trial_result(trial.trial_id, result)
        spent_s = time.process_time() - began
        self._report_s.append(spent_s)
        served_at = self._served(now, spent_s + self._load.ray_ms / 1e3)
        self._waited_s.append(served_at - now)
        return not (stops or step == HORIZON), served_at

    def _served(self, now: float, seconds: float) -> float:
        """Return when a request of ``now`` has been served by the one driver."""
        self._driver_free_at = max(now, self._driver_free_at) + seconds
        self._driver_s += seconds
        return self._driver_free_at

    def _remember(self) -> None:
        held = tracemalloc.get_traced_memory()[0] if self._traces else held_bytes()
        self._memory.append((self._n_ended, held))
        if self._tells:
            spent_s, n = float(self._report_s.all().sum()), len(self._report_s)
            text = f"{self._n_begun} begun, {self._n_ended} ended, {self._n_stopped} stopped, {n} reports"
            print(f"{text}, {1e3 * spent_s / max(1, n):.2f} ms each, {held / 1e6:.0f} MB", file=sys.stderr, flush=True)

    def _measured(self) -> Measured:
        self._remember()
        if self._traces:
            tracemalloc.stop()
        report_ms = 1e3 * self._report_s.all()
        hours_s, trained_s, driver_s = self._full_until or (self._driver_free_at, self._trained_s, self._driver_s)
        started_s = self._load.start_s * self._n_begun
        return Measured(
            n_reports=len(report_ms),
            n_ended=self._n_ended,
            n_stopped=self._n_stopped,
            report_ms=float(report_ms.mean()),
            p50_ms=float(np.percentile(report_ms, 50)),
            p99_ms=float(np.percentile(report_ms, 99)),
            max_ms=float(report_ms.max()),
            by_tenth_ms=[float(part.mean()) for part in np.array_split(report_ms, TENTHS)],
            judged_ms=float(1e3 * np.median(self._judged_s.all())) if len(self._judged_s) else 0.0,
            suggest_ms=float(1e3 * np.mean(self._suggest_s)),
            decided_p50_s=float(np.percentile(self._waited_s.all(), 50)),
            decided_p99_s=float(np.percentile(self._waited_s.all(), 99)),
            bytes_per_trial=_growth(self._memory[len(self._memory) // 2 : self._last_begun + 1] or self._memory),
            utilisation=trained_s / max(1e-9, self._load.n_workers * hours_s - started_s),
            hours=hours_s / 3600,
            driver_busy=driver_s / hours_s,
        )


def _growth(marks: Sequence[tuple[int, int]]) -> float:
    """Return the bytes a trial between the first and the last mark."""
    (n0, m0), (n1, m1) = marks[0], marks[-1]
    return (m1 - m0) / max(1, n1 - n0)


def held_bytes() -> int:
    """Return what this process holds in memory; 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text(encoding="ascii").split()[1]) * _PAGE if statm.exists() else 0
