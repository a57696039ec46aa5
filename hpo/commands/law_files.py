"""Fitted power laws as JSON files: one object with ``schema``, ``law`` and whatever else was found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hpo.adapters.atomic import write_json
from hpo.core.power_law import PowerLaw, law_from_dict
from hpo.engine.config import InputError

SCHEMA = 1


def write_law(path: Path, document: dict[str, Any]) -> None:
    """Write a document with a ``law`` in one step.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    try:
        write_json(path, {"schema": SCHEMA, **document})
    except OSError as error:
        raise InputError.at("--output", "a file that can be written", f"{path}: {error.strerror}") from None


def read_law(path: Path) -> PowerLaw:
    """Return the law in a file.

    Raises
    ------
    InputError
        Not JSON, another schema, or no law in it.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        raise InputError.at(str(path), "a JSON file with a fitted law", "something else") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("law"), dict):
        raise InputError.at(str(path), f"a fitted law of schema {SCHEMA}", "a newer, damaged or different file")
    try:
        return law_from_dict(data["law"])
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: {error}") from None
