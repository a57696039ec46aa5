"""The settings of a collapse model, and how they are written to a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpo.core.shape import ShapeSettings

MAX_DRAWS = 1_000_000
LARGEST_SETTING = 1e100
"""Of a setting in a file: its square is still finite."""


@dataclass(frozen=True)
class ModelSettings:
    """Settings of a :class:`CollapseModel`.

    Attributes
    ----------
    shape : ShapeSettings
        Priors of the shape.
    max_misfit : float
        A prefix whose standardised residuals have a root mean square above this is not judged (``bad_misfit``).
    n_draws : int
        Joint draws for P(best).
    landscape : bool
        Let the references' final values bear on the differences between a sweep's trials.
    """

    shape: ShapeSettings = field(default_factory=ShapeSettings)
    max_misfit: float = 4.0
    n_draws: int = 8_000
    landscape: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.n_draws <= MAX_DRAWS:
            raise ValueError(f"n_draws must be between 1 and {MAX_DRAWS}; found {self.n_draws!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; infinity, which JSON lacks, is the string "inf"."""
        shape = {key: _json_number(value) for key, value in self.shape.to_dict().items()}
        rest = {"max_misfit": _json_number(self.max_misfit), "n_draws": self.n_draws, "landscape": self.landscape}
        return {"shape": shape, **rest}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelSettings:
        """Return the settings of :meth:`to_dict`; ``ValueError`` on unknown keys and on values of the wrong kind."""
        try:
            usual, effects = cls(), data["shape"]["effect_sd"]
            shape = {key: _from_json(usual.shape, key, value) for key, value in data["shape"].items() if key != "effect_sd"}
            shape["effect_sd"] = tuple((str(name), _number(f"effect_sd of {name}", sd)) for name, sd in effects.items())
            rest = {key: _from_json(usual, key, value) for key, value in data.items() if key != "shape"}
            return cls(shape=ShapeSettings(**shape), **rest)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"model settings are malformed: {error!r}") from error


def _json_number(value: Any) -> Any:
    return "inf" if value == math.inf else value


def _from_json(usual: ModelSettings | ShapeSettings, name: str, value: Any) -> Any:
    """Return the setting of that name, of the kind that it usually has."""
    kind = type(getattr(usual, name))
    if kind is float:
        return _number(name, value)
    if type(value) is not kind:
        raise ValueError(f"model setting {name} must be of type {kind.__name__}; found {value!r:.80}")
    return value


def _number(name: str, value: Any) -> float:
    if value in ("inf", math.inf):
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST_SETTING:
        raise ValueError(f"model setting {name} must be a number up to {LARGEST_SETTING:g}, or inf; found {value!r:.80}")
    return float(value)
