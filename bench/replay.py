"""Replay of recorded runs: every method sees target prefixes and whole references, and is scored on what came after."""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.calibration import Pairs, pairs_of
from bench.choice import require_known
from bench.methods import ALIASES, METHODS
from bench.methods.view import Method, Prediction, TaskView, current_levels
from bench.protocol import Protocol
from bench.records import load_records
from bench.scores import pick_weights, selection_scores, value_scores, with_fallback
from bench.sharing import union_cost
from bench.summary import BASELINES, calibration, paired_differences, summarise
from bench.tasks import Task, make_tasks

FloatArray = NDArray[np.float64]
Scores = dict[str, float | None]
Cell = tuple[str, float]
Judged = tuple[dict[Cell, Scores], dict[Cell, Pairs]]
ALL_METHODS = tuple(dict.fromkeys([*METHODS, *ALIASES]))


def replay(folder: Path, protocol: Protocol, methods: Sequence[str] = ALL_METHODS) -> dict[str, Any]:
    """Return the JSON-ready result of a protocol.

    Parameters
    ----------
    folder : Path
        Where the protocol's curve file lies.
    methods : sequence of str
        Names of :data:`bench.methods.METHODS` or aliases.

    Raises
    ------
    ValueError
        Unknown method, missing file, or a protocol that does not fit the file: one line.
    """
    require_known("methods", methods, ALL_METHODS)
    tasks, left_out = make_tasks(protocol, load_records(folder, protocol))
    needed = tuple(dict.fromkeys(resolve(name) for name in methods))
    memory: dict[Hashable, object] = {}
    judged = [_judge(protocol, task, needed, memory) for task in tasks]
    every = [set(protocol.stop_at)] * len(tasks)
    clean = [{stop for stop in protocol.stop_at if not task.leaks(stop)} for task in tasks]
    leaking = [stops - without for stops, without in zip(every, clean, strict=True)]
    return {
        "protocol": protocol.model_dump(),
        "tasks": [_task_row(protocol, task, methods, scores) for task, (scores, _) in zip(tasks, judged, strict=True)],
        "left_out": left_out,
        "summary": _summary(judged, methods, every),
        "summary_without_leaks": _summary(judged, methods, clean),
        "summary_with_leaks": _summary(judged, methods, leaking),
        "paired": _paired(judged, methods, protocol.stop_at),
        "calibration": _calibration(judged, methods, protocol.stop_at),
    }


def _judge(protocol: Protocol, task: Task, methods: Sequence[str], memory: dict[Hashable, object]) -> Judged:
    """Return the scores and the pairs of each (method, stop) on one task."""
    scores: dict[Cell, Scores] = {}
    pairs: dict[Cell, Pairs] = {}
    cost = task.truth if protocol.mode == "min" else -task.truth
    for stop in protocol.stop_at:
        for name in methods:
            view = view_of(task, stop, memory)
            made = METHODS[name].predict(view)
            scores[name, stop] = _score(protocol, task, METHODS[name], view, made)
            pairs[name, stop] = pairs_of(made, cost)
    return scores, pairs


def _task_row(protocol: Protocol, task: Task, methods: Sequence[str], scores: Mapping[Cell, Scores]) -> dict[str, Any]:
    leaks = [
        {"target": target, "reference": reference, "shared_fraction": fraction}
        for target, reference, fraction in task.leaks(min(protocol.stop_at))
    ]
    return {
        "key": task.key,
        "n_targets": len(task.targets),
        "n_references": len(task.references),
        "n_references_left_out": task.n_dearer,
        "n_diverged": int(np.sum(~np.isfinite(task.truth))),
        "shared_prefix": task.shared_fraction > 0,
        "shared_fraction": task.shared_fraction,
        "leaks": leaks,
        "results": {name: {str(stop): scores[resolve(name), stop] for stop in protocol.stop_at} for name in methods},
    }


def resolve(name: str) -> str:
    """Return the method that an alias stands for."""
    while name in ALIASES:
        name = ALIASES[name]
    return name


def view_of(task: Task, stop: float, memory: dict[Hashable, object]) -> TaskView:
    """Return what a method sees of a task at one stop; ``memory`` is shared by all views of a replay."""
    seed = [zlib.crc32(task.key.encode()), round(1e6 * stop)]
    return TaskView(
        stop,
        tuple(r.prefix(stop) for r in task.targets),
        tuple(r.full for r in task.references),
        tuple(r.prefix(stop) for r in task.references),
        np.random.default_rng(seed),
        memory,
    )


def _score(protocol: Protocol, task: Task, method: Method, view: TaskView, made: Prediction) -> Scores:
    current = current_levels(view.targets) if method.looks else np.zeros(len(view.targets))
    score = with_fallback(made.score, current)
    weights = pick_weights(score)
    out: Scores = {}
    if len(task.targets) > 1:
        out |= selection_scores(weights, score, task.truth, protocol.mode, protocol.noise)
    else:
        out |= dict.fromkeys(("hit", "regret_pct", "regret_capped_pct", "rho"))
    out |= value_scores(made, np.array([r.own_end for r in task.targets]), view.metric)
    out["decided"] = float(np.mean(~np.isnan(made.score)))
    return out | _costs(task, method, view.stop, weights)


def _costs(task: Task, method: Method, stop: float, weights: FloatArray) -> Scores:
    """Return tokens (or steps) of the targets, with the references, and the number of trials from which on it pays.

    Targets run to ``stop`` (not at all for a method that does not look), the pick to its end; references wholly.
    """
    n, horizons = len(task.targets), task.horizons
    seen = np.full(n, stop if method.looks else 0.0)
    reach, base = task.steps(seen), task.tokens(seen)
    picked = 0.0
    for i in np.flatnonzero(weights):
        goal = np.zeros_like(reach)
        goal[i] = horizons[i]
        picked += weights[i] * union_cost(task.common, goal, task.cost_per_step, known=reach)
    targets_only = base + picked
    references = task.tokens(seen, with_references=True) - base if method.learns else 0.0
    full = float(np.mean(horizons * task.cost_per_step[:n]))
    saved = full * (1.0 - stop) if method.looks else full
    return {
        "tokens": targets_only,
        "tokens_targets": targets_only,
        "tokens_all": targets_only + references,
        "break_even_trials": 1.0 + references / saved,
    }


def _summary(judged: Sequence[Judged], methods: Sequence[str], stops: Sequence[set[float]]) -> dict[str, dict[str, Any]]:
    """Return the means over tasks of each method and stop, over the given stops of each task."""
    out: dict[str, dict[str, Any]] = {name: {} for name in methods}
    for name in methods:
        for stop in sorted(set().union(*stops)):
            chosen = [scores[resolve(name), stop] for (scores, _), mine in zip(judged, stops, strict=True) if stop in mine]
            out[name][str(stop)] = summarise(chosen)
    return out


def _paired(judged: Sequence[Judged], methods: Sequence[str], stops: Sequence[float]) -> dict[str, dict[str, Any]]:
    """Return each method's differences from the baselines that were run, task by task."""
    run = {name for scores, _ in judged for name, _ in scores}
    out: dict[str, dict[str, Any]] = {}
    for name in methods:
        against = [baseline for baseline in BASELINES if baseline in run and baseline != resolve(name)]
        out[name] = {
            str(stop): {
                baseline: paired_differences(
                    [scores[resolve(name), stop] for scores, _ in judged], [scores[baseline, stop] for scores, _ in judged]
                )
                for baseline in against
            }
            for stop in stops
        }
    return out


def _calibration(judged: Sequence[Judged], methods: Sequence[str], stops: Sequence[float]) -> dict[str, dict[str, Any]]:
    return {
        name: {
            str(stop): calibration(
                [scores[resolve(name), stop] for scores, _ in judged], [pairs[resolve(name), stop] for _, pairs in judged]
            )
            for stop in stops
        }
        for name in methods
    }
