"""What a live race was worth: tokens until a trial has finished that is as good as the best, per rule and seed."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.own_demo import finals_of, judgement_of, saved_fraction
from bench.scores import TIE
from hpo.engine.plan import Plan, plan_sweep
from hpo.engine.run_folder import RunFolder
from hpo.engine.runs_on_disk import RunsOnDisk

EVENTS = "events.jsonl"
WITHIN_PCT = (0.0, 0.5, 1.0)
"""How much worse than the best candidate a finished trial may be."""
_METRIC = "val_loss"


@dataclass(frozen=True)
class Finished:
    """A trial that ran to its end: its final loss, and the share of all candidates' tokens trained by then."""

    loss: float
    share: float


def race_of_seed(seed: int, demo: Path, peers: Mapping[str, Path]) -> dict[str, Any]:
    """Return, JSON-ready, what every rule paid on one seed; ``peers`` are the folders of their events.

    Raises
    ------
    ValueError
        A folder without events.
    """
    plan = plan_sweep(RunFolder(demo.absolute()).read_config())
    runs = RunsOnDisk(plan, RunFolder(demo.absolute()))
    finals = finals_of(plan, runs)
    best = min(finals.values())
    whole = sum(float(run.recipe.n_tokens or 0.0) for run in plan.candidates)
    rows = {"everything": _paid(_in_order(plan, finals), 1.0, best), "select": _select(plan, runs, finals, best)}
    for peer, folder in peers.items():
        finished, spent, seconds = read_events(folder / EVENTS, whole)
        rows[peer] = {**_paid(finished, spent, best), "seconds": seconds}
    return {"seed": seed, "best": best, "n_candidates": len(plan.candidates), "rules": rows}


def read_events(path: Path, whole: float) -> tuple[list[Finished], float, float]:
    """Return what finished in which order, the share of ``whole`` tokens spent in all, and seconds from first to last event.

    Raises
    ------
    ValueError
        No such file, or nothing in it.
    """
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    if not lines:
        raise ValueError(f"{path}: expected the events of a race; found none")
    lines.sort(key=lambda line: line["at_s"])
    tokens: dict[int, float] = {}
    finished = []
    for line in lines:
        tokens[line["candidate"]] = line["tokens"]
        if line["ends"]:
            finished.append(Finished(line[_METRIC], sum(tokens.values()) / whole))
    return finished, sum(tokens.values()) / whole, lines[-1]["at_s"] - lines[0]["at_s"]


def _paid(finished: Sequence[Finished], spent: float, best: float, proxies: float = 0.0) -> dict[str, Any]:
    """Return the share at which each loss was reached; a rule that never does is charged the whole sweep besides."""
    row: dict[str, Any] = {"spent": spent, "proxies": proxies}
    for within in WITHIN_PCT:
        good = (one.share for one in finished if one.loss <= best * (1 + within / 100 + TIE))
        reached = next(good, None)
        row[f"tokens_{within:g}"] = spent + 1.0 if reached is None else reached
        row[f"missed_{within:g}"] = reached is None
    row["regret_pct"] = 100 * (min((one.loss for one in finished), default=math.inf) / best - 1)
    return row


def _in_order(plan: Plan, finals: Mapping[str, float], n_workers: int = 2) -> list[Finished]:
    """Return the candidates as they finish when all are trained, in their order, as many at a time as there are workers."""
    n = len(plan.candidates)
    ends = [min(n, n_workers * (i // n_workers + 1)) / n for i in range(n)]
    return [Finished(finals.get(run.name, math.inf), end) for run, end in zip(plan.candidates, ends, strict=True)]


def _select(plan: Plan, runs: RunsOnDisk, finals: Mapping[str, float], best: float) -> dict[str, Any]:
    """Return what our sweep paid: all candidates to the look, those kept to their end, which count as finished together."""
    kept = [verdict.run for verdict in judgement_of(plan, runs).kept]
    steps = {run.name: run.n_steps if run.name in kept else run.stop_step for run in plan.candidates}
    spent = sum(steps.values()) / sum(run.n_steps for run in plan.candidates)
    with_proxies = 1.0 - saved_fraction(plan, runs, kept)
    return _paid([Finished(finals[name], spent) for name in kept if name in finals], spent, best, with_proxies - spent)


def live_race_table(found: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table, one row a rule, means over seeds."""
    names = ["the best", *(f"within {within:g} %" for within in WITHIN_PCT[1:])]
    head = (
        f"`python -m bench.live_race`: {found[0]['n_candidates']} candidates of the demo, trained live on two workers; "
        f"seeds {', '.join(str(one['seed']) for one in found)}. Tokens until a trial as good has finished, in % of training "
        "all candidates; a rule that stops all such trials is charged the whole sweep besides. Proxies in the same unit."
    )
    lines = [head, "", f"| rule | {' | '.join(f'{name} | missed' for name in names)} | spent in all | proxies | regret, % |"]
    lines.append("|---" * (2 * len(names) + 4) + "|")
    for rule in found[0]["rules"]:
        rows = [one["rules"][rule] for one in found if rule in one["rules"]]

        def mean(name: str, rows: Sequence[Mapping[str, Any]] = rows) -> float:
            return statistics.fmean(float(row[name]) for row in rows)

        cells = [
            cell
            for w in WITHIN_PCT
            for cell in (f"{100 * mean(f'tokens_{w:g}'):.0f}", f"{sum(row[f'missed_{w:g}'] for row in rows)} of {len(rows)}")
        ]
        tail = f"{100 * mean('spent'):.0f} | {100 * mean('proxies'):.0f} | {mean('regret_pct'):.2f}"
        lines.append(f"| {rule} | {' | '.join(cells)} | {tail} |")
    return "\n".join(lines)
