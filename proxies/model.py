"""The torch module: a pre-LayerNorm decoder with ALiBi, squared ReLU or SwiGLU, under any of the parameterisations.

At the sizes proxies have (widths of 32 to 64 on one core) a step is a few dozen matrix products of a tenth of a
millisecond, so every other kernel counts. Hence: the ALiBi bias and the causal mask are one precomputed tensor, q, k and v
come from one product, residual multipliers ride on the addition, the unembedding multiplier on the last LayerNorm's gain,
squared ReLU has its own two-kernel backward, and the loss is one ``cross_entropy``.

References: arXiv 2108.12409 (ALiBi), arXiv 2109.08668 (squared ReLU), arXiv 2002.05202 (SwiGLU), arXiv 2505.01618.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from proxies.architecture import Architecture
from proxies.parameterisation import forward_multipliers, role_multipliers

NORM_EPS = 1e-5


class SquaredReLU(torch.autograd.Function):
    """relu(x)², keeping only relu(x) for the backward pass (autograd's own graph needs two more kernels)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return relu(x)²."""
        positive = x.relu()
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        """Return 2·relu(x)·gradient."""
        (positive,) = ctx.saved_tensors
        return cast(Tensor, (positive * grad_outputs[0]).mul_(2))


class LayerNorm(nn.Module):
    """LayerNorm with an optional bias and a constant factor on its output."""

    def __init__(self, width: int, bias: bool, factor: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.bias = nn.Parameter(torch.empty(width)) if bias else None
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised ``x`` (..., width), times the factor."""
        weight: Tensor = self.weight
        bias: Tensor | None = self.bias
        if self.factor != 1.0:
            weight = weight * self.factor
            bias = None if bias is None else bias * self.factor
        return functional.layer_norm(x, weight.shape, weight, bias, NORM_EPS)


class Block(nn.Module):
    """One pre-LayerNorm block: attention, then feed-forward, each added to the stream with the residual multiplier."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        d, hidden, bias = architecture.width, architecture.ffn_width, architecture.bias
        self.n_heads, self.gated = architecture.n_heads, architecture.ffn == "swiglu"
        forward = forward_multipliers(architecture)
        self.residual, self.attention_scale = forward.residual, forward.attention
        self.attention_norm = LayerNorm(d, bias)
        self.query_key_value = _linear(d, 3 * d, bias)
        self.attention_output = _linear(d, d, bias)
        self.ffn_norm = LayerNorm(d, bias)
        self.ffn_up = _linear(d, hidden * (2 if self.gated else 1), bias)
        self.ffn_down = _linear(hidden, d, bias)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the stream after this block; ``x`` (batch, seq, width), ``mask`` (1, heads, seq, seq)."""
        x = torch.add(x, self.attention(self.attention_norm(x), mask), alpha=self.residual)
        return torch.add(x, self.feed_forward(self.ffn_norm(x)), alpha=self.residual)

    def attention(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the attention branch of the normalised stream ``x``."""
        batch, seq, d = x.shape
        heads = self.query_key_value(x).view(batch, seq, 3, self.n_heads, d // self.n_heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype), scale=self.attention_scale)
        return cast(Tensor, self.attention_output(mixed.transpose(1, 2).reshape(batch, seq, d)))

    def feed_forward(self, x: Tensor) -> Tensor:
        """Return the feed-forward branch of the normalised stream ``x``."""
        up = self.ffn_up(x)
        if self.gated:
            gate, value = up.chunk(2, dim=-1)
            hidden = functional.silu(gate) * value
        else:
            hidden = SquaredReLU.apply(up)  # type: ignore[no-untyped-call] # torch leaves Function.apply untyped
        return cast(Tensor, self.ffn_down(hidden))


class Decoder(nn.Module):
    """The language model of an :class:`~proxies.architecture.Architecture`.

    Parameters
    ----------
    architecture : Architecture
        Its shape and parameterisation.
    seq_len : int
        Longest context; shorter ones are allowed.
    seed : int
        Seed of the initial weights, drawn on the CPU so that every device starts from the same ones.
    """

    mask: Tensor

    def __init__(self, architecture: Architecture, seq_len: int, seed: int = 0) -> None:
        super().__init__()
        self.architecture = architecture
        vocab, d = architecture.vocab_size, architecture.width
        self.embedding = nn.Embedding(vocab, d, _weight=torch.empty(vocab, d))
        self.blocks = nn.ModuleList(Block(architecture) for _ in range(architecture.depth))
        self.final_norm = LayerNorm(d, architecture.bias, forward_multipliers(architecture).unembedding)
        self.unembedding = self.embedding if architecture.tied else _linear(d, vocab, bias=False)
        self.register_buffer("mask", attention_mask(architecture.n_heads, seq_len), persistent=False)
        self._initialise(seed)

    def logits(self, tokens: Tensor) -> Tensor:
        """Return next-token logits (batch, seq, vocab) for ``tokens`` (batch, seq)."""
        seq = tokens.shape[1]
        mask = self.mask if seq == self.mask.shape[-1] else self.mask[..., :seq, :seq]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, mask)
        return functional.linear(self.final_norm(x), self.unembedding.weight)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy in nats of ``targets`` (batch, seq) after ``tokens`` (batch, seq), a scalar."""
        return functional.cross_entropy(self.logits(tokens).flatten(0, 1), targets.flatten())

    def roles(self) -> dict[str, str]:
        """Return the role of every parameter, by its name."""
        return {name: _role(name, self.architecture.tied) for name, _ in self.named_parameters()}

    @torch.no_grad()
    def _initialise(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        roles = self.roles()
        for name, parameter in self.named_parameters():
            if parameter.is_meta:
                continue
            if parameter.dim() == 1:
                parameter.fill_(1.0 if name.endswith("norm.weight") else 0.0)
            else:
                parameter.normal_(0.0, role_multipliers(self.architecture, roles[name]).init_std, generator=generator)


def attention_mask(n_heads: int, seq_len: int) -> Tensor:
    """Return the ALiBi bias with the causal mask, (1, heads, seq, seq): slope·(j − i) for key j ≤ query i, else −inf."""
    position = torch.arange(seq_len, dtype=torch.float32)
    distance = position[None, :] - position[:, None]
    causal = torch.where(distance <= 0, distance, -math.inf)
    return causal * torch.tensor(alibi_slopes(n_heads), dtype=torch.float32)[None, :, None, None]


def alibi_slopes(n_heads: int) -> list[float]:
    """Return ALiBi's slopes: 2^(−8k/n) for k = 1 … n when n is a power of two, else interleaved from the next one."""
    power = 2 ** int(math.log2(n_heads))
    slopes = [2.0 ** (-8.0 * k / power) for k in range(1, power + 1)]
    between = [2.0 ** (-4.0 * k / power) for k in range(1, 2 * power + 1, 2)]
    return slopes + between[: n_heads - power]


def _linear(n_in: int, n_out: int, bias: bool) -> nn.Linear:
    with torch.device("meta"):
        layer = nn.Linear(n_in, n_out, bias=bias)
    return layer.to_empty(device=torch.get_default_device())


def _role(name: str, tied: bool) -> str:
    """Return the role of the parameter ``name``; one of ``parameterisation.ROLES``."""
    if name.startswith("blocks."):
        if "norm." in name:
            return "block_norm"
        return "hidden_bias" if name.endswith(".bias") else "hidden_matrix"
    if name.startswith("final_norm."):
        return "final_norm"
    if name.startswith("unembedding."):
        return "unembedding"
    return "tied_embedding" if tied else "embedding"
