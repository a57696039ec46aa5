"""One JSON document: a list of rows, or an object of columns, as :meth:`pandas.DataFrame.to_json` writes a history.

Hugging Face's ``trainer_state.json`` has a module of its own.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from hpo.adapters.curve_tables import HOLDERS, CurveTable, flattened, table_of, table_of_columns
from hpo.adapters.readers.reader import Reader, Source, parsed_json

_OPENS = re.compile(rb"\{\s*[\"}]|\[\s*[{\]]")  # of a log for people ``{'loss': 3}`` or ``[10:30] step 1`` may be the beginning


def _recognises(source: Source) -> bool:
    head = source.opening
    if not source.is_text or not _OPENS.match(head):
        return False
    return head[:1] == b"[" or not _first_line_is_an_object(head) or source.plain_path.suffix.lower() == ".json"


def _first_line_is_an_object(head: bytes) -> bool:
    try:
        return isinstance(json.loads(head.split(b"\n", 1)[0]), dict)
    except (ValueError, RecursionError):
        return False


def _read(source: Source) -> CurveTable:
    document = parsed_json(source.whole.decode("utf-8-sig"))
    return CurveTable(source.path, flattened(_table(document)), source.plain_path.stem)


def _table(document: Any) -> pa.Table:
    if isinstance(document, dict) and set(document) >= {"columns", "data"}:  # DataFrame.to_json(orient="split")
        return table_of([dict(zip(document["columns"], row, strict=False)) for row in document["data"]])
    if isinstance(document, dict):
        held = next((document[name] for name in HOLDERS if isinstance(document.get(name), list | dict)), None)
        if held is not None:
            return _table(held)
        return _columns(document)
    if isinstance(document, list) and set(map(type, document)) == {dict}:
        return table_of(document)
    raise ValueError("expected a list of rows or an object of columns in JSON")


def _columns(document: dict[str, Any]) -> pa.Table:
    """Return columns given as lists, or as mappings from one index to cells."""
    cells = list(document.values())
    if cells and all(isinstance(column, list) for column in cells) and len({len(column) for column in cells}) == 1:
        return table_of_columns(document)
    if cells and all(isinstance(column, dict) for column in cells):
        index = dict.fromkeys(key for column in cells for key in column)
        return table_of_columns({name: [column.get(key) for key in index] for name, column in document.items()})
    if cells and not any(isinstance(column, list | dict) for column in cells):
        return table_of([document])  # JSON Lines of one line
    raise ValueError(f"expected columns of equal length in JSON; found {', '.join(list(document)[:8]) or 'none'}")


JSON_DOCUMENT = Reader("JSON", _recognises, _read)
