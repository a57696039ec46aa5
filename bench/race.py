"""Tokens until a sweep has a finished trial as good as it needs: what did each rule pay for the same final loss.

The targets of a task arrive in random order on simulated workers, as in :mod:`bench.asynchronous`, and each rule stops what it
stops. Noted is every trial that *finishes*, with all tokens trained by then, over all trials. A loss is reached when the first
trial within so many per cent of the best final value has finished. A rule that never reaches it has stopped all such trials:
it is charged what it spent and the whole sweep besides, as its user would have to start again without it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.asynchronous import Clock, sweeps_of
from bench.choice import require_known
from bench.peer_rules import OPTUNA_PRUNERS, RayAsha, optuna_rule
from bench.protocol import Protocol
from bench.records import Record, load_records
from bench.rules import Prune
from bench.rungs import Phase, climbing, everything, quarter
from bench.scores import TIE
from bench.simulation import Rule, RuleMaker, Sweep, simulate
from bench.summary import summarise
from bench.tasks import Task, make_tasks

FloatArray = NDArray[np.float64]
WITHIN_PCT = (0.0, 0.5, 1.0)
"""How much worse than the best a trial may be, beyond the metric's seed noise."""


@dataclass(frozen=True)
class Finish:
    """A trial that ran to its end, and how far every trial had come by then, in fractions, shape (n_trials,)."""

    trial: int
    reach: FloatArray


@dataclass(frozen=True)
class Racer:
    """A named rule: what finishes when, and whether it learns from references."""

    name: str
    run: Callable[[Sweep, Clock, Sequence[int]], tuple[list[Finish], FloatArray]]
    learns: bool = False


class _Watched:
    """A rule, and what finishes under it."""

    def __init__(self, sweep: Sweep, rule: Rule) -> None:
        self._sweep, self._rule = sweep, rule
        self.reach = np.zeros(len(sweep.trials))
        self.finishes: list[Finish] = []

    def begin(self, trial: int) -> None:
        self._rule.begin(trial)

    def report(self, trial: int, look: int) -> bool:
        self.reach[trial] = self._sweep.looks[look]
        return self._rule.report(trial, look)

    def end(self, trial: int) -> None:
        self.finishes.append(Finish(trial, self.reach.copy()))
        self._rule.end(trial)


def race(folder: Path, protocol: Protocol, clock: Clock | None = None, rules: Sequence[str] = ()) -> dict[str, Any]:
    """Return the JSON-ready result of the race over one protocol; deterministic.

    Raises
    ------
    ValueError
        Unknown rule, missing file, or a protocol that does not fit the file: one line.
    """
    require_known("rules", rules, RACERS)
    return race_records(load_records(folder, protocol), protocol, clock, rules)


def race_records(
    records: Sequence[Record], protocol: Protocol, clock: Clock | None = None, rules: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the result of the race over records that are in hand."""
    clock = clock or Clock()
    chosen = [RACERS[name] for name in rules or RACERS]
    tasks = [t for t in make_tasks(protocol, records)[0] if len(t.targets) > 1]
    rows = [{racer.name: _mean(_runs(protocol, task, racer, clock)) for racer in chosen} for task in tasks]
    return {
        "protocol": protocol.model_dump(),
        "race": {"n_workers": clock.n_workers, "n_seeds": clock.n_seeds, "n_looks": clock.n_looks, "within_pct": WITHIN_PCT},
        "n_tasks": len(tasks),
        "tasks": [
            {"key": task.key, "n_targets": len(task.targets), "results": row} for task, row in zip(tasks, rows, strict=True)
        ],
        "summary": {racer.name: summarise([row[racer.name] for row in rows]) for racer in chosen},
    }


def _runs(protocol: Protocol, task: Task, racer: Racer, clock: Clock) -> list[dict[str, float]]:
    found = []
    for sweep, order in sweeps_of(protocol, task, clock):
        finishes, reach = racer.run(sweep, clock, order)
        found.append(_paid(protocol, task, finishes, reach, learns=racer.learns))
    return found


def _paid(protocol: Protocol, task: Task, finishes: Sequence[Finish], reach: FloatArray, *, learns: bool) -> dict[str, float]:
    """Return what each loss was paid with, in shares of the whole sweep, and in how many runs it was not reached."""
    full = task.tokens(np.ones(len(task.targets)))
    spent = task.tokens(reach)
    references = (task.tokens(reach, with_references=True) - spent) if learns else 0.0
    regret = _regret_pct(protocol, task)
    paid = {"spent": spent / full, "references": references / full}
    for within in WITHIN_PCT:
        good = regret <= 100 * (protocol.noise + TIE) + within
        first = next((finish for finish in finishes if good[finish.trial]), None)
        tokens = spent + full if first is None else task.tokens(first.reach)
        paid[f"tokens_{within:g}"], paid[f"missed_{within:g}"] = tokens / full, float(first is None)
    return paid


def _regret_pct(protocol: Protocol, task: Task) -> FloatArray:
    cost = task.truth if protocol.mode == "min" else -task.truth
    best = float(cost[np.isfinite(cost)].min())
    return np.where(np.isfinite(cost), 100 * (cost - best) / max(abs(best), 1e-300), np.inf)


def _mean(rows: Sequence[dict[str, float]]) -> dict[str, float | None]:
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def _as_it_goes(make: RuleMaker, sweep: Sweep, clock: Clock, order: Sequence[int]) -> tuple[list[Finish], FloatArray]:
    watched = _Watched(sweep, make(sweep))
    outcome = simulate(sweep, watched, n_workers=clock.n_workers, order=order)
    return watched.finishes, outcome.reach


def _in_phases(
    plan: Callable[[Sweep, Sequence[int]], list[Phase]], sweep: Sweep, clock: Clock, order: Sequence[int]
) -> tuple[list[Finish], FloatArray]:
    """Run the phases one after the other, each on all workers, its trials in their order."""
    reach = np.zeros(len(sweep.trials))
    finishes: list[Finish] = []
    for phase in plan(sweep, order):
        finishes += _phase(phase, reach, sweep.task.horizons, clock.n_workers)
        reach[list(phase.trials)] = phase.until
    return finishes, reach


def _phase(phase: Phase, reach: FloatArray, horizons: FloatArray, n_workers: int) -> list[Finish]:
    """Return what finishes in a phase, with how far the others had come; ``reach`` is where all were before it."""
    begun, free, ends = {}, [0.0] * n_workers, {}
    for trial in phase.trials:
        begun[trial] = heapq.heappop(free)
        ends[trial] = begun[trial] + (phase.until - reach[trial]) * horizons[trial]
        heapq.heappush(free, ends[trial])
    finishes = []
    for trial in sorted(phase.trials, key=lambda one: ends[one]) if phase.until == 1.0 else ():
        now = reach.copy()
        for other in phase.trials:
            trained = max(0.0, min(ends[trial], ends[other]) - begun[other]) / horizons[other]
            now[other] = min(phase.until, reach[other] + trained)
        finishes.append(Finish(trial, now))
    return finishes


RACERS = {
    one.name: one
    for one in (
        Racer("everything", partial(_in_phases, everything)),
        Racer("ray_asha", partial(_as_it_goes, RayAsha)),
        *(
            Racer(name, partial(_as_it_goes, partial(optuna_rule, name)))
            for name in OPTUNA_PRUNERS
            if name != "collapse_pruner"
        ),
        Racer("current_quarter", partial(_in_phases, quarter)),
        Racer("prune", partial(_as_it_goes, Prune), learns=True),
        Racer("select_10", partial(_in_phases, climbing((0.1,))), learns=True),
        Racer("select_20", partial(_in_phases, climbing((0.2,))), learns=True),
        Racer("select_30", partial(_in_phases, climbing((0.3,))), learns=True),
        Racer("rungs_10_20_30", partial(_in_phases, climbing((0.1, 0.2, 0.3))), learns=True),
        Racer("rungs_20_30_50", partial(_in_phases, climbing((0.2, 0.3, 0.5))), learns=True),
    )
}
"""Every rule by name: the peers' own classes, the best quarter by current value at 20 %, and ours."""


def race_table(result: dict[str, Any]) -> str:
    """Return one row a rule: tokens to the best loss, and to those a little worse, in % of the whole sweep's."""
    protocol, clock = result["protocol"], result["race"]
    head = f"**{protocol['name']}** ({protocol['role']}): {result['n_tasks']} tasks, {protocol['metric']}, "
    head += f"{clock['n_workers']} workers, {clock['n_seeds']} orders, {clock['n_looks']} reports a trial"
    names = ["the best (within noise)", *(f"within {within:g} %" for within in WITHIN_PCT[1:])]
    lines = [head, "", f"| rule | {' | '.join(f'{name} | missed' for name in names)} | spent in all | references |"]
    lines.append("|---|" + "---|" * (2 * len(names) + 2))
    if result["n_tasks"] == 0:
        return f"{head}: nothing to race"
    for rule, row in result["summary"].items():
        cells = [
            cell for within in WITHIN_PCT for cell in (_share(row, f"tokens_{within:g}"), f"{row[f'missed_{within:g}']:.0%}")
        ]
        lines.append(f"| {rule} | {' | '.join(cells)} | {_share(row, 'spent')} | {row['references']:.0%} |")
    return "\n".join(lines)


def _share(row: dict[str, Any], name: str) -> str:
    error = row.get(f"{name}_se")
    return f"{100 * row[name]:.0f}" + ("" if error is None else f" ± {100 * error:.0f}") + " %"
