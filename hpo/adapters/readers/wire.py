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
    """Return each text's index, the distinct texts, and False where a text only hashes like its representative.

    The first :data:`_FEW` texts are compared byte by byte with all that are left, more of them by their hashes.
    """
    codes, same = np.zeros(at.size, dtype=np.int64), np.ones(at.size, dtype=bool)
    left = np.arange(at.size)
    firsts: list[int] = []
    while left.size and len(firsts) < _FEW:
        mine = _alike(octets, at[left], lengths[left])
        codes[left[mine]] = len(firsts)
        firsts.append(int(left[0]))
        left = left[~mine]
    if left.size:
        first, others, same[left] = _hashed(octets, at[left], lengths[left])
        codes[left] = len(firsts) + others
        firsts += left[first].tolist()
    return codes, [bytes(octets[at[k] : at[k] + lengths[k]]).decode("utf-8", "replace") for k in firsts], same


def _alike(octets: ByteArray, at: IntArray, lengths: IntArray) -> NDArray[np.bool_]:
    """Return True where a text is the first one."""
    same: NDArray[np.bool_] = lengths == lengths[0]
    among = at if same.all() else at[same]
    alike = np.ones(among.size, dtype=bool)
    for k in range(int(lengths[0])):
        alike &= octets[among + k] == octets[at[0] + k]
    same[same] = alike
    return same


def _hashed(octets: ByteArray, at: IntArray, lengths: IntArray) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
    """Return which texts are the first with their hash, which of those each one is, and False where it only hashes like it."""
    hashes = lengths.astype(np.uint64)
    for k in range(int(lengths.max(initial=0))):
        more = lengths > k
        byte = octets[at + np.minimum(k, lengths - 1)].astype(np.uint64)
        hashes = np.where(more, hashes * np.uint64(_FNV_PRIME) ^ byte, hashes)
    _, first, codes = np.unique(hashes, return_index=True, return_inverse=True)
    same = lengths == lengths[first][codes]
    for k in range(int(lengths.max(initial=0))):
        where = np.minimum(k, lengths - 1)
        same &= octets[at + where] == octets[at[first][codes] + np.minimum(where, lengths[first][codes] - 1)]
    return first, codes, same
