"""Rates of matrix products: counted right, and shares of a profile that sum to no more than the whole."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from bench import matmul_rate
from bench.matmul_rate import linear_gflops, matmul_gflops, step_profile


def test_a_product_counts_two_operations_for_each_multiplication(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(0.0, 0.5)
    monkeypatch.setattr(matmul_rate.time, "perf_counter", lambda: next(ticks))
    n_products, elapsed = 1, 1.0  # the clock is read at the start, before the product and after it
    assert matmul_gflops(1.0, side=100) == pytest.approx(2 * 100**3 * n_products / elapsed / 1e9, rel=1e-9)


def test_a_models_own_products_are_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(0.0, 0.5)
    monkeypatch.setattr(matmul_rate.time, "perf_counter", lambda: next(ticks))
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4))
    assert linear_gflops(model, 10, 1.0) == pytest.approx(2 * 10 * (8 * 16 + 16 * 4) / 1.0 / 1e9, rel=1e-9)


def test_a_profile_holds_the_largest_shares_first() -> None:
    a = torch.randn(300, 300)
    found = step_profile(lambda: torch.mm(a, a), n_steps=3)
    shares = [share for _, share in found]
    assert found[0][0] == "aten::mm"
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 1 + 1e-9
