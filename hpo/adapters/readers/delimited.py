"""CSV and TSV files, the ``metrics.csv`` of Lightning and the exported charts of Weights & Biases among them.

A chart that Weights & Biases exports has a column a run (``NAME - METRIC``, with ``__MIN`` and ``__MAX`` beside it) about
one step column; it is turned into a row a run and step.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from hpo.adapters.curve_tables import CurveTable
from hpo.adapters.readers.reader import Reader, Source

_DELIMITERS = ("\t", ",", ";")
_LIGHTNING_FOLDER = re.compile(r"version_\d+")
_CHART = re.compile(r"(?P<run>.+) - (?P<metric>.+?)")
_COMMENTS = re.compile(rb"(?:#[^\n]*\n)*")
_NUMBER = re.compile(rb"\s*[-+]?\.?\d")
_DECIMAL_COMMA = re.compile(rb"[^\n]*(?:^|;)\s*-?\d+,\d+\s*(?:;|\r?\n|$)")
LIGHTNING_FILE = "metrics.csv"


def _recognises(source: Source) -> bool:
    return source.is_text and bool(source.head.strip())


def _read(source: Source) -> CurveTable:
    table = _parse(source.data)
    charted = _unfolded_chart(table)
    name, folder = source.plain_path.stem, source.path.parent.name
    if source.path.name == LIGHTNING_FILE and _LIGHTNING_FOLDER.fullmatch(folder):
        name = folder
    return CurveTable(source.path, table if charted is None else charted, name)


def _parse(data: bytes) -> pa.Table:
    data = _without_comments(data.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n"))
    header, _, rows = data.partition(b"\n")
    if header in rows:
        data = header + b"\n" + _without_headers(rows, header)
    delimiter = next((mark for mark in _DELIMITERS if mark in header.decode("utf-8")), ",")
    point = "," if delimiter == ";" and _DECIMAL_COMMA.match(rows) else "."
    table = csv.read_csv(
        pa.BufferReader(_without_torn_line(data, delimiter.encode())),
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=False),
        convert_options=csv.ConvertOptions(
            null_values=[""], strings_can_be_null=True, auto_dict_encode=True, decimal_point=point
        ),
    )
    return table.rename_columns([name.strip() for name in table.column_names])


def _without_headers(rows: bytes, header: bytes) -> bytes:
    """Return the rows without lines that are the header again, as where a restarted run appends to its log."""
    return b"".join(line for line in rows.splitlines(keepends=True) if line.rstrip(b"\r\n") != header.rstrip(b"\r"))


def _without_comments(data: bytes) -> bytes:
    """Return a table without the comments before it; the last is its header if it has no other (as NumPy writes)."""
    comments = _COMMENTS.match(data)
    if comments is None or comments.end() == 0:
        return data
    rows = data[comments.end() :]
    return data[data.rfind(b"#", 0, comments.end()) :].lstrip(b"# ") if _NUMBER.match(rows) else rows


def _without_torn_line(data: bytes, delimiter: bytes) -> bytes:
    """Drop a last line that a writer has not finished: no newline at its end and fewer cells than the header."""
    if data.endswith(b"\n") or b"\n" not in data:
        return data
    whole, last = data.rsplit(b"\n", 1)
    header = data.split(b"\n", 1)[0]
    return whole + b"\n" if last.count(delimiter) < header.count(delimiter) else data


def _unfolded_chart(table: pa.Table) -> pa.Table | None:
    """Return the rows of an exported chart, None for any other table."""
    names = set(table.column_names)
    charted = {name: match for name in table.column_names if f"{name}__MIN" in names and (match := _CHART.fullmatch(name))}
    if not charted:
        return None
    x = table.column(0)
    parts = []
    for name, match in charted.items():
        column = table.column(name)
        if column.null_count == len(column):
            continue
        cells = pa.table({"step": x, "run_id": np.full(len(x), match["run"]), match["metric"]: column})
        parts.append(cells.filter(pc.is_valid(column)))
    return pa.concat_tables(parts, promote_options="permissive") if parts else None


def _lightning_files(folder: Path) -> list[Path]:
    return [folder / LIGHTNING_FILE] if (folder / LIGHTNING_FILE).is_file() else []


DELIMITED = Reader("CSV or TSV", _recognises, _read, _lightning_files)
