"""Published parameter and FLOP counts (arXiv 2509.25087, tables 1, 6 and 9; method notes section 7)."""

from __future__ import annotations

import pytest
import torch

from proxies.families import CELERITY, COLLAPSE
from proxies.model import Decoder

CELERITY_FLOPS_AT_234 = {"300M": 1.47e20, "500M": 5.15e20, "900M": 1.68e21, "1.8B": 6.54e21, "3.9B": 2.89e22}


@pytest.mark.parametrize("size", CELERITY)
def test_celerity_parameter_counts_are_the_published_ones(size: str) -> None:
    assert CELERITY[size].architecture.n_params == pytest.approx(CELERITY[size].n_params, rel=0.01)


@pytest.mark.parametrize("size", CELERITY)
def test_celerity_parameter_counts_follow_the_published_formula(size: str) -> None:
    a = CELERITY[size].architecture
    assert a.n_params == pytest.approx(2 * a.vocab_size * a.width + a.depth * 20 * a.width**2, rel=0.01)


@pytest.mark.parametrize("size", CELERITY)
def test_celerity_modules_on_the_meta_device_have_the_published_size(size: str) -> None:
    with torch.device("meta"):
        model = Decoder(CELERITY[size].architecture, seq_len=8192)
    n = sum(p.numel() for p in model.parameters())
    assert n == pytest.approx(CELERITY[size].n_params, rel=0.01)


@pytest.mark.parametrize("size", CELERITY)
def test_celerity_training_flops_are_the_published_ones(size: str) -> None:
    member = CELERITY[size]
    flops = member.architecture.flops_per_token(member.seq_len) * dict(member.tokens)[234.0]
    assert flops == pytest.approx(CELERITY_FLOPS_AT_234[size], rel=0.01)


@pytest.mark.parametrize("size", CELERITY)
def test_celerity_token_counts_match_their_tokens_per_parameter(size: str) -> None:
    member = CELERITY[size]
    for tpp, tokens in member.tokens:
        assert tokens / member.n_params == pytest.approx(tpp, rel=0.01)


@pytest.mark.parametrize("size", COLLAPSE)
def test_collapse_experiment_sizes_are_near_the_published_ones(size: str) -> None:
    assert COLLAPSE[size].architecture.n_params == pytest.approx(COLLAPSE[size].n_params, rel=0.02)
