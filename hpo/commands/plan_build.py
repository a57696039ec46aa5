"""A plan from its specification: which rules apply, every run, what it costs, and what to know about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpo.commands.law_files import read_law
from hpo.commands.options import WAY_ON
from hpo.commands.plan_sizes import FamilySize, sizes_of
from hpo.commands.plan_spec import PlanSpec
from hpo.core.laws import LOSS_LAWS, TAU_LAWS
from hpo.core.out_of_range import OutsideRangeError
from hpo.core.plan_notes import plan_notes
from hpo.core.planning import AGREE, PlannedRun, Rules, plan_run
from hpo.core.power_law import PowerLaw
from hpo.engine.config import InputError
from hpo.engine.config_blocks import as_schedule
from hpo.engine.workload import restated
from proxies.parameterisation import ROLES, TABLE, role_multipliers

CELERITY_TAU = {20.0: 0.175, 80.0: 0.087, 234.0: 0.051}
"""Tokens per parameter → τ of the published family (arXiv 2509.25087)."""
CELERITY_WARMUP_TOKENS = 375e6
WELL_USED = 0.9
"""Share of a stated budget below which a plan says what is left."""
SWEEP_BATCH = 16
"""Sequences a decoder is trained with unless told: the default of a sweep."""


@dataclass(frozen=True)
class FamilyPlan:
    """The planned runs, each with its size, in the order of horizons, then sizes."""

    spec: PlanSpec
    rules: Rules
    runs: tuple[PlannedRun, ...]
    sizes: tuple[FamilySize, ...]
    notes: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return the JSON document: ``recipes`` and ``notes``."""
        recipes = [self._recipe(run, size) for run, size in zip(self.runs, self.sizes, strict=True)]
        return {"recipes": recipes, "notes": list(self.notes)}

    def _recipe(self, run: PlannedRun, size: FamilySize) -> dict[str, Any]:
        speed, price = self.spec.flops_per_s, self.spec.price_per_hour
        hours = None if speed is None else (run.recipe.flops or 0.0) / speed / 3600.0
        cost = None if hours is None or price is None else hours * price
        known = {} if size.model is None else {"model": size.model, "groups": _groups(run, size)}
        return {**run.to_dict(), "gpu_hours": hours, "price": cost, **known}


def build_plan(spec: PlanSpec) -> FamilyPlan:
    """Return the plan of ``spec``.

    Raises
    ------
    InputError
        Quantities missing, out of range or in disagreement: one line naming them.
    """
    compute, notes = _compute(spec)
    rules = _rules(spec)
    runs: list[PlannedRun] = []
    sizes: list[FamilySize] = []
    tpps = _horizons(spec, compute)
    for tpp in tpps:
        of_this = sizes_of(spec, tpp, compute)
        sized_by_budget = not (spec.sizes or spec.params or spec.family in ("celerity", "collapse"))
        for one in of_this:
            name = one.size.name if len(tpps) == 1 else f"{one.size.name}-{tpp:g}tpp"
            horizon = {"tpp": tpp, "n_tokens": spec.tokens, "flops": None if sized_by_budget else compute}
            try:
                runs.append(plan_run(one.size, rules, name=name, **horizon))
            except ValueError as error:
                where = "" if name in str(error) or len(of_this) == 1 else f", for {name}"
                raise InputError(f"{restated(error)}{where}{_way_on(error)}") from None
            sizes.append(one)
        if sized_by_budget:
            notes += _budget_notes(spec, compute, runs[-1], sizes[-1])
    family = _family_notes(spec, runs) + _tpp_notes(runs) + _base_shape_notes(spec)
    return FamilyPlan(spec, rules, tuple(runs), tuple(sizes), (*notes, *family, *plan_notes(runs, rules)))


def _compute(spec: PlanSpec) -> tuple[float | None, list[str]]:
    """Return the compute budget, stated or of the target loss, and what to say about it."""
    if spec.target_loss is None:
        return spec.compute, []
    law = _law(spec.loss_law, LOSS_LAWS, "loss_law")
    try:
        flops = law.inverse(spec.target_loss, extrapolate=spec.extrapolate)
    except ValueError as error:
        raise InputError(f"target_loss: {error}{_way_on(error)}") from None
    notes = [f"loss {spec.target_loss:g} takes {flops:.3g} FLOPs by {law.source}, for that family's data and tokeniser"]
    if law.low is None:
        notes.append(f"warning: the range of compute of {law.source} is not published: the budget may be an extrapolation")
    elif not law.covers(flops):
        notes.append(f"warning: the budget is extrapolated: {law.source} was measured on {law.range_text} FLOPs")
    return flops, notes


def _budget_notes(spec: PlanSpec, compute: float | None, run: PlannedRun, size: FamilySize) -> list[str]:
    """Say by how much whole heads miss the budget: what is left of a stated one, what a target loss takes beyond its own."""
    if compute is None or size.architecture is None:
        return []
    share = (run.recipe.flops or 0.0) / compute
    heads = f"widths are whole heads of {size.architecture.head_dim}"
    if spec.target_loss is not None:
        return [f"{run.name} is the smallest width that reaches it, with {share:.3g} times those FLOPs: {heads}"]
    if share >= WELL_USED:
        return []
    cure = "one more exceeds it; try another --head-dim or --depth"
    return [f"{run.name} uses {100 * share:.2g} % of the budget: {heads}, and {cure}"]


def _horizons(spec: PlanSpec, compute: float | None) -> Sequence[float | None]:
    if spec.tpp:
        return spec.tpp
    if spec.tokens is None and compute is None:
        if spec.family == "celerity":
            return tuple(CELERITY_TAU)
        raise InputError("tpp: expected tpp, tokens, compute or target_loss; found none of them")
    return (None,)


def _rules(spec: PlanSpec) -> Rules:
    published = spec.family == "celerity"
    batch = spec.batch
    if batch is None:
        is_decoder = spec.family in (None, "decoder") and (bool(spec.sizes) or "depth" in spec.model)
        batch = "published" if published else SWEEP_BATCH if is_decoder else "optimal"
    cap = spec.warmup_max_tokens
    if published and spec.warmup_fraction is None and cap is None:
        cap = CELERITY_WARMUP_TOKENS
    tau = spec.tau if spec.tau is not None else "celerity" if published else "power-lines"
    try:
        return Rules(
            tau=_law(tau, TAU_LAWS, "tau") if isinstance(tau, str) else tau,
            published_tau=CELERITY_TAU if published and spec.tau is None else {},
            batch=batch,
            lr=spec.lr,
            schedule=as_schedule(spec.schedule),
            warmup_fraction=0.1 if spec.warmup_fraction is None else spec.warmup_fraction,
            warmup_max_tokens=cap,
            critical_batch=spec.critical_batch,
            extrapolate=spec.extrapolate,
        )
    except ValueError as error:
        raise InputError(f"{restated(error)}{_way_on(error)}") from None


def _way_on(error: ValueError) -> str:
    return WAY_ON if isinstance(error, OutsideRangeError) else ""


def _law(name: str, known: dict[str, PowerLaw], key: str) -> PowerLaw:
    """Return a published law, or the one in a file that ``hpo fit-tau`` or ``hpo efficiency scaling`` wrote."""
    if name in known:
        return known[name]
    if not Path(name).is_file():
        kinds = "a number, " if key == "tau" else ""
        raise InputError.at(key, f"{kinds}{', '.join(known)} or a file with a fitted law", name)
    law = read_law(Path(name))
    wanted = "tau" if key == "tau" else "loss"
    if law.y_name != wanted:
        raise InputError.at(key, f"a law of {wanted}", f"{name}, a law of {law.y_name}")
    if wanted == "loss" and law.exponent >= 0:
        raise InputError.at(key, "a loss that falls as compute rises", f"{name}, of exponent {law.exponent:.3g}")
    return law


def _family_notes(spec: PlanSpec, runs: Sequence[PlannedRun]) -> list[str]:
    if spec.family == "celerity":
        return _celerity_notes(spec, runs)
    if spec.family == "collapse":
        return ["vocabulary (50,257) and tied embeddings are inferred from the parameter counts; batches are not published"]
    return []


def _celerity_notes(spec: PlanSpec, runs: Sequence[PlannedRun]) -> list[str]:
    notes = []
    if spec.lr is None:
        notes.append(
            "lr and weight_decay are open: the published base peak lr (0.15) is relative to an unpublished base shape; "
            "give --lr to split lr_times_weight_decay"
        )
    shown = sorted({(run.tpp, run.tau_published, run.tau_law) for run in runs if run.tau_published is not None})
    if shown:
        pairs = ", ".join(f"{tau:g} at {tpp:g} tpp (law {law or 0:.4f})" for tpp, tau, law in shown)
        notes.append(f"tau as published is {pairs}: the law 0.175·sqrt(20/tpp), rounded")
    if len({run.batch_sequences for run in runs}) > 1:
        grow = "as D^0.383, D the tokens" if spec.batch == "optimal" else "with the square root of the size"
        notes.append(f"batches grow {grow}; tau is held, so they do not disturb the collapse")
    return notes


def _tpp_notes(runs: Sequence[PlannedRun]) -> list[str]:
    """Say that runs of several TPP, asked for or the consequence of a horizon in tokens or FLOPs, do not collapse."""
    tpp = [run.tpp for run in runs]
    if max(tpp) <= min(tpp) * (1 + AGREE):
        return []
    differ = "tpp differs there" if len({run.tau for run in runs}) == 1 else "both tpp and tau differ there"
    return [f"curves collapse across sizes within one tpp, not across tpp ({min(tpp):.4g} to {max(tpp):.4g} here): {differ}"]


def _base_shape_notes(spec: PlanSpec) -> list[str]:
    if spec.family not in ("celerity", "collapse") or spec.lr is None:
        return []
    shape = "the base shape 256x2 of the CompleteP authors' code"
    return [f"warning: the lr of groups assumes {shape}; the family's own is not published: use an lr tuned at that shape"]


def _groups(run: PlannedRun, size: FamilySize) -> dict[str, Any]:
    """Return what each kind of parameter gets: multiples of the base values, and the values where the base lr is known."""
    architecture = size.architecture
    if architecture is None:
        return {}
    absent = {"unembedding"} if architecture.tied else {"tied_embedding"}
    absent |= {"embedding"} if architecture.tied else set()
    absent |= set() if architecture.bias else {"hidden_bias"}
    lr, decay = run.recipe.base_lr, run.recipe.base_weight_decay
    groups = {}
    for role in (role for role in ROLES if role in TABLE[architecture.parameterisation] and role not in absent):
        factors = role_multipliers(architecture, role)
        groups[role] = {
            "lr": None if lr is None else lr * factors.lr,
            "weight_decay": None if decay is None else decay * factors.weight_decay,
            "lr_factor": factors.lr,
            "weight_decay_factor": factors.weight_decay,
            "eps_factor": factors.eps,
            "init_std": factors.init_std,
        }
    return groups
