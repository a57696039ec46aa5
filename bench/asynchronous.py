"""The asynchronous protocol: what each stopping rule costs and loses when it prunes as trials go.

For each task the targets are trials that arrive in random order on simulated workers. Reported for each rule, means over
seeds and then tasks: the regret of its best finished trial, how often every trial within the seed noise of the best was
stopped (``winner_stopped``), and the tokens trained, of the targets alone and with the references that a rule learns from.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.choice import require_known
from bench.methods import METHODS
from bench.peer_rules import OPTUNA_PRUNERS, RayAsha, optuna_rule
from bench.picks import picked
from bench.protocol import Protocol
from bench.records import load_records
from bench.rules import Prune, current_top, selected
from bench.scores import REGRET_CAP_PCT, TIE
from bench.simulation import Outcome, RuleMaker, Sweep, in_two_phases, simulate
from bench.summary import summarise
from bench.tasks import Task, make_tasks

FloatArray = NDArray[np.float64]
STOP = 0.2
"""Stopping fraction of the rules in two phases."""


@dataclass(frozen=True)
class Clock:
    """The simulated sweep: workers, orders of arrival tried, reports a trial."""

    n_workers: int = 4
    n_seeds: int = 5
    n_looks: int = 20

    def __post_init__(self) -> None:
        for name in ("n_workers", "n_seeds", "n_looks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; found {getattr(self, name)!r}")


@dataclass(frozen=True)
class Contender:
    """A named rule: how it plays a sweep, and whether it learns from references."""

    name: str
    play: Callable[[Sweep, Clock, Sequence[int]], Outcome]
    learns: bool = False


def replay_asynchronously(
    folder: Path, protocol: Protocol, clock: Clock | None = None, rules: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the JSON-ready result of the asynchronous protocol; deterministic.

    Raises
    ------
    ValueError
        Unknown rule, missing file, or a protocol that does not fit the file: one line.
    """
    clock = clock or Clock()
    require_known("rules", rules, CONTENDERS)
    chosen = [CONTENDERS[name] for name in rules or CONTENDERS]
    tasks, left_out = make_tasks(protocol, load_records(folder, protocol))
    rows = [{one.name: _play(protocol, task, one, clock) for one in chosen} for task in tasks if len(task.targets) > 1]
    return {
        "protocol": protocol.model_dump(),
        "asynchronous": {"n_workers": clock.n_workers, "n_seeds": clock.n_seeds, "n_looks": clock.n_looks, "stop": STOP},
        "tasks": [
            {"key": task.key, "n_targets": len(task.targets), "n_references": len(task.references), "results": row}
            for task, row in zip([t for t in tasks if len(t.targets) > 1], rows, strict=True)
        ],
        "left_out": left_out,
        "summary": {one.name: summarise([row[one.name] for row in rows]) for one in chosen},
    }


def sweeps_of(protocol: Protocol, task: Task, clock: Clock) -> Iterator[tuple[Sweep, list[int]]]:
    """Yield a task's sweep under each seed, with the order in which its trials arrive: the same for every rule."""
    looks = np.arange(1, clock.n_looks + 1) / clock.n_looks
    for seed in range(clock.n_seeds):
        order = np.random.default_rng([seed, zlib.crc32(task.key.encode())]).permutation(len(task.targets))
        yield Sweep(task, protocol.mode, looks, seed), [int(i) for i in order]


def _play(protocol: Protocol, task: Task, contender: Contender, clock: Clock) -> dict[str, float | None]:
    """Return the means over seeds of a rule's scores on one task."""
    rows = [
        _scores(protocol, task, contender.play(sweep, clock, order), learns=contender.learns)
        for sweep, order in sweeps_of(protocol, task, clock)
    ]
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def _scores(protocol: Protocol, task: Task, outcome: Outcome, *, learns: bool) -> dict[str, float]:
    cost = task.truth if protocol.mode == "min" else -task.truth
    finite = np.isfinite(cost)
    best, worst = float(cost[finite].min()), float(cost[finite].max())
    regret = (np.where(finite, cost, worst) - best) / max(abs(best), 1e-300)
    winners = finite & (regret <= protocol.noise + TIE)
    pick = _pick(protocol, task, outcome)
    tokens = task.tokens(outcome.reach)
    return {
        "regret_pct": float(100 * regret[pick]),
        "regret_capped_pct": float(min(100 * regret[pick], REGRET_CAP_PCT)) if finite[pick] else REGRET_CAP_PCT,
        "hit": float(winners[pick]),
        "winner_stopped": float(not (winners & outcome.completed).any()),
        "completed_share": float(outcome.completed.mean()),
        "tokens": tokens,
        "tokens_share": tokens / task.tokens(np.ones(len(task.targets))),
        "tokens_all": task.tokens(outcome.reach, with_references=True) if learns else tokens,
    }


def _pick(protocol: Protocol, task: Task, outcome: Outcome) -> int:
    """Return the trial a user would take: the best own end of the finished ones, of those that went furthest if none has."""
    ends = np.array([r.own_end for r in task.targets])
    if np.isnan(ends[outcome.completed]).all():  # the metric's own end is not known of any: the truth decides
        ends = np.where(np.isfinite(task.truth), task.truth, np.nan)
    cost = ends if protocol.mode == "min" else -ends
    eligible = outcome.completed if (outcome.completed & ~np.isnan(cost)).any() else outcome.reach >= outcome.reach.max()
    ranked = np.where(eligible & ~np.isnan(cost), cost, np.inf)
    return int(np.argmin(ranked))


def _as_it_goes(make: RuleMaker, sweep: Sweep, clock: Clock, order: Sequence[int]) -> Outcome:
    return simulate(sweep, make(sweep), n_workers=clock.n_workers, order=order)


def _everything(sweep: Sweep, _clock: Clock, _order: Sequence[int]) -> Outcome:
    return in_two_phases(sweep, 1.0, range(len(sweep.trials)))


def _current_top(share: float, sweep: Sweep, _clock: Clock, _order: Sequence[int]) -> Outcome:
    return current_top(sweep, STOP, max(1, round(share * len(sweep.trials))))


def _current_as_many(sweep: Sweep, _clock: Clock, _order: Sequence[int]) -> Outcome:
    return current_top(sweep, STOP, int(selected(sweep, STOP).completed.sum()))


def _picked(name: str, sweep: Sweep, _clock: Clock, _order: Sequence[int]) -> Outcome:
    return picked(name, STOP, sweep)


PICKS = ("transfer", "power_law", "multi_power_law", "multi_power_law_aligned", "surrogate", "landscape")
"""Methods whose first choice alone is finished; ``landscape`` is this project's forecast."""

CONTENDERS = {
    one.name: one
    for one in (
        Contender("everything", _everything),
        *(Contender(name, partial(_as_it_goes, partial(optuna_rule, name))) for name in OPTUNA_PRUNERS),
        Contender("ray_asha", partial(_as_it_goes, RayAsha)),
        Contender("current_top1", partial(_current_top, 0.0)),
        *(Contender(f"{name}_pick", partial(_picked, name), learns=METHODS[name].learns) for name in PICKS),
        Contender("current_quarter", partial(_current_top, 0.25)),
        Contender("current_as_many", _current_as_many),
        Contender("prune", partial(_as_it_goes, Prune), learns=True),
        Contender("select", lambda sweep, _clock, _order: selected(sweep, STOP), learns=True),
    )
}
"""Every rule by name; ``current_as_many`` keeps as many trials as ``select`` does, by their current values."""
