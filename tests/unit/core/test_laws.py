"""Compression and batch laws."""

from __future__ import annotations

import pytest

from hpo.core.laws import LOSS_EXPONENT, compression, sequences_of, smallest_params_ratio, tokens_ratio


def test_the_optimum_costs_nothing():
    one = compression(20)
    assert (one.params_ratio, one.flops_ratio, one.iso_flop_reducible_loss_ratio) == pytest.approx((1, 1, 1))


@pytest.mark.parametrize("tpp", [0.5, 5, 20, 80, 234, 1e4, 1e8])
def test_compression_solves_its_equations(tpp):
    one = compression(tpp)
    assert 20 * one.tokens_ratio / one.params_ratio == pytest.approx(tpp, rel=1e-6)
    assert one.params_ratio**-LOSS_EXPONENT + one.tokens_ratio**-LOSS_EXPONENT == pytest.approx(2)
    assert one.iso_flop_params_ratio * one.iso_flop_tokens_ratio == pytest.approx(1)
    assert one.flops_ratio >= 1 - 1e-12
    assert one.iso_flop_reducible_loss_ratio >= 1 - 1e-12


def test_tokens_follow_from_parameters():
    assert tokens_ratio(compression(234).params_ratio) == pytest.approx(compression(234).tokens_ratio)


def test_no_number_of_tokens_makes_up_for_too_few_parameters():
    assert compression(1e9).params_ratio > smallest_params_ratio()
    with pytest.raises(ValueError, match=r"params_ratio must be above 0\.138"):
        tokens_ratio(0.138)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf")])
def test_compression_refuses_what_is_not_positive(bad):
    with pytest.raises(ValueError, match="tpp must be finite and above 0"):
        compression(bad)


def test_a_batch_is_at_least_one_sequence():
    assert (sequences_of(100, 2048), sequences_of(2048 * 7.4, 2048)) == (1, 7)


@pytest.mark.parametrize(("tpp", "exponent"), [(1e300, 0.35), (1e-300, 0.35), (1e60, 50.0)])
def test_absurd_tokens_per_parameter_are_refused(tpp, exponent):
    with pytest.raises(ValueError, match="tpp must be within"):
        compression(tpp, exponent=exponent)
