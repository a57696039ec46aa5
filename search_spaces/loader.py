"""Read a search space from YAML, safely, and say in one line what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from search_spaces.definition import Definition
from search_spaces.space import SearchSpace
from search_spaces.yaml_text import YamlError, parse_yaml

BUILT_IN = ("lr", "tau", "lr_tau", "batch_fixed_tau")
"""Names of the spaces that come with the package."""


def load_space(source: str | Path | Mapping[str, Any]) -> SearchSpace:
    """Return the search space of a built-in name, a YAML file, or a mapping of the same form.

    Raises
    ------
    ValueError
        No such name or file, not YAML, or a wrong key or value: one line with the path of the value
        (``parameters.lr.low``), what was expected and what was found.
    """
    if isinstance(source, Mapping):
        return _checked(source, "")
    if not isinstance(source, str | Path):
        raise ValueError(f"expected a search space's name, file or mapping with parameters; found {type(source).__name__}")
    if str(source) in BUILT_IN:
        text = files("search_spaces").joinpath(f"{source}.yaml").read_text(encoding="utf-8")
        return _checked(_parsed(text, str(source)), f"{source}: ")
    try:
        text = Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise ValueError(
            f"search space {str(source)!r} must be one of {', '.join(BUILT_IN)} or a readable YAML file; {reason}"
        ) from None
    return _checked(_parsed(text, str(source)), f"{source}: ")


def _parsed(text: str, where: str) -> Any:
    try:
        return parse_yaml(text)
    except YamlError as error:
        place = "" if error.line is None else f" line {error.line}"
        raise ValueError(f"{where}{place}: expected YAML; found {error.problem}") from None


def _checked(data: Any, where: str) -> SearchSpace:
    if not isinstance(data, Mapping):
        raise ValueError(f"{where}expected a mapping with parameters; found {type(data).__name__}")
    try:
        return SearchSpace(Definition.model_validate(dict(data)))
    except ValidationError as error:
        raise ValueError(where + _first_problem(error)) from None
    except ValueError as error:
        raise ValueError(f"{where}{error}") from None


def _first_problem(error: ValidationError) -> str:
    """Return ``path: expected …; found …`` of the first problem."""
    problem = error.errors(include_url=False)[0]
    path = problem["loc"]
    if len(path) > 2 and path[0] == "parameters" and path[2] in ("float", "int", "categorical"):
        path = path[:2] + path[3:]  # pydantic puts the tag of the union into the path
    place = ".".join(str(part) for part in path)
    found = problem["input"]
    kind, message = problem["type"], problem["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        return f"{place}: expected no such key; found {path[-1]!r}"
    if kind == "missing":
        return f"{place}: expected a value; found none"
    if kind.startswith("union_tag"):
        kinds = "float, int or categorical"
        return (
            f"{place}.type: expected {kinds}; found {found.get('type', 'none')!r}"
            if isinstance(found, dict)
            else (f"{place}: expected a mapping with type {kinds}; found {found!r}")
        )
    if at := re.match(r"(\w+): (expected .*found .*)", message):
        return f"{place}.{at[1]}: {at[2]}"
    if message.startswith("expected") and "found" in message:
        return f"{place}: {message}"
    message = message.removeprefix("Input should be ").removeprefix("expected ")
    return f"{place}: expected {message[:1].lower()}{message[1:].splitlines()[0]}; found {str(found)[:60]!r}"
