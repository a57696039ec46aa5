"""Curve files as tables: find them, tell their format by their content, and read columns as numbers or texts.

Arrow keeps an empty cell (null) apart from one that says NaN; that difference carries meaning here
(:mod:`hpo.adapters.curve_files`), so tables stay in Arrow until a column is asked for. Nothing in a file is executed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv, parquet
from pyarrow import json as arrow_json

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
_PARQUET_MAGIC = b"PAR1"
_DELIMITERS = ("\t", ",", ";")


@dataclass(frozen=True)
class CurveTable:
    """One file's rows, and where they came from."""

    path: Path
    arrow: pa.Table = field(repr=False)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self.arrow.column_names)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.arrow.num_rows)

    def is_numeric(self, name: str) -> bool:
        """Return True if the column holds numbers (or nothing at all)."""
        kind = self.arrow.schema.field(name).type
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))

    def numbers(self, name: str) -> FloatArray:
        """Return the column as float64, shape (n_rows,); empty cells are NaN (see :meth:`empty`).

        Raises
        ------
        ValueError
            A cell that is not a number.
        """
        column = self.arrow.column(name)
        if not self.is_numeric(name):
            column = _as_numbers(column, f"{self.path}: column {name}")
        return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(), dtype=np.float64)

    def empty(self, name: str) -> BoolArray:
        """Return True where the cell is empty (not where it says NaN), shape (n_rows,)."""
        return np.asarray(self.arrow.column(name).is_null().to_numpy(), dtype=np.bool_)

    def codes(self, name: str) -> tuple[NDArray[np.int64], list[Any]]:
        """Return (index of each row's value, the distinct values in order of appearance); −1 is an empty cell."""
        encoded = self.arrow.column(name)
        if not pa.types.is_dictionary(encoded.type):
            encoded = encoded.dictionary_encode()
        array = encoded.combine_chunks()
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        if not chunks:
            return np.zeros(0, dtype=np.int64), []
        codes = pc.fill_null(chunks[0].indices, -1) if chunks[0].null_count else chunks[0].indices
        return np.asarray(codes.to_numpy(zero_copy_only=False), dtype=np.int64), chunks[0].dictionary.to_pylist()


def find_files(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """Return the files that ``paths`` names: files, wildcards, and folders (their curve files, not deeper).

    Raises
    ------
    ValueError
        A path, wildcard or folder that holds none.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise ValueError("paths must name at least one curve file; found none")
    found = [file for one in given for file in _files_of(Path(one))]
    return list(dict.fromkeys(found))


def _files_of(path: Path) -> list[Path]:
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
        if not files:
            raise ValueError(f"{path}: expected curve files ({', '.join(SUFFIXES)}) in this folder; found none")
        return files
    if path.exists():
        return [path]
    if has_magic(str(path)):
        matches = sorted(Path(match) for match in glob(str(path), recursive=True))  # noqa: PTH207 - may be absolute
        if matches:
            return [file for match in matches for file in (_files_of(match) if match.is_dir() else [match])]
        raise ValueError(f"{path}: no file matches this wildcard")
    raise ValueError(f"{path}: no such file or folder")


def read_table(path: Path) -> CurveTable:
    """Return the rows of one CSV, TSV, JSONL or Parquet file, told apart by content.

    Raises
    ------
    ValueError
        Missing or unreadable file, binary data, damaged content, or no rows: one line naming the file.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from None
    try:
        table = _parse(data)
    except (pa.ArrowException, UnicodeDecodeError, ValueError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise ValueError(f"{path}: expected CSV, TSV, JSONL or Parquet; {reason}") from None
    if table.num_rows == 0:
        raise ValueError(f"{path}: no rows")
    return CurveTable(path, table)


def _parse(data: bytes) -> pa.Table:
    if data.startswith(_PARQUET_MAGIC):
        return parquet.read_table(io.BytesIO(data))
    head = data[:4096]
    if b"\0" in data[:65536]:
        raise ValueError("found binary data")
    if not data.strip():
        raise ValueError("found an empty file")
    head.decode("utf-8", errors="strict" if len(data) <= len(head) else "ignore")
    return _parse_json_lines(data) if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else _parse_delimited(data)


def _parse_delimited(data: bytes) -> pa.Table:
    data = data.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    header = data.split(b"\n", 1)[0].decode("utf-8")
    delimiter = next((mark for mark in _DELIMITERS if mark in header), ",")
    table = csv.read_csv(
        pa.BufferReader(_without_torn_line(data, delimiter.encode())),
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=False),
        convert_options=csv.ConvertOptions(null_values=[""], strings_can_be_null=True, auto_dict_encode=True),
    )
    return table.rename_columns([name.strip() for name in table.column_names])


def _without_torn_line(data: bytes, delimiter: bytes) -> bytes:
    """Drop a last line that a writer has not finished: no newline at its end and fewer cells than the header."""
    if data.endswith(b"\n") or b"\n" not in data:
        return data
    whole, last = data.rsplit(b"\n", 1)
    header = data.split(b"\n", 1)[0]
    return whole + b"\n" if last.count(delimiter) < header.count(delimiter) else data


def _parse_json_lines(data: bytes) -> pa.Table:
    try:
        return arrow_json.read_json(pa.BufferReader(data))
    except pa.ArrowException:  # NaN literals, mixed types, torn last line: Python's reader takes them
        return _parse_json_lines_slowly(data)


def _parse_json_lines_slowly(data: bytes) -> pa.Table:
    columns: dict[str, list[Any]] = {}
    n_rows = 0
    lines = data.decode("utf-8-sig").splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines) and n_rows and not data.endswith(b"\n"):
                break  # a writer has not finished this line
            raise ValueError(f"line {number} is not JSON ({error.msg})") from None
        if not isinstance(row, dict):
            raise ValueError(f"line {number} is not a JSON object")
        for name, value in row.items():
            filled = columns.setdefault(name, [])
            filled.extend([None] * (n_rows - len(filled)))
            filled.append(value)
        n_rows += 1
    return pa.table({name: _arrow_column(cells + [None] * (n_rows - len(cells))) for name, cells in columns.items()})


def _arrow_column(cells: list[Any]) -> pa.Array:
    try:
        return pa.array(cells, from_pandas=False)
    except pa.ArrowException:
        return pa.array([None if cell is None else cell if isinstance(cell, str) else json.dumps(cell) for cell in cells])


def _as_numbers(column: pa.ChunkedArray, where: str) -> pa.Array:
    """Turn texts such as ``" 1.5"``, ``"nan"`` or ``"-Infinity"`` into numbers."""
    if pa.types.is_null(column.type):
        return pc.cast(column, pa.float64())

    @cache
    def number(cell: Any) -> float | None:
        if cell is None or cell == "":
            return None
        try:
            return float(cell)
        except (TypeError, ValueError):
            raise ValueError(f"{where}: expected numbers; found {cell!r}") from None

    try:
        return pa.array([number(cell) for cell in column.to_pylist()], type=pa.float64(), from_pandas=False)
    except TypeError:  # an unhashable cell: a list or an object
        raise ValueError(f"{where}: expected numbers; found {column.type}") from None
