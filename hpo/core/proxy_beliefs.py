"""What is believed of runs before they are trained: how far final values differ, and how far a curve strays from its family.

A design of a sweep (which proxies, how many settings, when to stop) is judged by the model's own variances. They are those of a
fitted model where there is one; otherwise those measured on recorded runs (:func:`usual_beliefs`), which say what to expect of
a family like those, not of any family.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpo.core.coordinates import COLLAPSED_FROM, Coordinates, coordinates_of
from hpo.core.landscape import Landscape
from hpo.core.landscape_point import Point, dimensions_of, point_of
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel, point_about
from hpo.core.recipe import Recipe
from hpo.core.references import Family
from hpo.core.response import ResponseMean
from hpo.core.shape import NODES, ShapeSettings

FloatArray = NDArray[np.float64]
SCHEDULE_REACH, WORD_REACH = 0.5, 1.0
CALIBRATED_AT = 0.2
"""Fraction at which a model's calibration stands for all stops."""


@dataclass(frozen=True, kw_only=True)
class Beliefs:
    """Sizes of what is uncertain, in log loss.

    Attributes
    ----------
    misfit_sd : float
        Of a run's departures from its family's curve, per unit of √(−log t̂).
    spread : float
        Of final values over the settings of a sweep, besides a bowl in the log learning rate.
    size_reach : float
        E-folds of size over which that structure stays alike.
    seed_sd : float
        Of a final value between seeds.
    report_sd : float
        Of one reported loss about the run's own curve.
    """

    misfit_sd: float
    spread: float = 0.015
    size_reach: float = 3.0
    seed_sd: float
    report_sd: float = 0.01

    def __post_init__(self) -> None:
        for name in ("misfit_sd", "spread", "size_reach", "seed_sd", "report_sd"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"{name} must be finite and above 0; found {value!r}")


def usual_beliefs(n_params: float | None) -> Beliefs:
    """Return what recorded families show at a size (unknown: a large one).

    Two anchors, joined by how far a family of that size has collapsed: language models of 1.2e8 parameters (misfit .004, seeds
    .0005) and our own byte-level ones of 1.7e5 (.012 and .006); see ``bench/LOG.md``.
    """
    short = 0.0 if n_params is None else COLLAPSED_FROM / n_params
    return Beliefs(misfit_sd=0.004 * (1.0 + 0.5 * math.sqrt(short)), seed_sd=0.0005 * (1.0 + 0.8 * short))


@dataclass(frozen=True)
class Knowledge:
    """All that a design's outlook rests on.

    Attributes
    ----------
    landscape : Landscape
        Of final values; without points where nothing has been trained.
    landscape_runs : int
        Finished runs in it.
    nodes, covariance : ndarray, shapes (n_nodes,) and (n_nodes, n_nodes)
        K of the shape: one run's misfit.
    settings : ShapeSettings
        How runs of other controls, sizes and schedules differ, in multiples of K.
    runs : tuple of Coordinates
        Finished runs that already teach the shape.
    report_sd : float
    source : str
        Where this is from, for people.
    response : ResponseMean or None
        What the landscape is about.
    notes : tuple of str
        What of a model does not count here, and why.
    """

    landscape: Landscape
    landscape_runs: int
    nodes: FloatArray
    covariance: FloatArray
    settings: ShapeSettings
    runs: tuple[Coordinates, ...]
    report_sd: float
    source: str
    response: ResponseMean | None = None
    notes: tuple[str, ...] = ()

    def point(self, recipe: Recipe, settings: Mapping[str, Any]) -> Point:
        """Return a run's place in the landscape."""
        return point_about(recipe, settings, self.response)


def knowledge_before(beliefs: Beliefs, points: Sequence[Point]) -> Knowledge:
    """Return the knowledge of somebody who has trained nothing.

    Parameters
    ----------
    points : sequence of Point
        Of the candidates: how far each setting is varied says over what range final values stay alike.
    """
    settings = ShapeSettings(brownian_sd=beliefs.misfit_sd)
    usual = ShapeSettings().brownian_sd
    share = min(1.0, usual / beliefs.misfit_sd)
    scaled = replace(
        settings,
        effect_sd=tuple((name, sd * share) for name, sd in settings.effect_sd),
        schedule_sd=settings.schedule_sd * share,
    )
    age = -np.log(NODES)
    covariance = beliefs.misfit_sd**2 * np.minimum(age[:, None], age[None, :])
    source = "variances that recorded families show at this size (no model given)"
    landscape = usual_landscape(beliefs, points)
    return Knowledge(landscape, 0, NODES, covariance, scaled, (), beliefs.report_sd, source)


def usual_landscape(beliefs: Beliefs, points: Sequence[Point]) -> Landscape:
    """Return the prior of final values over the settings that ``points`` vary, and over size."""
    varied = [name for name in dimensions_of(points) if name != "recipe.n_params"]
    reach = [_reach(name, points) * math.sqrt(len(varied)) for name in varied]
    rates = [p.numbers["recipe.lr"] for p in points if "recipe.lr" in p.numbers]
    return Landscape(
        points=(),
        finals=np.zeros(0),
        dimensions=(*varied, "recipe.n_params"),
        length_scales=np.array([*reach, beliefs.size_reach]),
        amplitude=beliefs.spread,
        noise=beliefs.seed_sd,
        mean=0.0,
        rate_centre=float(np.mean(rates)) if rates else 0.0,
    )


def _reach(name: str, points: Sequence[Point]) -> float:
    if name == "schedule":
        return SCHEDULE_REACH
    if name.startswith("="):
        return WORD_REACH
    return float(np.ptp([p.numbers[name] for p in points]))


def knowledge_of_model(model: CollapseModel, candidates: Sequence[tuple[Recipe, Mapping[str, Any]]]) -> Knowledge | None:
    """Return what a fitted model knows of a sweep's candidates, None if none of its families is theirs.

    Parameters
    ----------
    candidates : sequence of (recipe, searched values)
        The first one's schedule chooses the family.

    Notes
    -----
    Final values are believed as for :func:`knowledge_before` where the model has finished too few runs, or none that vary what
    the candidates vary.
    """
    recipe = candidates[0][0]
    found = _family(model, recipe)
    if found is None:
        return None
    family, metric = found
    beliefs = usual_beliefs(recipe.n_params)
    shape = family.shape_for([coordinates_of(r) for r, _ in candidates])
    label = family.references[0].family
    fitted, response = model.landscape_of([r for r, _ in candidates], label, metric)
    points = [point_about(r, settings, response) for r, settings in candidates]
    if fitted is None or not set(dimensions_of(points)) <= set(fitted.dimensions):
        points = [point_of(r, settings) for r, settings in candidates]
        fitted, response = usual_landscape(beliefs, points), None
    return Knowledge(
        landscape=fitted,
        landscape_runs=len(fitted.points),
        nodes=shape.nodes,
        covariance=shape.calibration(CALIBRATED_AT) ** 2 * shape.covariance,
        settings=shape.settings,
        runs=tuple(coordinates_of(r.recipe) for r in family.references),
        report_sd=beliefs.report_sd,
        source=f"the model's {len(family.references)} runs of {family.name}",
        response=response,
    )


def _family(model: CollapseModel, recipe: Recipe) -> tuple[Family, Metric] | None:
    """Return the family that a run of ``recipe`` belongs to, whatever its label, and its metric."""
    fits = [f for f in model.families if f.accepts("", f.references[0].metric, recipe)]
    best = max(fits, key=lambda f: (f.suits(recipe), len(f.references)), default=None)
    return None if best is None else (best, best.references[0].metric)
