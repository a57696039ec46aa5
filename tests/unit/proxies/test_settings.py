"""Bad settings: one line that names the path, what was expected and what was found."""

from __future__ import annotations

from typing import Any

import pytest

from proxies.settings import read_settings

GOOD: dict[str, Any] = {"model": {"width": 32, "depth": 2}, "training": {"lr": 0.01, "n_steps": 10}}


def with_value(path: str, value: Any) -> dict[str, Any]:
    block, key = path.split(".")
    return {**GOOD, block: {**GOOD.get(block, {}), key: value}}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("model.widht", 3, "model has no key 'widht'; it takes width, depth"),
        ("data.seq_len", 0, "data.seq_len must be a whole number of at least 1; found 0"),
        ("data.format", "text", "data.format must be one of bytes, tokens; found 'text'"),
        ("data.format", "tokens", "data.format must be bytes where data.path is null"),
        ("data.dtype", "int8", "data.dtype must be one of uint16, uint32; found 'int8'"),
        ("data.path", 7, "data.path must be the path of a file or folder, or null; found 7"),
        ("training.n_steps", 10.5, "training.n_steps must be a whole number of at least 1; found 10.5"),
        ("training.n_steps", True, "training.n_steps must be a whole number of at least 1; found True"),
        ("training.lr", "0.1", "training.lr must be a finite number above 0; found '0.1'"),
        ("training.lr", float("nan"), "training.lr must be a finite number above 0; found nan"),
        ("training.warmup_fraction", 1.0, "training.warmup_fraction must be a finite number in [0, 1); found 1.0"),
        ("training.clip", 0, "training.clip must be a finite number above 0; found 0"),
        ("training.dtype", "float16", "training.dtype must be one of auto, float32, bfloat16; found 'float16'"),
        ("training.schedule", {"name": "linaer"}, "training.schedule: schedule name must be one of"),
        ("training.schedule", "linear", "training.schedule must be a mapping of name, parameters or points; found 'linear'"),
        ("training.schedule", {"name": "unknown"}, "training.schedule must be a schedule with values; found"),
        ("training.momentum", 1, "training has no key 'momentum'"),
    ],
)
def test_a_bad_value_is_named_in_one_line(path: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_settings(with_value(path, value))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_missing_value_is_named() -> None:
    with pytest.raises(ValueError, match=r"^training\.lr is required; found nothing$"):
        read_settings({"model": GOOD["model"], "training": {"n_steps": 10}})


def test_an_unknown_block_is_named() -> None:
    with pytest.raises(ValueError, match=r"^settings has the blocks model, data, training; found 'optimizer'$"):
        read_settings({**GOOD, "optimizer": {}})


def test_missing_values_take_their_defaults() -> None:
    run = read_settings(GOOD)
    assert (run.data.seq_len, run.training.batch_sequences, str(run.training.schedule)) == (64, 16, "linear")


def test_reading_does_not_change_the_settings() -> None:
    settings = with_value("training.schedule", {"name": "cosine", "parameters": {"final_ratio": 0.1}})
    before = repr(settings)
    read_settings(settings)
    assert repr(settings) == before


def test_device_and_threads_are_not_part_of_a_checkpoints_identity() -> None:
    assert read_settings(with_value("training.threads", 2)).identity() == read_settings(GOOD).identity()
    assert read_settings(with_value("training.seed", 2)).identity() != read_settings(GOOD).identity()
