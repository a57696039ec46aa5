"""JSON Lines: one object a row; ``NaN`` and ``Infinity`` are numbers here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import json as arrow_json

from hpo.adapters.curve_tables import CurveTable, flattened, table_of
from hpo.adapters.readers.reader import Reader, Source

_OPENS = re.compile(rb"\{\s*[\"}]")


def _recognises(source: Source) -> bool:
    return source.is_text and _OPENS.match(source.opening) is not None


def _read(source: Source) -> CurveTable:
    return CurveTable(source.path, _parse(source.data), source.plain_path.stem)


def _parse(data: bytes) -> pa.Table:
    try:
        return flattened(arrow_json.read_json(pa.BufferReader(data)))
    except pa.ArrowException:  # NaN literals, mixed types, torn last line: Python's reader takes them
        return flattened(table_of(_rows(data)))


def _rows(data: bytes) -> Iterator[dict[str, Any]]:
    lines = data.decode("utf-8-sig").splitlines()
    some = False
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines) and some and not data.endswith(b"\n"):
                return  # a writer has not finished this line
            raise ValueError(f"line {number} is not JSON ({error.msg})") from None
        if not isinstance(row, dict):
            raise ValueError(f"line {number} is not a JSON object")
        some = True
        yield row


JSON_LINES = Reader("JSON Lines", _recognises, _read)
