"""References of a collapse model: complete runs reduced to the grid, grouped into families.

A family is one metric, one label and one schedule. Its shape is fitted on demand for the controls that a run shares with it,
so that a run whose τ is unknown is still compared with its family, on what is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpo.core.curve import N_BINS, Curve
from hpo.core.metric import Metric
from hpo.core.recipe import Recipe, recipe_from_dict
from hpo.core.schedules import schedules_match
from hpo.core.shape import NODES, Shape, ShapeSettings, common_controls, controls_of, fit_shape, residuals_at_nodes
from hpo.core.surrogate import FIT_FROM, Surrogate, fit_surrogate_to, surrogate_mean

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """One complete run, reduced to what the model needs."""

    run_id: str
    family: str
    metric: Metric
    recipe: Recipe | None
    settings: Mapping[str, Any]
    final_loss: float
    controls: Mapping[str, float]
    residuals: FloatArray = field(repr=False)

    @classmethod
    def of(cls, curve: Curve) -> Reference:
        """Return the reference of a complete curve."""
        if curve.final_loss is None:
            raise ValueError(f"a reference must be complete; run {curve.run_id!r} is not")
        return cls(
            curve.run_id,
            curve.family,
            curve.metric,
            curve.recipe,
            dict(curve.settings),
            curve.final_loss,
            controls_of(curve),
            residuals_at_nodes(curve),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; residuals before the first point are null."""
        return {
            "run_id": self.run_id,
            "family": self.family,
            "metric": self.metric.to_dict(),
            "recipe": None if self.recipe is None else self.recipe.to_dict(),
            "settings": dict(self.settings),
            "final_loss": self.final_loss,
            "controls": dict(self.controls),
            "residuals": [float(r) if np.isfinite(r) else None for r in self.residuals],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Reference:
        """Return the reference of :meth:`to_dict`; ``ValueError`` if it does not fit."""
        try:
            recipe = data["recipe"]
            residuals = np.array([np.nan if r is None else float(r) for r in data["residuals"]])
            made = cls(
                str(data["run_id"]),
                str(data["family"]),
                Metric.from_dict(data["metric"]),
                None if recipe is None else recipe_from_dict(recipe),
                dict(data["settings"]),
                float(data["final_loss"]),
                {str(k): float(v) for k, v in data["controls"].items()},
                residuals,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a reference of the model is malformed: {error!r}") from error
        if residuals.shape != (N_BINS,):
            raise ValueError(f"a reference needs {N_BINS} residuals; found {residuals.size}")
        return made


@dataclass(frozen=True)
class Family:
    """References of one metric, one label and one schedule."""

    references: tuple[Reference, ...]
    settings: ShapeSettings

    @property
    def name(self) -> str:
        """Label, schedule and metric in words."""
        first = self.references[0]
        schedule = "no schedule" if first.recipe is None else str(first.recipe.schedule)
        return " · ".join(part for part in (first.family, schedule, first.metric.name) if part)

    def accepts(self, family: str, metric: Metric, recipe: Recipe | None) -> bool:
        """True if a run of that label, metric and recipe belongs here; an empty label fits any."""
        first = self.references[0]
        if metric != first.metric or (family and first.family and family != first.family):
            return False
        return _same_schedule(recipe, first.recipe)

    def shape_for(self, controls: Mapping[str, float]) -> Shape:
        """Return the shape conditioned on what both the references and a run with ``controls`` know."""
        return self.fit(common_controls([*map(dict, (r.controls for r in self.references)), dict(controls)], self.settings))

    @cached_property
    def surrogate(self) -> Surrogate | None:
        """The papers' surrogate fitted to the references, where the settings ask for it and τ, TPP and schedule are known."""
        if not self.settings.surrogate_mean or self.references[0].metric.transform != "log":
            return None
        late = NODES >= FIT_FROM
        known = [(r.residuals[late], r.recipe) for r in self.references if r.recipe is not None]
        samples = [(NODES[late], np.exp(row), recipe) for row, recipe in known if np.all(np.isfinite(row))]
        return fit_surrogate_to(samples).surrogate

    @cached_property
    def _shapes(self) -> dict[tuple[str, ...], Shape]:
        return {}

    def fit(self, controls: tuple[str, ...]) -> Shape:
        """Return the shape for the given controls; fitted once."""
        if controls not in self._shapes:
            residuals = np.stack([r.residuals for r in self.references])
            means = None
            if self.surrogate is not None:
                means = np.stack([surrogate_mean(self.surrogate, r.recipe, NODES) for r in self.references])
            runs = [dict(r.controls) for r in self.references]
            self._shapes[controls] = fit_shape(residuals, runs, controls, self.settings, means, self.surrogate)
        return self._shapes[controls]


def is_reference(curve: Curve) -> bool:
    """True if a curve can teach the shape: complete, finite, not diverging, and logged from the first half on."""
    if curve.final_loss is None or curve.diverging or curve.fractions.size < 2 or curve.fractions[0] > 0.5:
        return False
    inside = curve.metric.to_model(np.append(curve.means, curve.final_loss))
    return bool(np.all(np.isfinite(inside)))


def families_of(references: Sequence[Reference], settings: ShapeSettings) -> tuple[Family, ...]:
    """Return the references grouped into families, in the order of their first members."""
    groups: list[list[Reference]] = []
    for reference in references:
        for group in groups:
            first = group[0]
            alike = (reference.family, reference.metric) == (first.family, first.metric)
            if alike and _same_schedule(reference.recipe, first.recipe):
                group.append(reference)
                break
        else:
            groups.append([reference])
    return tuple(Family(tuple(g), settings) for g in groups)


def _same_schedule(a: Recipe | None, b: Recipe | None) -> bool:
    if a is None or b is None:
        return a is None and b is None
    return schedules_match(a.schedule, b.schedule, (a.warmup_fraction or 0.0, b.warmup_fraction or 0.0))
