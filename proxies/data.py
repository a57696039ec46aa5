"""Training data: a stream of token ids cut into windows, and batches that are a function of (data seed, step) alone.

The stream is text read byte by byte (by default the Python standard library's own sources, which are wherever Python is;
their size varies a little between Python versions) or the ids of a tokeniser, memory-mapped. It is cut into windows of
``seq_len + 1`` tokens that start every ``seq_len`` tokens; each epoch visits all of them once in an order drawn from the data
seed and the epoch's number. So a run's position in the data is its step, every trial of a sweep sees the same batches, and
trials of other batch sizes see the same sequences in the same order.

Held-out data: every 20th file where there are at least 20, else the last twentieth of the stream.
"""

from __future__ import annotations

import os
import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxies.settings import DataSettings, RunSettings

Tokens = NDArray[np.unsignedinteger[Any]]

HELD_OUT_EVERY = 20
HELD_OUT_BATCHES = 32
EVALUATED_AT_ONCE = 4096
"""Tokens that go through the model at a time, in whole sequences."""
STDLIB_EXCLUDED = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "lib2to3", "__pycache__"})
CHECKED_AT_ONCE = 1 << 24
CHECKED_AT_OPENING = 1 << 28
"""Ids beyond this many are checked batch by batch instead of at opening."""
CHECKED_PARTS, CHECKED_PART = 64, 4096
"""Of each stream, in a fingerprint."""


@dataclass(frozen=True)
class Corpus:
    """A training stream and a held-out one, shapes (n_train,) and (n_held_out,), of an unsigned integer type."""

    train: Tokens
    held_out: Tokens


@dataclass(frozen=True, eq=False)
class Batches:
    """Batches of a stream, a function of (seed, step).

    Parameters
    ----------
    windows : array, shape (n_windows, seq_len + 1)
        Overlapping by one token; a view of the stream.
    batch_sequences : int
        Windows a batch.
    seed : int
        Of the order.
    """

    windows: Tokens
    batch_sequences: int
    seed: int
    _orders: dict[int, NDArray[np.uint32]] = field(default_factory=dict, init=False, repr=False)

    def at(self, step: int) -> NDArray[np.int64]:
        """Return the batch of the ``step``-th update (1-based), shape (batch_sequences, seq_len + 1)."""
        first = (step - 1) * self.batch_sequences
        epoch, place = divmod(first, len(self.windows))
        chosen = self._order(epoch)[place : place + self.batch_sequences]
        while len(chosen) < self.batch_sequences:
            epoch += 1
            chosen = np.concatenate([chosen, self._order(epoch)[: self.batch_sequences - len(chosen)]])
        return self.windows[chosen].astype(np.int64)

    def _order(self, epoch: int) -> NDArray[np.uint32]:
        if epoch not in self._orders:
            for old in [known for known in self._orders if known < epoch - 1]:
                del self._orders[old]
            generator = np.random.default_rng([self.seed, epoch])
            self._orders[epoch] = generator.permutation(np.arange(len(self.windows), dtype=np.uint32))
        return self._orders[epoch]


def training_batches(run: RunSettings) -> Batches:
    """Return the batches of ``run``.

    Raises
    ------
    ValueError
        A missing, unreadable, empty or too short source, or ids outside the model's vocabulary; one line naming the setting.
    """
    return _batches(open_corpus(run.data, run.model.vocab_size).train, run)


def held_out_batches(run: RunSettings) -> Batches | None:
    """Return batches of the held-out data of ``run``, or None if it is shorter than one batch."""
    stream = open_corpus(run.data, run.model.vocab_size).held_out
    return _batches(stream, run) if _n_windows(stream, run.data.seq_len) >= run.training.batch_sequences else None


def held_out_sequences(run: RunSettings) -> list[NDArray[np.int64]]:
    """Return the sequences on which ``run`` takes its held-out loss, in parts of shape (n, seq_len + 1); empty without data.

    Raises
    ------
    ValueError
        Fewer held-out sequences than ``training.held_out_sequences``.
    """
    wanted = run.training.held_out_sequences
    if wanted is None:
        batches = held_out_batches(run)
        n = 0 if batches is None else min(HELD_OUT_BATCHES, len(batches.windows) // batches.batch_sequences)
        return [] if batches is None else [batches.at(step) for step in range(1, n + 1)]
    stream = open_corpus(run.data, run.model.vocab_size).held_out
    n = _n_windows(stream, run.data.seq_len)
    if n < wanted:
        raise ValueError(f"training.held_out_sequences must be at most the {n} of {describe(run.data)}; found {wanted}")
    windows = _windows(stream, run.data.seq_len)[np.linspace(0, n - 1, wanted).round().astype(int)].astype(np.int64)
    at_once = max(1, EVALUATED_AT_ONCE // run.data.seq_len)
    return [windows[start : start + at_once] for start in range(0, wanted, at_once)]


def open_corpus(data: DataSettings, vocab_size: int) -> Corpus:
    """Return the corpus that ``data`` names, its ids checked to be below ``vocab_size``; errors as in training_batches."""
    if data.format == "tokens":
        stream = _open_tokens(data, Path(str(data.path)))
        if vocab_size > np.iinfo(stream.dtype).max + 1:
            raise ValueError(f"data.dtype must hold every id below model.vocab_size; found {stream.dtype} and {vocab_size}")
        corpus = _split_stream(stream)
    else:
        corpus = _read_text(data)
    if corpus.train.size == 0:
        raise ValueError(f"data.path must hold text; found nothing in {describe(data)}")
    for stream in (corpus.train, corpus.held_out):
        for start in range(0, min(stream.size, CHECKED_AT_OPENING), CHECKED_AT_ONCE):
            check_vocabulary(stream[start : start + CHECKED_AT_ONCE], vocab_size, data)
    return corpus


def check_vocabulary(tokens: Tokens | NDArray[np.int64], vocab_size: int, data: DataSettings) -> None:
    """Raise ``ValueError`` if an id is not below ``vocab_size``."""
    largest = int(tokens.max(initial=0))
    if largest >= vocab_size:
        raise ValueError(
            f"model.vocab_size must be above every id in the data; found {vocab_size}, id {largest} in {describe(data)}"
        )


def fingerprint(data: DataSettings, vocab_size: int) -> str:
    """Return a name for what ``data`` hold, whatever their place: number of tokens, and a checksum of parts of them.

    Raises
    ------
    ValueError
        A missing, unreadable or empty source, or ids outside the vocabulary.
    """
    corpus = open_corpus(data, vocab_size)
    checksum = 0
    for stream in (corpus.train, corpus.held_out):
        for start in np.linspace(0, max(stream.size - CHECKED_PART, 0), CHECKED_PARTS).astype(np.int64):
            checksum = zlib.crc32(np.ascontiguousarray(stream[start : start + CHECKED_PART]).tobytes(), checksum)
    return f"{corpus.train.size + corpus.held_out.size} tokens, checksum {checksum:08x}"


def describe(data: DataSettings) -> str:
    """Return a name for the source of ``data``."""
    return "the Python standard library's sources" if data.path is None else data.path


def _batches(stream: Tokens, run: RunSettings) -> Batches:
    seq_len, n = run.data.seq_len, _n_windows(stream, run.data.seq_len)
    if n < run.training.batch_sequences:
        needed = run.training.batch_sequences * seq_len + 1
        raise ValueError(
            f"data.path must hold at least one batch ({needed} tokens for training); "
            f"found {stream.size} in {describe(run.data)}"
        )
    return Batches(_windows(stream, seq_len), run.training.batch_sequences, run.training.data_seed)


def _windows(stream: Tokens, seq_len: int) -> Tokens:
    n = _n_windows(stream, seq_len)
    return np.lib.stride_tricks.sliding_window_view(stream, seq_len + 1)[: n * seq_len : seq_len]


def _n_windows(stream: Tokens, seq_len: int) -> int:
    return max(0, (stream.size - 1) // seq_len)


def _split_stream(stream: Tokens) -> Corpus:
    cut = stream.size - stream.size // HELD_OUT_EVERY
    return Corpus(stream[:cut], stream[cut:])


def _read_text(data: DataSettings) -> Corpus:
    if data.path is None:
        files = list(_stdlib_files())
    else:
        root = _existing(data.path)
        files = list(_folder_files(root)) if root.is_dir() else [root]
    if not files:
        raise ValueError(f"data.path must hold text files; found none in {describe(data)}")
    parts = [_read_bytes(path) for path in files]
    if len(parts) < HELD_OUT_EVERY:
        return _split_stream(_join(parts))
    held_out = parts[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    del parts[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    return Corpus(_join(parts), _join(held_out))


def _join(parts: list[bytes]) -> Tokens:
    return np.frombuffer(b"".join(parts), dtype=np.uint8)


def _stdlib_files() -> Iterator[Path]:
    """Yield the standard library's ``.py`` files in a fixed order, tests and installed packages left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in _walk(root, STDLIB_EXCLUDED):
        if path.suffix == ".py":
            yield path


def _folder_files(root: Path) -> Iterator[Path]:
    for path in _walk(root, frozenset({"__pycache__"})):
        if not path.name.startswith(".") and not _looks_binary(path):
            yield path


def _walk(folder: Path, excluded: frozenset[str]) -> Iterator[Path]:
    """Yield files depth first in the order of their names; hidden and ``excluded`` folders are skipped, links not followed."""
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in excluded and not entry.name.startswith("."):
                yield from _walk(Path(entry.path), excluded)
        elif entry.is_file():
            yield Path(entry.path)


def _looks_binary(path: Path) -> bool:
    with path.open("rb") as file:
        return b"\0" in file.read(8192)


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"data.path must be readable; found {path}: {error.strerror}") from error


def _existing(path: str) -> Path:
    found = Path(path).expanduser()
    if not found.exists():
        raise ValueError(f"data.path must be an existing file or folder; found nothing at {path}")
    return found


def _open_tokens(data: DataSettings, path: Path) -> Tokens:
    path = _existing(str(path))
    if path.is_dir() or path.suffix not in (".bin", ".npy"):
        raise ValueError(f"data.path must be a .bin or .npy file for data.format tokens; found {path}")
    if path.stat().st_size == 0:
        raise ValueError(f"data.path must hold tokens; found the empty file {path}")
    return _open_npy(path) if path.suffix == ".npy" else _open_bin(path, np.dtype(data.dtype))


def _open_npy(path: Path) -> Tokens:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"data.path must be a .npy file of unsigned integers; found {path}: {error}") from error
    if array.ndim != 1 or array.dtype.kind != "u":
        raise ValueError(f"data.path must be a 1-D .npy of unsigned integers; found {array.dtype} {array.shape} in {path}")
    tokens: Tokens = array
    return tokens


def _open_bin(path: Path, dtype: np.dtype[Any]) -> Tokens:
    size = path.stat().st_size
    if size % dtype.itemsize:
        raise ValueError(
            f"data.dtype must fit data.path: {dtype} needs a multiple of {dtype.itemsize} bytes; found {size} in {path}"
        )
    return np.memmap(path, dtype=dtype.newbyteorder("<"), mode="r")
