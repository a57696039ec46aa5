"""The shapes of learning-rate schedules: one value each, of one plain function.

A new schedule is a module with a :class:`Shape` and one line in :data:`hpo.core.schedules.SHAPES`; its parameters are the
function's keyword arguments, numbers in [0, 1] unless their default is a text.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def anything(_parameters: Mapping[str, Any]) -> None:
    """Accept any parameters."""


@dataclass(frozen=True)
class Shape:
    """A schedule's form.

    Attributes
    ----------
    name : str
        What users write.
    value : callable
        ``value(t, **parameters)`` returns η in [0, 1] for positions t in [0, 1] (any shape), warm-up apart.
    counts_warmup : bool
        True where t is the fraction of training, warm-up included; else t runs from 0 at the end of the warm-up.
    check : callable
        Given the parameters, raises ``ValueError`` on what the ranges alone do not refuse.
    """

    name: str
    value: Callable[..., FloatArray]
    counts_warmup: bool = False
    check: Callable[[Mapping[str, Any]], None] = anything

    @property
    def parameters(self) -> dict[str, Any]:
        """Default of each parameter."""
        return {name: one.default for name, one in inspect.signature(self.value).parameters.items() if name != "t"}


def _constant(t: FloatArray) -> FloatArray:
    return np.ones_like(t)


def _linear(t: FloatArray, final_ratio: float = 0.0) -> FloatArray:
    return 1.0 - (1.0 - final_ratio) * t


def _cosine(t: FloatArray, final_ratio: float = 0.0) -> FloatArray:
    return final_ratio + (1.0 - final_ratio) * 0.5 * (1.0 + np.cos(np.pi * t))


_COOLDOWNS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "linear": lambda progress: progress,
    "sqrt": np.sqrt,
    "cosine": lambda progress: 0.5 * (1 - np.cos(np.pi * progress)),
}


def _wsd(t: FloatArray, cooldown_fraction: float = 0.2, shape: str = "linear", final_ratio: float = 0.0) -> FloatArray:
    progress = np.clip((t - (1.0 - cooldown_fraction)) / cooldown_fraction, 0.0, 1.0)
    return 1.0 - (1.0 - final_ratio) * _COOLDOWNS[shape](progress)


def _check_wsd(parameters: Mapping[str, Any]) -> None:
    if parameters.get("shape", "linear") not in tuple(_COOLDOWNS):  # a tuple: the value may be unhashable
        raise ValueError(f"schedule parameter shape must be linear, sqrt or cosine; found {parameters['shape']!r}")
    if parameters.get("cooldown_fraction", 1) == 0:
        raise ValueError("schedule parameter cooldown_fraction must be above 0; use the constant schedule for none")


def _step(t: FloatArray, milestones: tuple[float, ...] = (0.5,), factor: float = 0.1) -> FloatArray:
    return np.asarray(factor ** np.searchsorted(np.asarray(milestones), t, side="right"), dtype=np.float64)


def _exponential(t: FloatArray, final_ratio: float = 0.01) -> FloatArray:
    return np.asarray(final_ratio**t, dtype=np.float64)


def _check_exponential(parameters: Mapping[str, Any]) -> None:
    if parameters.get("final_ratio", 1) == 0:
        raise ValueError("schedule parameter final_ratio must be above 0 for exponential decay; found 0")


CONSTANT = Shape("constant", _constant)
LINEAR = Shape("linear", _linear)
COSINE = Shape("cosine", _cosine)
WSD = Shape("wsd", _wsd, counts_warmup=True, check=_check_wsd)
STEP = Shape("step", _step, counts_warmup=True)
EXPONENTIAL = Shape("exponential", _exponential, check=_check_exponential)
