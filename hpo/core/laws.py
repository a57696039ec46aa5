"""Published laws of planning: timescale and batch size, loss against compute, and what small models cost.

The constants are those of their papers' own setting (SlimPajama, GPT-2-like models of 111M to 3.9B parameters): starting
points, not facts about other data. ``hpo fit-tau`` and ``hpo efficiency scaling`` fit them anew.

References: arXiv 2505.13738 (timescale and batch size), arXiv 2509.25087 (Celerity's constants, compression), arXiv 2203.15556.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hpo.core.power_law import PowerLaw

BATCH_LAW_SEQUENCE = 2048
"""Tokens of the sequences in which the batch laws count."""

TAU_LAWS = {
    "power-lines": PowerLaw(
        coefficient=1.084, exponent=-0.527, x_name="tpp", y_name="tau", low=20, high=234, source="arXiv 2505.13738"
    ),
    "celerity": PowerLaw(
        coefficient=0.175 * math.sqrt(20),
        exponent=-0.5,
        x_name="tpp",
        y_name="tau",
        low=20,
        high=234,
        source="arXiv 2509.25087",
    ),
}
"""Optimal τ against tokens per parameter. Both come from one group; the range is that of Celerity's use of the law."""

TAU_RANGE = (
    min(law.at(law.high) for law in TAU_LAWS.values() if law.high is not None) / 2,
    max(law.at(law.low) for law in TAU_LAWS.values() if law.low is not None) * 2,
)
"""What the published laws give over their range of tokens per parameter, and a factor of two beyond: they differ by a quarter
among themselves."""

OPTIMAL_BATCH = PowerLaw(
    coefficient=0.0306, exponent=0.383, x_name="n_tokens", y_name="optimal batch", source="arXiv 2505.13738 as quoted"
)
"""Batch of lowest loss at given D, in sequences of 2048 tokens. Quoted by third parties; its range of D is not known to us."""

CRITICAL_BATCH = PowerLaw(
    coefficient=0.0471, exponent=0.462, x_name="n_tokens", y_name="critical batch", source="arXiv 2505.13738 as quoted"
)
"""Batch beyond which more data parallelism buys little, in sequences of 2048 tokens, and a fixed τ stops being optimal.

The exponent is quoted by third parties; the coefficient could not be checked against the paper: measure your own where it
matters.
"""

SQRT_BATCH_TOKENS = 88.9
"""Celerity's batch is close to this many tokens times √N: within 3 % of all five published batches."""


def loss_law(scale: float, exponent: float, source: str, low: float | None = None, high: float | None = None) -> PowerLaw:
    """Return L = (C / scale)^−exponent as a :class:`PowerLaw` of compute."""
    coefficient = math.exp(exponent * math.log(scale))
    names = {"x_name": "flops", "y_name": "loss"}
    return PowerLaw(coefficient=coefficient, exponent=-exponent, low=low, high=high, source=source, **names)


LOSS_LAWS = {
    "celerity": loss_law(5.105e29, 0.049, "arXiv 2509.25087, Celerity", 1.47e20, 2.89e22),
    "completep": loss_law(2.069e29, 0.051, "arXiv 2509.25087, CompleteP"),
    "mup": loss_law(1.729e31, 0.043, "arXiv 2509.25087, μP"),
}
"""Loss (nats) against training FLOPs, no irreducible part. The range of the last two is not known to us."""

ERROR_LAW = loss_law(2.154e38, 0.097, "arXiv 2509.25087, downstream", 1.68e21, 2.89e22)
"""100 − average downstream accuracy (%) of the Celerity models against training FLOPs.

The range is where it describes the published accuracies, within 1.1 points; it is 2.6 and 4.3 points below the two smallest.
"""


def sequences_of(tokens: float, seq_len: int) -> int:
    """Return a batch in whole sequences of ``seq_len``, at least one."""
    return max(1, round(tokens / seq_len))


def optimal_batch_tokens(n_tokens: float) -> float:
    """Return B_opt in tokens for a horizon of D tokens."""
    return OPTIMAL_BATCH.at(n_tokens) * BATCH_LAW_SEQUENCE


def critical_batch_tokens(n_tokens: float) -> float:
    """Return B_crit in tokens for a horizon of D tokens."""
    return CRITICAL_BATCH.at(n_tokens) * BATCH_LAW_SEQUENCE


def sqrt_batch_tokens(n_params: float) -> float:
    """Return the batch in tokens that grows with √N as Celerity's does."""
    return SQRT_BATCH_TOKENS * math.sqrt(n_params)


LOSS_EXPONENT = 0.35
"""a of L = E + A·N^−a + B·D^−a; one exponent for both terms."""

_LARGEST_LOG = 200.0

OPTIMAL_TPP = 20.0
"""Tokens per parameter at which compute buys the lowest loss."""


@dataclass(frozen=True, kw_only=True)
class Compression:
    """What training at more (or fewer) tokens per parameter than the optimum does.

    Attributes
    ----------
    tpp : float
        Tokens per parameter.
    params_ratio, tokens_ratio, flops_ratio : float
        k_N, k_D and C/C_opt at the loss of the compute-optimal model.
    iso_flop_params_ratio, iso_flop_tokens_ratio : float
        The same at the compute of the compute-optimal model.
    iso_flop_reducible_loss_ratio : float
        L − E over that of the compute-optimal model, at its compute.
    """

    tpp: float
    params_ratio: float
    tokens_ratio: float
    flops_ratio: float
    iso_flop_params_ratio: float
    iso_flop_tokens_ratio: float
    iso_flop_reducible_loss_ratio: float


def smallest_params_ratio(exponent: float = LOSS_EXPONENT) -> float:
    """Return 2^(−1/a), below which no number of tokens makes up for the missing parameters."""
    return float(2.0 ** (-1.0 / exponent))


def tokens_ratio(params_ratio: float, exponent: float = LOSS_EXPONENT) -> float:
    """Return k_D = (2 − k_N^−a)^(−1/a): tokens, relative to the optimum, that keep the loss with k_N of its parameters.

    Raises
    ------
    ValueError
        k_N at or below :func:`smallest_params_ratio`.
    """
    bound = smallest_params_ratio(exponent)
    if not (math.isfinite(params_ratio) and params_ratio > bound):
        raise ValueError(f"params_ratio must be above {bound:.3f}, where the tokens needed diverge; found {params_ratio:g}")
    return float((2.0 - params_ratio**-exponent) ** (-1.0 / exponent))


def compression(tpp: float, *, exponent: float = LOSS_EXPONENT, optimal_tpp: float = OPTIMAL_TPP) -> Compression:
    """Return what training at ``tpp`` costs and saves against the compute-optimal ``optimal_tpp``.

    At equal loss k_N and k_D solve k_N^−a + k_D^−a = 2 with TPP = r·k_D/k_N. At equal compute k_N·k_D = 1, so
    k_N = √(r/TPP), and the reducible loss grows by (k_N^−a + k_D^−a)/2, since both terms are equal at the optimum.

    Raises
    ------
    ValueError
        A quantity not finite and positive, or a ``tpp`` absurdly far from the optimum.

    References
    ----------
    arXiv 2203.15556 (the loss), arXiv 2509.25087 (its use for compression).
    """
    for name, value in (("tpp", tpp), ("exponent", exponent), ("optimal_tpp", optimal_tpp)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be finite and above 0; found {value!r}")
    # k_N^-a = 2/(1 + e^-z) and k_D^-a = 2/(1 + e^z) with z = a·log(TPP/r): their sum is 2, and (k_D/k_N)^a = e^z.
    z = exponent * (math.log(tpp) - math.log(optimal_tpp))
    log_k_n, log_k_d = (math.log(0.5) + float(np.logaddexp(0.0, sign * z)) for sign in (-1.0, 1.0))
    if max(log_k_n, log_k_d) / exponent > _LARGEST_LOG or abs(z) > _LARGEST_LOG:
        raise ValueError(f"tpp must be within {math.exp(_LARGEST_LOG):.0e} times the optimum of {optimal_tpp:g}; found {tpp:g}")
    k_n, k_d = math.exp(log_k_n / exponent), math.exp(log_k_d / exponent)
    iso = math.sqrt(optimal_tpp / tpp)
    return Compression(
        tpp=tpp,
        params_ratio=k_n,
        tokens_ratio=k_d,
        flops_ratio=k_n * k_d,
        iso_flop_params_ratio=iso,
        iso_flop_tokens_ratio=1.0 / iso,
        iso_flop_reducible_loss_ratio=(iso**-exponent + iso**exponent) / 2.0,
    )
