"""AdamW with the parameter groups of the parameterisation.

Roles with equal learning rate, decay and ε share a group, so a model has at most four and a step is a handful of fused
kernels. A group's ``peak_lr`` is its learning rate at schedule value 1; :func:`set_lr` multiplies it each step.

Decay is decoupled and scaled by the current learning rate (torch's AdamW): per step, hidden matrices shrink by
η·λ·schedule in every parameterisation, which is what τ = B/(ηλD) counts. LayerNorms and biases do not decay; embeddings and the
unembedding decay with the base λ, as in the CompleteP authors' code.

References: arXiv 1711.05101 (AdamW), arXiv 2505.01618.
"""

from __future__ import annotations

import torch

from proxies.model import Decoder
from proxies.parameter_groups import groups_by_role
from proxies.settings import TrainingSettings


def build_optimiser(model: Decoder, training: TrainingSettings) -> torch.optim.AdamW:
    """Return AdamW over all parameters of ``model``; the learning rate is at its peak until :func:`set_lr`."""
    base = {"lr": training.lr, "weight_decay": training.weight_decay, "eps": training.eps}
    groups = groups_by_role(model, model.roles(), model.architecture, **base)
    return torch.optim.AdamW(groups, betas=(training.beta1, training.beta2), fused=True)


def set_lr(optimiser: torch.optim.Optimizer, multiplier: float) -> None:
    """Set every group's learning rate to its peak times ``multiplier``, the schedule's value in [0, 1]."""
    for group in optimiser.param_groups:
        group["lr"] = group["peak_lr"] * multiplier
