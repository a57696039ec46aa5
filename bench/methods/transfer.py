"""Transfer: no look at the targets at all.

Each target is scored by the final loss of the reference nearest in settings, within the nearest size: one with the same
schedule if there is one, then the smallest distance in log units; of equally near ones the longest horizon. References that
are still equal (seeds) are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.methods.view import Prediction, TaskView, final_levels, residual_sd
from hpo.core.curve import Curve
from hpo.core.schedules import schedules_match

FloatArray = NDArray[np.float64]
_NOT_A_SETTING = {"seed", "data_seed", "total_steps", "total_tokens", "n_params", "schedule", "lr_schedule", "warmup_steps"}
_TIE = 1e-9
MISMATCH = 1.0
"""Distance of two texts or flags that differ, in log units."""


def predict(view: TaskView) -> Prediction:
    """Return the nearest references' final values as scores and forecasts; abstains without references."""
    usable = tuple(c for c in view.references if c.final_loss is not None)
    if not usable:
        return Prediction.ranking(np.full(len(view.targets), np.nan))
    level = np.array([transferred(target, usable) for target in view.targets])
    return Prediction.gaussian(level, view.remember(("transfer", *(c.run_id for c in usable)), lambda: _own_sd(usable)))


def transferred(target: Curve, references: Sequence[Curve]) -> float:
    """Return the mean final value, on the model's scale, of the references nearest to a target."""
    near = _nearest_size(target, references)
    near = [r for r in near if _same_schedule(target, r)] or near
    distances = np.array([distance(target.settings, r.settings) for r in near])
    near = [r for r, gap in zip(near, distances, strict=True) if gap <= distances.min() + _TIE]
    ends = final_levels(_longest(near))
    return float(np.mean(ends[np.isfinite(ends)])) if np.isfinite(ends).any() else float("nan")


def distance(a: Mapping[str, Any], b: Mapping[str, Any]) -> float:
    """Return the Euclidean distance of two runs' settings in log units, over the settings that both know.

    Positive numbers differ by their log ratio (betas by that of 1 − β); texts, flags and non-positive numbers by
    :data:`MISMATCH` if at all.
    """
    shared = (a.keys() & b.keys()) - _NOT_A_SETTING
    return math.sqrt(sum(_gap(name, a[name], b[name]) ** 2 for name in shared))


def _gap(name: str, a: Any, b: Any) -> float:
    x, y = _coordinate(name, a), _coordinate(name, b)
    if x is None or y is None:
        return 0.0 if a == b else MISMATCH
    return x - y


def _coordinate(name: str, value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if name.startswith("beta") and 0 <= value < 1:
        return -math.log(1.0 - value)
    return math.log(value) if value > 0 else None


def _own_sd(references: Sequence[Curve]) -> float:
    ends = final_levels(references)
    if len(references) < 2:
        return float("nan")
    others = [[r for r in references if r is not one] for one in references]
    return residual_sd(np.array([transferred(one, rest) for one, rest in zip(references, others, strict=True)]) - ends)


def _nearest_size(target: Curve, references: Sequence[Curve]) -> list[Curve]:
    n = _size(target)
    if n is None:
        return list(references)
    gaps = [math.inf if (m := _size(r)) is None else abs(math.log(m / n)) for r in references]
    return [r for r, gap in zip(references, gaps, strict=True) if gap <= min(gaps) + _TIE]


def _longest(references: Sequence[Curve]) -> list[Curve]:
    horizons = [0.0 if r.horizon is None else r.horizon for r in references]
    return [r for r, horizon in zip(references, horizons, strict=True) if horizon >= max(horizons) * (1 - _TIE)]


def _size(curve: Curve) -> float | None:
    return None if curve.recipe is None else curve.recipe.n_params


def _same_schedule(a: Curve, b: Curve) -> bool:
    if a.recipe is None or b.recipe is None:
        return False
    warmups = (a.recipe.warmup_fraction or 0.0, b.recipe.warmup_fraction or 0.0)
    return schedules_match(a.recipe.schedule, b.recipe.schedule, warmups)
