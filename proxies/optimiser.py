"""AdamW with the parameter groups of the parameterisation.

Roles with equal learning rate, decay and ε share a group, so a model has at most four and a step is a handful of fused
kernels. A group's ``peak_lr`` is its learning rate at schedule value 1; :func:`set_lr` multiplies it each step.

Decay is decoupled and scaled by the current learning rate (torch's AdamW): per step, hidden matrices shrink by
η·λ·schedule in every parameterisation, which is what τ = B/(ηλD) counts. LayerNorms and biases do not decay; embeddings and the
unembedding decay with the base λ, as in the CompleteP authors' code.

References: arXiv 1711.05101 (AdamW), arXiv 2505.01618.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import nn

from proxies.model import Decoder
from proxies.parameterisation import role_multipliers
from proxies.settings import TrainingSettings


def build_optimiser(model: Decoder, training: TrainingSettings) -> torch.optim.AdamW:
    """Return AdamW over all parameters of ``model``; the learning rate is at its peak until :func:`set_lr`."""
    roles = model.roles()
    members: dict[tuple[float, float, float], list[nn.Parameter]] = defaultdict(list)
    names: dict[tuple[float, float, float], list[str]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        factors = role_multipliers(model.architecture, roles[name])
        key = (training.lr * factors.lr, training.weight_decay * factors.weight_decay, training.eps * factors.eps)
        members[key].append(parameter)
        names[key].append(name)
    groups = [
        {"params": members[key], "names": names[key], "lr": key[0], "peak_lr": key[0], "weight_decay": key[1], "eps": key[2]}
        for key in members
    ]
    return torch.optim.AdamW(groups, betas=(training.beta1, training.beta2), fused=True)


def set_lr(optimiser: torch.optim.Optimizer, multiplier: float) -> None:
    """Set every group's learning rate to its peak times ``multiplier``, the schedule's value in [0, 1]."""
    for group in optimiser.param_groups:
        group["lr"] = group["peak_lr"] * multiplier
