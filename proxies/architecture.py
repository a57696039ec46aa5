"""The shape of one model and what follows from it by counting: parameters, FLOPs, multiples of the base shape.

Nothing here builds a tensor, so an engine can plan a sweep of any size without torch.

References: arXiv 2509.25087 (table 9: FLOPs), arXiv 2505.01618 (width and depth multipliers).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FFNS = ("relu2", "swiglu")
PARAMETERISATIONS = ("sp", "mup", "completep")
DEFAULT_FFN_RATIO = {"relu2": 8.0, "swiglu": 8.0 / 3.0}
FFN_MULTIPLE = 8
"""Feed-forward widths are rounded to this multiple, which vector units and tensor cores want."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A decoder-only model: pre-LayerNorm, ALiBi, causal attention, and a feed-forward part of two kinds.

    Parameters
    ----------
    width, depth : int
        Model dimension d and number of blocks L.
    head_dim : int
        Size of an attention head; must divide ``width``.
    ffn : {"relu2", "swiglu"}
        Squared ReLU (two matrices) or SwiGLU (three matrices).
    ffn_ratio : float, optional
        Feed-forward width over ``width``; 8 for ``relu2`` and 8/3 for ``swiglu`` unless given. The product is rounded to
        the nearest multiple of 8.
    tied : bool
        Whether the unembedding shares the embedding's matrix.
    bias : bool
        Whether matrices and LayerNorms have biases.
    vocab_size : int
        Tokens V; 256 for bytes.
    parameterisation : {"completep", "mup", "sp"}
        How initialisation, learning rates and multipliers follow from the size.
    base_width, base_depth : int
        The shape at which base learning rate, decay and initialisation are meant.
    init_std : float
        σ, the standard deviation of initial weights at the base shape; 0.1 suits a base width near 32 (larger bases want less,
        roughly like 1/√width).

    Raises
    ------
    ValueError
        A value outside its range, or a head size that does not divide the width; names start with ``model.``.
    """

    width: int
    depth: int
    head_dim: int = 16
    ffn: str = "relu2"
    ffn_ratio: float | None = None
    tied: bool = False
    bias: bool = False
    vocab_size: int = 256
    parameterisation: str = "completep"
    base_width: int = 32
    base_depth: int = 3
    init_std: float = 0.1

    def __post_init__(self) -> None:
        for name in ("width", "depth", "head_dim", "vocab_size", "base_width", "base_depth"):
            _require_count(name, getattr(self, name))
        _require_one_of("ffn", self.ffn, FFNS)
        _require_one_of("parameterisation", self.parameterisation, PARAMETERISATIONS)
        for name in ("tied", "bias"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"model.{name} must be true or false; found {getattr(self, name)!r}")
        if self.ffn_ratio is not None:
            _require_positive("ffn_ratio", self.ffn_ratio)
        _require_positive("init_std", self.init_std)
        if self.width % self.head_dim:
            raise ValueError(f"model.head_dim must divide model.width; found {self.head_dim} and {self.width}")

    @property
    def n_heads(self) -> int:
        """Attention heads a block."""
        return self.width // self.head_dim

    @property
    def ffn_width(self) -> int:
        """Hidden units of the feed-forward part, a multiple of 8."""
        ratio = DEFAULT_FFN_RATIO[self.ffn] if self.ffn_ratio is None else self.ffn_ratio
        return max(1, round(ratio * self.width / FFN_MULTIPLE)) * FFN_MULTIPLE

    @property
    def m_width(self) -> float:
        """Width over base width, m_N."""
        return self.width / self.base_width

    @property
    def m_depth(self) -> float:
        """Depth over base depth, m_L."""
        return self.depth / self.base_depth

    @property
    def n_params(self) -> int:
        """Parameters N, embeddings, norms and biases included: exactly what the torch module holds."""
        norm = self.width * (2 if self.bias else 1)
        embeddings = self.vocab_size * self.width * (1 if self.tied else 2)
        return embeddings + self.depth * (self._block_matrices + self._block_biases + 2 * norm) + norm

    @property
    def _block_matrices(self) -> int:
        ffn_matrices = 2 if self.ffn == "relu2" else 3
        return 4 * self.width**2 + ffn_matrices * self.width * self.ffn_width

    @property
    def _block_biases(self) -> int:
        up = self.ffn_width * (1 if self.ffn == "relu2" else 2)
        return 5 * self.width + up if self.bias else 0

    def flops_per_token(self, seq_len: int) -> float:
        """Return training FLOPs a token at context ``seq_len``: 6N − 2Vd + 3L(4Sd + 3S + 2d² + d).

        The published count is for untied embeddings; a tied model does the same arithmetic, so its one matrix counts twice.
        """
        d, s, vocabulary = self.width, seq_len, self.vocab_size * self.width
        n_untied = self.n_params + (vocabulary if self.tied else 0)
        return float(6 * n_untied - 2 * vocabulary + 3 * self.depth * (4 * s * d + 3 * s + 2 * d**2 + d))


def _require_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"model.{name} must be a whole number of at least 1; found {value!r}")


def _require_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"model.{name} must be a finite number above 0; found {value!r}")


def _require_one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"model.{name} must be one of {', '.join(allowed)}; found {value!r}")
