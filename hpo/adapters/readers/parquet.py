"""Parquet files."""

from __future__ import annotations

import io

from pyarrow import parquet

from hpo.adapters.curve_tables import CurveTable
from hpo.adapters.readers.reader import Reader, Source

_MAGIC = b"PAR1"


def _recognises(source: Source) -> bool:
    return source.head.startswith(_MAGIC)


def _read(source: Source) -> CurveTable:
    data = source.whole
    return CurveTable(source.path, parquet.read_table(io.BytesIO(data)), source.plain_path.stem)


PARQUET = Reader("Parquet", _recognises, _read)
