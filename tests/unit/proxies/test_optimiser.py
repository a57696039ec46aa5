"""Parameter groups: the parameterisation's multipliers reach AdamW."""

from __future__ import annotations

import pytest
import torch

from proxies.architecture import Architecture
from proxies.model import Decoder
from proxies.optimiser import build_optimiser, set_lr
from proxies.parameterisation import role_multipliers
from proxies.settings import TrainingSettings

TRAINING = TrainingSettings(lr=0.02, weight_decay=0.3, n_steps=10, eps=1e-7)


def built(**values: object) -> tuple[Decoder, torch.optim.AdamW]:
    settings = {"width": 64, "depth": 6, "base_width": 16, "base_depth": 3, "bias": True, **values}
    model = Decoder(Architecture(**settings), seq_len=4)  # type: ignore[arg-type]
    return model, build_optimiser(model, TRAINING)


@pytest.mark.parametrize("parameterisation", ["sp", "mup", "completep"])
@pytest.mark.parametrize("tied", [False, True])
def test_every_parameter_gets_its_roles_lr_decay_and_eps(parameterisation: str, tied: bool) -> None:
    model, optimiser = built(parameterisation=parameterisation, tied=tied)
    group_of = {id(p): group for group in optimiser.param_groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        factors = role_multipliers(model.architecture, model.roles()[name])
        group = group_of[id(parameter)]
        expected = (0.02 * factors.lr, 0.3 * factors.weight_decay, 1e-7 * factors.eps)
        assert (group["lr"], group["weight_decay"], group["eps"]) == expected, name


def test_norms_and_biases_do_not_decay() -> None:
    model, optimiser = built()
    decayed = {id(p) for group in optimiser.param_groups if group["weight_decay"] > 0 for p in group["params"]}
    assert all((id(p) in decayed) == (p.dim() == 2) for p in model.parameters())


def test_groups_with_equal_settings_are_one() -> None:
    assert len(built(parameterisation="sp")[1].param_groups) == 2
    assert len(built(parameterisation="completep")[1].param_groups) == 4


def test_set_lr_scales_every_group_from_its_peak() -> None:
    _, optimiser = built()
    peaks = [group["lr"] for group in optimiser.param_groups]
    set_lr(optimiser, 0.5)
    set_lr(optimiser, 0.25)
    assert [group["lr"] for group in optimiser.param_groups] == [0.25 * peak for peak in peaks]


def test_decay_shrinks_hidden_matrices_by_lr_times_decay_at_any_width() -> None:
    for width in (16, 64):
        model, optimiser = built(width=width)
        weight = model.blocks[0].ffn_up.weight  # type: ignore[union-attr]
        before = weight.detach().clone()  # type: ignore[operator]
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        optimiser.step()
        torch.testing.assert_close(weight, before * (1 - 0.02 * 0.3))
