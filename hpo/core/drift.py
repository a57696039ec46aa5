"""Whether runs have left the curve of a family that was learned earlier.

Before a model of other runs may stop anything, the runs at hand are set against its shape. What counts is what they have in
*common*: one run that strays is the forecast's business, all of them straying alike is a family that has changed (other data,
other code, another optimiser). So the offsets of the runs that share a shape and a grid of bins are averaged, and the
average's slow departures from the shape (:func:`hpo.core.standing.slow_departures`) are tested together,

    F = Σ z² / m  ~  F(m, ν),    m ≤ 3,

where the average's covariance holds the shape's own uncertainty (it is common, and grows with the distance in size), the mean
of the runs' own misfits, and the noise. ν is the shape's for one run; an average of n has thinner tails: n times as many, at
most one a reference. A level is free in it: a shift of all losses alike is no drift, and no forecast rests on it. Several
groups of runs share the level by Bonferroni's rule. Parts of training that no run has seen are not tested: a run that goes to
its end (one cheap proxy) sees them all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hpo.core.coordinates import coordinates_of
from hpo.core.curve import Curve
from hpo.core.model import CollapseModel
from hpo.core.prefix import prefixes_of
from hpo.core.references import Family
from hpo.core.shape import Shape
from hpo.core.standing import Prefix, aligned_alone, slow_departures, tempered

FloatArray = NDArray[np.float64]
DRIFT_LEVEL = 0.05
"""How often a family that has not changed may be called drifted: that costs proxies, while a drift overlooked costs winners."""
Status = Literal["steady", "drifted", "untested"]


@dataclass(frozen=True)
class Drift:
    """What a drift test found.

    Attributes
    ----------
    status : {"steady", "drifted", "untested"}
        Untested: no run could be set against the model.
    p_value : float or None
        Of the smallest group, times the number of groups; drifted below ``level``.
    level : float
        Probability of calling drift where there is none.
    size_pct : float or None
        Largest departure of the average run from the shape, its level taken off, in % of the loss (of the metric's scale).
    n_runs : int
        Runs that were tested.
    reason : str
        All that in words.
    """

    status: Status
    p_value: float | None
    level: float
    size_pct: float | None
    n_runs: int
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return dict(self.__dict__)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Drift:
        """Return the outcome of :meth:`to_dict`."""
        return cls(**data)


def drift_of(model: CollapseModel, curves: Sequence[Curve], level: float = DRIFT_LEVEL) -> Drift:
    """Return whether ``curves``, prefixes or complete runs, have left the families of ``model``.

    Parameters
    ----------
    level : float
        Probability of calling drift where there is none, in (0, 1).

    Raises
    ------
    ValueError
        ``level`` is not in (0, 1).
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1); found {level!r}")
    tested = [found for group in _groups(model, curves) if (found := _test(*group)) is not None]
    if not tested:
        return Drift("untested", None, level, None, 0, "no run could be set against the model's references")
    p_value = min(1.0, len(tested) * min(p for p, _, _ in tested))
    size, n_runs = 100 * max(size for _, size, _ in tested), sum(n for _, _, n in tested)
    status: Status = "drifted" if p_value < level else "steady"
    verb = ("has left", "have left") if status == "drifted" else ("follows", "follow")
    runs = f"1 run {verb[0]}" if n_runs == 1 else f"{n_runs} runs together {verb[1]}"
    sign = "<" if status == "drifted" else "≥"
    reason = f"{runs} the model's curve (largest departure {size:.2g} %, p = {p_value:.2g} {sign} {level:g})"
    return Drift(status, p_value, level, size, n_runs, reason)


def _groups(model: CollapseModel, curves: Sequence[Curve]) -> list[tuple[Family, Shape, list[Curve]]]:
    """Return runs of one shape and one grid of bins together, diverged ones and those without a family left out."""
    groups: dict[tuple[int, tuple[str, ...], tuple[float, ...]], tuple[Family, Shape, list[Curve]]] = {}
    for curve in curves:
        family = model.family_of(curve) if curve.nonfinite_step is None and curve.fraction_seen is not None else None
        if family is None or curve.diverging:
            continue
        shape = family.shape_for([coordinates_of(curve.recipe)])
        bins = tuple(np.round(curve.fractions, 3).tolist())
        groups.setdefault((id(family), shape.controls, bins), (family, shape, []))[2].append(curve)
    return list(groups.values())


def _test(family: Family, shape: Shape, curves: Sequence[Curve]) -> tuple[float, float, int] | None:
    """Return the p-value of a group's average, the size of its departure, and its number of runs; None without bins."""
    found = [prefix for prefix in prefixes_of(curves, family, shape) if prefix is not None]
    sizes = [prefix.offset.size for prefix in found]
    found = [prefix for prefix in found if prefix.offset.size == max(set(sizes), key=sizes.count)]
    if not found or found[0].offset.size < 2:
        return None
    average = _averaged(found, shape)
    _, z = slow_departures(average)
    departure = average.offset - aligned_alone(average)[0]
    dof = max(shape.dof, min(shape.dof * len(found), len(family.references)))
    return _tail(float(z @ z) / z.size, z.size, dof), float(np.max(np.abs(departure))), len(found)


def _averaged(prefixes: Sequence[Prefix], shape: Shape) -> Prefix:
    """Return the average of prefixes on one grid, as a prefix: a fixed part of each run's own misfit and noise is left.

    Levels are taken off first, so that runs of different levels and noises weigh alike.
    """
    n = len(prefixes)
    rows = np.stack([p.offset - (p.standing.level if p.standing else aligned_alone(p)[0]) for p in prefixes])
    noise = np.mean([p.noise for p in prefixes], axis=0) / n
    templates = [p.template_scale * p.template_noise for p in prefixes if p.template_noise is not None]
    loadings = np.mean([p.loadings for p in prefixes], axis=0)
    own = float(np.mean([p.own for p in prefixes])) / n
    average = replace(
        prefixes[0],
        offset=rows.mean(axis=0),
        loadings=loadings,
        own=own,
        noise=noise,
        template_noise=np.mean(templates, axis=0) if templates else None,
        template_scale=1.0,
    )
    return tempered(average, shape.covariance, math.inf)


def _tail(ratio: float, m: int, dof: float) -> float:
    """Return P(F(m, dof) > ratio); of χ²/m for infinite ``dof``."""
    if math.isinf(dof):
        return float(special.chdtrc(m, m * ratio))
    return float(special.fdtrc(m, dof, ratio))
