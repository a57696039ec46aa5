"""The module: causal, with ALiBi's bias, and equal to a plain computation of the same network."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from proxies.architecture import Architecture
from proxies.model import Decoder, SquaredReLU, alibi_slopes, attention_mask
from proxies.parameterisation import ROLES, forward_multipliers, role_multipliers


def model_of(seq_len: int = 12, seed: int = 0, **values: object) -> Decoder:
    settings = {"width": 32, "depth": 2, "base_width": 16, "base_depth": 1, "init_std": 0.2, **values}
    return Decoder(Architecture(**settings), seq_len, seed)  # type: ignore[arg-type]


def tokens_of(model: Decoder, length: int = 12) -> torch.Tensor:
    return torch.randint(0, model.architecture.vocab_size, (2, length), generator=torch.Generator().manual_seed(1))


def test_alibi_slopes_of_a_power_of_two() -> None:
    assert alibi_slopes(8) == [2.0**-k for k in range(1, 9)]


def test_alibi_slopes_between_powers_of_two_interleave_the_next() -> None:
    assert alibi_slopes(3) == [2.0**-4, 2.0**-8, 2.0**-2]


def test_the_mask_is_slope_times_distance_for_the_past_and_closes_the_future() -> None:
    mask = attention_mask(2, 3)
    inf = -math.inf
    expected = torch.tensor([[0.0, inf, inf], [-1.0, 0.0, inf], [-2.0, -1.0, 0.0]])
    assert torch.equal(mask[0], torch.stack([expected / 16, expected / 256]))


@pytest.mark.parametrize("ffn", ["relu2", "swiglu"])
def test_a_future_token_does_not_change_past_logits(ffn: str) -> None:
    model = model_of(ffn=ffn)
    tokens = tokens_of(model)
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % model.architecture.vocab_size
    before, after = model.logits(tokens), model.logits(changed)
    torch.testing.assert_close(before[:, :7], after[:, :7], rtol=0, atol=1e-6)


def test_a_token_changes_its_own_and_later_logits() -> None:
    model = model_of()
    tokens = tokens_of(model)
    changed = tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % model.architecture.vocab_size
    difference = (model.logits(tokens) - model.logits(changed)).abs().amax(dim=-1)
    assert bool((difference[:, 7:] > 1e-4).all())


def test_a_context_shorter_than_the_longest_gives_the_same_logits() -> None:
    model = model_of()
    tokens = tokens_of(model)
    torch.testing.assert_close(model.logits(tokens)[:, :5], model.logits(tokens[:, :5]), rtol=1e-5, atol=1e-6)


def plain_logits(model: Decoder, tokens: torch.Tensor) -> torch.Tensor:
    """The same network in the plainest possible words."""
    a, p = model.architecture, dict(model.named_parameters())
    forward = forward_multipliers(a)
    seq = tokens.shape[1]
    x = p["embedding.weight"][tokens]
    for i in range(a.depth):
        w = {name.removeprefix(f"blocks.{i}."): value for name, value in p.items() if name.startswith(f"blocks.{i}.")}
        h = functional.layer_norm(x, (a.width,), w["attention_norm.weight"])
        q, k, v = (h @ w["query_key_value.weight"].T).chunk(3, -1)
        heads = []
        for j, slope in enumerate(alibi_slopes(a.n_heads)):
            cut = slice(j * a.head_dim, (j + 1) * a.head_dim)
            scores = q[..., cut] @ k[..., cut].transpose(1, 2) * forward.attention
            for query in range(seq):
                for key in range(seq):
                    scores[:, query, key] += slope * (key - query) if key <= query else -math.inf
            heads.append(scores.softmax(-1) @ v[..., cut])
        x = x + forward.residual * (torch.cat(heads, -1) @ w["attention_output.weight"].T)
        h = functional.layer_norm(x, (a.width,), w["ffn_norm.weight"])
        up = h @ w["ffn_up.weight"].T
        gate, value = up.chunk(2, -1)
        hidden = up.relu() ** 2 if a.ffn == "relu2" else functional.silu(gate) * value
        x = x + forward.residual * (hidden @ w["ffn_down.weight"].T)
    x = functional.layer_norm(x, (a.width,), p["final_norm.weight"])
    return forward.unembedding * (x @ p["embedding.weight" if a.tied else "unembedding.weight"].T)


@pytest.mark.parametrize("parameterisation", ["sp", "mup", "completep"])
@pytest.mark.parametrize(("ffn", "tied"), [("relu2", True), ("swiglu", False)])
def test_logits_equal_a_plain_computation(parameterisation: str, ffn: str, tied: bool) -> None:
    model = model_of(seq_len=5, parameterisation=parameterisation, ffn=ffn, tied=tied)
    tokens = tokens_of(model, 5)
    with torch.no_grad():
        torch.testing.assert_close(model.logits(tokens), plain_logits(model, tokens), rtol=1e-4, atol=1e-5)


def test_squared_relu_has_the_right_gradient() -> None:
    x = torch.randn(5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(SquaredReLU.apply, (x,))


def test_the_loss_is_the_mean_cross_entropy_in_nats() -> None:
    model = model_of()
    tokens = tokens_of(model)
    log_p = model.logits(tokens[:, :-1]).log_softmax(-1)
    expected = -log_p.gather(-1, tokens[:, 1:, None]).mean()
    torch.testing.assert_close(model(tokens[:, :-1], tokens[:, 1:]), expected)


@pytest.mark.parametrize("tied", [False, True])
def test_every_parameter_has_a_known_role(tied: bool) -> None:
    roles = set(model_of(tied=tied, bias=True).roles().values())
    assert roles == set(ROLES) - ({"embedding", "unembedding"} if tied else {"tied_embedding"})


def test_initial_weights_have_the_standard_deviation_of_their_role() -> None:
    model = model_of(width=128, tied=False)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            expected = role_multipliers(model.architecture, model.roles()[name]).init_std
            assert parameter.std().item() == pytest.approx(expected, rel=0.05), name


def test_initial_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(5)
    first, other = model_of(seed=3), model_of(seed=4)
    torch.manual_seed(6)
    again = model_of(seed=3)
    assert torch.equal(first.embedding.weight, again.embedding.weight)
    assert not torch.equal(first.embedding.weight, other.embedding.weight)
