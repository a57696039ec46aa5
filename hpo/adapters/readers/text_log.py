"""Training logs for people, line by line: nanoGPT, llm.c, Megatron, torchtitan and their kind.

A line counts if it holds a position (``step 10``, ``iter 10:``, ``iteration 10/ 500``, ``step:10/5100``, ``s:10``, or else a
progress bar's ``12/500 [00:03<01:20``, or ``epoch 0.3``) and numbers with a name before them (``loss 3.2``, ``val_loss:3.4``,
``lm loss: 9.1E+00``). A line with numbers only, such as llm.c's ``val loss 3.4``, belongs to the position before it. The names
are collected from a sample of the lines; each is then one pass of a regular expression of linear time over all lines.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from hpo.adapters.curve_column_names import SCORE
from hpo.adapters.curve_tables import CurveTable
from hpo.adapters.readers.reader import Reader, Source

FloatArray = NDArray[np.float64]

_NUMBER = r"(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan|NaN|NAN|inf|Inf|Infinity)"
_BEFORE = r"(?:^|[^A-Za-z0-9_/.])"
_QUOTE = "[\"']?"
_STEP = (
    rf"{_BEFORE}(?:global_step|training_step|train_step|num_updates|[iI]teration|[sS]tep|[iI]ter(?:\(train\))?|it|s){_QUOTE}"
    rf"\s*[:=#]?\s*(?:\[\s*|{_QUOTE})(?P<at>\d+)(?:\s*(?:/|of)\s*(?P<total>\d+))?"
)
_BLOCK = r"(?:\[batch=|^steps: *)(?P<at>\d+)(?:/(?P<total>\d+)\]| +loss)"  # Composer's and DeepSpeed's
_BRACKETS = r"\] \[(?P<at>\d+)\](?P<total>) "  # of JAX's CLU
_EPOCH = (
    rf"{_BEFORE}[eE]poch{_QUOTE}\s*[:=#]?\s*(?:\[|{_QUOTE})(?P<at>\d+\.?\d*(?:[eE][-+]?\d+)?)(?:\s*(?:/|of)\s*(?P<total>\d+))?"
)
_BAR = r"(?:^|[|\s])(?P<at>\d+)/(?P<total>\d+) \[\d+:\d"  # tqdm's
_WORD = r"[A-Za-z_][\w./-]*"
_BETWEEN = (
    rf"{_QUOTE}(?:\s*[:=]\s*|\s+){_QUOTE}(?:(?:tensor|Array|j?np\.float\d+)\()?"  # loss: 3, 'loss': '3', loss=tensor(3.0)
)
_PAIR = re.compile(
    rf"(?<![\w./-])(?P<name>{_WORD}(?: {_WORD}){{0,2}}){_BETWEEN}(?=[-+]?{_NUMBER}(?:$|[^\w.]|\.(?:$|\D)))",
    re.ASCII,
)
_LOSS_LIKE = re.compile(r"loss|nll|entropy|ppl|perplexity|^(?:trl|tel)$", re.IGNORECASE)
_WORTH_READING = re.compile(
    rf"{_LOSS_LIKE.pattern}|{SCORE.pattern}|token|\blr\b|lr_|learning.rate|^(?:n_)?params?", re.IGNORECASE
)
_PLACES = (_STEP, _BLOCK, _BRACKETS, _BAR, _EPOCH)
"""Tried in this order: what the first says that is in the log counts."""
_BLOCK_LINES = 20
"""Lines after a position on which a loss belongs to it for sure."""
_POSITION_NAME = re.compile(r"(?:global_|training_|train_)?(?:step|iter|iteration|it|s|epoch|of)s?", re.IGNORECASE)
_SHORT = {"trl": "train_loss", "tel": "val_loss"}  # llm.c's main.log
_COLOURS = re.compile(rb"\x1b\[[0-9;]*m")
_SAMPLE_LINES = 2_000
_LINE_CHARACTERS = 500
_AT_MOST_NAMES = 24


@dataclass(frozen=True)
class _Positions:
    """Where each line is, NaN where it does not say; the stated end; and what is counted."""

    at: FloatArray
    total: float | None
    unit: str


@dataclass(frozen=True)
class _Numbers:
    """A named number in each line: NaN where ``given`` is False; ``end`` is what it is said to run to (``10/500``)."""

    values: FloatArray
    given: NDArray[np.bool_]
    end: float | None = None

    @property
    def some(self) -> bool:
        """True if any line holds a finite number."""
        return bool(np.isfinite(self.values).any())

    @classmethod
    def of(cls, lines: pa.Array, pattern: str, group: str, end_group: str | None = None) -> _Numbers:
        """Return the numbers that a group of the pattern matches; an end that varies or is passed counts as none."""
        found = pc.extract_regex(lines, pattern)
        values, given = _as_floats(found, group)
        if end_group is None or not given.any():
            return cls(values, given)
        ends, said = _as_floats(found, end_group)
        known = ends[said]
        fixed = known.size > 0 and known.min() == known.max() and known[0] >= np.nanmax(values)
        return cls(values, given, float(known[0]) if fixed else None)


def _as_floats(found: pa.StructArray, group: str) -> tuple[FloatArray, NDArray[np.bool_]]:
    texts = pc.struct_field(found, group)
    given = pc.fill_null(pc.greater(pc.binary_length(texts), 0), False)
    numbers = pc.cast(pc.if_else(given, texts, pa.scalar(None, pa.string())), pa.float64())
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64), given.to_numpy(zero_copy_only=False)


def _recognises(source: Source) -> bool:
    if not source.is_text:
        return False
    lines = _COLOURS.sub(b"", source.head).decode("utf-8", errors="ignore").splitlines()[:_SAMPLE_LINES]
    places = [k for k, line in enumerate(lines) if _says_where(line)]
    losses = [k for k, line in enumerate(lines) if any(_LOSS_LIKE.search(name) for name in _names_in(line))]
    return any(0 <= loss - places[bisect_right(places, loss) - 1] <= _BLOCK_LINES for loss in losses if places)


def _says_where(line: str) -> bool:
    return any(re.search(pattern, line[:_LINE_CHARACTERS], re.ASCII) for pattern in _PLACES)


def _names_in(line: str) -> list[str]:
    found = [match["name"] for match in _PAIR.finditer(line[:_LINE_CHARACTERS])]
    return [name for name in found if not _POSITION_NAME.fullmatch(name.rpartition(" ")[2])]


def _read(source: Source) -> CurveTable:
    lines = _lines(_COLOURS.sub(b"", source.data))
    where = _positions(lines)
    columns = {name: numbers for name in _names(lines) if (numbers := _Numbers.of(lines, _value_pattern(name), "v")).some}
    placed = _carried_on(where.at)
    keep = np.isfinite(placed) & np.any([*(one.given for one in columns.values()), np.zeros(len(lines), dtype=bool)], axis=0)
    if not keep.any():
        raise ValueError("expected lines with a step and a loss; found none")
    made = {where.unit: pa.array(placed[keep])}
    made |= {_SHORT.get(name, name): pa.array(one.values[keep], mask=~one.given[keep]) for name, one in columns.items()}
    if where.total is not None:
        made[f"total_{where.unit}s"] = pa.array(np.full(int(keep.sum()), where.total))
    return CurveTable(source.path, pa.table(made), source.plain_path.stem)


def _lines(data: bytes) -> pa.Array:
    """Return the lines as one Arrow array; bytes that are not UTF-8 are replaced, lines with the byte 1 left out."""
    table = csv.read_csv(
        pa.BufferReader(data.decode("utf-8", errors="replace").encode()),
        read_options=csv.ReadOptions(column_names=["line"], block_size=1 << 24),
        parse_options=csv.ParseOptions(
            delimiter="\x01", quote_char=False, ignore_empty_lines=True, invalid_row_handler=lambda _: "skip"
        ),
        convert_options=csv.ConvertOptions(column_types={"line": pa.string()}, strings_can_be_null=False),
    )
    return table.column("line").combine_chunks()


def _names(lines: pa.Array) -> list[str]:
    """Return the names of metrics and rates before numbers, from the first lines and from lines spread over the log."""
    spread = np.arange(_SAMPLE_LINES, len(lines), max(len(lines) // _SAMPLE_LINES, 1))
    sample = [*lines[:_SAMPLE_LINES].to_pylist(), *lines.take(pa.array(spread)).to_pylist()]
    count = Counter(name for line in sample for name in set(_names_in(line)) if _WORTH_READING.search(name))
    by_loss_first = sorted(count, key=lambda name: (not _LOSS_LIKE.search(name), -count[name]))
    return by_loss_first[:_AT_MOST_NAMES]


def _value_pattern(name: str) -> str:
    """Return the pattern of a named number; the name is not the end of a longer one (``loss`` in ``val loss``)."""
    return rf"(?:^|[^A-Za-z_/.\s-])\s*{re.escape(name)}{_BETWEEN}[+]?(?P<v>-?{_NUMBER})(?:$|[^A-Za-z0-9_])"


def _positions(lines: pa.Array) -> _Positions:
    found = (_Numbers.of(lines, pattern, "at", "total") for pattern in _PLACES[:-1])
    steps = next((one for one in found if one.some), None)
    if steps is None:
        epochs = _Numbers.of(lines, _EPOCH, "at", "total")
        return _Positions(epochs.values, epochs.end, "epoch")
    if steps.end is not None and np.any(np.diff(steps.values[steps.given]) < 0):
        epochs = _Numbers.of(lines, _EPOCH, "at", "total")
        if _counts_within_epochs(steps.values, epochs.values):
            first = float(np.nanmin(epochs.values))
            total = None if epochs.end is None else epochs.end * steps.end
            return _Positions(steps.values + (epochs.values - first) * steps.end, total, "step")
    return _Positions(steps.values, steps.end, "step")


def _counts_within_epochs(steps: FloatArray, epochs: FloatArray) -> bool:
    """Return True if steps begin anew with each epoch."""
    known = np.isfinite(steps)
    at, of = steps[known], epochs[known]
    back = np.flatnonzero(np.diff(at) < 0)
    return bool(np.isfinite(of).all() and back.size and np.all(np.diff(of)[back] > 0) and np.all(of == np.round(of)))


def _carried_on(positions: FloatArray) -> FloatArray:
    """Return each line's position, or that of the last line before it that has one."""
    last = np.maximum.accumulate(np.where(np.isfinite(positions), np.arange(positions.size), -1))
    return np.where(last >= 0, positions[np.maximum(last, 0)], np.nan)


TEXT_LOG = Reader("text log", _recognises, _read)
