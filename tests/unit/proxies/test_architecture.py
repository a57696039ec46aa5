"""Counting: the architecture's numbers are those of the module it describes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from proxies.architecture import Architecture
from proxies.model import Decoder

VARIANTS = list(itertools.product(("relu2", "swiglu"), (False, True), (False, True)))


@pytest.mark.parametrize(("ffn", "tied", "bias"), VARIANTS)
def test_n_params_is_what_the_module_holds(ffn: str, tied: bool, bias: bool) -> None:
    architecture = Architecture(width=48, depth=2, ffn=ffn, tied=tied, bias=bias)
    model = Decoder(architecture, seq_len=8)
    assert architecture.n_params == sum(p.numel() for p in model.parameters())


def test_a_model_of_ten_thousand_parameters_exists() -> None:
    assert Architecture(width=16, depth=2, ffn_ratio=4, tied=True).n_params == pytest.approx(10_000, rel=0.05)


def test_swiglu_width_is_rounded_to_a_multiple_of_eight() -> None:
    assert [Architecture(width=w, depth=1, ffn="swiglu").ffn_width for w in (32, 48, 64)] == [88, 128, 168]


def test_a_tied_model_costs_as_many_flops_as_an_untied_one() -> None:
    tied, untied = (Architecture(width=32, depth=2, tied=t) for t in (True, False))
    assert tied.flops_per_token(64) == untied.flops_per_token(64)


def test_flops_per_token_by_hand() -> None:
    d, depth, vocab, seq = 32, 3, 256, 64
    n = 2 * vocab * d + depth * (20 * d**2 + 2 * d) + d
    expected = 6 * n - 2 * vocab * d + 3 * depth * (4 * seq * d + 3 * seq + 2 * d**2 + d)
    assert Architecture(width=d, depth=depth).flops_per_token(seq) == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": 60}, r"^model\.head_dim must divide model\.width; found 16 and 60$"),
        ({"depth": 0}, r"^model\.depth must be a whole number of at least 1; found 0$"),
        ({"width": 64.0}, r"^model\.width must be a whole number of at least 1; found 64\.0$"),
        ({"ffn": "gelu"}, r"^model\.ffn must be one of relu2, swiglu; found 'gelu'$"),
        ({"parameterisation": "ntk"}, r"^model\.parameterisation must be one of sp, mup, completep; found 'ntk'$"),
        ({"ffn_ratio": -1}, r"^model\.ffn_ratio must be a finite number above 0; found -1$"),
        ({"tied": 1}, r"^model\.tied must be true or false; found 1$"),
    ],
)
def test_impossible_shapes_are_refused_in_one_line(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Architecture(**{"width": 64, "depth": 3, **values})


def test_the_meta_device_holds_no_memory() -> None:
    with torch.device("meta"):
        model = Decoder(Architecture(width=1024, depth=2, head_dim=64), seq_len=8)
    assert all(p.is_meta for p in model.parameters())
