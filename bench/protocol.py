"""A replay protocol: which recorded runs are targets, what they may learn from, and what decides the winner.

One YAML file, checked as a whole; every error is one line naming the file and the key.

**Filters.** A mapping of fields to what they must be; a field is a column of the curve file or a key of ``hp``.

- a scalar: equal (numbers to a relative 1e-9);
- ``[lo, hi]`` of two numbers: within, ends included;
- any other list: one of its members.

YAML 1.1 reads ``120e6`` as a text; where the field holds numbers, texts that are numbers count as such.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from search_spaces.yaml_text import parse_yaml

Scalar = bool | int | float | str
Filter = Scalar | list[Scalar]
FOLDER = Path(__file__).parent / "protocols"
_DRAW_KEYS = ("sample", "seed")


class Protocol(BaseModel):
    """One replay protocol.

    Attributes
    ----------
    file : str
        Curve file within the folder of curves.
    metric : str
        Column with the curve.
    truth : str or None
        Key of ``hp``, or column (its last value), that decides the winner; None: the curve's own end.
    targets : dict
        Filter of the runs to be judged.
    references : dict
        Filter of the runs to learn from; with ``sample`` (and ``seed``) finished runs drawn from each task itself, which
        are then not targets (further keys filter what is drawn from).
    task_by : list of str
        One task for each distinct combination of these fields.
    study_size : int or None
        Split each such task at random (``references.seed``) into studies of this many runs; what is left over is not used.
    min_targets : int
        Tasks with fewer targets are left out; 1 for pure forecasting tasks, which have no selection scores.
    stop_at : list of float
        Fractions of training at which targets are cut.
    noise : float
        Relative seed noise of the final value: smaller differences are ties.
    role : {"develop", "test"}
        Whether methods may be tuned on it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    file: str
    metric: str
    truth: str | None = None
    targets: dict[str, Filter]
    references: dict[str, Filter]
    mode: Literal["min", "max"] = "min"
    task_by: list[str] = []
    study_size: int | None = Field(None, ge=2)
    min_targets: int = Field(2, ge=1)
    stop_at: list[float] = Field([0.1, 0.2, 0.3, 0.5], min_length=1)
    noise: float = Field(0.0, ge=0.0, lt=1.0)
    role: Literal["develop", "test"] = "test"

    @field_validator("stop_at")
    @classmethod
    def _fractions(cls, value: list[float]) -> list[float]:
        if not all(0.0 < x < 1.0 for x in value):
            raise ValueError("must be fractions above 0 and below 1")
        return sorted(dict.fromkeys(value))

    @field_validator("references")
    @classmethod
    def _draw(cls, value: dict[str, Filter]) -> dict[str, Filter]:
        sample, seed = value.get("sample"), value.get("seed", 0)
        if "seed" in value and sample is None and not isinstance(seed, list):
            return value  # a filter on the column of that name
        if sample is not None and (not isinstance(sample, int) or isinstance(sample, bool) or sample < 1):
            raise ValueError("sample must be a whole number, at least 1")
        if sample is not None and (not isinstance(seed, int) or isinstance(seed, bool) or seed < 0):
            raise ValueError("seed must be a whole number, at least 0")
        return value

    @property
    def sample(self) -> int | None:
        """Number of finished runs to draw from each task as its references, None if they are given by a filter."""
        drawn = self.references.get("sample")
        return drawn if isinstance(drawn, int) else None

    @property
    def seed(self) -> int:
        """Seed of the draw."""
        seed = self.references.get("seed", 0)
        return seed if isinstance(seed, int) else 0

    @property
    def reference_filter(self) -> dict[str, Filter]:
        """The filter part of ``references``."""
        if self.sample is None:
            return dict(self.references)
        return {name: rule for name, rule in self.references.items() if name not in _DRAW_KEYS}


def load_protocol(source: str | Path) -> Protocol:
    """Return the protocol of a YAML file, or a built-in one by its name.

    Raises
    ------
    ValueError
        No such file or name, not YAML, an unknown key or a wrong value: one line.
    """
    path = Path(source)
    if not path.is_file():
        path = FOLDER / f"{source}.yaml"
        if not path.is_file():
            raise ValueError(f"protocol {str(source)!r}: no such file, nor one of the built-in {', '.join(built_in_names())}")
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: expected a YAML file; {' '.join(str(error).split())[:200]}") from None
    if not isinstance(data, Mapping):
        raise ValueError(f"{path}: expected a mapping of keys; found {type(data).__name__}")
    try:
        return Protocol.model_validate(dict(data))
    except ValidationError as error:
        raise ValueError(f"{path}: {_one_line(error)}") from None


def built_in_names() -> list[str]:
    """Return the names of the protocols that come with the bench."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def matches(rules: Mapping[str, Filter], fields: Mapping[str, Any]) -> bool:
    """Return True if ``fields`` meet every rule; an unknown field meets none."""
    return all(name in fields and _meets(rule, fields[name]) for name, rule in rules.items())


def _meets(rule: Filter, value: Any) -> bool:
    if not isinstance(rule, list):
        return _equal(rule, value)
    low, high = (_number(rule[0]), _number(rule[-1])) if len(rule) == 2 else (None, None)
    at = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if at is not None and low is not None and high is not None:
        return low <= at <= high
    return any(_equal(member, value) for member in rule)


def _equal(rule: Scalar, value: Any) -> bool:
    if isinstance(value, bool) or isinstance(rule, bool):
        return rule is value
    if not isinstance(value, int | float):
        return isinstance(value, str) and str(rule) == value
    number = _number(rule)
    return number is not None and math.isclose(number, value, rel_tol=1e-9)


def _number(value: Scalar) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"] if not _is_branch(part)) or "protocol"
    if first["type"] == "extra_forbidden":
        return f"key {where}: unknown; known are {', '.join(Protocol.model_fields)}"
    if first["type"] == "missing":
        return f"key {where}: missing"
    return f"key {where}: {first['msg'].removeprefix('Value error, ')}; found {str(first['input'])[:80]!r}"


def _is_branch(part: int | str) -> bool:
    """True for the names that pydantic gives to the branches of a union."""
    return isinstance(part, str) and (part in ("bool", "int", "float", "str") or part.startswith("list["))
