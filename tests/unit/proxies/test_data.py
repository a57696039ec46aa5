"""Batches are a function of (data seed, step); bad data are refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxies.data import Batches, held_out_batches, open_corpus, training_batches
from proxies.settings import DataSettings, RunSettings, read_settings

TEXT = "".join(f"line {i} of a small text\n" for i in range(400))


def run_of(data: dict[str, Any], training: dict[str, Any] | None = None, **model: Any) -> RunSettings:
    return read_settings(
        {
            "model": {"width": 32, "depth": 2, **model},
            "data": {"seq_len": 16, **data},
            "training": {"lr": 0.01, "n_steps": 10, "batch_sequences": 4, **(training or {})},
        }
    )


@pytest.fixture
def text_file(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return str(path)


def test_targets_are_the_next_bytes_of_the_text(text_file: str) -> None:
    batch = training_batches(run_of({"path": text_file})).at(1)
    assert all(bytes(row.astype(np.uint8)) in TEXT.encode() for row in batch)


def test_a_batch_is_a_function_of_seed_and_step(text_file: str) -> None:
    first, second = (training_batches(run_of({"path": text_file})) for _ in range(2))
    _ = [second.at(step) for step in (9, 1, 50)]
    assert np.array_equal(first.at(7), second.at(7))


def test_the_order_does_not_depend_on_model_or_seed(text_file: str) -> None:
    small = training_batches(run_of({"path": text_file}, {"seed": 0}))
    large = training_batches(run_of({"path": text_file}, {"seed": 9, "lr": 1.0}, width=64, depth=3))
    assert all(np.array_equal(small.at(step), large.at(step)) for step in (1, 2, 30))


def test_the_order_depends_on_the_data_seed(text_file: str) -> None:
    one, two = (training_batches(run_of({"path": text_file}, {"data_seed": s})) for s in (1, 2))
    assert not np.array_equal(one.at(1), two.at(1))


def test_a_larger_batch_sees_the_same_sequences_in_the_same_order(text_file: str) -> None:
    small = training_batches(run_of({"path": text_file}, {"batch_sequences": 4}))
    large = training_batches(run_of({"path": text_file}, {"batch_sequences": 8}))
    assert np.array_equal(np.concatenate([small.at(3), small.at(4)]), large.at(2))


def counted_batches(n_windows: int, batch: int) -> Batches:
    return Batches(np.arange(n_windows, dtype=np.uint16)[:, None], batch, seed=0)


def test_an_epoch_visits_every_window_once() -> None:
    batches = counted_batches(12, 4)
    assert sorted(np.concatenate([batches.at(s) for s in (1, 2, 3)]).ravel()) == list(range(12))


def test_a_batch_across_the_end_of_an_epoch_goes_on_in_the_next() -> None:
    batches = counted_batches(10, 4)
    seen = np.concatenate([batches.at(s) for s in range(1, 6)]).ravel()
    assert sorted(seen[:10]) == sorted(seen[10:]) == list(range(10))


def test_epochs_differ_in_order() -> None:
    batches = counted_batches(64, 64)
    assert not np.array_equal(batches.at(1), batches.at(2))


def test_windows_of_one_epoch_overlap_by_the_target_only(text_file: str) -> None:
    stream = np.arange(1000, dtype=np.uint16)
    path = Path(text_file).with_suffix(".npy")
    np.save(path, stream)
    batches = training_batches(run_of({"path": str(path), "format": "tokens"}, vocab_size=1000))
    inputs = np.concatenate([batches.at(s)[:, :-1] for s in range(1, len(batches.windows) // 4 + 1)]).ravel()
    assert len(np.unique(inputs)) == len(inputs)


def test_the_default_text_is_large_and_python() -> None:
    corpus = open_corpus(DataSettings(), 256)
    assert corpus.train.size > 5_000_000
    assert corpus.held_out.size > 100_000
    assert corpus.train[:5_000_000].tobytes().count(b"import ") > 1000


def test_the_default_text_repeats() -> None:
    first, second = open_corpus(DataSettings(), 256), open_corpus(DataSettings(), 256)
    assert np.array_equal(first.train, second.train)
    assert np.array_equal(first.held_out, second.held_out)


def test_every_twentieth_file_of_a_folder_is_held_out(tmp_path: Path) -> None:
    for i in range(40):
        (tmp_path / f"{i:02}.txt").write_text(f"{i:02}")
    corpus = open_corpus(DataSettings(path=str(tmp_path)), 256)
    assert corpus.held_out.tobytes() == b"1939"
    assert corpus.train.size == 76


def test_the_last_twentieth_of_a_file_is_held_out(text_file: str) -> None:
    corpus = open_corpus(DataSettings(path=text_file), 256)
    assert corpus.train.tobytes() + corpus.held_out.tobytes() == TEXT.encode()
    assert corpus.held_out.size == len(TEXT) // 20


def test_held_out_data_shorter_than_a_batch_are_none(tmp_path: Path) -> None:
    path = tmp_path / "short.txt"
    path.write_text(TEXT[:400])
    assert held_out_batches(run_of({"path": str(path)})) is None


def test_binary_and_hidden_files_of_a_folder_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "b.bin").write_bytes(b"\0\1\2")
    (tmp_path / ".hidden").write_text("secret")
    corpus = open_corpus(DataSettings(path=str(tmp_path)), 256)
    assert corpus.train.tobytes() == b"text"


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_bin_files_are_memory_mapped(tmp_path: Path, dtype: str) -> None:
    path, ids = tmp_path / "tokens.bin", np.arange(200)
    ids.astype(dtype).tofile(path)
    corpus = open_corpus(DataSettings(path=str(path), format="tokens", dtype=dtype), 200)
    assert isinstance(corpus.train, np.memmap)
    assert np.array_equal(corpus.train, ids[:190])


def message_of(run: RunSettings) -> str:
    with pytest.raises(ValueError) as caught:
        training_batches(run)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "no.txt")
    assert message_of(run_of({"path": missing})) == f"data.path must be an existing file or folder; found nothing at {missing}"


def test_an_empty_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").touch()
    assert message_of(run_of({"path": str(tmp_path / "empty.txt")})).startswith("data.path must hold text; found nothing in")


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    assert message_of(run_of({"path": str(tmp_path)})).startswith("data.path must hold text files; found none in")


def test_a_text_shorter_than_a_batch_is_named(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("x" * 60)
    message = message_of(run_of({"path": str(tmp_path / "short.txt")}))
    assert message.startswith("data.path must hold at least one batch (65 tokens for training); found 57 in")


def test_ids_outside_the_vocabulary_are_named(tmp_path: Path) -> None:
    np.arange(300, dtype=np.uint16).tofile(tmp_path / "t.bin")
    message = message_of(run_of({"path": str(tmp_path / "t.bin"), "format": "tokens"}))
    assert message.startswith("model.vocab_size must be above every id in the data; found 256, id 28")


def test_bytes_outside_a_small_vocabulary_are_named(text_file: str) -> None:
    assert message_of(run_of({"path": text_file}, vocab_size=64)).startswith("model.vocab_size must be above every id")


def test_a_bin_file_that_does_not_fit_its_dtype_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.bin").write_bytes(b"123")
    assert message_of(run_of({"path": str(tmp_path / "t.bin"), "format": "tokens"})).startswith("data.dtype must fit data.path")


def test_an_npy_file_of_floats_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "t.npy", np.zeros(100))
    message = message_of(run_of({"path": str(tmp_path / "t.npy"), "format": "tokens"}))
    assert message.startswith("data.path must be a 1-D .npy of unsigned integers; found float64 (100,)")


def test_a_vocabulary_larger_than_the_dtype_is_named(tmp_path: Path) -> None:
    np.arange(300, dtype=np.uint16).tofile(tmp_path / "t.bin")
    message = message_of(run_of({"path": str(tmp_path / "t.bin"), "format": "tokens"}, vocab_size=70_000))
    assert message.startswith("data.dtype must hold every id below model.vocab_size; found uint16 and 70000")
