"""What must be alike for one sweep's proxies to teach another: family, data, tokeniser, schedule, tokens per parameter.

A :class:`ProxyKey` says it of a fitted model; :func:`differences` names what two keys disagree on. Nothing is guessed: what a
key does not know matches only another key that does not know it either.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpo.core.controls import MATCH_WITHIN
from hpo.core.recipe import Recipe
from hpo.core.schedules import Schedule, schedule_from_dict, schedules_match

Shape = tuple[Schedule, float]
"""A schedule, and the share of training spent warming up."""
_TEXTS = ("family", "data", "tokeniser", "metric")
_ID_LENGTH = 10


@dataclass(frozen=True)
class ProxyKey:
    """What a fitted model is about.

    Parameters
    ----------
    family, data, tokeniser, metric : str
        Names; they match when they are equal.
    schedules : tuple of (Schedule, float)
        Each with its warm-up fraction; they match when those wanted are among those there.
    tpp : (float, float) or None
        Lowest and highest number of tokens per parameter; None: unknown. They match when both ends agree within
        :data:`hpo.core.controls.MATCH_WITHIN`.
    """

    family: str
    data: str
    tokeniser: str
    schedules: tuple[Shape, ...]
    tpp: tuple[float, float] | None
    metric: str = "train_loss"

    @classmethod
    def of(cls, recipes: Sequence[Recipe], *, family: str, data: str, tokeniser: str, metric: str = "train_loss") -> ProxyKey:
        """Return the key of runs with these recipes."""
        shapes: list[Shape] = []
        for recipe in recipes:
            shape = (recipe.schedule, recipe.warmup_fraction or 0.0)
            if not any(_same_shape(shape, known) for known in shapes):
                shapes.append(shape)
        known = [recipe.tpp for recipe in recipes if recipe.tpp is not None]
        tpp = (min(known), max(known)) if known and len(known) == len(recipes) else None
        return cls(family, data, tokeniser, tuple(shapes), tpp, metric)

    @property
    def id(self) -> str:
        """A short name, the same for equal keys on every machine."""
        text = json.dumps(self.to_dict(), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:_ID_LENGTH]

    @property
    def in_words(self) -> dict[str, str]:
        """Each part for people, by its name."""
        low, high = self.tpp or (math.nan, math.nan)
        tpp = "unknown" if self.tpp is None else f"{low:.3g}" if high <= low * 1.01 else f"{low:.3g} to {high:.3g}"
        schedules = ", ".join(f"{schedule}, warm-up {warmup:.2g}" for schedule, warmup in self.schedules)
        return {
            "family": self.family,
            "data": self.data,
            "tokeniser": self.tokeniser,
            "schedule": schedules or "unknown",
            "tpp": tpp,
            "metric": self.metric,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict, the inverse of :meth:`from_dict`."""
        shapes = [{"schedule": schedule.to_dict(), "warmup_fraction": warmup} for schedule, warmup in self.schedules]
        texts = {name: getattr(self, name) for name in _TEXTS}
        return {**texts, "schedules": shapes, "tpp": None if self.tpp is None else list(self.tpp)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ProxyKey:
        """Return the key of :meth:`to_dict`; ``ValueError`` if it does not fit."""
        if not isinstance(data, Mapping) or set(data) != {*_TEXTS, "schedules", "tpp"}:
            raise ValueError(f"a key has the fields {', '.join((*_TEXTS, 'schedules', 'tpp'))}")
        texts = {name: data[name] for name in _TEXTS}
        wrong = [name for name, value in texts.items() if not isinstance(value, str)]
        if wrong:
            raise ValueError(f"{wrong[0]} of a key must be text; found {texts[wrong[0]]!r:.80}")
        if not isinstance(data["schedules"], list):
            raise ValueError("schedules of a key must be a list")
        return cls(**texts, schedules=tuple(_shape(one) for one in data["schedules"]), tpp=_tpp(data["tpp"]))


@dataclass(frozen=True)
class Difference:
    """One part in which two keys disagree."""

    part: str
    wanted: str
    found: str

    def __str__(self) -> str:
        return f"{self.part} {self.found} instead of {self.wanted}"


def differences(wanted: ProxyKey, found: ProxyKey) -> tuple[Difference, ...]:
    """Return in what a model's key ``found`` is not what is ``wanted``; empty where the model may be reused."""
    alike = {
        **{name: getattr(wanted, name) == getattr(found, name) for name in _TEXTS},
        "schedule": all(any(_same_shape(shape, other) for other in found.schedules) for shape in wanted.schedules)
        and bool(wanted.schedules) == bool(found.schedules),
        "tpp": _same_tpp(wanted.tpp, found.tpp),
    }
    mine, theirs = wanted.in_words, found.in_words
    return tuple(Difference(part, mine[part], theirs[part]) for part in mine if not alike[part])


def _same_shape(a: Shape, b: Shape) -> bool:
    return schedules_match(a[0], b[0], (a[1], b[1]))


def _same_tpp(a: tuple[float, float] | None, b: tuple[float, float] | None) -> bool:
    if a is None or b is None:
        return a is b
    return all(max(x, y) <= min(x, y) * (1 + MATCH_WITHIN) * (1 + 1e-9) for x, y in zip(a, b, strict=True))


def _shape(data: Any) -> Shape:
    if not isinstance(data, Mapping) or not isinstance(data.get("schedule"), Mapping):
        raise ValueError(f"a schedule of a key must have its name and its warm-up; found {data!r:.80}")
    warmup = _number("warmup_fraction", data.get("warmup_fraction"))
    if not 0 <= warmup < 1:
        raise ValueError(f"warmup_fraction must be in [0, 1); found {warmup!r}")
    return schedule_from_dict(data["schedule"]), warmup


def _tpp(data: Any) -> tuple[float, float] | None:
    if data is None:
        return None
    if not isinstance(data, list) or len(data) != 2:
        raise ValueError(f"tpp of a key must be its lowest and its highest value; found {data!r:.80}")
    low, high = (_number("tpp", value) for value in data)
    if not 0 < low <= high:
        raise ValueError(f"tpp of a key must rise and be above 0; found {data!r:.80}")
    return low, high


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number; found {value!r:.80}")
    return float(value)
