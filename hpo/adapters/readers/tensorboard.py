"""TensorBoard event files, read by the package ``tensorboard`` (not TensorFlow).

The event files of one folder are one run; several are restarts, in the order of their names, which begin with the time.
A damaged or truncated file is read up to the damage, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from hpo.adapters.curve_tables import CurveTable
from hpo.adapters.readers.reader import Reader, Source, need
from hpo.adapters.readers.series import merged

MARK = ".tfevents."
_FRAME_BYTES = 16
_VERSION = b"brain.Event:"


class _DamageError(Exception):
    """A record that cannot be parsed."""


Series = dict[str, tuple[list[float], list[float]]]


def _event_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if MARK in file.name and file.is_file())


def _recognises(source: Source) -> bool:
    if source.path.is_dir():
        return bool(_event_files(source.path))
    return MARK in source.path.name or _VERSION in source.head[:64]


def _read(source: Source) -> CurveTable:
    files = _event_files(source.path) if source.path.is_dir() else [source.path]
    series: Series = {}
    notes = [note for file in files if (note := _add(series, file))]
    if not series:
        raise ValueError("; ".join(["found no scalars", *notes]))
    folder = source.path if source.path.is_dir() else source.path.parent
    return CurveTable(source.path, merged(series), folder.resolve().name, tuple(notes))


def _add(series: Series, file: Path) -> str | None:
    """Append the scalars of one file to ``series``; return what is said of damage."""
    damaged = False
    consumed = 0
    try:
        for record, step, values in _events(file):
            consumed += _FRAME_BYTES + len(record)
            for tag, value in values:
                steps, logged = series.setdefault(tag, ([], []))
                steps.append(step)
                logged.append(value)
    except (_DamageError, OSError, TypeError, OverflowError):
        damaged = True
    size = file.stat().st_size
    if not damaged and consumed == size:
        return None
    return f"{file}: damaged or cut off at byte {consumed} of {size}; read up to there"


def _events(file: Path) -> Iterator[tuple[bytes, float, Sequence[tuple[str, float]]]]:
    """Yield each record with its step and scalars.

    The loader stops at a record whose checksum is wrong without a word, so the caller counts the bytes.
    """
    try:
        loader = import_module("tensorboard.backend.event_processing.event_file_loader")
        event_of = import_module("tensorboard.compat.proto.event_pb2").Event.FromString
        decode_error = import_module("google.protobuf.message").DecodeError
    except ImportError:
        raise need("tensorboard", "TensorBoard event files") from None
    for record in loader.RawEventFileLoader(str(file)).Load():
        try:
            event = event_of(record)
        except decode_error as error:
            raise _DamageError(str(error)) from None
        yield record, float(event.step), _scalars(event)


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
