"""Logs as tables: columns read as numbers or texts. The formats are in :mod:`hpo.adapters.readers`.

Arrow keeps an empty cell (null) apart from one that says NaN; that difference carries meaning here
(:mod:`hpo.adapters.curve_files`), so tables stay in Arrow until a column is asked for. Nothing in a file is executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_UNITS = re.compile(
    r"(?P<number>[-+]?(?:\d+\.?\d*|\.\d+))\s*(?P<prefix>[kKMBGT]?)\s*(?:tokens|tok|steps|iterations|iters|it|nats)?", re.ASCII
)
_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_OF_ALL = re.compile(r"(?P<at>\d+)\s*/\s*\d+", re.ASCII)
_WINDOWS = re.compile(r"(?P<sign>[-+]?)1\.#(?P<name>INF|IND|QNAN|SNAN)0*")
HOLDERS = ("history", "log_history", "rows", "data", "metrics", "logs")
"""Names of objects that hold a log, or a row's numbers."""
_DEEPEST = 4
_SPARSE = 4
"""Empty cells per filled one from which a table is filled cell by cell."""


@dataclass(frozen=True)
class CurveTable:
    """The rows of one log, and where they came from.

    Attributes
    ----------
    path : Path
        File or folder.
    name : str
        What its run is called where no column says so.
    notes : tuple of str
        What the reader has to say: damage, what was left out.

    Raises
    ------
    ValueError
        Several columns have one name.
    """

    path: Path
    arrow: pa.Table = field(repr=False)
    name: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        twice = sorted({name for name in self.columns if name and self.columns.count(name) > 1})
        if twice:
            raise ValueError(f"each column once; found {', '.join(twice)} more than once")

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
        if pa.types.is_nested(encoded.type):
            encoded = pa.chunked_array([[_as_json(cell) for cell in encoded.to_pylist()]], pa.string())
        if not pa.types.is_dictionary(encoded.type):
            encoded = encoded.dictionary_encode()
        array = encoded.combine_chunks()
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        if not chunks:
            return np.zeros(0, dtype=np.int64), []
        codes = pc.fill_null(chunks[0].indices, -1) if chunks[0].null_count else chunks[0].indices
        return np.asarray(codes.to_numpy(zero_copy_only=False), dtype=np.int64), chunks[0].dictionary.to_pylist()


def table_of(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return an Arrow table of mappings from column to cell; a missing cell is empty."""
    rows = list(rows)
    names = dict.fromkeys(chain.from_iterable(rows))
    if len(names) * len(rows) <= _SPARSE * sum(map(len, rows)):
        return table_of_columns({str(name): [row.get(name) for row in rows] for name in names})
    columns: dict[str, list[Any]] = {str(name): [None] * len(rows) for name in names}
    for k, row in enumerate(rows):
        for name, value in row.items():
            columns[str(name)][k] = value
    return table_of_columns(columns)


def table_of_columns(columns: Mapping[str, list[Any]]) -> pa.Table:
    """Return an Arrow table of columns of equal length; cells of mixed kinds become texts."""
    return pa.table({name: _arrow_column(cells) for name, cells in columns.items()})


def flattened(table: pa.Table) -> pa.Table:
    """Return the table with the fields of each column of objects as columns of their own, the settings (``hp``) apart.

    They are called ``OBJECT.FIELD``; those of an object that only holds a row's metrics (:data:`HOLDERS`) by their own names,
    unless another column is called so.
    """
    for _ in range(_DEEPEST):
        objects = [field.name for field in table.schema if pa.types.is_struct(field.type) and field.name != "hp"]
        if not objects:
            break
        columns: dict[str, pa.ChunkedArray] = {name: table.column(name) for name in table.column_names if name not in objects}
        for name in objects:
            kind = table.schema.field(name).type
            for k, cells in enumerate(table.column(name).flatten()):
                field = kind.field(k).name
                plain = name in HOLDERS and field not in columns and field not in objects
                columns[field if plain else f"{name}.{field}"] = cells
        table = pa.table(columns)
    return table


def with_settings(table: pa.Table, settings: Mapping[str, Any]) -> pa.Table:
    """Return the table with a column of each setting, the same in every row; a column of that name stays as it is."""
    for name, value in settings.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.array([value] * table.num_rows))
    return table


def _arrow_column(cells: list[Any]) -> pa.Array:
    try:
        return pa.array(cells, from_pandas=False)
    except (pa.ArrowException, OverflowError):
        return pa.array([None if cell is None else cell if isinstance(cell, str) else json.dumps(cell) for cell in cells])


def _as_json(cell: Any) -> str | None:
    """Return a list or an object as text, without the fields that only other rows' objects have."""
    if isinstance(cell, dict):
        cell = {name: value for name, value in cell.items() if value is not None}
    return None if cell is None else json.dumps(cell, default=str)


def _as_written(cell: str) -> str:
    """Return a text as :func:`float` takes it.

    That is without thousands separators, units (``1.2B tokens`` is 1.2e9, ``4.3 nats`` 4.3) and what it counts to (``10/500``),
    and C's names on Windows of what is not finite as others have them.
    """
    if _THOUSANDS.fullmatch(cell.strip()):
        return cell.replace(",", "")
    if of_all := _OF_ALL.fullmatch(cell.strip()):
        return of_all["at"]
    if unit := _UNITS.fullmatch(cell.strip()):
        return repr(float(f"{unit['number']}") * _PREFIXES[unit["prefix"]])
    odd = _WINDOWS.fullmatch(cell.strip())
    return cell if odd is None else f"{odd['sign']}{'inf' if odd['name'] == 'INF' else 'nan'}"


def _as_numbers(column: pa.ChunkedArray, where: str) -> pa.Array:
    """Turn texts such as ``" 1.5"``, ``"nan"`` or ``"-Infinity"`` into numbers."""
    if pa.types.is_null(column.type):
        return pc.cast(column, pa.float64())

    @cache
    def number(cell: Any) -> float | None:
        if cell is None or cell == "":
            return None
        try:
            return float(_as_written(cell) if isinstance(cell, str) else cell)
        except (TypeError, ValueError):
            raise ValueError(f"{where}: expected numbers; found {cell!r}") from None

    try:
        return pa.array([number(cell) for cell in column.to_pylist()], type=pa.float64(), from_pandas=False)
    except TypeError:  # an unhashable cell: a list or an object
        raise ValueError(f"{where}: expected numbers; found {column.type}") from None
