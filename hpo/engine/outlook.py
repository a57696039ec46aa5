"""What a configured sweep is expected to find, and which proxies would find it for less.

The arithmetic is :mod:`hpo.core.proxy_search`'s; here a sweep's plan becomes trials, sizes and settings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from hpo.core.coordinates import coordinates_of
from hpo.core.model import CollapseModel
from hpo.core.proxy_beliefs import Knowledge, knowledge_before, knowledge_of_model, usual_beliefs
from hpo.core.proxy_design import Keeping, Trial, costs_by_count, outlook
from hpo.core.proxy_search import (
    FAR_CONTROL,
    SHORT,
    STOPS,
    Design,
    Space,
    best_within,
    cheapest_designs,
    far_controls,
    smallest_proxy,
)
from hpo.engine.config import InputError
from hpo.engine.config_blocks import ModelBlock
from hpo.engine.plan import Plan, Run, well_spread

Size = Mapping[str, Any]
LADDER = (1 / 2, 1 / 3, 1 / 4, 1 / 8, 1 / 16)
"""Parameters of the proxies looked at besides those configured, over the target's."""
BETTER_BY = 0.05
"""Smallest saving that is worth a word."""


def configured_outlook(plan: Plan, seed: int = 0) -> dict[str, Any] | None:
    """Return what the configured sweep is expected to find and cost, and what would be ``better``; None without proxies.

    Raises
    ------
    InputError
        A stop before any curve's first point.
    """
    if plan.config.proxies is None:
        return None
    space, sizes = design_space(plan, None, only_configured=True)
    found = _as_configured(plan, space.known, seed)
    better = next(iter(cheapest_designs(space, seed)), None)
    worth = better is not None and (
        better.outlook.flops < (1 - BETTER_BY) * found["flops"]["total"] or found["p_best"] < space.wanted - BETTER_BY
    )
    said = described(better, sizes) if better is not None and worth else None
    return {**found, "wanted_p_best": space.wanted, "better": said, "assumes": space.known.source}


def _as_configured(plan: Plan, known: Knowledge, seed: int) -> dict[str, Any]:
    """Return the outlook of the configured design, with what it trains."""
    block, stopping = plan.config.proxies, plan.config.stopping
    if stopping.at < known.nodes[0]:
        raise InputError.at("stopping.at", f"a fraction past the first point of any curve, {known.nodes[0]:g}", stopping.at)
    candidates, proxies = ([_trial(run) for run in runs] for runs in (plan.candidates, plan.proxies))
    made = outlook(candidates, proxies, stopping.at, known, _keeping(plan), np.random.default_rng(seed))
    sizes = [] if block is None else [dict(size) for size in block.sizes]
    design = {"sizes": sizes, "settings": 0 if block is None else block.settings}
    return {**design, "stop_at": stopping.at, "keep_max": stopping.keep_max, **made.to_dict()}


def advice(
    plan: Plan,
    model: CollapseModel | None,
    *,
    p_best: float | None = None,
    budget: float | None = None,
    rule: str | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the JSON document of ``hpo plan-proxies``: the best design, the best at each stop, and the configured one.

    Parameters
    ----------
    model : CollapseModel or None
        Of runs that are already trained.
    p_best : float, optional
        Wanted probability that the best candidate is among those that go on; default 1 − ``stopping.alpha``.
    budget : float, optional
        FLOPs that the sweep may not exceed, whatever its candidates show.
    rule : str, optional
        The stopping rule to speak of, where it is not the plan's.

    Raises
    ------
    InputError
        No size to learn from, a wanted P(best) out of reach, or a budget below the cheapest design.
    """
    if len(plan.candidates) < 2:
        raise InputError.at("search.candidates", "at least two to choose between", len(plan.candidates))
    space, sizes = design_space(plan, model, p_best=p_best, budget=budget)
    if not any(True for _ in space.plans()):
        raise InputError.at("proxies.sizes", f"a size that has collapsed with the target ({_nearest(space)})", "none")
    every = cheapest_designs(space, seed)
    notes = list(space.known.notes)
    if every:
        best = every[0]
        if best.outlook.p_best < space.wanted:
            notes.append(f"P(best) is simulated: {best.outlook.p_best:.3f} counts as {space.wanted:g}, within {SHORT:g}")
    elif budget is None:
        raise InputError.at("stopping", f"proxies that can reach P(best) {space.wanted:g}", "none")
    else:
        within = best_within(space, seed)
        if within is None:
            raise InputError.at("--budget", f"at least the {_least(space):.3g} FLOPs of the cheapest design", f"{budget:g}")
        best = within
        notes.append(f"P(best) {space.wanted:g} is out of reach within the budget: {best.outlook.p_best:.2f} at most")
    configured = _as_configured(plan, space.known, seed) if plan.proxies else None
    return {
        "target": {"n_params": plan.candidates[0].recipe.n_params, "flops": plan.candidates[0].flops},
        "candidates": len(plan.candidates),
        "wanted_p_best": space.wanted,
        "budget": budget,
        "best": described(best, sizes),
        "by_stop": [described(d, sizes) for d in sorted(every, key=lambda d: d.stop)],
        "configured": configured,
        "assumes": space.known.source,
        "notes": notes + _notes(best, rule or plan.config.stopping.rule),
    }


def design_space(
    plan: Plan,
    model: CollapseModel | None,
    *,
    p_best: float | None = None,
    budget: float | None = None,
    only_configured: bool = False,
) -> tuple[Space, list[Size]]:
    """Return what designs of this sweep can be made of, and its proxy sizes, largest first; ``InputError`` without any."""
    runs = plan.candidates
    candidates = tuple(_trial(run) for run in runs)
    sizes = _sizes(plan, only_configured=only_configured)
    known = _knowledge(candidates, model)
    if not sizes and not known.runs:
        found = "; ".join(known.notes).removeprefix("warning: ") or "neither"
        raise InputError.at("proxies", "sizes to learn from, or --model with finished runs", found)
    of_sizes = [tuple(_at_size(plan, run, size) for run in runs) for size in sizes]
    order = sorted(range(len(sizes)), key=lambda k: -of_sizes[k][0].flops)
    points = [run.searched for run in runs]
    space = Space(
        candidates=candidates,
        sizes=tuple(of_sizes[k] for k in order),
        spread=lru_cache(maxsize=None)(lambda n: tuple(well_spread(points, n)) if n else ()),
        known=known,
        keeping=_wanting(plan, p_best),
        groups=_groups(plan, [sizes[k] for k in order]),
        min_proxies=plan.config.stopping.min_references,
        earliest=plan.candidates[0].recipe.warmup_fraction or 0.0,
        budget=budget,
    )
    return space, [sizes[k] for k in order]


def _groups(plan: Plan, sizes: Sequence[Size]) -> tuple[tuple[int, ...], ...]:
    """Return each size alone, neighbours together, and those configured."""
    n = len(sizes)
    configured = [] if plan.config.proxies is None else list(plan.config.proxies.sizes)
    groups: set[tuple[int, ...]] = {(k,) for k in range(n)} | {(k, k + 1) for k in range(n - 1)}
    groups.add(tuple(k for k, size in enumerate(sizes) if size in configured))
    return tuple(sorted(groups - {()}))


def described(design: Design, sizes: Sequence[Size]) -> dict[str, Any]:
    """Return a design as JSON-ready data with its sizes as a configuration has them."""
    return {"sizes": [dict(sizes[k]) for k in design.sizes], **design.to_dict()}


def _least(space: Space) -> float:
    """Return the smallest budget for which there is a design."""
    return min(
        float(costs_by_count(space.candidates, space.proxies(sizes, settings), stop)[space.keeping.keep_min - 1])
        for stop in space.stops(STOPS)
        for sizes, settings in space.plans()
    )


def _nearest(space: Space) -> str:
    """Return in words how large a proxy must be for this target."""
    target = space.candidates[0].recipe.n_params
    return "any" if target is None else f"at least {smallest_proxy(target):.2g} parameters"


def _notes(best: Design, rule: str) -> list[str]:
    notes = []
    if best.outlook.saved_fraction < 0:
        notes.append("warning: with so few candidates it costs less to train them all to the end")
    if rule == "prune":
        notes.append("rule prune is judged as if all candidates met at the stop; it stops some later, and frees workers sooner")
    return notes


def _keeping(plan: Plan) -> Keeping:
    s = plan.config.stopping
    return Keeping(alpha=s.alpha, keep_min=s.keep_min, keep_max=s.keep_max, margin=s.margin)


def _wanting(plan: Plan, p_best: float | None) -> Keeping:
    """Return whom a sweep keeps that is to hold the best with a probability: as many as that takes."""
    if p_best is not None and not 0 < p_best < 1:
        raise InputError.at("--p-best", "a probability inside (0, 1)", p_best)
    alpha = plan.config.stopping.alpha if p_best is None else 1.0 - p_best
    return replace(_keeping(plan), alpha=alpha, keep_max=None)


def _knowledge(candidates: Sequence[Trial], model: CollapseModel | None) -> Knowledge:
    points = [c.point for c in candidates]
    recipe = candidates[0].recipe
    if model is None:
        return knowledge_before(usual_beliefs(recipe.n_params), points)
    known = knowledge_of_model(model, [(c.recipe, c.settings) for c in candidates])
    if known is None:
        raise InputError.at("--model", "finished runs under the target's schedule", "none")
    return _of_near_runs(known, candidates)


def _of_near_runs(known: Knowledge, candidates: Sequence[Trial]) -> Knowledge:
    """Return what a model knows without the runs that are too far from the candidates; nothing of it where all are."""
    theirs = [coordinates_of(c.recipe) for c in candidates]
    far = {k: controls for k, run in enumerate(known.runs) if (controls := far_controls(run, theirs))}
    if not far:
        return known
    asked = ", ".join(_limit(name, candidates) for name in _LIMITS if any(name in controls for controls in far.values()))
    note = f"warning: {len(far)} of the model's {len(known.runs)} runs do not count, too far from the target: it takes {asked}"
    near = tuple(run for k, run in enumerate(known.runs) if k not in far)
    if near:
        return replace(known, runs=near, notes=(note,))
    before = knowledge_before(usual_beliefs(candidates[0].recipe.n_params), [c.point for c in candidates])
    source = "variances that recorded families show at this size (the model's runs are too far)"
    return replace(before, source=source, notes=(note,))


_LIMITS = {"log_n": "n_params", "log_tpp": "tpp", "log_tau": "tau"}


def _limit(control: str, candidates: Sequence[Trial]) -> str:
    """Return in words which finished runs are near enough in one control."""
    values = [float(v) for c in candidates if (v := getattr(c.recipe, _LIMITS[control])) is not None]
    if control == "log_n":
        return f"at least {smallest_proxy(min(values)):.2g} parameters"
    factor = math.exp(FAR_CONTROL)
    return f"{_LIMITS[control]} {min(values) / factor:.3g} to {max(values) * factor:.3g}"


def _trial(run: Run) -> Trial:
    return Trial(recipe=run.recipe, settings=run.searched, flops=run.flops)


def _at_size(plan: Plan, run: Run, size: Size) -> Trial:
    recipe = plan.workload.recipe(plan.workload.settings(run.searched, size, 0))
    return Trial(recipe=recipe, settings=run.searched, flops=float(recipe.flops or 0.0))


def _sizes(plan: Plan, *, only_configured: bool) -> list[Size]:
    """Return the configured proxy sizes and, for the built-in family, a ladder below the target; none dearer than that."""
    config = plan.config
    sizes: list[Size] = [] if config.proxies is None else list(config.proxies.sizes)
    if config.model is not None and not only_configured:
        sizes += _ladder(config.model)
    target = plan.candidates[0]
    kept: dict[float, Size] = {}
    for size in sizes:
        trial = _at_size(plan, target, size)
        if trial.flops < target.flops:
            kept.setdefault(float(trial.recipe.n_params or trial.flops), size)
    return list(kept.values())


def _ladder(model: ModelBlock) -> list[Size]:
    """Return narrower models of the same depth: fewer heads where there are four or more, else smaller ones."""
    from proxies.architecture import Architecture

    full = Architecture(**model.model_dump(exclude={"family"}))
    heads = model.width // model.head_dim
    if heads >= 4:
        shapes = [{"width": k * model.head_dim} for k in range(1, heads)]
    else:
        shapes = [{"width": heads * k, "head_dim": k} for k in range(2, model.head_dim, 2)]
    made = [(shape, Architecture(**{**vars(full), **shape}).n_params) for shape in shapes]
    chosen = [min(made, key=lambda one: abs(np.log(one[1] / (share * full.n_params))))[0] for share in LADDER if made]
    return [shape for k, shape in enumerate(chosen) if shape not in chosen[:k]]
