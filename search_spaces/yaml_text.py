"""YAML from people, read safely: numbers as YAML 1.2 has them, no key twice, and no file that grows or nests without end."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import yaml

MOST_VALUES = 100_000
"""Values in one text, those behind aliases counted each time."""


class YamlError(ValueError):
    """The text is no such YAML.

    Attributes
    ----------
    problem : str
        In a few words.
    line : int or None
        From 1, where it is known.
    """

    def __init__(self, problem: str, line: int | None = None) -> None:
        self.problem, self.line = problem, line
        super().__init__(problem + ("" if line is None else f" in line {line}"))


class _Loader(yaml.SafeLoader):
    """Safe YAML with the numbers of YAML 1.2 (``1e-3`` is one), and no key twice."""


_Loader.yaml_implicit_resolvers = {key: list(value) for key, value in yaml.SafeLoader.yaml_implicit_resolvers.items()}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _mapping_without_repeats(loader: _Loader, node: yaml.MappingNode) -> dict[Hashable, Any]:
    loader.flatten_mapping(node)
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    for k, key in enumerate(keys):
        if key in keys[:k]:
            raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", node.start_mark)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping_without_repeats)


def parse_yaml(text: str) -> Any:
    """Return the plain data of one YAML document.

    Raises
    ------
    YamlError
        Not YAML, a key twice, nested too deeply, or more than :data:`MOST_VALUES` values.
    """
    try:
        data = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise YamlError(" ".join(str(problem).split())[:200], None if mark is None else mark.line + 1) from None
    except RecursionError:
        raise YamlError("it is nested too deeply") from None
    except (ValueError, OverflowError) as error:  # a date or a number that is none
        raise YamlError(" ".join(str(error).split())[:200]) from None
    _refuse_what_cannot_be_shown(data)
    return data


def _refuse_what_cannot_be_shown(data: object) -> None:
    """Refuse aliases that multiply, which cost nothing here and everything where data are shown, and texts that are none."""
    waiting, count = [data], 0
    while waiting:
        one = waiting.pop()
        count += 1
        if count + len(waiting) > MOST_VALUES:
            raise YamlError(f"it holds more than {MOST_VALUES} values")
        if isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, str) and not one.isascii():
            _refuse_half_a_character(one)


def _refuse_half_a_character(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise YamlError("it holds half of a surrogate pair") from None
