"""What a call of ``should_prune`` costs, refreshes included, for our pruner and Optuna's median pruner.

Each case is a study of finished and running trials in one storage; one more trial reports at every step and is timed at each,
while twenty others finish. The first call that reads all finished trials is told apart (``first_ms``): the percentiles are of
all other calls. ``cpu_p50_ms`` and ``cpu_p99_ms`` are of the thread's own time, which others do not lengthen, nor a disk.

    python -m bench.pruner_latency --json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from hpo.adapters.optuna_pruner import CollapsePruner

SEED = 0
N_FINISHING = 20
"""Trials that finish while one is timed."""


@dataclass(frozen=True)
class Case:
    """A study to be timed in."""

    storage: str
    n_finished: int
    n_steps: int = 1000
    n_running: int = 0


@dataclass(frozen=True)
class Timing:
    """Milliseconds of ``should_prune``, and the memory that the pruner took (0 where it was not measured)."""

    p50_ms: float
    p99_ms: float
    cpu_p50_ms: float
    cpu_p99_ms: float
    first_ms: float
    n_calls: int
    memory_mb: float = 0.0


CASES = (
    Case("memory", 100, 100),
    Case("memory", 1000, 100),
    Case("memory", 10_000, 100),
    Case("memory", 1000),
    Case("journal", 1000),
    Case("sqlite", 20, 1000, 64),
)
PRUNERS: dict[str, Callable[[Case], optuna.pruners.BasePruner]] = {
    "collapse": lambda case: CollapsePruner(total_steps=case.n_steps),
    "median": lambda _: optuna.pruners.MedianPruner(),
}


def losses(rng: np.random.Generator, n_steps: int) -> dict[int, float]:
    """Return one trial's reports: a power law with 1 % noise."""
    t = np.arange(1, n_steps + 1) / n_steps
    values = 3.0 * (1 + 0.1 * rng.random()) * (1 + 0.3 * (t**-0.3 - 1)) * np.exp(0.01 * rng.standard_normal(n_steps))
    return dict(enumerate(values.tolist(), start=1))


def fill(study: optuna.Study, case: Case) -> None:
    """Add the finished and running trials of a case."""
    rng = np.random.default_rng(SEED)
    for number in range(case.n_finished + case.n_running):
        reports = losses(rng, case.n_steps)
        done = number < case.n_finished
        if not done and case.storage == "sqlite":
            _report_at_once(study, study.ask(), reports)
            continue
        state = TrialState.COMPLETE if done else TrialState.RUNNING
        study.add_trial(create_trial(state=state, value=reports[case.n_steps] if done else None, intermediate_values=reports))


def _report_at_once(study: optuna.Study, trial: optuna.Trial, reports: dict[int, float]) -> None:
    """Write a running trial's reports in one statement: Optuna takes a minute for those of 64 trials."""
    columns = "trial_id, step, intermediate_value, intermediate_value_type"
    rows = [(trial._trial_id, step, value, "FINITE") for step, value in reports.items()]
    with study._storage._backend.engine.begin() as connection:  # type: ignore[attr-defined]
        connection.exec_driver_sql(f"INSERT INTO trial_intermediate_values ({columns}) VALUES (?, ?, ?, ?)", rows)  # noqa: S608


def time_pruner(study: optuna.Study, case: Case, pruner: optuna.pruners.BasePruner, memory: bool) -> Timing:
    """Return the timing of one trial that reports at every step and is never better or worse than most."""
    study.pruner = pruner
    trial, others = study.ask(), np.random.default_rng(SEED + 2)
    if memory:
        tracemalloc.start()
    wall, cpu, held = [], [], 0
    for step, value in losses(np.random.default_rng(SEED + 1), case.n_steps).items():
        if step % (case.n_steps // N_FINISHING) == 0:
            held += _finish_another(study, case, others)
        trial.report(value * 0.97, step)
        begun = time.perf_counter(), time.thread_time()
        trial.should_prune()
        wall.append(1e3 * (time.perf_counter() - begun[0]))
        cpu.append(1e3 * (time.thread_time() - begun[1]))
    used = (tracemalloc.get_traced_memory()[1] - held) / 1e6 if memory else 0.0
    tracemalloc.stop()
    study.tell(trial, state=TrialState.FAIL)
    first = int(np.argmax(wall[: max(case.n_steps // 8, 1)]))  # the study is read here for the first time
    slow, _ = wall.pop(first), cpu.pop(first)
    p50, p99 = np.percentile(wall, [50, 99])
    cpu_p50, cpu_p99 = np.percentile(cpu, [50, 99])
    return Timing(float(p50), float(p99), float(cpu_p50), float(cpu_p99), slow, len(wall) + 1, used)


def _finish_another(study: optuna.Study, case: Case, rng: np.random.Generator) -> int:
    """Add a finished trial; return the bytes that the study itself holds more of, where memory is traced."""
    before = tracemalloc.get_traced_memory()[0]
    reports = losses(rng, case.n_steps)
    study.add_trial(create_trial(state=TrialState.COMPLETE, value=reports[case.n_steps], intermediate_values=reports))
    return tracemalloc.get_traced_memory()[0] - before


def run_case(case: Case, pruners: Sequence[str], folder: Path) -> dict[str, Timing]:
    """Return the timings of a case by pruner."""
    study = optuna.create_study(storage=_open(case, folder), sampler=optuna.samplers.RandomSampler(seed=SEED))
    fill(study, case)
    out = {name: time_pruner(study, case, PRUNERS[name](case), memory=False) for name in pruners}
    if "collapse" in out and case.storage == "memory":
        measured = time_pruner(study, case, PRUNERS["collapse"](case), memory=True)
        out["collapse"] = Timing(**{**asdict(out["collapse"]), "memory_mb": measured.memory_mb})
    return out


def _open(case: Case, folder: Path) -> optuna.storages.BaseStorage:
    if case.storage == "memory":
        return optuna.storages.InMemoryStorage()
    path = folder / f"{case.storage}-{case.n_finished}-{case.n_running}"
    if case.storage == "journal":
        return optuna.storages.JournalStorage(JournalFileBackend(str(path)))
    return optuna.storages.get_storage(f"sqlite:///{path}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Time every case and print a table, or one JSON document."""
    parser = argparse.ArgumentParser(prog="python -m bench.pruner_latency", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pruners", nargs="+", default=list(PRUNERS), choices=list(PRUNERS))
    parser.add_argument("--storages", nargs="+", default=["memory", "journal", "sqlite"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if case.storage in options.storages:
                timings = run_case(case, options.pruners, Path(folder))
                rows += [{**asdict(case), "pruner": name, **asdict(timing)} for name, timing in timings.items()]
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    columns = ("storage", "finished × steps", "running", "pruner", "p50 ms", "p99 ms", "p50, p99 CPU ms", "first read ms", "MB")
    print(f"| {' | '.join(columns)} |\n" + "|---" * len(columns) + "|")
    for r in rows:
        cpu = f"{r['cpu_p50_ms']:.2f}, {r['cpu_p99_ms']:.2f}"
        times = f"{r['p50_ms']:.2f} | {r['p99_ms']:.2f} | {cpu} | {r['first_ms']:.0f} | {r['memory_mb']:.1f}"
        print(f"| {r['storage']} | {r['n_finished']} × {r['n_steps']} | {r['n_running']} | {r['pruner']} | {times} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
