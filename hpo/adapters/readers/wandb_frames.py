"""The records of a Weights & Biases file, found in all blocks at once.

A file is a log in the format of LevelDB: blocks of 32 KiB, each beginning with a frame, and a frame is a checksum, its length,
its kind (a whole record, or the first, a middle or the last part of one) and its bytes; no frame goes beyond its block. Where
the next frame is, only the one before it says; but each block begins anew, so that the k-th frames of all blocks are found
together. Record by record in Python a million take a second.

References
----------
https://github.com/google/leveldb/blob/main/doc/log_format.md
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpo.adapters.readers.wire import IntArray, four_bytes

HEADER_BYTES = 7
"""Of the file, and of a frame."""
BLOCK_BYTES = 32_768
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_SEEDS = (0, *(zlib.crc32(bytes([kind])) for kind in (_WHOLE, _FIRST, _MIDDLE, _LAST)))


@dataclass(frozen=True, eq=False)
class Records:
    """The records of a file, each a stretch of ``data``, and where it could not be read further, None if to its end."""

    data: bytes
    starts: IntArray
    ends: IntArray
    damage: str | None


@dataclass(frozen=True, eq=False)
class _Frames:
    """Sound frames in order: where their bytes start and end, and their kind."""

    starts: IntArray
    ends: IntArray
    kinds: IntArray
    damage: str | None


def records(data: bytes) -> Records:
    """Return the records of a file up to its end, or to a wrong checksum or an end within a record.

    A record that was begun and not ended before the next one is left out.
    """
    found = _frames(data)
    of_several = np.flatnonzero(found.kinds != _WHOLE)
    joined, firsts, begun = _joined(data, found, of_several)
    whole = np.flatnonzero(found.kinds == _WHOLE)
    lengths = np.array([len(one) for one in joined], dtype=np.int64)
    tail = len(data) + np.cumsum(lengths)
    order = np.argsort(np.concatenate((whole, np.array(firsts, dtype=np.int64))), kind="stable")
    damage = found.damage or (f"cut off at byte {len(data)}" if begun else None)
    return Records(
        b"".join((data, *joined)),
        np.concatenate((found.starts[whole], tail - lengths))[order],
        np.concatenate((found.ends[whole], tail))[order],
        damage,
    )


def _joined(data: bytes, found: _Frames, of_several: IntArray) -> tuple[list[bytes], list[int], bool]:
    """Return the records in several frames, the frame that each ends with, and True if the file ends within one."""
    joined: list[bytes] = []
    lasts: list[int] = []
    parts: list[bytes] = []
    before = -1
    for k in of_several.tolist():
        kind = int(found.kinds[k])
        if kind == _FIRST or k != before + 1:  # a whole record came between: what was begun never ended
            parts = []
        before = k
        parts.append(data[found.starts[k] : found.ends[k]])
        if kind == _LAST:
            joined.append(b"".join(parts))
            lasts.append(k)
            parts = []
    return joined, lasts, bool(parts) and before == found.kinds.size - 1


def _frames(data: bytes) -> _Frames:
    """Return the frames up to the first that is cut off or damaged."""
    octets = np.frombuffer(data, dtype=np.uint8)
    heads = _heads(octets)
    starts = heads + HEADER_BYTES
    whole_head = starts <= octets.size
    known = heads[whole_head]
    lengths, kinds = np.zeros(heads.size, dtype=np.int64), np.zeros(heads.size, dtype=np.int64)
    lengths[whole_head] = octets[known + 4] + 256 * octets[known + 5].astype(np.int64)
    kinds[whole_head] = octets[known + 6]
    ends = starts + lengths
    cut = ~whole_head | (ends > octets.size)
    bad = cut | (kinds < _WHOLE) | (kinds > _LAST) | ((heads % BLOCK_BYTES) + HEADER_BYTES + lengths > BLOCK_BYTES)
    n = int(np.argmax(bad)) if bad.any() else bad.size
    sound = _checksums(data, starts[:n], ends[:n], kinds[:n]) == four_bytes(octets, heads[:n], "<u4")
    wrong = n if sound.all() else int(np.argmin(sound))
    damage = None
    if wrong < heads.size:
        damage = f"{'cut off' if wrong == n and cut[n] else 'damaged'} at byte {heads[wrong]}"
    return _Frames(starts[:wrong], ends[:wrong], kinds[:wrong], damage)


def _checksums(data: bytes, starts: IntArray, ends: IntArray, kinds: IntArray) -> NDArray[np.uint32]:
    """Return the checksum of each frame's kind and bytes."""
    checksum, seeds = zlib.crc32, [_SEEDS[kind] for kind in kinds.tolist()]
    frames = zip(starts.tolist(), ends.tolist(), seeds, strict=True)
    return np.array([checksum(data[start:end], seed) for start, end, seed in frames], dtype=np.uint32)


def _heads(octets: NDArray[np.uint8]) -> IntArray:
    """Return where frames begin, in order; what follows one that goes beyond its block is of no meaning."""
    at = np.arange(0, octets.size, BLOCK_BYTES, dtype=np.int64)
    until = np.minimum(at + BLOCK_BYTES, octets.size)
    blocks = np.arange(at.size)
    at[:1] += HEADER_BYTES
    found: list[tuple[IntArray, IntArray]] = []  # the k-th frames: their blocks, and where they begin
    while True:
        open_ = (at < until) & (at % BLOCK_BYTES <= BLOCK_BYTES - HEADER_BYTES)
        blocks, at, until = blocks[open_], at[open_], until[open_]
        if not at.size:
            break
        found.append((blocks, at))
        whole = at + HEADER_BYTES <= octets.size
        blocks, at, until = blocks[whole], at[whole], until[whole]
        at = at + HEADER_BYTES + octets[at + 4] + 256 * octets[at + 5].astype(np.int64)
    return _in_order(found)


def _in_order(found: list[tuple[IntArray, IntArray]]) -> IntArray:
    """Return the k-th places of all blocks, found together, block by block."""
    if not found:
        return np.zeros(0, dtype=np.int64)
    per_block = np.bincount(np.concatenate([blocks for blocks, _ in found]))
    before = np.cumsum(per_block) - per_block
    out = np.empty(int(per_block.sum()), dtype=np.int64)
    for k, (blocks, at) in enumerate(found):
        out[before[blocks] + k] = at
    return out
