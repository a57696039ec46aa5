"""Groups for anybody's model: by rules on names, equal to our own model's, and right where it matters.

The small model below is written as somebody else would: other names, a tied unembedding, biases, plain torch layers.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import proxies
from proxies.architecture import Architecture
from proxies.model import Decoder
from proxies.optimiser import build_optimiser
from proxies.parameter_groups import initialise, parameterise, roles_by_name
from proxies.parameterisation import Scale, forward_multipliers, role_multipliers
from proxies.settings import TrainingSettings

BASE_WIDTH, BASE_LAYERS, VOCAB = 16, 2, 32
RULES = {
    "tok.weight": "tied_embedding",
    "norm_out.*": "final_norm",
    "layers.*.norm.*": "block_norm",
    "layers.*.bias": "hidden_bias",
    "layers.*": "hidden_matrix",
}
UNTIED = {**RULES, "tok.weight": "embedding", "head.weight": "unembedding"}
DECODER_RULES = {
    "embedding.weight": "embedding",
    "unembedding.weight": "unembedding",
    "final_norm.*": "final_norm",
    "blocks.*norm.*": "block_norm",
    "blocks.*.bias": "hidden_bias",
    "blocks.*": "hidden_matrix",
}


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(self.norm(x))))  # type: ignore[no-any-return]


class TheirModel(nn.Module):
    """Per-token MLP with residual branches: enough for every role."""

    def __init__(self, width: int, n_layers: int, tied: bool = True) -> None:
        super().__init__()
        self.tok = nn.Embedding(VOCAB, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(n_layers))
        self.norm_out = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCAB, bias=False)
        if tied:
            self.head.weight = self.tok.weight
        self.factors = forward_multipliers(scale_of(width, n_layers))

    def stream(self, tokens: Tensor) -> Tensor:
        x = self.tok(tokens)
        for layer in self.layers:
            x = x + self.factors.residual * layer(x)
        return x  # type: ignore[no-any-return]

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.factors.unembedding * self.norm_out(self.stream(tokens)))  # type: ignore[no-any-return]


def scale_of(width: int, n_layers: int, parameterisation: str = "completep") -> Scale:
    return Scale(
        m_width=width / BASE_WIDTH, m_depth=n_layers / BASE_LAYERS, parameterisation=parameterisation, init_std=0.1, head_dim=8
    )


def group_of(groups: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = [group for group in groups if name in group["names"]]
    return found


@pytest.mark.parametrize("parameterisation", ["sp", "mup", "completep"])
@pytest.mark.parametrize("tied", [False, True])
def test_rules_on_names_give_our_own_model_its_own_groups(parameterisation: str, tied: bool) -> None:
    architecture = Architecture(
        width=64, depth=6, base_width=16, base_depth=3, bias=True, tied=tied, parameterisation=parameterisation
    )
    model = Decoder(architecture, seq_len=4)
    rules = dict(DECODER_RULES)
    if tied:
        rules["embedding.weight"] = "tied_embedding"
        del rules["unembedding.weight"]
    training = TrainingSettings(lr=0.02, weight_decay=0.3, n_steps=10, eps=1e-7)
    ours = build_optimiser(model, training).param_groups
    scale = Scale(m_width=4, m_depth=2, parameterisation=parameterisation)
    theirs = parameterise(model, rules, scale, lr=0.02, weight_decay=0.3, eps=1e-7)
    kept = ("params", "names", "lr", "peak_lr", "weight_decay", "eps")
    assert [{k: group[k] for k in kept if k != "params"} for group in ours] == [
        {k: group[k] for k in kept if k != "params"} for group in theirs
    ]
    for mine, other in zip(ours, theirs, strict=True):
        assert all(a is b for a, b in zip(mine["params"], other["params"], strict=True))


def test_every_role_of_a_foreign_model_gets_completeps_entry() -> None:
    groups = parameterise(TheirModel(64, 4, tied=False), UNTIED, scale_of(64, 4), lr=0.01, weight_decay=0.2, eps=1e-6)
    expected = {
        "tok.weight": (0.01, 0.2, 1e-6 / 4),
        "head.weight": (0.01, 0.2, 1e-6 / 4),
        "norm_out.weight": (0.01, 0.0, 1e-6 / 4),
        "layers.0.norm.bias": (0.01, 0.0, 1e-6 / 8),
        "layers.3.up.bias": (0.01, 0.0, 1e-6 / 8),
        "layers.3.up.weight": (0.01 / 4, 0.2 * 4, 1e-6 / 8),
    }
    for name, (lr, decay, eps) in expected.items():
        group = group_of(groups, name)
        assert (group["lr"], group["weight_decay"], group["eps"]) == pytest.approx((lr, decay, eps)), name


def test_a_shared_matrix_is_in_one_group_once() -> None:
    model = TheirModel(32, 2)
    groups = parameterise(model, RULES, scale_of(32, 2), lr=0.01)
    held = [id(p) for group in groups for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in model.parameters())
    assert len(held) == len(set(held))


def test_frozen_parameters_are_left_out() -> None:
    model = TheirModel(32, 2)
    model.tok.weight.requires_grad_(False)
    names = [name for group in parameterise(model, RULES, scale_of(32, 2), lr=0.01) for name in group["names"]]
    assert "tok.weight" not in names
    assert "layers.0.up.weight" in names


def test_the_first_rule_that_matches_decides() -> None:
    roles = roles_by_name(TheirModel(16, 1), {"*norm*": "block_norm", "layers.*": "hidden_matrix", "tok*": "tied_embedding"})
    assert roles["norm_out.weight"] == roles["layers.0.norm.weight"] == "block_norm"


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"layers.*": "hidden_matrix"}, "found none that matches 'tok.weight'"),
        ({"*": "hidden_matrix", "head.*": "unembedding"}, "rule 'head.\\*' must match a parameter"),
        ({"*": "matrix"}, "the role must be one of embedding"),
    ],
)
def test_rules_that_do_not_cover_the_model_are_refused(rules: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parameterise(TheirModel(16, 1), rules, scale_of(16, 1), lr=0.01)


@pytest.mark.parametrize(("name", "value"), [("lr", 0.0), ("lr", float("nan")), ("weight_decay", -0.1), ("eps", 0.0)])
def test_base_values_outside_their_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a finite number"):
        parameterise(TheirModel(16, 1), RULES, scale_of(16, 1), **{"lr": 0.01, name: value})


@pytest.mark.parametrize("values", [{"m_width": 0.0}, {"m_width": 2.0, "parameterisation": "np"}, {"m_width": float("inf")}])
def test_a_scale_outside_its_range_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Scale(**values)


def test_initialise_draws_matrices_by_role_and_sets_norms_and_biases() -> None:
    model, scale = TheirModel(256, 2, tied=False), scale_of(256, 2)
    initialise(model, UNTIED, scale, seed=3)
    up, head = model.layers[0].up, model.head
    assert up.weight.std().item() == pytest.approx(role_multipliers(scale, "hidden_matrix").init_std, rel=0.05)  # type: ignore[union-attr, operator]
    assert head.weight.std().item() == pytest.approx(0.1, rel=0.05)
    assert bool((model.norm_out.weight == 1).all())
    assert not bool(model.norm_out.bias.any())
    assert not bool(up.bias.any())  # type: ignore[union-attr, operator]


def test_a_foreign_model_keeps_its_activations_in_width_and_depth_under_completep() -> None:
    """The coordinate check on a model that is not ours: flat under CompleteP, growing under SP."""
    flat = [rms_after(scale_of(w, n), w, n) for w, n in ((16, 2), (256, 2), (16, 32))]
    assert max(flat) / min(flat) < 1.8
    grown = [rms_after(scale_of(w, n, "sp"), w, n, sp=True) for w, n in ((16, 2), (256, 2), (16, 32))]
    assert min(grown[1:]) / grown[0] > 4


def rms_after(scale: Scale, width: int, n_layers: int, sp: bool = False) -> float:
    model = TheirModel(width, n_layers)
    if sp:
        model.factors = forward_multipliers(scale)
    initialise(model, RULES, scale)
    optimiser = torch.optim.AdamW(parameterise(model, RULES, scale, lr=0.01))
    tokens = torch.randint(0, VOCAB, (8, 17), generator=torch.Generator().manual_seed(0))
    for _ in range(8):
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
    return float(model.stream(tokens).square().mean().sqrt().item())


def test_public_names_load_on_demand() -> None:
    assert proxies.parameterise is parameterise
    assert proxies.Scale is Scale
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        proxies.nothing  # noqa: B018 - the access is what is tested


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rules": ["*"]}, "rules must be a mapping of patterns to roles; found list"),
        ({"rules": {3: "hidden_matrix"}}, "rule 3: the pattern must be a text"),
        ({"model": [1]}, "model must be a torch module; found list"),
        ({"scale": 2.0}, "expected a proxies.Scale, or an Architecture; found 2.0"),
        ({"lr": "0.1"}, "lr must be a finite number above 0; found '0.1'"),
    ],
)
def test_arguments_of_another_type_are_one_line(arguments: dict[str, Any], message: str) -> None:
    given = {
        "model": torch.nn.Linear(2, 2),
        "rules": {"*": "hidden_matrix"},
        "scale": Scale(m_width=2.0),
        "lr": 0.1,
        **arguments,
    }
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parameterise(**given)
