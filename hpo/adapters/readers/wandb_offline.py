"""Offline runs of Weights & Biases: ``run-ID.wandb``, records of the package ``wandb`` in LevelDB's log format.

The package no longer reads that format itself (its Go program does), so the frames are taken apart here and what is in them
is parsed by the package. A damaged or unfinished file is read up to the damage, and says so.

References
----------
https://github.com/google/leveldb/blob/main/doc/log_format.md: blocks of 32 KiB, each record with a checksum, its length and
whether it is whole or a first, middle or last part.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from hpo.adapters.curve_tables import CurveTable, table_of, with_settings
from hpo.adapters.readers.reader import Reader, Source, need

_MAGIC = b":W&B"
_HEADER_BYTES = 7
_BLOCK_BYTES = 32_768
_FRAME = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_SUFFIX = ".wandb"


class _DamageError(Exception):
    """The file cannot be read further; the message says where."""


def records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a file.

    Raises
    ------
    _DamageError
        A wrong checksum, or an end within a record.
    """
    at, parts = _HEADER_BYTES, b""
    while at < len(data):
        left = _BLOCK_BYTES - at % _BLOCK_BYTES
        if left < _FRAME.size:  # padding at the end of a block
            at += left
            continue
        kind, part, at = _frame(data, at)
        parts = part if kind in (_WHOLE, _FIRST) else parts + part
        if kind in (_WHOLE, _LAST):
            yield parts
            parts = b""
    if parts:
        raise _DamageError(f"cut off at byte {len(data)}")


def _frame(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Return kind and content of the frame at ``at``, and where the next begins."""
    if at + _FRAME.size > len(data):
        raise _DamageError(f"cut off at byte {at}")
    checksum, length, kind = _FRAME.unpack_from(data, at)
    start = at + _FRAME.size
    part = data[start : start + length]
    if len(part) < length:
        raise _DamageError(f"cut off at byte {at}")
    if kind not in (_WHOLE, _FIRST, _MIDDLE, _LAST) or zlib.crc32(part, zlib.crc32(bytes([kind]))) != checksum:
        raise _DamageError(f"damaged at byte {at}")
    return kind, part, start + length


def _recognises(source: Source) -> bool:
    return source.head.startswith(_MAGIC) or source.path.suffix == _SUFFIX


def _read(source: Source) -> CurveTable:
    data = source.path.read_bytes()
    if not data.startswith(_MAGIC):
        raise ValueError("expected an offline run of Weights & Biases; found something else")
    rows, config, run_id, notes = _parsed(data, source.path)
    if not rows:
        raise ValueError("; ".join(["found no history", *notes]))
    table = with_settings(table_of(rows), config)
    return CurveTable(source.path, table, run_id or source.path.stem, tuple(notes))


def _parsed(data: bytes, path: Path) -> tuple[list[dict[str, Any]], dict[str, Any], str, list[str]]:
    """Return history rows, configuration columns, the run's name and notes."""
    try:
        record_of = import_module("wandb.proto.wandb_internal_pb2").Record.FromString
        decode_error = import_module("google.protobuf.message").DecodeError
    except ImportError:
        raise need("wandb", "offline runs of Weights & Biases") from None
    rows: list[dict[str, Any]] = []
    said: dict[str, Any] = {}
    name, notes = "", []
    try:
        for raw in records(data):
            record = record_of(raw)
            kind = record.WhichOneof("record_type")
            if kind == "history":
                rows.append(_history(record.history))
            elif kind == "run":
                name = record.run.display_name or record.run.run_id
                said |= _settings(record.run.config)
            elif kind == "config":
                said |= _settings(record.config)
    except (_DamageError, decode_error) as error:
        notes.append(f"{path}: {error or 'damaged'} of {len(data)}; read up to there")
    return rows, _config_columns(said), name, notes


def _history(record: Any) -> dict[str, Any]:
    row = {item.key or "/".join(item.nested_key): _value(item.value_json) for item in record.item}
    row.setdefault("_step", record.step.num)
    return {key: value for key, value in row.items() if not isinstance(value, dict | list)}


def _value(text: str) -> Any:
    """Return the JSON value; Weights & Biases writes what is not finite as text."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


def _settings(record: Any) -> dict[str, Any]:
    return {
        key: _value(item.value_json)
        for item in record.update
        if (key := item.key or "/".join(item.nested_key)) and not key.startswith("_wandb")
    }


def _config_columns(said: dict[str, Any]) -> dict[str, Any]:
    """Return numbers and texts as columns, and everything as ``hp``."""
    plain = {
        name: value for name, value in said.items() if isinstance(value, int | float | str) and not isinstance(value, bool)
    }
    return {**plain, "hp": json.dumps(said)} if said else {}


def _sources_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob(f"run-*{_SUFFIX}") if file.is_file())


WANDB_OFFLINE = Reader("Weights & Biases offline run", _recognises, _read, _sources_in)
