"""Recipes from a file: what a family of runs is (to be) trained with, for checks that need no curves.

YAML or JSON: a list of recipes, a mapping from name to recipe, or either under the key ``recipes``, ``models`` or
``family``; CSV, TSV, JSONL or Parquet: a row a recipe (or a row a logged point). A recipe has any of ``n_params``,
``n_tokens`` (or ``total_tokens``), ``batch_tokens``, ``lr``, ``weight_decay``, ``schedule`` (a name or a mapping),
``warmup_fraction`` (or ``warmup_tokens``, or ``warmup_steps``, of ``total_steps`` or of as many as the tokens make), and,
where the quantities behind them are not published, ``tpp`` and ``tau`` themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from hpo.adapters.readers.registry import read_table
from hpo.adapters.schedule_names import parse_schedule
from hpo.core.controls import Controls
from hpo.core.recipe import Recipe
from hpo.core.schedules import Schedule, schedule_from_dict, unknown_schedule

QUANTITIES = ("n_params", "n_tokens", "batch_tokens", "lr", "weight_decay", "warmup_fraction")
_SYNONYMS = {"n_tokens": ("n_tokens", "total_tokens")}
_NAMES = ("run_id", "name", "label", "size")
_HOLDERS = ("recipes", "models", "family", "runs", "sizes")
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")


def read_recipes(path: Path) -> list[Controls]:
    """Return the controls of every recipe in ``path``, in order.

    Raises
    ------
    ValueError
        No such file, not a list of recipes, or a value outside its range: one line naming file, recipe and field.
    """
    entries = _rows(path) if path.suffix.lower() in _TABLES else _document(path)
    made = [_controls(path, str(name), entry) for name, entry in entries]
    repeated = sorted({c.run_id for c in made if sum(other.run_id == c.run_id for other in made) > 1})
    if repeated:
        raise ValueError(f"{path}: expected distinct names of recipes; found {repeated[0]} more than once")
    return made


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    table = read_table(path).arrow
    if "run_id" in table.column_names:  # a curve file: the first row of a run says it all
        kept: dict[Any, int] = {}
        for row, run_id in enumerate(table.column("run_id").to_pylist()):
            kept.setdefault(run_id, row)
        table = table.take(list(kept.values()))
    for index, row in enumerate(table.to_pylist()):
        yield _name_of(row, index), row


def _document(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: expected a file of recipes; found {error.strerror}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ValueError(f"{path}: expected recipes as YAML, JSON or a table; found something else") from None
    holder = next((key for key in _HOLDERS if isinstance(content, Mapping) and isinstance(content.get(key), list | dict)), None)
    content = content[holder] if holder is not None else content
    if isinstance(content, Mapping):
        pairs = list(content.items())
    elif isinstance(content, Sequence) and not isinstance(content, str):
        pairs = [(_name_of(entry, index), entry) for index, entry in enumerate(content)]
    else:
        pairs = []
    if not pairs or not all(isinstance(entry, Mapping) for _, entry in pairs):
        raise ValueError(f"{path}: expected a list of recipes, or a mapping from name to recipe; found {_kind(content)}")
    yield from pairs


def _name_of(entry: Any, index: int) -> str:
    known = (entry.get(key) for key in _NAMES) if isinstance(entry, Mapping) else iter(())
    return next((str(value) for value in known if value is not None), f"recipe {index + 1}")


def _kind(content: Any) -> str:
    return "nothing" if content is None else type(content).__name__


def _controls(path: Path, name: str, entry: Mapping[str, Any]) -> Controls:
    inner = entry.get("recipe")
    values = {**entry, **inner} if isinstance(inner, Mapping) else dict(entry)
    where = f"{path}: {name}"
    known = {key: _number(where, key, values) for key in QUANTITIES}
    tau, tpp = _number(where, "tau", values), _number(where, "tpp", values)
    if known["warmup_fraction"] is None:
        known["warmup_fraction"] = _warmup_fraction(where, values, known["n_tokens"], known["batch_tokens"])
    try:
        recipe = Recipe(schedule=_schedule(values.get("schedule"), known["lr"]), **known)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None
    made = Controls.of(name, recipe)
    made = replace(made, tau=made.tau if made.tau is not None else tau, tpp=made.tpp if made.tpp is not None else tpp)
    if made.tpp is None and made.tau is None:
        raise ValueError(
            f"{where}: expected n_params and n_tokens, or tpp and tau; found {', '.join(map(str, values)) or 'nothing'}"
        )
    return made


def _warmup_fraction(where: str, values: Mapping[str, Any], n_tokens: float | None, batch_tokens: float | None) -> float | None:
    tokens, steps = _number(where, "warmup_tokens", values), _number(where, "warmup_steps", values)
    if tokens is not None and n_tokens:
        return tokens / n_tokens
    total = _number(where, "total_steps", values)
    total = n_tokens / batch_tokens if not total and n_tokens and batch_tokens else total
    return steps / total if steps is not None and total else None


def _number(where: str, key: str, values: Mapping[str, Any]) -> float | None:
    value = next((values[k] for k in _SYNONYMS.get(key, (key,)) if values.get(k) is not None), None)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # YAML reads 2e12 as a text
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0) or (key in ("tau", "tpp") and number == 0):
        raise ValueError(f"{where}: {key} must be a finite number above 0; found {value!r}")
    return number


def _schedule(value: Any, lr: float | None) -> Schedule:
    if isinstance(value, Mapping):
        return schedule_from_dict(value)
    text = "" if value is None or not isinstance(value, str) else value
    return parse_schedule(text, lr) or unknown_schedule(text) if text else unknown_schedule("")
