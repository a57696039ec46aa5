"""Offline runs of Weights & Biases: ``run-ID.wandb``, records of the package ``wandb`` in LevelDB's log format.

The package no longer reads that format itself (its Go program does), so the frames are taken apart by
:mod:`hpo.adapters.readers.wandb_frames` and what is in them is parsed by the package. A damaged or unfinished file is read up
to the damage, and says so.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hpo.adapters.curve_tables import CurveTable, with_settings
from hpo.adapters.readers.reader import Reader, Source, need
from hpo.adapters.readers.wandb_frames import records
from hpo.adapters.readers.wandb_history import history_table, plain_history, value_of

_MAGIC = b":W&B"
_SUFFIX = ".wandb"


def _recognises(source: Source) -> bool:
    return source.head.startswith(_MAGIC) or source.path.suffix == _SUFFIX


def _read(source: Source) -> CurveTable:
    data = source.path.read_bytes()
    if not data.startswith(_MAGIC):
        raise ValueError("expected an offline run of Weights & Biases; found something else")
    table, config, run_id, notes = _parsed(data, source.path)
    if not table.num_rows:
        raise ValueError("; ".join(["found no history", *notes]))
    return CurveTable(source.path, with_settings(table, config), run_id or source.path.stem, tuple(notes))


def _parsed(data: bytes, path: Path) -> tuple[pa.Table, dict[str, Any], str, list[str]]:
    """Return the history, configuration columns, the run's name and notes."""
    try:
        record_of = import_module("wandb.proto.wandb_internal_pb2").Record.FromString
        decode_error = import_module("google.protobuf.message").DecodeError
    except ImportError:
        raise need("wandb", "offline runs of Weights & Biases") from None
    found = records(data)
    plain = plain_history(found.data, found.starts, found.ends)
    others: list[tuple[int, dict[str, Any]]] = []
    said: dict[str, Any] = {}
    name, damage = "", found.damage
    for k in np.setdiff1d(np.arange(found.starts.size), plain.records, assume_unique=True).tolist():
        try:
            record = record_of(found.data[found.starts[k] : found.ends[k]])
        except decode_error as error:
            damage = str(error) or "damaged"
            break
        kind = record.WhichOneof("record_type")
        if kind == "history":
            others.append((k, _history(record.history)))
        elif kind == "run":
            name = record.run.display_name or record.run.run_id
            said |= _settings(record.run.config)
        elif kind == "config":
            said |= _settings(record.config)
    notes = [] if damage is None else [f"{path}: {damage} of {len(data)}; read up to there"]
    return history_table(plain, others), _config_columns(said), name, notes


def _history(record: Any) -> dict[str, Any]:
    row = {item.key or "/".join(item.nested_key): value_of(item.value_json) for item in record.item}
    row.setdefault("_step", record.step.num)
    return row


def _settings(record: Any) -> dict[str, Any]:
    return {
        key: value_of(item.value_json)
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
