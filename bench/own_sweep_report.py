"""Our own sweep scored by its replay protocol: how methods choose from the first part of the targets, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.protocol import load_protocol
from bench.records import load_records
from bench.replay import replay

PROTOCOL = "own_sweep_val"
METHODS = ("random", "current_best", "transfer", "power_law", "surrogate", "shape", "landscape")
_SCORES = ("regret_pct", "hit", "rho", "mae_pct", "coverage90")


def sweep_report(folder: Path) -> dict[str, Any]:
    """Return the replay of the sweep in ``folder``, with ``cost``: what targets and proxies of a seed cost, in FLOPs.

    Raises
    ------
    ValueError
        The folder holds no sweep.
    """
    protocol = load_protocol(PROTOCOL)
    result = replay(folder, protocol, METHODS)
    cost = {"target": 0.0, "proxy": 0.0}
    for record in load_records(folder, protocol):
        recipe = record.run.recipe
        cost[record.run.group] += 0.0 if recipe is None or recipe.flops is None else recipe.flops
    n_seeds = len(result["tasks"])
    flops = {name: total / n_seeds for name, total in cost.items()}
    return {**result, "cost": {"target_flops": flops["target"], "proxy_flops": flops["proxy"]}}


def sweep_table(report: dict[str, Any]) -> str:
    """Return one row a stop fraction and method: means over seeds, standard errors after ±."""
    cost, tasks = report["cost"], report["tasks"]
    ratio = cost["target_flops"] / cost["proxy_flops"]
    head = (
        f"{len(tasks)} seeds, {tasks[0]['n_targets']} targets and {tasks[0]['n_references']} proxies each; a seed's targets "
        f"cost {cost['target_flops']:.2e} FLOPs, {ratio:.1f} times its proxies. Means over seeds ± standard errors; regret "
        "and error in %."
    )
    columns = ("stop", "method", "regret", "hit", "ρ", "error of the final loss", "coverage of 90 %")
    lines = [head, "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for stop in report["protocol"]["stop_at"]:
        for method, by_stop in report["summary"].items():
            row = by_stop[str(stop)]
            lines.append(f"| {stop:g} | {method} | " + " | ".join(_cell(row, name) for name in _SCORES) + " |")
    return "\n".join(lines)


def _cell(row: dict[str, Any], name: str) -> str:
    value, error = row.get(name), row.get(f"{name}_se")
    if value is None:
        return "–"
    return f"{value:.2f}" + ("" if error is None else f" ± {error:.2f}")
