"""Published model families as data: their architectures, and the batch and tokens they were trained with.

*Celerity* is a GPT-2-like family trained so that loss curves collapse; *collapse* lists the sizes of the same paper's
collapse experiments. Base shapes are not published: 256 × 2 and σ = 0.02 are those of the CompleteP authors' reference code, so
published base learning rates do not carry over.

References: arXiv 2509.25087 (tables 1 and 6).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from proxies.architecture import Architecture

_BASE: dict[str, Any] = {"parameterisation": "completep", "base_width": 256, "base_depth": 2, "init_std": 0.02}
_CELERITY: dict[str, Any] = {"ffn": "relu2", "tied": False, "vocab_size": 128_256, **_BASE}
_COLLAPSE: dict[str, Any] = {"ffn": "swiglu", "tied": True, "vocab_size": 50_257, "head_dim": 64, **_BASE}


@dataclass(frozen=True)
class Member:
    """One size of a family.

    ``n_params`` is the published (or published formula's) N; ``batch_sequences`` and ``tokens`` (tokens per parameter →
    training tokens) are None and empty where not published.
    """

    architecture: Architecture
    n_params: float
    seq_len: int
    batch_sequences: int | None = None
    tokens: tuple[tuple[float, float], ...] = ()


def _celerity(width: int, head_dim: int, depth: int, batch: int, n_params: float, tokens_b: tuple[float, ...]) -> Member:
    architecture = Architecture(width=width, depth=depth, head_dim=head_dim, **_CELERITY)
    tokens = tuple((tpp, 1e9 * d) for tpp, d in zip((20.0, 80.0, 234.0), tokens_b, strict=True))
    return Member(architecture, n_params, 8192, batch, tokens)


def _collapse(width: int, depth: int, n_params: float) -> Member:
    return Member(Architecture(width=width, depth=depth, **_COLLAPSE), n_params, 2048)


CELERITY: dict[str, Member] = {
    "300M": _celerity(640, 64, 13, 176, 2.71e8, (5.4, 21.7, 63.4)),
    "500M": _celerity(896, 64, 17, 240, 5.03e8, (10.1, 40.2, 117.8)),
    "900M": _celerity(1152, 128, 23, 336, 9.06e8, (18.1, 72.5, 212.3)),
    "1.8B": _celerity(1536, 128, 30, 464, 1.81e9, (36.2, 144.8, 424.0)),
    "3.9B": _celerity(2048, 128, 40, 672, 3.88e9, (77.6, 310.4, 909.2)),
}
"""Untied, squared ReLU, vocabulary 128,256, context 8192."""

COLLAPSE: dict[str, Member] = {
    "111M": _collapse(768, 10, 1.11e8),
    "266M": _collapse(768, 32, 2.66e8),
    "610M": _collapse(2048, 10, 6.10e8),
    "1.7B": _collapse(2048, 32, 1.7e9),
    "3.3B": _collapse(2048, 64, 3.3e9),
}
"""SwiGLU, head size 64, context 2048. Vocabulary (GPT-2's 50,257) and tying are inferred from the parameter counts."""

FAMILIES: dict[str, dict[str, Member]] = {"celerity": CELERITY, "collapse": COLLAPSE}
"""Family → size → :class:`Member`."""
