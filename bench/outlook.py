"""Do sweeps find what they are expected to find? Expected against actual P(best), regret and cost on recorded runs.

For every task of a protocol and every stop fraction, the outlook of :mod:`hpo.core.proxy_design` is worked out twice: before
anything is trained (the usual variances, the references as proxies) and from a model of the references. Neither looks at a
target's curve. Then the targets are cut there and judged by the model as a sweep does.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.methods import METHODS
from bench.protocol import Protocol, load_protocol
from bench.records import Record, load_records
from bench.replay import view_of
from bench.tasks import Task, make_tasks
from hpo.core.model import CollapseModel
from hpo.core.posterior import probability_best
from hpo.core.proxy_beliefs import Knowledge, knowledge_before, knowledge_of_model, usual_beliefs
from hpo.core.proxy_design import Keeping, Trial, outlook

FloatArray = NDArray[np.float64]
PROTOCOLS = (
    *("schaipp_25k_val", "schaipp_25k_grid_val", "schaipp_25k_shifted_optimum_val", "schaipp_25k_unseen_schedule_val"),
    *("schaipp_25k_unseen_lr_high_val", "schaipp_35k_val", "schaipp_35k_grid_val", "own_sweep_val"),
)
QUANTITIES = ("p_best_of_pick", "regret_of_pick_pct", "p_best", "kept_share", "cost_share")
VIEWS = ("before", "model", "actual")


@dataclass(frozen=True)
class Row:
    """One task at one stop: what was expected before, what the model expected, what came; a mapping of QUANTITIES each."""

    protocol: str
    task: str
    stop: float
    n_targets: int
    found: dict[str, dict[str, float]]


def outlook_report(folder: Path, names: Sequence[str] = PROTOCOLS, n_references: int | None = None) -> dict[str, Any]:
    """Return means over tasks by protocol and stop, and how the expected agree with the actual over all of them.

    Parameters
    ----------
    n_references : int, optional
        Let every task learn from so many references only, spread over their learning rates and schedules.

    Raises
    ------
    ValueError
        An unknown protocol or a missing file.
    """
    rows = [row for name in names for row in _rows(folder, load_protocol(name), n_references)]
    if not rows:
        raise ValueError("no task has targets of known recipes")
    keys = sorted({(row.protocol, row.stop) for row in rows}, key=lambda key: (names.index(key[0]), key[1]))
    means = [_mean([row for row in rows if (row.protocol, row.stop) == key]) for key in keys]
    return {
        "protocols": list(names),
        "n_references": n_references,
        "rows": means,
        "agreement": {view: _agreement(means, view) for view in VIEWS[:2]},
    }


def _rows(folder: Path, protocol: Protocol, n_references: int | None) -> list[Row]:
    tasks, _ = make_tasks(protocol, load_records(folder, protocol))
    chosen = [thinned(task, n_references) for task in tasks if len(task.targets) > 1]
    return [row for task in chosen for row in _task_rows(protocol, task)]


def thinned(task: Task, n: int | None) -> Task:
    """Return the task with at most ``n`` references, evenly spread when sorted by size, learning rate and schedule."""
    if n is None or len(task.references) <= n:
        return task
    ordered = sorted(task.references, key=_settings)
    positions = np.linspace(0, len(ordered) - 1, n).round().astype(int)
    return replace(task, references=tuple(ordered[k] for k in positions))


def _settings(record: Record) -> tuple[float, float, str]:
    recipe = record.run.recipe
    return (0.0, 0.0, "") if recipe is None else (recipe.n_params or 0.0, recipe.lr or 0.0, str(recipe.schedule))


def _task_rows(protocol: Protocol, task: Task) -> list[Row]:
    targets, references = ([t for r in runs if (t := _trial(r)) is not None] for runs in (task.targets, task.references))
    if len(targets) < len(task.targets) or not references:
        return []
    keeping = Keeping(margin=protocol.noise)
    before = knowledge_before(usual_beliefs(targets[0].recipe.n_params), [t.point for t in targets])
    model = CollapseModel.fit([r.full for r in task.references])
    fitted = knowledge_of_model(model, [(t.recipe, t.settings) for t in targets])
    rows = []
    for stop in protocol.stop_at:
        seed = zlib.crc32(f"{task.key} {stop}".encode())
        found = {"before": _expected(targets, references, stop, before, keeping, seed)}
        found["model"] = found["before"] if fitted is None else _expected(targets, [], stop, fitted, keeping, seed)
        found["actual"] = _actual(task, stop, keeping)
        rows.append(Row(protocol.name, task.key, stop, len(targets), found))
    return rows


def _trial(record: Record) -> Trial | None:
    recipe = record.run.recipe
    if recipe is None or recipe.n_steps is None:
        return None
    return Trial(recipe=recipe, settings=record.full.settings, flops=recipe.flops or float(recipe.n_steps))


def _expected(
    targets: Sequence[Trial], proxies: Sequence[Trial], stop: float, known: Knowledge, keeping: Keeping, seed: int
) -> dict[str, float]:
    made = outlook(targets, proxies, stop, known, keeping, np.random.default_rng(seed))
    n = len(targets)
    return {
        "p_best_of_pick": made.p_best_of_pick,
        "regret_of_pick_pct": made.regret_of_pick_pct,
        "p_best": made.p_best,
        "kept_share": made.kept / n,
        "cost_share": (made.flops_candidates + made.flops_finishing) / made.flops_full_sweep,
    }


def _actual(task: Task, stop: float, keeping: Keeping) -> dict[str, float]:
    """Return what the sweep would have found, judged by the model and kept as the outlook assumes; diverged ones are worst."""
    made = METHODS["landscape"].predict(view_of(task, stop, {}))
    draws = np.zeros((1, len(task.targets))) if made.draws is None else made.draws
    judged = np.flatnonzero(np.isfinite(draws).all(axis=0))
    truth = np.log(np.where(np.isfinite(task.truth), task.truth, np.nanmax(task.truth[np.isfinite(task.truth)])))
    margin = math.log1p(keeping.margin)
    p_best = probability_best(draws[:, judged], margin)
    order = judged[np.lexsort((made.level[judged], -p_best))]
    unjudged = np.setdiff1d(np.arange(truth.size), judged)
    kept = np.concatenate((order[: int(keeping.count(np.sort(p_best)[::-1]))], unjudged)).astype(int)
    regret = truth - truth.min()
    pick = kept[0]
    share = kept.size / truth.size
    return {
        "p_best_of_pick": float(regret[pick] <= margin + 1e-12),
        "regret_of_pick_pct": 100.0 * float(np.expm1(regret[pick])),
        "p_best": float(regret[kept].min() <= margin + 1e-12),
        "kept_share": share,
        "cost_share": stop + share * (1.0 - stop),
    }


def _mean(rows: Sequence[Row]) -> dict[str, Any]:
    first = rows[0]
    means = {view: {q: float(np.mean([row.found[view][q] for row in rows])) for q in QUANTITIES} for view in VIEWS}
    return {
        "protocol": first.protocol,
        "stop": first.stop,
        "n_tasks": len(rows),
        "n_targets": float(np.mean([row.n_targets for row in rows])),
        **means,
    }


def _agreement(rows: Sequence[dict[str, Any]], view: str) -> dict[str, dict[str, float]]:
    """Return by quantity the mean of expected and actual, and the mean absolute difference, each row counting alike."""
    out = {}
    for q in QUANTITIES:
        expected, actual = (np.array([row[one][q] for row in rows]) for one in (view, "actual"))
        out[q] = {
            "expected": float(expected.mean()),
            "actual": float(actual.mean()),
            "mean_absolute_difference": float(np.mean(np.abs(expected - actual))),
        }
    return out


def outlook_table(report: dict[str, Any]) -> str:
    """Return the rows and the agreement as Markdown: expected before → expected by the model → actual."""
    titles = (
        "P(best) of the pick",
        "regret of the pick, %",
        "P(best) among those kept",
        "kept, share",
        "cost, share of the full",
    )
    head = ("protocol", "tasks", "targets", "stop", *titles)
    lines = ["Each cell: expected before anything is trained / expected from a model of the references / actual.", ""]
    lines += [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in report["rows"]:
        cells = [" / ".join(f"{row[view][q]:.2f}" for view in VIEWS) for q in QUANTITIES]
        lines.append(
            f"| {row['protocol']} | {row['n_tasks']} | {row['n_targets']:.3g} | {row['stop']:g} | {' | '.join(cells)} |"
        )
    lines += ["", "Means over the rows; mean absolute difference from the actual in brackets.", ""]
    lines += [f"| expected | {' | '.join(titles)} |", "|---" * (1 + len(titles)) + "|"]
    for view, by in report["agreement"].items():
        cells = [f"{by[q]['expected']:.2f} ({by[q]['mean_absolute_difference']:.2f})" for q in QUANTITIES]
        lines.append(f"| {view} | {' | '.join(cells)} |")
    actual = [f"{by['actual']:.2f}" for by in next(iter(report["agreement"].values())).values()]
    return "\n".join([*lines, f"| actual | {' | '.join(actual)} |"])
