"""The functions that a user names in a configuration: found, and called so that whatever they raise is one line.

That line says what was expected and where in the user's own files it went wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from traceback import extract_tb
from typing import Any

from hpo.core.recipe import Recipe
from hpo.engine.config import InputError
from hpo.engine.trouble import in_a_line, is_own
from hpo.engine.worker import import_function


def imported(key: str, path: str) -> Callable[..., Any]:
    """Return a user's function; whatever its module raises is a line that names the place."""
    try:
        return import_function(path)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's module raises
        if isinstance(error, ValueError) and is_own(error):
            raise InputError(f"{key}: {error}") from None
        raise InputError.at(key, f"an importable {path.partition(':')[0]}", f"{in_a_line(error)}{_place_of(error)}") from None


def require_call(key: str, function: Callable[..., Any], names: tuple[str, ...]) -> None:
    """Raise :class:`InputError` if a user's function cannot be called with so many arguments, called ``names``."""
    try:
        parameters = signature(function)
    except (TypeError, ValueError):
        return  # written in C: nobody knows
    try:
        parameters.bind(*names)
    except TypeError:
        name = getattr(function, "__name__", type(function).__name__)
        raise InputError.at(key, f"a function of ({', '.join(names)})", f"{name}{parameters}") from None


def recipe_of(function: Callable[[Mapping[str, Any]], Any], settings: Mapping[str, Any]) -> Recipe:
    """Return what a user's recipe function says of settings."""
    try:
        made = function(settings)
    except Exception as error:  # noqa: BLE001 - whatever a user's function raises
        raise InputError.at(
            "recipe", "a function that returns an hpo.Recipe", f"{in_a_line(error)}{_place_of(error)}"
        ) from None
    if not isinstance(made, Recipe):
        raise InputError.at("recipe", "a function that returns an hpo.Recipe", f"{type(made).__name__}: {made!r:.80}")
    return made


def _place_of(error: BaseException) -> str:
    """Return the innermost file and line of an error, in brackets."""
    frames = [] if isinstance(error, SyntaxError) else extract_tb(error.__traceback__)  # which says where itself
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
