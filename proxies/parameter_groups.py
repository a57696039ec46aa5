"""Parameter groups for AdamW from the role of each parameter: for our own model and, by rules on names, for anybody's.

A rule is a pattern and a role; the first pattern that matches a parameter's name decides (``*`` and ``?`` as in file names).
A parameter that no rule matches is an error, because a wrong role shows only as a sweep that does not transfer::

    scale = Scale(m_width=1024 / 256, m_depth=24 / 4)
    groups = parameterise(model, {
        "wte.weight": "embedding", "lm_head.weight": "unembedding", "ln_f.*": "final_norm",
        "h.*.ln_*": "block_norm", "h.*.bias": "hidden_bias", "h.*": "hidden_matrix",
    }, scale, lr=0.004, weight_decay=0.1)
    optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.95))

Groups carry learning rate, decay and ε. The rest of a parameterisation is in the model itself: initial weights
(:func:`initialise`) and three factors of the forward pass (:func:`~proxies.parameterisation.forward_multipliers`): those of
each residual branch, of the unembedding's input, and of q·k.

A matrix shared by embedding and unembedding is one parameter, named after the first of the two, and has the role
``tied_embedding``.

References: arXiv 2505.01618 (CompleteP, table 1), arXiv 2203.03466 (μP).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import nn

from hpo.core.quantities import is_real, is_whole
from proxies.parameterisation import ROLES, Scaled, require_scale, role_multipliers

Group = dict[str, Any]


def parameterise(
    model: nn.Module, rules: Mapping[str, str], scale: Scaled, *, lr: float, weight_decay: float = 0.1, eps: float = 1e-8
) -> list[Group]:
    """Return parameter groups for AdamW; each parameter that wants a gradient is in exactly one.

    Parameters
    ----------
    rules : mapping of pattern to role
        Roles are :data:`~proxies.parameterisation.ROLES`; the first match decides.
    scale : Scale or Architecture
        The parameterisation and the model's size over the base size.
    lr, weight_decay, eps : float
        Base values, as tuned at the base shape.

    Returns
    -------
    list of dict
        ``params``, ``names``, ``lr``, ``peak_lr`` (the same; a schedule multiplies it), ``weight_decay``, ``eps``. Parameters
        with equal settings share a group.

    Raises
    ------
    ValueError
        A parameter without a rule, a rule without a parameter, an unknown role, or a base value outside its range.
    """
    for name, value in (("lr", lr), ("weight_decay", weight_decay), ("eps", eps)):
        _require(name, value)
    require_scale(scale)
    return groups_by_role(model, roles_by_name(model, rules), scale, lr=lr, weight_decay=weight_decay, eps=eps)


def roles_by_name(model: nn.Module, rules: Mapping[str, str]) -> dict[str, str]:
    """Return the role of every parameter of ``model`` by its name; errors as in :func:`parameterise`."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch module; found {type(model).__name__}")
    if not isinstance(rules, Mapping):
        raise ValueError(f"rules must be a mapping of patterns to roles; found {type(rules).__name__}")
    for pattern, role in rules.items():
        if not isinstance(pattern, str):
            raise ValueError(f"rule {pattern!r}: the pattern must be a text")
        if role not in ROLES:
            raise ValueError(f"rule {pattern!r}: the role must be one of {', '.join(ROLES)}; found {role!r}")
    roles: dict[str, str] = {}
    used: set[str] = set()
    for name, _ in model.named_parameters():
        matching = [pattern for pattern in rules if fnmatchcase(name, pattern)]
        if not matching:
            raise ValueError(f"every parameter needs a rule; found none that matches {name!r}")
        used.add(matching[0])
        roles[name] = rules[matching[0]]
    unused = [pattern for pattern in rules if pattern not in used]
    if unused:
        raise ValueError(f"rule {unused[0]!r} must match a parameter that no rule before it does; found none")
    return roles


def groups_by_role(
    model: nn.Module, roles: Mapping[str, str], scale: Scaled, *, lr: float, weight_decay: float, eps: float
) -> list[Group]:
    """Return the groups of :func:`parameterise` where every parameter's role is known."""
    groups: dict[tuple[float, float, float], Group] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        factors = role_multipliers(scale, roles[name])
        key = (lr * factors.lr, weight_decay * factors.weight_decay, eps * factors.eps)
        fresh = {"params": [], "names": [], "lr": key[0], "peak_lr": key[0], "weight_decay": key[1], "eps": key[2]}
        group = groups.setdefault(key, fresh)
        group["params"].append(parameter)
        group["names"].append(name)
    return list(groups.values())


@torch.no_grad()
def initialise(model: nn.Module, rules: Mapping[str, str], scale: Scaled, seed: int = 0) -> None:
    """Draw initial weights in place: matrices with the σ of their role, norms' weights 1, every other vector 0.

    Weights are drawn on the CPU, so that every device starts from the same ones. Errors as in :func:`parameterise`.
    """
    require_scale(scale)
    if not is_whole(seed):
        raise ValueError(f"seed must be a whole number; found {seed!r}")
    generator = torch.Generator().manual_seed(seed)
    for (name, role), parameter in zip(roles_by_name(model, rules).items(), model.parameters(), strict=True):
        if parameter.dim() >= 2:
            drawn = torch.empty(parameter.shape).normal_(0.0, role_multipliers(scale, role).init_std, generator=generator)
            parameter.copy_(drawn)
        else:
            parameter.fill_(1.0 if role in ("block_norm", "final_norm") and not name.endswith("bias") else 0.0)


def _require(name: str, value: Any) -> None:
    may_be_zero = name == "weight_decay"
    if not (is_real(value) and math.isfinite(value) and (value > 0 or (may_be_zero and value == 0))):
        raise ValueError(f"{name} must be a finite number {'of at least' if may_be_zero else 'above'} 0; found {value!r}")
