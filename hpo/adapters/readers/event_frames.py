"""The records of a TensorBoard event file and the plain scalars in them, all at once: a million take a second.

Record by record in Python the package needs fifteen seconds for as many, and three for parsing them alone. So the frames (a
length, its checksum, the record, its checksum) are found here and checked together, and events of the one shape that nearly
all of them have, a step and one number, are read off their bytes. Every other event is left to the package.

References
----------
https://www.tensorflow.org/tutorials/load_data/tfrecord (frames), https://protobuf.dev/programming-guides/encoding (contents).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpo.adapters.readers.wire import PADDING, ByteArray, IntArray, four_bytes, texts, varint, within

FloatArray = NDArray[np.float64]
HEAD_BYTES, FOOT_BYTES = 12, 4
_LENGTH = struct.Struct("<Q")
_LONG = 4096
"""Records from this length on are few, and checked one by one."""
_BLOCK = 16_384
_CASTAGNOLI = 0x82F63B78
_MASK = 0xA282EAD8
_LONGEST_TAG = 256


def _crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_CASTAGNOLI), table >> 1).astype(np.uint32)
    return table


_TABLE = _crc_table()


@dataclass(frozen=True, eq=False)
class Frames:
    """Sound records of a file: where they start and end, and how many bytes of the file they take, frames included."""

    starts: IntArray
    ends: IntArray
    consumed: int

    def first(self, n: int) -> Frames:
        """Return the first n records."""
        return Frames(self.starts[:n], self.ends[:n], int(self.ends[n - 1]) + FOOT_BYTES if n else 0)


def frames(data: bytes, checksum: Callable[[bytes], int]) -> Frames:
    """Return the records up to the end of the file or the first one that is cut off or damaged.

    Parameters
    ----------
    checksum : callable
        The package's masked CRC-32C of bytes, for long records.
    """
    at, starts, size, unpack = 0, [], len(data), _LENGTH.unpack_from
    ends = []
    while at + HEAD_BYTES <= size:
        end = at + HEAD_BYTES + unpack(data, at)[0]
        if end + FOOT_BYTES > size:
            break
        starts.append(at + HEAD_BYTES)
        ends.append(end)
        at = end + FOOT_BYTES
    found = Frames(np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64), at)
    octets = np.frombuffer(data, dtype=np.uint8)
    sound = _sound(octets, found.starts - HEAD_BYTES, found.starts - FOOT_BYTES)
    short = found.ends - found.starts < _LONG
    sound[short] &= _sound(octets, found.starts[short], found.ends[short])
    for k in np.flatnonzero(~short & sound).tolist():
        record, told = data[starts[k] : ends[k]], data[ends[k] : ends[k] + FOOT_BYTES]
        sound[k] = checksum(record) == int.from_bytes(told, "little")
    return found if sound.all() else found.first(int(np.argmin(sound)))


def _sound(octets: ByteArray, starts: IntArray, ends: IntArray) -> NDArray[np.bool_]:
    """Return True where the four bytes after a stretch are its masked CRC-32C."""
    sound = np.zeros(starts.size, dtype=bool)
    for first in range(0, starts.size, _BLOCK):
        some = slice(first, first + _BLOCK)
        crc = _crc32c(octets, starts[some], ends[some])
        masked = ((crc >> 15) | (crc << np.uint32(17))) + np.uint32(_MASK)
        sound[some] = masked == four_bytes(octets, ends[some], "<u4")
    return sound


def _crc32c(octets: ByteArray, starts: IntArray, ends: IntArray) -> NDArray[np.uint32]:
    lengths = ends - starts
    order = np.argsort(-lengths, kind="stable")
    at, longest_first = starts[order], -lengths[order]
    crc = np.full(starts.size, 0xFFFFFFFF, dtype=np.uint32)
    for k in range(int(lengths.max(initial=0))):
        left = int(np.searchsorted(longest_first, -k))
        crc[:left] = _TABLE[(crc[:left] ^ octets[at[:left] + k]) & 0xFF] ^ (crc[:left] >> 8)
    out = np.empty_like(crc)
    out[order] = ~crc
    return out


@dataclass(frozen=True, eq=False)
class PlainScalars:
    """Events that hold a step and one number: which records they are, and what they say.

    Attributes
    ----------
    records : ndarray of int, shape (n,)
        Ascending.
    steps, values : ndarray, shape (n,)
    codes : ndarray of int, shape (n,)
        Index into ``tags``.
    tags : list of str
    """

    records: IntArray
    steps: FloatArray
    values: FloatArray
    codes: IntArray
    tags: list[str]


def plain_scalars(data: bytes, found: Frames) -> PlainScalars:
    """Return the events made of wall time, step and a summary of one value that is a tag and a plain number, in this order."""
    octets = np.frombuffer(data + bytes(PADDING), dtype=np.uint8)
    ends = found.ends
    at = found.starts.copy()
    plain = (ends - at >= 20) & (octets[at] == 0x09)
    at += 9
    stepped = octets[within(at, ends)] == 0x10
    steps, after = varint(octets, within(at + 1, ends))
    at, steps = np.where(stepped, after, at), np.where(stepped, steps, 0)
    for mark in (0x2A, 0x0A):  # the summary, and its one value, fill the rest
        plain &= octets[within(at, ends)] == mark
        length, at = varint(octets, within(at + 1, ends))
        plain &= at + length == ends
    plain &= octets[within(at, ends)] == 0x0A
    length, tag_at = varint(octets, within(at + 1, ends))
    plain &= (length > 0) & (length <= _LONGEST_TAG) & (tag_at + length + 5 == ends)
    plain &= octets[np.where(plain, ends - 5, 0)] == 0x15
    records = np.flatnonzero(plain)
    values = four_bytes(octets, ends[records] - 4, "<f4").astype(np.float64)
    codes, tags, sure = texts(octets, tag_at[records], length[records])
    return PlainScalars(records[sure], steps[records][sure].astype(np.float64), values[sure], codes[sure], tags)
