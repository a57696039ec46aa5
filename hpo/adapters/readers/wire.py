"""Fields of many protocol buffers read at once: each function takes the places of all messages in one array of bytes.

References
----------
https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
ByteArray = NDArray[np.uint8]
PADDING = 64
"""Bytes that must follow the last message, so that reading on from its end stays within the array."""
_FNV_PRIME = 1_099_511_628_211
_FEW = 32


def four_bytes(octets: ByteArray, at: IntArray, kind: str) -> NDArray[Any]:
    """Return the four bytes at each place as one number."""
    return np.ascontiguousarray(octets[at[:, None] + np.arange(4)]).view(kind).ravel()


def within(at: IntArray, ends: IntArray) -> IntArray:
    """Return the places, or the ends of the messages where those are passed."""
    return np.minimum(at, ends)


def varint(octets: ByteArray, at: IntArray) -> tuple[IntArray, IntArray]:
    """Return each variable-length integer (of 64 bits, with its sign) and the place after it."""
    value, at = np.zeros(at.size, dtype=np.uint64), at.copy()
    open_ = np.arange(at.size)
    for k in range(10):
        octet = octets[at[open_]]
        value[open_] |= (octet & 0x7F).astype(np.uint64) << np.uint64(7 * k)
        at[open_] += 1
        open_ = open_[octet >= 0x80]
        if not open_.size:
            break
    return value.view(np.int64), at


def texts(octets: ByteArray, at: IntArray, lengths: IntArray) -> tuple[IntArray, list[str], NDArray[np.bool_]]:
    """Return each text's index, the distinct texts, and False where a text only hashes like its representative."""
    hashes = lengths.astype(np.uint64)
    for k in range(int(lengths.max(initial=0))):
        more = lengths > k
        byte = octets[at + np.minimum(k, lengths - 1)].astype(np.uint64)
        hashes = np.where(more, hashes * np.uint64(_FNV_PRIME) ^ byte, hashes)
    first, codes = _distinct(hashes)
    same = lengths == lengths[first][codes]
    for k in range(int(lengths.max(initial=0))):
        where = np.minimum(k, lengths - 1)
        same &= octets[at + where] == octets[at[first][codes] + np.minimum(where, lengths[first][codes] - 1)]
    found = [bytes(octets[at[k] : at[k] + lengths[k]]).decode("utf-8", "replace") for k in first.tolist()]
    return codes, found, same


def _distinct(hashes: NDArray[np.uint64]) -> tuple[IntArray, IntArray]:
    """Return where each distinct value is first, and which of them each is: without sorting as long as they are few."""
    firsts: list[int] = []
    codes, left = np.zeros(hashes.size, dtype=np.int64), np.arange(hashes.size)
    while left.size and len(firsts) < _FEW:
        mine = hashes[left] == hashes[left[0]]
        codes[left[mine]] = len(firsts)
        firsts.append(int(left[0]))
        left = left[~mine]
    _, first, rest = np.unique(hashes[left], return_index=True, return_inverse=True)
    codes[left] = len(firsts) + rest
    return np.concatenate((np.array(firsts, dtype=np.int64), left[first])), codes
