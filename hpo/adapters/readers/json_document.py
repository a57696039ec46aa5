"""One JSON document: a list of rows, or an object of columns, as :meth:`pandas.DataFrame.to_json` writes a history.

Hugging Face's ``trainer_state.json`` has a module of its own.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

from hpo.adapters.curve_column_names import EPOCH_NAMES, STEP_NAMES, TOKEN_NAMES, plain
from hpo.adapters.curve_tables import HOLDERS, CurveTable, flattened, table_of, table_of_columns
from hpo.adapters.readers.delimited import with_tag
from hpo.adapters.readers.reader import Reader, Source, parsed_json

_OPENS = re.compile(
    rb"\{\s*[\"}]|\[\s*[{\]]|\[\s*\[\s*\d"
)  # of a log for people ``{'loss': 3}`` or ``[10:30] step 1`` may be the beginning

_POSITIONS = {*STEP_NAMES, *TOKEN_NAMES, *EPOCH_NAMES}
_CHART_CELLS = 3  # of what TensorBoard's page downloads


def _recognises(source: Source) -> bool:
    head = source.opening
    if not source.is_text or not _OPENS.match(head):
        return False
    return head[:1] == b"[" or not _is_lines(head, source.plain_path.suffix.lower() == ".json")


def _is_lines(head: bytes, is_named_json: bool) -> bool:
    """Return True for an object on the first line, of which a file named so has to have another."""
    first, _, rest = head.partition(b"\n")
    try:
        return isinstance(json.loads(first), dict) and (not is_named_json or bool(rest.strip()))
    except (ValueError, RecursionError):
        return False


def _read(source: Source) -> CurveTable:
    document = parsed_json(source.whole.decode("utf-8-sig"))
    table = flattened(_table(document))
    notes: tuple[str, ...] = ()
    if isinstance(document, dict) and "loss" in document and not _POSITIONS & set(map(plain, table.column_names)):
        table = table.append_column("epoch", pa.array(range(1, table.num_rows + 1)))
        notes = (f"{source.path}: rows are taken for epochs, as in the history of Keras",)
    name = source.plain_path.stem
    return CurveTable(source.path, with_tag(table, name), name, notes)


def _table(document: Any) -> pa.Table:
    if isinstance(document, dict) and set(document) >= {"columns", "data"}:  # DataFrame.to_json(orient="split")
        return table_of([dict(zip(document["columns"], row, strict=False)) for row in document["data"]])
    if isinstance(document, dict):
        held = next((document[name] for name in HOLDERS if isinstance(document.get(name), list | dict)), None)
        if held is not None:
            return _table(held)
        return _columns(document)
    if isinstance(document, list) and all(isinstance(row, list) and len(row) == _CHART_CELLS for row in document):
        return table_of([dict(zip(("Wall time", "Step", "Value"), row, strict=True)) for row in document])
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
