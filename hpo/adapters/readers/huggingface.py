"""``trainer_state.json`` of Hugging Face's ``Trainer``: its ``log_history``, and the length of the run.

Each checkpoint holds a copy that ends there; of a folder the one that has come furthest is read. The entry that sums up a
finished training (with ``train_runtime``) is no point of the curve: its ``train_loss`` is a mean over the whole run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hpo.adapters.curve_tables import CurveTable, table_of, with_settings
from hpo.adapters.readers.reader import Reader, Source, parsed_json

FILE = "trainer_state.json"
_CHECKPOINT = "checkpoint-"
_MARK = b'"log_history"'
_SUMMARY = "train_runtime"


def _recognises(source: Source) -> bool:
    return source.is_text and (source.path.name == FILE or (_MARK in source.head and source.head.lstrip()[:1] == b"{"))


def _read(source: Source) -> CurveTable:
    state = parsed_json(source.whole)
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list) or not set(map(type, history)) <= {dict}:
        raise ValueError("expected a list of objects in log_history")
    known = {"total_steps": state.get("max_steps"), "total_epochs": state.get("num_train_epochs")}
    known = {name: value for name, value in known.items() if isinstance(value, int | float) and value > 0}
    rows = [entry for entry in history if _SUMMARY not in entry]
    return CurveTable(source.path, with_settings(table_of(rows), known), _run_name(source.path))


def _run_name(path: Path) -> str:
    folder = path.resolve().parent
    if path.name != FILE:
        return path.stem
    return folder.parent.name if folder.name.startswith(_CHECKPOINT) else folder.name


def _sources_in(folder: Path) -> list[Path]:
    states = [folder / FILE, *(one / FILE for one in folder.glob(f"{_CHECKPOINT}*"))]
    states = [state for state in states if state.is_file()]
    return [max(states, key=_steps_seen)] if states else []


def _steps_seen(path: Path) -> float:
    """Return how far a state has come; the final one of a folder, which equals the last checkpoint's, comes first."""
    try:
        state: Any = json.loads(path.read_bytes())
        return float(state["global_step"])
    except (ValueError, KeyError, TypeError, OSError, RecursionError):
        return -1.0


HUGGING_FACE = Reader("Hugging Face trainer_state.json", _recognises, _read, _sources_in)
