"""The coordinate check as an experiment: ladders in width and in depth, one exponent a quantity, and what each must show.

Every parameterisation is trained for a few updates at a constant learning rate at each width (base depth) and each depth (base
width). The exponent p of scale ∝ size^p after the last update says whether a quantity is flat. What is promised: CompleteP is
flat in width and in depth, μP in width, SP nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxies.architecture import PARAMETERISATIONS
from proxies.coordinate_check import ActivationScales, activation_scales, growth
from proxies.settings import read_settings

QUANTITIES = ("stream", "stream_change", "logits", "logits_change")
PROMISED_FLAT = {"completep": ("width", "depth"), "mup": ("width",), "sp": ()}
FLAT = 0.25
"""Largest |p| that counts as flat: a quantity that grows 4-fold over a 256-fold size."""
CONTEXT, BATCH = 32, 4


@dataclass(frozen=True, kw_only=True)
class CoordinateSettings:
    """What is varied, and around what.

    Raises
    ------
    ValueError
        Fewer than two sizes on an axis, or a parameterisation or count that cannot be.
    """

    parameterisations: tuple[str, ...] = PARAMETERISATIONS
    widths: tuple[int, ...] = (32, 64, 128, 256)
    depths: tuple[int, ...] = (2, 4, 8, 16)
    n_steps: int = 8
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
        after 0 … n updates), ``exponents`` (quantity → p after the last update), ``promised_flat`` and ``flat``; ``holds``:
        whether every promise is kept.

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
    kept = [ladder["flat"] for ladder in ladders if ladder["promised_flat"]]
    return {"n_steps": settings.n_steps, "flat_below": FLAT, "ladders": ladders, "holds": all(kept)}


def _ladder(settings: CoordinateSettings, parameterisation: str, axis: str) -> dict[str, Any]:
    sizes = settings.sizes(axis)
    runs = [read_settings(_run(settings, parameterisation, axis, size)) for size in sizes]
    scales = [activation_scales(run, settings.n_steps) for run in runs]
    exponents = {name: growth(sizes, [getattr(one, name)[-1] for one in scales]) for name in QUANTITIES}
    return {
        "parameterisation": parameterisation,
        "axis": axis,
        "sizes": list(sizes),
        "scales": _by_quantity(scales),
        "exponents": exponents,
        "promised_flat": axis in PROMISED_FLAT[parameterisation],
        "flat": all(abs(p) < FLAT for p in exponents.values()),
    }


def _by_quantity(scales: Sequence[ActivationScales]) -> dict[str, list[list[float]]]:
    return {name: [getattr(one, name).tolist() for one in scales] for name in QUANTITIES}


def _run(settings: CoordinateSettings, parameterisation: str, axis: str, size: int) -> Mapping[str, Any]:
    base = {"width": settings.sizes("width")[0], "depth": settings.sizes("depth")[0]}
    shape = {**base, axis: size}
    model = {"parameterisation": parameterisation, "base_width": base["width"], "base_depth": base["depth"], **shape}
    model |= {"ffn_ratio": 4.0, "tied": settings.tied, "bias": settings.bias, "head_dim": settings.head_dim}
    training = {"lr": settings.lr, "n_steps": 1000, "batch_sequences": BATCH, "warmup_fraction": 0.0, "device": "cpu"}
    return {
        "model": model,
        "data": {"seq_len": CONTEXT},
        "training": {**training, "schedule": {"name": "constant"}},
    }
