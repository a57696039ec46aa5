"""Coordinate check: activations keep their scale in width and depth under CompleteP, and do not under SP.

Exponents p of scale ∝ size^p on a ladder of four sizes, base 32 × 2, after eight updates at a constant learning rate. Measured:
CompleteP within ±0.13 in both; SP 2.0 in width and 0.94 in depth; μP −0.1 in width, 0.94 in depth.
"""

from __future__ import annotations

from functools import cache

import pytest

from proxies.coordinate_check import ActivationScales, activation_scales, growth
from proxies.settings import read_settings

SIZES = {"width": (32, 64, 128, 256), "depth": (2, 4, 8, 16)}
N_STEPS = 8
FLAT, GROWING = 0.25, 0.6


@cache
def ladder(parameterisation: str, axis: str) -> tuple[ActivationScales, ...]:
    return tuple(scales_of(parameterisation, **{axis: size}) for size in SIZES[axis])


def scales_of(parameterisation: str, width: int = 32, depth: int = 2) -> ActivationScales:
    model = {"parameterisation": parameterisation, "width": width, "depth": depth, "base_width": 32, "base_depth": 2}
    training = {"lr": 0.01, "n_steps": 1000, "batch_sequences": 4, "warmup_fraction": 0.0, "device": "cpu"}
    settings = {
        "model": {**model, "ffn_ratio": 4.0},
        "data": {"seq_len": 32},
        "training": {**training, "schedule": {"name": "constant"}},
    }
    return activation_scales(read_settings(settings), N_STEPS)


def exponent(parameterisation: str, axis: str, quantity: str, step: int = N_STEPS) -> float:
    return growth(SIZES[axis], [getattr(scales, quantity)[step] for scales in ladder(parameterisation, axis)])


@pytest.mark.parametrize("axis", ["width", "depth"])
@pytest.mark.parametrize("quantity", ["stream", "stream_change", "logits", "logits_change"])
def test_completep_is_flat(axis: str, quantity: str) -> None:
    assert abs(exponent("completep", axis, quantity)) < FLAT


@pytest.mark.parametrize("axis", ["width", "depth"])
@pytest.mark.parametrize("quantity", ["stream", "stream_change"])
def test_sp_is_not_flat(axis: str, quantity: str) -> None:
    assert exponent("sp", axis, quantity) > GROWING


def test_mup_is_flat_in_width_and_not_in_depth() -> None:
    assert abs(exponent("mup", "width", "stream")) < FLAT
    assert exponent("mup", "depth", "stream") > GROWING


def test_completep_does_not_start_larger_in_wider_or_deeper_models() -> None:
    assert abs(exponent("completep", "width", "stream", step=0)) < FLAT
    assert exponent("completep", "depth", "stream", step=0) < FLAT


def test_changes_are_zero_before_the_first_update() -> None:
    scales = ladder("completep", "width")[0]
    assert scales.stream_change[0] == scales.logits_change[0] == 0.0


def test_growth_is_the_exponent_of_a_power_law() -> None:
    assert growth((1, 2, 4), [3.0 * size**0.5 for size in (1, 2, 4)]) == pytest.approx(0.5)
