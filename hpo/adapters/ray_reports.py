"""Reads what Ray hands over: results, which may lack anything, and configs, which may hold anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import isfinite
from typing import Any

import numpy as np
from ray.tune.utils import flatten_dict

STRICT = "TUNE_DISABLE_STRICT_METRIC_CHECKING"


def allow_missing_metrics() -> None:
    """Keep Ray from ending the whole experiment over one result without the metric, unless the user set it so."""
    os.environ.setdefault(STRICT, "1")


def number_in(result: Mapping[str, Any], key: str) -> float | None:
    """Return a number reported under a key, NaN and infinities too; None if there is none."""
    value = result.get(key)
    if value is None or isinstance(value, str | bytes):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # RuntimeError: a tensor of several elements
        return None


def step_in(result: Mapping[str, Any], key: str) -> float | None:
    """Return a step reported under a key; None if there is no finite number ≥ 0."""
    step = number_in(result, key)
    return step if step is not None and isfinite(step) and step >= 0 else None


def settings_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers and names in a config by the last part of their keys, JSON-ready; the outermost counts."""
    found: dict[str, Any] = {}
    flat = flatten_dict(dict(config))
    for key in sorted(flat, key=lambda k: -k.count("/")):
        value = flat[key].item() if isinstance(flat[key], np.generic) else flat[key]
        if isinstance(value, bool | int | float | str):
            found[key.rsplit("/", 1)[-1]] = value
    return found
