"""A plan as a YAML file: a sweep's configuration where one sweep can hold the plan, its recipes otherwise.

A sweep has one target, one horizon in tokens per parameter, one batch and one τ; its smaller sizes are the proxies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from hpo.adapters.atomic import write_text
from hpo.commands.plan_build import FamilyPlan
from hpo.engine.config import InputError, parse_config

PROXY_SETTINGS = 6
"""Settings each proxy size is trained at: enough for the shape and the landscape, half a grid of nine."""
RATES, RATE_REACH = 9, 10.0
"""Rates of a sweep about a planned one, and how far they reach on either side: as many, as far, as the space ``lr`` has."""


def write_plan(path: Path, plan: FamilyPlan) -> str:
    """Write ``plan`` to a YAML file and return what the file is, in words.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    recipes = yaml.safe_dump(plan.document(), sort_keys=False, allow_unicode=True, width=120)
    reason = not_one_sweep(plan)
    if reason is None:
        config = yaml.safe_dump(sweep_config(plan), sort_keys=False, allow_unicode=True, width=120)
        commented = "".join(f"# {line}".rstrip() + "\n" for line in recipes.splitlines())
        text = f"# A sweep: hpo sweep {path.name}\n{config}\n# The plan it comes from:\n{commented}"
        about = "" if plan.spec.lr is None else f", about {plan.spec.lr:g},"
        said = f"{path}: a sweep over lr{about} for {plan.runs[_by_cost(plan)[-1]].name}; go on with: hpo sweep {path}"
    else:
        text, said = recipes, f"{path}: recipes, not a sweep: {reason}"
    try:
        write_text(path, text)
    except OSError as error:
        raise InputError.at("--output", "a file that can be written", f"{path}: {error.strerror}") from None
    return said


def not_one_sweep(plan: FamilyPlan) -> str | None:
    """Return why one sweep cannot hold the plan, or None if it can."""
    if any(size.architecture is None for size in plan.sizes):
        return "only parameter counts are known, no shapes"
    if len(plan.runs) < 2:
        return "a sweep needs a smaller size to learn from; add sizes, or a ladder"
    if len({run.tpp for run in plan.runs}) > 1 and plan.spec.tpp is None:
        return "its horizon is not set by tpp alone, so sizes differ in tpp and would not collapse"
    for what, values in (
        ("tpp", {run.tpp for run in plan.runs}),
        ("batch", {run.batch_sequences for run in plan.runs}),
        ("tau", {run.tau for run in plan.runs}),
        ("warm-up fraction", {run.recipe.warmup_fraction for run in plan.runs}),
        ("context", {run.size.seq_len for run in plan.runs}),
    ):
        if len(values) > 1:
            return f"its runs differ in {what}, and a sweep has one ({'--batch N' if what == 'batch' else 'give one'})"
    return None


def sweep_config(plan: FamilyPlan) -> dict[str, Any]:
    """Return the configuration of the sweep that tunes the largest size at the planned tpp, batch, τ and schedule.

    The learning rate is searched at the planned τ (the decay follows), about the planned rate if there is one; the smaller
    sizes are the proxies.
    """
    order = _by_cost(plan)
    target, run = plan.sizes[order[-1]], plan.runs[order[-1]]
    model = target.model or {}
    spec = plan.spec
    training = {
        "tpp": run.tpp,
        "batch_sequences": run.batch_sequences,
        "tau": run.tau,
        "schedule": spec.schedule,
        "warmup_fraction": run.recipe.warmup_fraction,
        **({} if spec.lr is None else {"lr": spec.lr}),
    }
    config: dict[str, Any] = {
        "name": spec.name,
        "model": {key: value for key, value in model.items() if value is not None},
        "data": {**spec.data.model_dump(exclude_none=True), "seq_len": run.size.seq_len},
        "training": training,
        "search": {"space": "lr" if spec.lr is None else _rates_about(spec.lr)},
        "proxies": {"sizes": [_differing(plan.sizes[k].model or {}, model) for k in order[:-1]], "settings": PROXY_SETTINGS},
    }
    if spec.flops_per_s is not None:
        config["resources"] = {"flops_per_s": spec.flops_per_s}
    if spec.price_per_hour is not None:
        config["price_per_hour"] = spec.price_per_hour
    parse_config(config)
    return config


def _by_cost(plan: FamilyPlan) -> list[int]:
    """Return the positions of the runs, the dearest last: the sweep's target."""
    return sorted(range(len(plan.runs)), key=lambda k: plan.runs[k].recipe.flops or 0.0)


def _rates_about(lr: float) -> dict[str, Any]:
    """Return a search space whose middle is ``lr``."""
    rates = {"type": "float", "low": lr / RATE_REACH, "high": lr * RATE_REACH, "log": True, "points": RATES}
    return {"description": f"peak learning rate, about the planned {lr:g}", "parameters": {"lr": rates}}


def _differing(model: dict[str, Any], target: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in model.items() if value != target[key]}
