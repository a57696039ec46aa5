"""How initialisation, learning rate, decay and forward multipliers follow from a model's size, role by role.

One table, :data:`TABLE`, for standard parameterisation (SP), μP and CompleteP (α = 1). Each entry is a power law in the
width multiple m_N and the depth multiple m_L, written as a pair of exponents: ``(-1, 0)`` is 1/m_N, ``(-1, -1)`` is
1/(m_N·m_L).

Two choices go beyond the table of the papers' summary and follow the authors' reference code (EleutherAI/nanoGPT-mup):
embeddings decay with the base λ, and AdamW's ε of everything outside the blocks is ε/m_N, because gradients there shrink
like 1/m_N (CompleteP, eq. 40).

References: arXiv 2505.01618 (CompleteP, table 1), arXiv 2203.03466 (μP).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from hpo.core.quantities import is_real
from proxies.architecture import PARAMETERISATIONS

Exponents = tuple[float, float]
ONE: Exponents = (0, 0)

ROLES = ("embedding", "unembedding", "tied_embedding", "hidden_matrix", "hidden_bias", "block_norm", "final_norm")
"""What a parameter can be; every parameter of the model has exactly one role."""


@dataclass(frozen=True)
class Rule:
    """Exponents of (m_N, m_L) for one role; ``decays`` tells whether weight decay applies at all."""

    init_variance: Exponents = ONE
    lr: Exponents = ONE
    weight_decay: Exponents = ONE
    eps: Exponents = ONE
    decays: bool = True


@dataclass(frozen=True)
class Forward:
    """Exponents of (m_N, m_L) of the multipliers in the forward pass, and the power of d_head that divides q·k."""

    residual: Exponents = ONE
    unembedding: Exponents = ONE
    head_dim_power: float = 0.5


_BY_WIDTH: Exponents = (-1, 0)
_EMBEDDING_SP, _NO_DECAY_SP = Rule(), Rule(decays=False)
_OUTSIDE = Rule(eps=_BY_WIDTH)
_FINAL_NORM = Rule(eps=_BY_WIDTH, decays=False)


def _scaled(block_eps: Exponents) -> dict[str, Rule]:
    """Rules shared by μP and CompleteP, which differ in the ε of the blocks."""
    inside = Rule(eps=block_eps, decays=False)
    return {
        "embedding": _OUTSIDE,
        "unembedding": _OUTSIDE,
        "tied_embedding": _OUTSIDE,
        "hidden_matrix": Rule(init_variance=(-1, 0), lr=(-1, 0), weight_decay=(1, 0), eps=block_eps),
        "hidden_bias": inside,
        "block_norm": inside,
        "final_norm": _FINAL_NORM,
    }


TABLE: dict[str, dict[str, Rule]] = {
    "sp": {
        "embedding": _EMBEDDING_SP,
        "unembedding": _EMBEDDING_SP,
        "tied_embedding": _EMBEDDING_SP,
        "hidden_matrix": _EMBEDDING_SP,
        "hidden_bias": _NO_DECAY_SP,
        "block_norm": _NO_DECAY_SP,
        "final_norm": _NO_DECAY_SP,
    },
    "mup": _scaled(block_eps=(-1, 0)),
    "completep": _scaled(block_eps=(-1, -1)),
}
"""Parameterisation → role → :class:`Rule`."""

FORWARD: dict[str, Forward] = {
    "sp": Forward(),
    "mup": Forward(unembedding=(-1, 0), head_dim_power=1.0),
    "completep": Forward(residual=(0, -1), unembedding=(-1, 0), head_dim_power=1.0),
}
"""Parameterisation → multipliers of the forward pass."""


@dataclass(frozen=True)
class RoleMultipliers:
    """What one role gets in one model: initial σ, and factors on base learning rate, base decay and ε (decay 0: none)."""

    init_std: float
    lr: float
    weight_decay: float
    eps: float


@dataclass(frozen=True)
class ForwardMultipliers:
    """Factors of the forward pass: each residual branch, the unembedding's input, and q·k."""

    residual: float
    unembedding: float
    attention: float


class Scaled(Protocol):
    """What the multipliers need to know of a model: an :class:`~proxies.architecture.Architecture` or a :class:`Scale`."""

    @property
    def parameterisation(self) -> str:
        """One of ``sp``, ``mup``, ``completep``."""

    @property
    def m_width(self) -> float:
        """Width over base width."""

    @property
    def m_depth(self) -> float:
        """Depth over base depth."""

    @property
    def init_std(self) -> float:
        """σ at the base shape."""

    @property
    def head_dim(self) -> int:
        """Size of an attention head."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """The multiples of a model that is not ours.

    Parameters
    ----------
    m_width, m_depth : float
        Width and depth over those of the base model, at which learning rate, decay and initialisation are meant.
    parameterisation : {"completep", "mup", "sp"}
    init_std : float
        σ of initial weights at the base shape.
    head_dim : int
        Size of an attention head, for the scale of q·k.

    Raises
    ------
    ValueError
        A value outside its range.
    """

    m_width: float
    m_depth: float = 1.0
    parameterisation: str = "completep"
    init_std: float = 0.02
    head_dim: int = 64

    def __post_init__(self) -> None:
        for name in ("m_width", "m_depth", "init_std", "head_dim"):
            value = getattr(self, name)
            if not (is_real(value) and math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be a finite number above 0; found {value!r}")
        if self.parameterisation not in PARAMETERISATIONS:
            raise ValueError(f"parameterisation must be one of {', '.join(PARAMETERISATIONS)}; found {self.parameterisation!r}")


def role_multipliers(model: Scaled, role: str) -> RoleMultipliers:
    """Return the multipliers of ``role`` (one of :data:`ROLES`) in ``model``."""
    rule = TABLE[model.parameterisation][role]
    return RoleMultipliers(
        init_std=model.init_std * math.sqrt(_power(model, rule.init_variance)),
        lr=_power(model, rule.lr),
        weight_decay=_power(model, rule.weight_decay) if rule.decays else 0.0,
        eps=_power(model, rule.eps),
    )


def require_scale(value: object) -> None:
    """Raise ``ValueError`` unless ``value`` says how large a model is, as a :class:`Scale` does."""
    if not hasattr(value, "parameterisation"):
        raise ValueError(f"expected a proxies.Scale, or an Architecture; found {value!r:.80}")


def forward_multipliers(model: Scaled) -> ForwardMultipliers:
    """Return the multipliers of the forward pass of ``model``; ``ValueError`` if it is no :class:`Scale` or the like."""
    require_scale(model)
    forward = FORWARD[model.parameterisation]
    return ForwardMultipliers(
        residual=_power(model, forward.residual),
        unembedding=_power(model, forward.unembedding),
        attention=model.head_dim**-forward.head_dim_power,
    )


def _power(model: Scaled, exponents: Exponents) -> float:
    return float(model.m_width ** exponents[0] * model.m_depth ** exponents[1])
