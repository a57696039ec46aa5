"""A soak: ten thousand small trials through one pruner in one study, some of them odd, and what that leaves behind.

Each trial is a made-up curve with noise; one in a hundred each reports NaN, fails midway, never says how long it is, or skips
steps. Told for each tenth of the study: milliseconds of ``should_prune`` (of this thread's own time, so other programs do not
lengthen it), memory of the process, trials stopped. Sound is a run that raises nothing, spends no more than its error budget,
lets no NaN run on, and whose time a decision and memory a trial do not grow with the study.

    python -m bench.soak --trials 10000 --json
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray

from hpo.adapters.optuna_pruner import CollapsePruner

N_STEPS = 15
ODD_SHARE = 0.01
ODD = ("nan", "fails", "endless", "untidy")
TENTHS = 10
SLOWER = 2.0


@dataclass(frozen=True)
class Tenth:
    """One tenth of the study."""

    trials: int
    median_ms: float
    p99_ms: float
    memory_mb: float
    stopped: int


@dataclass(frozen=True)
class Report:
    """What the soak found; ``faults`` is empty where it is sound."""

    n_trials: int
    seconds: float
    states: dict[str, int]
    reasons: dict[str, int]
    error_spent: float
    tenths: tuple[Tenth, ...]
    faults: tuple[str, ...]


def soak(n_trials: int, seed: int = 0) -> Report:
    """Return the report of a study of ``n_trials``, at least 100."""
    if n_trials < 100:
        raise ValueError(f"--trials must be at least 100; found {n_trials}")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    rng, pruner = np.random.default_rng(seed), CollapsePruner()
    study = optuna.create_study(pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=seed))
    tenths, kinds, begun = [], [_kind(rng) for _ in range(n_trials)], time.monotonic()
    for part in np.array_split(np.arange(n_trials), TENTHS):
        took = [second for i in part for second in _trial(study, kinds[i], rng)]
        memory, stopped = _memory_mb(), _count(study, optuna.trial.TrialState.PRUNED)
        tenths.append(Tenth(part.size, 1e3 * float(np.median(took)), 1e3 * float(np.quantile(took, 0.99)), memory, stopped))
        print(f"{len(tenths)} of {TENTHS}: {tenths[-1]}, after {time.monotonic() - begun:.0f} s", file=sys.stderr)
    return _report(study, pruner, kinds, tuple(tenths), time.monotonic() - begun)


def _trial(study: optuna.Study, kind: str, rng: np.random.Generator) -> list[float]:
    """Run one trial; return the seconds of each ``should_prune``."""
    trial, took = study.ask(), list[float]()
    values = _curve(trial.suggest_float("lr", 1e-4, 1.0, log=True), rng)
    if kind != "endless":
        trial.set_user_attr("total_steps", N_STEPS)
    for step in range(1, N_STEPS + 1):
        if kind == "fails" and step > N_STEPS // 2:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            return took
        if kind == "untidy" and step % 3 == 0:
            continue
        trial.report(math.nan if kind == "nan" and step == N_STEPS // 2 else values[step - 1], step)
        begun = time.thread_time()
        stopped = trial.should_prune()
        took.append(time.thread_time() - begun)
        if stopped:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
            return took
    study.tell(trial, float(values[-1]))
    return took


def _curve(lr: float, rng: np.random.Generator) -> NDArray[np.float64]:
    fraction = np.arange(1, N_STEPS + 1) / N_STEPS
    end = 3.0 + 0.2 * abs(math.log10(lr / 0.01)) + 0.02 * rng.standard_normal()
    noise = np.exp(0.003 * rng.standard_normal(N_STEPS))
    return np.asarray(end * (1 + 0.3 * (fraction**-0.4 - 1)) * noise, dtype=np.float64)


def _kind(rng: np.random.Generator) -> str:
    draw = rng.random()
    return ODD[int(draw / ODD_SHARE)] if draw < ODD_SHARE * len(ODD) else "usual"


def _report(study: optuna.Study, pruner: CollapsePruner, kinds: list[str], tenths: tuple[Tenth, ...], seconds: float) -> Report:
    trials = study.get_trials(deepcopy=False)
    said = {trial.number: pruner.decision(trial.number) for trial in trials}
    pruned = [trial for trial in trials if trial.state == optuna.trial.TrialState.PRUNED]
    reasons = Counter("" if (one := said[trial.number]) is None else one.reason for trial in pruned)
    spent = max((one.error_spent or 0.0 for one in said.values() if one is not None), default=0.0)
    faults = []
    if spent > 0.05:
        faults.append(f"error_spent is {spent:.4f}, above the budget of 0.05")
    if any(kinds[trial.number] == "nan" and trial.state == optuna.trial.TrialState.COMPLETE for trial in trials):
        faults.append("a trial that reported NaN ran to its end")
    growth = [later.memory_mb - earlier.memory_mb for earlier, later in pairwise(tenths)]
    if growth[-1] > SLOWER * max(*growth[:3], 1.0):
        faults.append(f"memory grows by {growth[-1]:.1f} MB in the last tenth, by {max(growth[:3]):.1f} at the beginning")
    if tenths[-1].median_ms > SLOWER * tenths[1].median_ms:
        faults.append(
            f"should_prune takes {tenths[-1].median_ms:.2f} ms at the end, {tenths[1].median_ms:.2f} at the beginning"
        )
    states = Counter(trial.state.name for trial in trials)
    return Report(len(trials), seconds, dict(states), dict(reasons), spent, tenths, tuple(faults))


def _memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def _count(study: optuna.Study, state: optuna.trial.TrialState) -> int:
    return sum(trial.state == state for trial in study.get_trials(deepcopy=False))


def main(arguments: list[str] | None = None) -> int:
    """Run the soak; return 0 if it is sound, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of Markdown")
    given = parser.parse_args(arguments)
    report = soak(given.trials, given.seed)
    document: dict[str, Any] = asdict(report)
    print(json.dumps(document, indent=2) if given.json else _text(report))
    return 1 if report.faults else 0


def _text(report: Report) -> str:
    """Return the report as Markdown."""
    states = ", ".join(f"{number:,} {name.lower()}" for name, number in sorted(report.states.items()))
    reasons = ", ".join(f"{number:,} as `{name}`" for name, number in sorted(report.reasons.items()))
    lines = [f"{report.n_trials:,} trials in {report.seconds:.0f} s: {states}; stopped {reasons}. "]
    lines[0] += f"Error budget spent: {report.error_spent:.4f} of 0.05. " + ("Sound." if not report.faults else "Faults:")
    lines += ["", *(f"- {fault}" for fault in report.faults), *([""] if report.faults else [])]
    lines += ["| trials so far | median ms a decision | p99 ms | memory, MB | stopped so far |", "|---|---|---|---|---|"]
    done = 0
    for one in report.tenths:
        done += one.trials
        lines.append(f"| {done:,} | {one.median_ms:.2f} | {one.p99_ms:.1f} | {one.memory_mb:.0f} | {one.stopped} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
