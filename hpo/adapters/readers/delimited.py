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
_RULE = re.compile(rb"[-:|+= ]*")
_DOWNLOADED = re.compile(r".*-tag-(?P<tag>.+)")
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
    return CurveTable(source.path, with_tag(table if charted is None else charted, name), name)


def with_tag(table: pa.Table, name: str) -> pa.Table:
    """Return a series that TensorBoard's page has let download, by its tag if the file's name says it."""
    tag = _DOWNLOADED.fullmatch(name)
    if tag is None or table.column_names != ["Wall time", "Step", "Value"]:
        return table
    return table.rename_columns(["Wall time", "Step", tag["tag"]])


def _parse(data: bytes) -> pa.Table:
    data = _without_comments(data.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n"))
    data = _with_tabs(data)
    parts = _between_headers(data)
    return pa.concat_tables([_parse_part(part) for part in parts], promote_options="permissive") if parts else _parse_part(data)


def _parse_part(data: bytes) -> pa.Table:
    """Return the rows below one header."""
    header, _, rows = data.partition(b"\n")
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


def _with_tabs(data: bytes) -> bytes:
    """Return a table whose cells stand between bars or blanks with tabs between them; any other as it is."""
    header, _, rows = data.partition(b"\n")
    if any(mark.encode() in header for mark in _DELIMITERS):
        return data
    if b"|" in header:
        lines = [line.strip().removeprefix(b"|").removesuffix(b"|") for line in data.splitlines()]
        return b"\n".join(re.sub(rb" *\| *", b"\t", line.strip()) for line in lines if not _RULE.fullmatch(line)) + b"\n"
    n_cells = len(header.split())
    if n_cells < 2 or not _NUMBER.match(rows) or len(rows.partition(b"\n")[0].split()) != n_cells:
        return data
    return b"\n".join(b"\t".join(line.split()) for line in data.splitlines()) + (b"\n" if data.endswith(b"\n") else b"")


def _between_headers(data: bytes) -> list[bytes]:
    """Return what stands below each header, with it, where a restarted run has appended its own; else nothing.

    A later header begins with the name that the first one begins with, and may have other columns.
    """
    first = re.split(rb"[\t,;]", data.partition(b"\n")[0].rstrip(b"\r"), maxsplit=1)[0]
    if not first.strip() or _NUMBER.match(first) or data.count(b"\n" + first) == 0:
        return []
    at = [0, *(match.start() + 1 for match in re.finditer(rb"\n" + re.escape(first) + rb"(?=[\t,;\r\n])", data))]
    parts = [data[start:end] for start, end in zip(at, [*at[1:], len(data)], strict=True)]
    return [part for part in parts if b"\n" in part.rstrip()] if len(parts) > 1 else []


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
