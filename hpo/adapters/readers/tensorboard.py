"""TensorBoard event files, read by the package ``tensorboard`` (not TensorFlow).

The event files of one folder are one run; several are restarts, in the order of their names, which begin with the time.
A damaged or truncated file is read up to the damage, and says so.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hpo.adapters.curve_tables import CurveTable, FloatArray
from hpo.adapters.readers.event_frames import Frames, PlainScalars, frames, plain_scalars
from hpo.adapters.readers.reader import Reader, Source, need
from hpo.adapters.readers.series import merged

MARK = ".tfevents."
_VERSION = b"brain.Event:"


def _event_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if MARK in file.name and file.is_file())


def _recognises(source: Source) -> bool:
    if source.path.is_dir():
        return bool(_event_files(source.path))
    return MARK in source.path.name or _VERSION in source.head[:64]


def _read(source: Source) -> CurveTable:
    files = _event_files(source.path) if source.path.is_dir() else [source.path]
    series: dict[str, list[tuple[FloatArray, FloatArray]]] = {}
    notes = [note for file in files if (note := _add(series, file))]
    if not series:
        raise ValueError("; ".join(["found no scalars", *notes]))
    whole = {
        tag: (np.concatenate([steps for steps, _ in parts]), np.concatenate([values for _, values in parts]))
        for tag, parts in series.items()
    }
    folder = source.path if source.path.is_dir() else source.path.parent
    return CurveTable(source.path, merged(whole), folder.resolve().name, tuple(notes))


def _add(series: dict[str, list[tuple[FloatArray, FloatArray]]], file: Path) -> str | None:
    """Append the scalars of one file to ``series``; return what is said of damage."""
    try:
        data = file.read_bytes()
    except OSError as error:
        return f"{file}: cannot be read: {error.strerror}"
    found, scalars = _scalars_of(data)
    for tag, points in scalars.items():
        series.setdefault(tag, []).append(points)
    if found.consumed == len(data):
        return None
    return f"{file}: damaged or cut off at byte {found.consumed} of {len(data)}; read up to there"


def _scalars_of(data: bytes) -> tuple[Frames, dict[str, tuple[FloatArray, FloatArray]]]:
    """Return the sound records and per tag the steps and values in the order of writing.

    Plain scalars are read together, what else there is by the package's own parser.
    """
    try:
        checksum = import_module("tensorboard.compat.tensorflow_stub.pywrap_tensorflow").masked_crc32c
        event_of = import_module("tensorboard.compat.proto.event_pb2").Event.FromString
        decode_error = import_module("google.protobuf.message").DecodeError
    except ImportError:
        raise need("tensorboard", "TensorBoard event files") from None
    found = frames(data, checksum)
    plain = plain_scalars(data, found)
    others: dict[str, list[tuple[int, float, float]]] = {}
    for k in np.setdiff1d(np.arange(found.starts.size), plain.records, assume_unique=True).tolist():
        try:
            event = event_of(data[found.starts[k] : found.ends[k]])
            for tag, value in _scalars(event):
                others.setdefault(tag, []).append((k, float(event.step), value))
        except (decode_error, TypeError, OverflowError):
            found = found.first(k)
            break
    return found, _joined(plain, others, found.starts.size)


def _joined(
    plain: PlainScalars, others: dict[str, list[tuple[int, float, float]]], n: int
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Return steps and values per tag of the first n records."""
    order = np.argsort(plain.codes, kind="stable")
    bounds = np.searchsorted(plain.codes[order], np.arange(len(plain.tags) + 1))
    rows = {tag: order[first:end] for tag, first, end in zip(plain.tags, bounds[:-1], bounds[1:], strict=True)}
    out = {}
    for tag in {**rows, **others}:
        mine = rows.get(tag, order[:0])
        mine = mine[plain.records[mine] < n]
        more = np.array(others.get(tag, []), dtype=np.float64).reshape(-1, 3)
        record = np.concatenate((plain.records[mine], more[:, 0]))
        written = np.argsort(record, kind="stable")
        if written.size:
            out[tag] = (
                np.concatenate((plain.steps[mine], more[:, 1]))[written],
                np.concatenate((plain.values[mine], more[:, 2]))[written],
            )
    return out


def _scalars(event: Any) -> list[tuple[str, float]]:
    return [(one.tag, value) for one in event.summary.value if (value := _scalar(one)) is not None]


def _scalar(value: Any) -> float | None:
    """Return the number of a summary: a plain one, or a tensor of one number as TensorFlow 2 writes it."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or value.metadata.plugin_data.plugin_name not in ("", "scalars"):
        return None
    array = import_module("tensorboard.util.tensor_util").make_ndarray(value.tensor)
    return float(array.reshape(-1)[0]) if array.size == 1 and array.dtype.kind in "fiu" else None


def _sources_in(folder: Path) -> list[Path]:
    return [folder] if _event_files(folder) else []


TENSORBOARD = Reader("TensorBoard event files", _recognises, _read, _sources_in)
