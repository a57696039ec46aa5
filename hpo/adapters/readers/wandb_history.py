"""The history of a Weights & Biases run, its records read all at once.

Record by record the package's parser needs ten seconds for a million rows. Nearly all rows have one shape: items of a key and
a JSON value, then the step. They are read off their bytes together, the rest is left to the package.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hpo.adapters.readers.wire import PADDING, ByteArray, IntArray, texts, varint, within

_NUM, _HISTORY, _ITEM, _KEY, _NESTED_KEY, _STEP = 0x08, 0x12, 0x0A, 0x0A, 0x12, 0x12
_VALUE = (0x82, 0x01)
_LONGEST_KEY = 256
_MOST_ITEMS = 1000
_BLOCK = 8192


@dataclass(frozen=True, eq=False)
class Items:
    """Items of a history: the row of each, and where its key and its value lie."""

    rows: IntArray
    keys: IntArray
    key_lengths: IntArray
    values: IntArray
    value_lengths: IntArray


@dataclass(frozen=True, eq=False)
class History:
    """Rows read together.

    Attributes
    ----------
    records : ndarray of int, shape (n,)
        Which records they are, ascending.
    columns : dict of str to (ndarray of int, pyarrow.Array)
        Per key the rows (from 0 to n − 1) that have it and the cells.
    """

    records: IntArray
    columns: dict[str, tuple[IntArray, pa.Array]]


def plain_history(data: bytes, starts: IntArray, ends: IntArray) -> History:
    """Return the history rows made of items with one key each and the step; other records are not among them."""
    octets = np.frombuffer(data + bytes(PADDING), dtype=np.uint8)
    at = starts.copy()
    numbered = octets[within(at, ends)] == _NUM
    at = np.where(numbered, varint(octets, within(at + 1, ends))[1], at)
    plain = octets[within(at, ends)] == _HISTORY
    length, at = varint(octets, within(at + 1, ends))
    plain &= at + length == ends
    items, plain, steps = _items(octets, at, ends, plain)
    codes, names, sure = texts(octets, items.keys, items.key_lengths)
    plain[items.rows[~sure]] = False
    records = np.flatnonzero(plain)
    place = np.cumsum(plain) - 1
    columns = {}
    for k, name in enumerate(names):
        mine = np.flatnonzero((codes == k) & plain[items.rows])
        cells = _texts_at(octets, items.values[mine], items.value_lengths[mine])
        columns[name] = (place[items.rows[mine]], numbers_of(cells))
    if "_step" not in columns:
        columns["_step"] = (np.arange(records.size), pa.array(steps[records].astype(np.float64)))
    return History(records, columns)


def _items(
    octets: ByteArray, at: IntArray, ends: IntArray, plain: NDArray[np.bool_]
) -> tuple[Items, NDArray[np.bool_], IntArray]:
    """Return the items of the plain records, which records still are, and their steps."""
    at, plain = at.copy(), plain.copy()
    found: list[tuple[IntArray, ...]] = []
    rows = np.flatnonzero(plain)
    for _ in range(_MOST_ITEMS):
        rows = rows[(at[rows] < ends[rows]) & (octets[within(at[rows], ends[rows])] == _ITEM)]
        if not rows.size:
            break
        end = ends[rows]
        length, inner = varint(octets, within(at[rows] + 1, end))
        close = inner + length
        key_mark = octets[within(inner, end)]
        key_length, key = varint(octets, within(inner + 1, end))
        value_at = key + key_length
        good = (length > 0) & (close <= end) & ((key_mark == _KEY) | (key_mark == _NESTED_KEY))
        good &= (key_length > 0) & (key_length <= _LONGEST_KEY) & (value_at + 2 < close)
        good &= (octets[within(value_at, end)] == _VALUE[0]) & (octets[within(value_at + 1, end)] == _VALUE[1])
        value_length, value = varint(octets, within(value_at + 2, end))
        good &= (value_length > 0) & (value + value_length == close)
        plain[rows[~good]] = False
        found.append(tuple(part[good] for part in (rows, key, key_length, value, value_length)))
        at[rows] = close
        rows = rows[good]
    steps = np.zeros(at.size, dtype=np.int64)
    stepped = plain & (at < ends)
    rows = np.flatnonzero(stepped)
    length, inner = varint(octets, within(at[rows] + 1, ends[rows]))
    good = (octets[at[rows]] == _STEP) & (inner + length == ends[rows])
    value, close = varint(octets, within(inner + 1, ends[rows]))
    good &= (length == 0) | ((octets[within(inner, ends[rows])] == _NUM) & (close == ends[rows]))
    steps[rows] = np.where(length > 0, value, 0)
    plain[rows[~good]] = False
    joined = [np.concatenate([part[k] for part in found]) if found else np.zeros(0, dtype=np.int64) for k in range(5)]
    return Items(*joined), plain, steps


def _texts_at(octets: ByteArray, at: IntArray, lengths: IntArray) -> pa.Array:
    """Return the stretches of bytes as an array of texts."""
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    characters = np.empty(offsets[-1], dtype=np.uint8)
    for first in range(0, at.size, _BLOCK):  # what is worked on stays in the processor's cache
        bounds = offsets[first : first + _BLOCK + 1]
        from_ = np.repeat(at[first : first + _BLOCK] - bounds[:-1], np.diff(bounds))
        characters[bounds[0] : bounds[-1]] = octets[np.arange(bounds[0], bounds[-1]) + from_]
    buffers = [None, pa.py_buffer(offsets.astype(np.int64).tobytes()), pa.py_buffer(characters.tobytes())]
    return pa.Array.from_buffers(pa.large_string(), at.size, buffers)


def numbers_of(cells: pa.Array) -> pa.Array:
    """Return JSON texts as numbers, or as what they say where one is none; objects and lists are left empty."""
    try:
        return pc.cast(cells, pa.float64())
    except pa.ArrowInvalid:
        return column_of([value_of(cell) for cell in cells.to_pylist()])


def column_of(values: Sequence[Any]) -> pa.Array:
    """Return cells as one column: numbers, or texts where some are."""
    plain = [None if isinstance(value, dict | list) else value for value in values]
    if any(isinstance(value, str) for value in plain):
        return pa.array([None if value is None else str(value) for value in plain])
    return pa.array([None if value is None else float(value) for value in plain], pa.float64())


def value_of(text: str) -> Any:
    """Return the JSON value; Weights & Biases writes what is not finite as text."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


def history_table(plain: History, others: Sequence[tuple[int, dict[str, Any]]]) -> pa.Table:
    """Return all rows in the order of their records, ``others`` being (record, row) of those not read together."""
    records = np.concatenate((plain.records, np.array([record for record, _ in others], dtype=np.int64)))
    place = np.empty(records.size, dtype=np.int64)
    place[np.argsort(records, kind="stable")] = np.arange(records.size)
    names = dict.fromkeys([*plain.columns, *(name for _, row in others for name in row)])
    columns = {}
    for name in names:
        rows, cells = plain.columns.get(name, (np.zeros(0, dtype=np.int64), pa.array([], pa.float64())))
        more = [(plain.records.size + k, row[name]) for k, (_, row) in enumerate(others) if name in row]
        where = np.concatenate((place[rows], place[[k for k, _ in more]].astype(np.int64)))
        columns[name] = _spread(where, _joined(cells, column_of([cell for _, cell in more])), records.size)
    return pa.table(columns)


def _joined(a: pa.Array, b: pa.Array) -> pa.Array:
    if not len(a) or not len(b):
        return a if len(a) else b
    kind = a.type if a.type == b.type else pa.string()
    return pa.concat_arrays([pc.cast(a, kind), pc.cast(b, kind)])


def _spread(where: IntArray, cells: pa.Array, n: int) -> pa.Array:
    """Return n cells with those given at their places, the others empty; of two for one place the later counts."""
    index, filled = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=bool)
    index[where], filled[where] = np.arange(where.size), True
    if filled.all() and np.array_equal(where, np.arange(n)):
        return cells
    return cells.take(pa.array(index, mask=~filled))
