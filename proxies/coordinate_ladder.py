"""The coordinate check as an experiment: ladders in width and in depth, one exponent a quantity, and what each must show.

Every parameterisation is trained for a few updates at a constant learning rate at each width (base depth) and each depth (base
width), with several seeds. The exponent p of scale ∝ size^p after the last update says whether a quantity is flat. One seed's p
strays by 0.2 to 0.4 over a few small sizes, so p is the mean over seeds, with its 95 % margin, and where that has room for both
answers neither is given. What is promised: CompleteP is flat in width and in depth, μP in width, SP nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student_t

from proxies.architecture import PARAMETERISATIONS
from proxies.coordinate_check import ActivationScales, activation_scales, growth
from proxies.settings import read_settings

QUANTITIES = ("stream", "stream_change", "logits", "logits_change")
PROMISED_FLAT = {"completep": ("width", "depth"), "mup": ("width",), "sp": ()}
FLAT = 0.25
"""Largest |p| that counts as flat: a quantity that grows 4-fold over a 256-fold size."""
WRONG = 0.5
"""Smallest |p| of a wrong parameterisation, a square root: what a margin must exclude before "flat" is said."""
CONTEXT, BATCH = 32, 4
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class CoordinateSettings:
    """What is varied, and around what.

    Raises
    ------
    ValueError
        Fewer than two sizes on an axis, fewer than two seeds, or a parameterisation or count that cannot be.
    """

    parameterisations: tuple[str, ...] = PARAMETERISATIONS
    widths: tuple[int, ...] = (32, 64, 128, 256)
    depths: tuple[int, ...] = (2, 4, 8, 16)
    n_steps: int = 8
    n_seeds: int = 4
    lr: float = 0.01
    tied: bool = False
    bias: bool = False
    head_dim: int = 16

    def __post_init__(self) -> None:
        for name in ("widths", "depths"):
            sizes = getattr(self, name)
            if len(set(sizes)) < 2:
                raise ValueError(f"{name} must hold at least two sizes; found {', '.join(map(str, sizes)) or 'none'}")
        if self.n_steps < 1:
            raise ValueError(f"steps must be at least 1; found {self.n_steps}")
        if self.n_seeds < 2:
            raise ValueError(f"seeds must be at least 2, as they tell the noise; found {self.n_seeds}")
        unknown = [p for p in self.parameterisations if p not in PARAMETERISATIONS]
        if unknown or not self.parameterisations:
            found = unknown[0] if unknown else "none"
            raise ValueError(f"parameterisation must be among {', '.join(PARAMETERISATIONS)}; found {found}")

    def sizes(self, axis: str) -> tuple[int, ...]:
        """Return the sizes along ``width`` or ``depth``, ascending; the first is the base."""
        return tuple(sorted(set(self.widths if axis == "width" else self.depths)))


def coordinate_check(settings: CoordinateSettings) -> dict[str, Any]:
    """Return the JSON-ready result.

    Returns
    -------
    dict
        ``ladders``: one entry a parameterisation and axis with ``sizes``, ``scales`` (quantity → one list a size of its values
        after 0 … n updates, geometric means over seeds), ``exponents`` (quantity → p after the last update), ``margins``
        (of each, at 95 %), ``promised_flat`` and ``flat`` (None: the margin of some |p| has room for both answers);
        ``holds``: False if a promise is broken.

    Raises
    ------
    ValueError
        Sizes that heads do not divide, or another setting the model refuses.
    """
    runs = [(p, axis) for p in settings.parameterisations for axis in ("width", "depth")]
    for p, axis in runs:  # all are refused before any is trained
        for size in settings.sizes(axis):
            read_settings(_run(settings, p, axis, size))
    ladders = [_ladder(settings, p, axis) for p, axis in runs]
    broken = any(ladder["promised_flat"] and ladder["flat"] is False for ladder in ladders)
    return {
        "n_steps": settings.n_steps,
        "n_seeds": settings.n_seeds,
        "flat_below": FLAT,
        "ladders": ladders,
        "holds": not broken,
    }


def _ladder(settings: CoordinateSettings, parameterisation: str, axis: str) -> dict[str, Any]:
    sizes, seeds = settings.sizes(axis), range(settings.n_seeds)
    runs = [[read_settings(_run(settings, parameterisation, axis, size, seed)) for size in sizes] for seed in seeds]
    scales = [[activation_scales(run, settings.n_steps) for run in of_seed] for of_seed in runs]
    by_seed = {name: [growth(sizes, [getattr(one, name)[-1] for one in of_seed]) for of_seed in scales] for name in QUANTITIES}
    exponents = {name: float(np.mean(values)) for name, values in by_seed.items()}
    margins = {name: _margin(values) for name, values in by_seed.items()}
    return {
        "parameterisation": parameterisation,
        "axis": axis,
        "sizes": list(sizes),
        "scales": {name: _means(scales, name) for name in QUANTITIES},
        "exponents": exponents,
        "margins": margins,
        "promised_flat": axis in PROMISED_FLAT[parameterisation],
        "flat": _is_flat(exponents, margins),
    }


def _margin(values: Sequence[float]) -> float:
    """Return the half-width of the mean's confidence interval."""
    quantile = student_t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)
    return float(quantile * np.std(values, ddof=1) / np.sqrt(len(values)))


def _is_flat(exponents: Mapping[str, float], margins: Mapping[str, float]) -> bool | None:
    """Return whether all are flat, None where that cannot be told."""
    if any(abs(p) - margins[name] >= FLAT for name, p in exponents.items()):
        return False
    return True if all(abs(p) < FLAT and abs(p) + margins[name] < WRONG for name, p in exponents.items()) else None


def _means(scales: Sequence[Sequence[ActivationScales]], name: str) -> list[list[float]]:
    """Return a quantity's geometric means over seeds, one list a size; 0 where it is 0."""
    values = np.array([[getattr(one, name) for one in of_seed] for of_seed in scales])
    with np.errstate(divide="ignore"):
        means: list[list[float]] = np.exp(np.log(values).mean(axis=0)).tolist()
    return means


def _run(settings: CoordinateSettings, parameterisation: str, axis: str, size: int, seed: int = 0) -> Mapping[str, Any]:
    base = {"width": settings.sizes("width")[0], "depth": settings.sizes("depth")[0]}
    shape = {**base, axis: size}
    model = {"parameterisation": parameterisation, "base_width": base["width"], "base_depth": base["depth"], **shape}
    model |= {"ffn_ratio": 4.0, "tied": settings.tied, "bias": settings.bias, "head_dim": settings.head_dim}
    training: dict[str, Any] = {
        "lr": settings.lr,
        "n_steps": 1000,
        "batch_sequences": BATCH,
        "warmup_fraction": 0.0,
        "device": "cpu",
    }
    training |= {"seed": seed}
    return {
        "model": model,
        "data": {"seq_len": CONTEXT},
        "training": {**training, "schedule": {"name": "constant"}},
    }
