"""MLflow's file store: a run is a folder with ``meta.yaml``, a file a metric (``TIME VALUE STEP`` lines) and one a parameter.

Parameters named like the columns of a curve file (``lr``, ``n_params``, ``total_steps``, …) say the run's recipe; the others
are settings.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from hpo.adapters.curve_tables import CurveTable, with_settings
from hpo.adapters.readers.reader import Reader, Source
from hpo.adapters.readers.series import merged

_NAME = Path("tags", "mlflow.runName")
_RECIPE = (
    "n_params", "batch_tokens", "seq_len", "weight_decay", "warmup_steps", "warmup_fraction", "schedule", "total_steps",
    "total_tokens", "family", "group",
)  # fmt: skip
_AT_MOST_PARAMS = 1_000


def _is_run(folder: Path) -> bool:
    return (folder / "meta.yaml").is_file() and (folder / "metrics").is_dir()


def _recognises(source: Source) -> bool:
    return source.path.is_dir() and _is_run(source.path)


def _metric_files(folder: Path) -> list[Path]:
    return sorted(file for file in (folder / "metrics").rglob("*") if file.is_file() and not file.name.startswith("."))


def _read(source: Source) -> CurveTable:
    home = source.path / "metrics"
    files = _metric_files(source.path)
    if not files:
        raise ValueError("found no metrics")
    series = {file.relative_to(home).as_posix(): _series(file) for file in files}
    table = with_settings(merged(series), _params(source.path))
    return CurveTable(source.path, table, _text(source.path / _NAME) or source.path.name)


def _series(file: Path) -> tuple[list[float], list[float]]:
    """Return steps and values of a metric file, in the order written."""
    steps, values = [], []
    lines = file.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        cells = line.split()
        try:
            steps.append(float(cells[2]) if len(cells) > 2 else float(number))
            values.append(float(cells[1]))
        except (ValueError, IndexError):
            del steps[len(values) :]
            if number < len(lines):
                raise ValueError(f"metric {file.name}, line {number}: expected TIME VALUE STEP; found {line[:60]!r}") from None
    return steps, values


def _params(folder: Path) -> dict[str, Any]:
    home = folder / "params"
    files = sorted(file for file in home.rglob("*") if file.is_file())[:_AT_MOST_PARAMS] if home.is_dir() else []
    said = {file.relative_to(home).as_posix(): _value(_text(file)) for file in files}
    recipe = {name: said[name] for name in _RECIPE if said.get(name) not in (None, "")}
    peak = next((said[name] for name in ("lr", "learning_rate") if isinstance(said.get(name), float)), None)
    return {**recipe, **({} if peak is None else {"lr": peak}), "hp": json.dumps(said)}


def _value(text: str) -> float | str:
    try:
        number = float(text)
    except ValueError:
        return text
    return number if math.isfinite(number) else text


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _sources_in(folder: Path) -> list[Path]:
    return [folder] if _is_run(folder) and _metric_files(folder) else []  # a parent of nested runs often has none


MLFLOW_STORE = Reader("MLflow file store", _recognises, _read, _sources_in)
