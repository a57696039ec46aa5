"""What a training run was given: size, data, batch, optimiser and schedule, and the controls they imply.

Three controls decide the shape of a normalised loss curve: tokens per parameter, the AdamW timescale τ and the
learning-rate schedule. :class:`Recipe` holds the raw quantities, any of which may be unknown, and derives the controls.

References: arXiv 2509.25087 (controls of collapse), arXiv 2505.13738 (τ).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from hpo.core.schedules import Schedule, schedule_from_dict, schedules_match


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One run's recipe; ``None`` means unknown, and is never guessed.

    Parameters
    ----------
    schedule : Schedule
        Shape of the learning rate after warm-up.
    n_params : float
        Parameters N, embeddings included.
    n_tokens : float
        Training tokens D.
    batch_tokens : float
        Batch size B in tokens.
    lr : float
        Peak learning rate η that reaches the hidden matrices (after any width scaling).
    weight_decay : float
        Decay λ applied to the hidden matrices, so that ηλ is the decay per step.
    warmup_fraction : float
        Share of the steps spent warming up.
    base_lr, base_weight_decay : float
        The values before width scaling: what a sweep searches over.
    flops_exact : float
        Training FLOPs by the architecture's own count, where known.
    total_steps : float
        Optimiser steps T, for runs whose tokens are not known; D/B is preferred where it is.

    Raises
    ------
    ValueError
        A quantity that is not finite and positive (decay and warm-up may be 0; warm-up must be below 1).
    """

    schedule: Schedule
    n_params: float | None = None
    n_tokens: float | None = None
    batch_tokens: float | None = None
    lr: float | None = None
    weight_decay: float | None = None
    warmup_fraction: float | None = None
    base_lr: float | None = None
    base_weight_decay: float | None = None
    flops_exact: float | None = None
    total_steps: float | None = None

    def __post_init__(self) -> None:
        for name in ("n_params", "n_tokens", "batch_tokens", "lr", "base_lr", "flops_exact", "total_steps"):
            _require(name, getattr(self, name), lambda x: x > 0, "above 0")
        for name in ("weight_decay", "base_weight_decay"):
            _require(name, getattr(self, name), lambda x: x >= 0, "at least 0")
        _require("warmup_fraction", self.warmup_fraction, lambda x: 0 <= x < 1, "in [0, 1)")

    @property
    def tpp(self) -> float | None:
        """Tokens per parameter D/N."""
        return _quotient(self.n_tokens, self.n_params)

    @property
    def n_steps(self) -> int | None:
        """Optimiser steps T = D/B, else ``total_steps``, rounded to the nearest whole step."""
        steps = self._exact_steps
        return None if steps is None else max(1, round(steps))

    @property
    def _exact_steps(self) -> float | None:
        steps = _quotient(self.n_tokens, self.batch_tokens)
        return self.total_steps if steps is None else steps

    @property
    def tau(self) -> float | None:
        """Normalised AdamW timescale τ = 1/(ηλT) = B/(ηλD); None without decay."""
        steps = self._exact_steps
        if steps is None or not self.lr or not self.weight_decay:
            return None
        return 1.0 / (self.lr * self.weight_decay * steps)

    @property
    def flops_6nd(self) -> float | None:
        """Training FLOPs by the rule 6·N·D."""
        return None if self.n_params is None or self.n_tokens is None else 6.0 * self.n_params * self.n_tokens

    @property
    def flops(self) -> float | None:
        """Training FLOPs: the exact count where the architecture is known, else 6·N·D."""
        return self.flops_6nd if self.flops_exact is None else self.flops_exact

    def with_tau(self, tau: float) -> Recipe:
        """Return a copy whose weight decay is λ = B/(ητD).

        Raises
        ------
        ValueError
            τ not positive, η, B or D unknown, or a decay above 1/η (which would overshoot zero every step).
        """
        _require("tau", tau, lambda x: x > 0, "above 0")
        if self.batch_tokens is None or self.n_tokens is None or self.lr is None:
            raise ValueError("with_tau needs lr, batch_tokens and n_tokens; at least one is unknown")
        decay = self.batch_tokens / (self.lr * tau * self.n_tokens)
        if decay > 1 / self.lr:
            raise ValueError(f"tau {tau:g} needs a weight decay of {decay:.3g}, above 1/lr = {1 / self.lr:.3g}")
        return replace(self, weight_decay=decay)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict of the known fields, the inverse of :func:`recipe_from_dict`."""
        known = {k: v for k, v in asdict(self).items() if k != "schedule" and v is not None}
        return {"schedule": self.schedule.to_dict(), **known}


def share_schedule(a: Recipe, b: Recipe) -> bool:
    """True if two runs have one schedule by its values, each past its own warm-up."""
    return schedules_match(a.schedule, b.schedule, (a.warmup_fraction or 0.0, b.warmup_fraction or 0.0))


def recipe_from_dict(data: Mapping[str, Any]) -> Recipe:
    """Return the recipe of ``Recipe.to_dict()``; ``ValueError`` on unknown fields or bad values."""
    allowed = {f.name for f in fields(Recipe)}
    unknown = sorted(set(data) - allowed)
    if unknown or "schedule" not in data:
        raise ValueError(f"a recipe has the fields {', '.join(sorted(allowed))}; unknown here: {', '.join(unknown) or 'none'}")
    return Recipe(**{**data, "schedule": schedule_from_dict(data["schedule"])})


def _require(name: str, value: float | None, rule: Any, expected: str) -> None:
    if value is not None and not (isinstance(value, int | float) and math.isfinite(value) and rule(value)):
        raise ValueError(f"{name} must be finite and {expected}; found {value!r}")


def _quotient(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b
