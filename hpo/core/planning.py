"""A family's recipes from sizes and rules: horizon, batch, timescale, decay, warm-up and cost of every run.

Curves of different sizes collapse where tokens per parameter, τ and the schedule match. So a plan fixes those and solves the
rest: T = TPP·N / B steps and ηλ = 1/(τT). The base learning rate may stay open: the product ηλ is what τ settles.

References: arXiv 2509.25087, arXiv 2505.13738.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hpo.core.laws import (
    TAU_LAWS,
    TAU_RANGE,
    critical_batch_tokens,
    optimal_batch_tokens,
    sequences_of,
    sqrt_batch_tokens,
)
from hpo.core.out_of_range import OutsideRangeError
from hpo.core.power_law import PowerLaw
from hpo.core.quantities import require_positive
from hpo.core.recipe import Recipe
from hpo.core.schedules import Schedule, schedule

BatchRule = Literal["published", "optimal", "sqrt"]
AGREE = 0.01
"""Quantities that say the same thing twice may differ by this much, relatively: published ones are rounded."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """One size of a family.

    Parameters
    ----------
    name : str
        What it is called.
    n_params : float
        Parameters N.
    seq_len : int
        Tokens a sequence.
    flops_per_token : float, optional
        Training FLOPs a token by the architecture's own count; without it 6N.
    batch_sequences : int, optional
        The batch the family was published with.
    hidden_lr_factor : float
        Learning rate of the hidden matrices over the base one (their decay is divided by it).
    """

    name: str
    n_params: float
    seq_len: int
    flops_per_token: float | None = None
    batch_sequences: int | None = None
    hidden_lr_factor: float = 1.0

    def __post_init__(self) -> None:
        for name in ("n_params", "seq_len", "flops_per_token", "batch_sequences", "hidden_lr_factor"):
            value = getattr(self, name)
            if value is not None:
                require_positive(f"size {self.name}: {name}", value)

    @property
    def cost_per_token(self) -> float:
        """Training FLOPs a token."""
        return 6.0 * self.n_params if self.flops_per_token is None else self.flops_per_token


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How every size is trained.

    Parameters
    ----------
    tau : float or PowerLaw
        τ, or its law in tokens per parameter.
    published_tau : mapping
        Tokens per parameter → τ as published; wins over a law where it has a value.
    batch : int or {"published", "optimal", "sqrt"}
        Sequences; or the size's own; or B_opt(D); or growing with √N as Celerity's.
    lr : float, optional
        Base peak learning rate; None leaves η and λ open, and fixes their product.
    schedule : Schedule
        Its shape after warm-up.
    warmup_fraction, warmup_max_tokens : float
        Warm-up is this share of training, but no more tokens than these (None: no cap).
    critical_batch : float, optional
        B_crit in tokens, where it was measured; the published law otherwise.
    extrapolate : bool
        Whether a law may be used outside the range it was measured on, and a τ outside :data:`~hpo.core.laws.TAU_RANGE`.

    Raises
    ------
    ValueError
        Quantities that are not positive; :class:`~hpo.core.out_of_range.OutsideRangeError` for such a τ.
    """

    tau: float | PowerLaw
    published_tau: Mapping[float, float] = field(default_factory=dict)
    batch: int | BatchRule = "optimal"
    lr: float | None = None
    schedule: Schedule = field(default_factory=lambda: schedule("linear"))
    warmup_fraction: float = 0.1
    warmup_max_tokens: float | None = None
    critical_batch: float | None = None
    extrapolate: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.tau, PowerLaw):
            require_positive("tau", self.tau)
            self._require_known_tau(self.tau)
        if not isinstance(self.batch, str):
            require_positive("batch", self.batch)
        for name in ("lr", "warmup_max_tokens", "critical_batch"):
            if getattr(self, name) is not None:
                require_positive(name, getattr(self, name))

    def _require_known_tau(self, tau: float) -> None:
        low, high = TAU_RANGE
        if not (self.extrapolate or low <= tau <= high):
            measured = f"[{low:.3g}, {high:.3g}], within a factor of two of what the published laws were measured on"
            raise OutsideRangeError(f"tau must lie in {measured}; found {tau:g}")


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of a plan.

    Attributes
    ----------
    name : str
        Size, and horizon where there are several.
    size : Size
        What is trained.
    recipe : Recipe
        Its quantities; learning rates and decays are None where the base learning rate is open.
    tpp : float
        Tokens per parameter as planned. ``recipe.tpp`` differs by the rounding to whole steps.
    tau : float
        τ as trained.
    tau_published, tau_law : float or None
        As published for this horizon, and as the rule's law gives it there.
    tau_opt : float or None
        By the published law of the optimum (arXiv 2505.13738), None outside its range.
    lr_times_weight_decay : float
        ηλ, the decay a step, the same at every width.
    optimal_batch_tokens, critical_batch_tokens : float
        B_opt and B_crit at this horizon.
    """

    name: str
    size: Size
    recipe: Recipe
    tpp: float
    n_steps: int
    batch_sequences: int
    tau: float
    tau_published: float | None
    tau_law: float | None
    tau_opt: float | None
    lr_times_weight_decay: float
    optimal_batch_tokens: float
    critical_batch_tokens: float

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict. ``lr`` and ``weight_decay`` are base values."""
        recipe = self.recipe
        return {
            "name": self.name,
            "n_params": recipe.n_params,
            "n_tokens": recipe.n_tokens,
            "tpp": self.tpp,
            "tau": self.tau,
            "n_steps": self.n_steps,
            "batch_sequences": self.batch_sequences,
            "batch_tokens": recipe.batch_tokens,
            "lr": recipe.base_lr,
            "weight_decay": recipe.base_weight_decay,
            "lr_times_weight_decay": self.lr_times_weight_decay,
            "warmup_fraction": recipe.warmup_fraction,
            "flops": recipe.flops,
            "flops_6nd": recipe.flops_6nd,
            "seq_len": self.size.seq_len,
            "schedule": recipe.schedule.to_dict(),
            "tau_published": self.tau_published,
            "tau_law": self.tau_law,
            "tau_opt": self.tau_opt,
            "optimal_batch_tokens": self.optimal_batch_tokens,
            "critical_batch_tokens": self.critical_batch_tokens,
        }


def plan_run(
    size: Size,
    rules: Rules,
    *,
    tpp: float | None = None,
    n_tokens: float | None = None,
    flops: float | None = None,
    name: str | None = None,
) -> PlannedRun:
    """Return the planned run of one size at one horizon.

    Parameters
    ----------
    tpp, n_tokens, flops : float, optional
        The horizon, at least one way; several must agree.

    Raises
    ------
    ValueError
        No horizon, or several that disagree; a τ law asked outside its range; no published batch; a decay above 1/η.
    """
    horizon = horizon_tokens(size, tpp=tpp, n_tokens=n_tokens, flops=flops)
    planned_tpp = horizon / size.n_params if tpp is None else tpp
    batch = _batch_sequences(size, rules.batch, horizon)
    batch_tokens = batch * size.seq_len
    n_steps = max(1, round(horizon / batch_tokens))
    published = next((tau for at, tau in rules.published_tau.items() if math.isclose(at, planned_tpp, rel_tol=AGREE)), None)
    by_rule, by_law = _tau_by_rule(rules, planned_tpp, published)
    tau = by_rule if published is None else published
    decay = 1.0 / (tau * n_steps)
    if decay > 1:
        raise ValueError(
            f"tau {tau:g} over {n_steps} steps of run {name or size.name} needs lr · weight_decay = {decay:.3g}, "
            f"above 1 (a weight decay above 1/lr): take a larger tau, a smaller batch or a longer run"
        )
    return PlannedRun(
        name=name or size.name,
        size=size,
        recipe=_recipe(size, rules, n_steps * batch_tokens, batch_tokens, decay),
        tpp=planned_tpp,
        n_steps=n_steps,
        batch_sequences=batch,
        tau=tau,
        tau_published=published,
        tau_law=by_law,
        tau_opt=TAU_LAWS["power-lines"].at(planned_tpp) if TAU_LAWS["power-lines"].covers(planned_tpp) else None,
        lr_times_weight_decay=decay,
        optimal_batch_tokens=optimal_batch_tokens(horizon),
        critical_batch_tokens=rules.critical_batch or critical_batch_tokens(horizon),
    )


def horizon_tokens(size: Size, *, tpp: float | None = None, n_tokens: float | None = None, flops: float | None = None) -> float:
    """Return the tokens D that TPP, D or a compute budget ask for; ``ValueError`` if none is given or they disagree."""
    given = {"tpp": tpp, "tokens": n_tokens, "compute": flops}
    for key, value in given.items():
        if value is not None:
            require_positive(key, value)
    implied = {
        "tpp": None if tpp is None else tpp * size.n_params,
        "tokens": n_tokens,
        "compute": None if flops is None else flops / size.cost_per_token,
    }
    tokens = {key: value for key, value in implied.items() if value is not None}
    if not tokens:
        raise ValueError(f"size {size.name} needs a horizon: tpp, tokens or compute; found none")
    if max(tokens.values()) > min(tokens.values()) * (1 + AGREE):
        means = "; ".join(f"{key} {given[key]:g} means {value:.4g} tokens" for key, value in tokens.items())
        raise ValueError(f"{' and '.join(tokens)} must agree for {size.name} of {size.n_params:.4g} parameters; found {means}")
    return next(iter(tokens.values()))


def params_for_budget(flops: float, tpp: float) -> float:
    """Return N with 6·N·(TPP·N) = C; ``ValueError`` unless both are finite and positive."""
    require_positive("compute", flops)
    require_positive("tpp", tpp)
    return math.sqrt(flops / (6.0 * tpp))


def ladder_params(n_params: float, factor: float, rungs: int) -> list[float]:
    """Return N·factor^k for k = rungs … 0, smallest first; ``ValueError`` unless 0 < factor < 1 and rungs ≥ 1."""
    require_positive("n_params", n_params)
    if not 0 < factor < 1:
        raise ValueError(f"ladder.factor must lie in (0, 1); found {factor!r}")
    if rungs < 1:
        raise ValueError(f"ladder.rungs must be at least 1; found {rungs!r}")
    return [n_params * factor**k for k in range(rungs, -1, -1)]


def _tau_by_rule(rules: Rules, tpp: float, published: float | None) -> tuple[float, float | None]:
    """Return τ by the rule, and the same again if it is a law's. A published τ needs no range: the law is only shown beside."""
    if not isinstance(rules.tau, PowerLaw):
        return float(rules.tau), None
    by_law = rules.tau.at(tpp, extrapolate=rules.extrapolate or published is not None)
    return by_law, by_law


def _batch_sequences(size: Size, rule: int | BatchRule, n_tokens: float) -> int:
    if isinstance(rule, int):
        return rule
    if rule == "optimal":
        return sequences_of(optimal_batch_tokens(n_tokens), size.seq_len)
    if rule == "sqrt":
        return sequences_of(sqrt_batch_tokens(size.n_params), size.seq_len)
    if size.batch_sequences is None:
        raise ValueError(
            f"batch must be a number, optimal or sqrt for size {size.name}, which has no batch of its own; found {rule}"
        )
    return size.batch_sequences


def _recipe(size: Size, rules: Rules, n_tokens: float, batch_tokens: float, decay: float) -> Recipe:
    warmup = rules.warmup_fraction
    if rules.warmup_max_tokens is not None:
        warmup = min(warmup, rules.warmup_max_tokens / n_tokens)
    lr = rules.lr
    return Recipe(
        schedule=rules.schedule,
        n_params=size.n_params,
        n_tokens=n_tokens,
        batch_tokens=batch_tokens,
        lr=None if lr is None else lr * size.hidden_lr_factor,
        weight_decay=None if lr is None else decay / (lr * size.hidden_lr_factor),
        warmup_fraction=warmup,
        base_lr=lr,
        base_weight_decay=None if lr is None else decay / lr,
        flops_exact=None if size.flops_per_token is None else size.flops_per_token * n_tokens,
    )
