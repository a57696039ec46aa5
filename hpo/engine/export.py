"""The winner as configurations: one that trains it again as it is, and the start of a sweep at the next size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from hpo.adapters.atomic import write_text
from hpo.engine.plan import Plan
from hpo.engine.run_folder import RunFolder

WIDER = 2
"""Factor of the built-in family's width from one size to the next."""
_WHOLE_SWEEP = ("max_trials", "time_budget", "storage")


def export_winner(plan: Plan, result: Mapping[str, Any], folder: RunFolder) -> None:
    """Write ``winner.yaml`` and ``next-size.yaml`` for the winner of ``result`` (of a settled tie, where there was one)."""
    settled = result.get("settled") or {}
    winner = dict(settled.get("winner") or result["winner"])
    mean = next((one["mean"] for one in settled.get("trials", ()) if one["settings"] == settled["winner"]), None)
    loss = f"final loss {result['actual_final_loss']:.4f}"
    if mean is not None:
        loss = f"mean final loss {mean:.4f} over {settled['seeds']} seeds, the lowest of those tied"
    _write(
        folder.winner, winner_config(plan, winner), f"# The winner of sweep {plan.config.name} ({loss}): hpo sweep trains it."
    )
    text = (
        f"# A sweep at the next size after {plan.config.name}: the same space, its winner first, the old target as a proxy.\n"
        "# Look at the size, and at hpo sweep --dry-run, before you spend."
    )
    _write(folder.next_size, next_size_config(plan, winner), text)


def winner_config(plan: Plan, winner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration that trains the target with the winning values, and nothing else."""
    data = _base(plan, "winner")
    parameters = {name: _single(plan.space.parameters[name].type, value) for name, value in winner.items()}
    data["search"] = {"space": {"fixed": dict(plan.space.fixed), "parameters": parameters}}
    data["stopping"] = {}
    del data["proxies"]
    return data


def next_size_config(plan: Plan, winner: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration of a sweep at the next size: the winner is tried first, the old target becomes a proxy.

    The built-in family's width doubles. Of a user's own settings, those numbers that the proxies' sizes name go on as from
    the largest proxy to the target.
    """
    data = _base(plan, "next-size")
    data["search"] = {**data["search"], "first": [dict(winner)]}
    sizes = list(data["proxies"]["sizes"]) if data["proxies"] else []
    if plan.config.model is not None:
        model = plan.config.model
        data["model"] = {**data["model"], "width": WIDER * model.width}
        old = {"width": model.width, "head_dim": model.head_dim}
    else:
        target, largest = plan.config.target or {}, sizes[-1] if sizes else {}
        old = {key: target[key] for key in largest if key in target}
        data["target"] = {**target, **{key: _next(target[key], largest[key]) for key in old}}
    if sizes and old:
        data["proxies"] = {**data["proxies"], "sizes": [*sizes[1:], old]}
    return data


def _base(plan: Plan, suffix: str) -> dict[str, Any]:
    data = plan.config.model_dump(mode="json", exclude_defaults=True)
    data = {key: value for key, value in data.items() if key not in _WHOLE_SWEEP}
    proxies = plan.config.proxies
    return {**data, "name": f"{plan.config.name}-{suffix}", "proxies": None if proxies is None else proxies.model_dump()}


def _single(kind: str, value: Any) -> dict[str, Any]:
    """Return a parameter of this kind that has one value."""
    return {"type": kind, "choices" if kind == "categorical" else "grid": [value]}


def _next(value: Any, before: Any) -> Any:
    """Return the number after ``before`` and ``value`` in a geometric series; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isinstance(before, int | float) or before <= 0:
        return value
    after = value * value / before
    return round(after) if isinstance(value, int) else after


def _write(path: Any, data: Mapping[str, Any], comment: str) -> None:
    kept = {key: value for key, value in data.items() if value is not None}
    write_text(path, f"{comment}\n{yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)}")
