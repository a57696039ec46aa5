"""References of a collapse model: complete runs reduced to the grid, grouped into families.

A family is one metric, one label and one schedule. Its shape is fitted on demand for the controls that a run shares with it,
so that a run whose τ is unknown is still compared with its family, on what is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpo.core.bad_reports import without_bad_reports
from hpo.core.coordinates import Coordinates, coordinates_of
from hpo.core.curve import N_BINS, Curve
from hpo.core.divergence import has_risen
from hpo.core.family_controls import SAME_CONTROL, Teaching
from hpo.core.learning_rate import GRID
from hpo.core.metric import Metric
from hpo.core.noise import CurveNoise
from hpo.core.recipe import Recipe, recipe_from_dict, share_schedule
from hpo.core.response import ResponseMean, are_alike, fit_responses
from hpo.core.shape import NODES, Shape, ShapeSettings, residuals_at_nodes
from hpo.core.shape_fit import Kin, fit_shape
from hpo.core.surrogate import FIT_FROM as SURROGATE_FROM
from hpo.core.surrogate import Surrogate, fit_surrogate_to, surrogate_mean
from hpo.core.unit import rounded, unit_of

FloatArray = NDArray[np.float64]
OWN_SHAPE = 4
CARRIED_FROM = 0.05
"""t̂ from which on a reference that is logged later, or is in its burn-in, is continued along the response mean."""
MIXED_SCHEDULE_SD = 20.0
"""Prior sd of a schedule's own curve, in multiples of a run's misfit, where no mean tells it."""
MAX_RESPONSE_RMS = 0.02
"""A response mean that misses its own references by more than this (rms) joins no schedules."""


@dataclass(frozen=True)
class Reference:
    """One complete run, reduced to what the model needs."""

    run_id: str
    family: str
    metric: Metric
    recipe: Recipe | None
    settings: Mapping[str, Any]
    final_loss: float
    residuals: FloatArray = field(repr=False)
    noise: CurveNoise = field(default_factory=CurveNoise, repr=False)

    @classmethod
    def of(cls, curve: Curve, is_end_reported: bool = True) -> Reference:
        """Return the reference of a complete curve of a run that has ended, without its bad reports.

        See :mod:`hpo.core.bad_reports`; ``is_end_reported`` as of :meth:`hpo.core.noise.CurveNoise.of`.
        """
        curve = without_bad_reports(curve.ended())
        if curve.final_loss is None:
            raise ValueError(f"a reference must be complete; run {curve.run_id!r} is not")
        return cls(
            curve.run_id,
            curve.family,
            curve.metric,
            curve.recipe,
            dict(curve.settings),
            curve.final_loss,
            residuals_at_nodes(curve),
            CurveNoise.of(curve, is_end_reported),
        )

    @cached_property
    def has_risen(self) -> bool:
        """True if it met the rule of sustained divergence at any point of its training."""
        known = np.isfinite(self.residuals)
        levels = self.metric.to_model(self.final_loss) + self.residuals[known]
        return has_risen(NODES[known], np.asarray(self.metric.to_loss(self.metric.to_raw(levels)), dtype=np.float64))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict; residuals before the first point are null."""
        return {
            "run_id": self.run_id,
            "family": self.family,
            "metric": self.metric.to_dict(),
            "recipe": None if self.recipe is None else self.recipe.to_dict(),
            "settings": dict(self.settings),
            "final_loss": self.final_loss,
            "residuals": [float(r) if np.isfinite(r) else None for r in self.residuals],
            "noise": self.noise.to_dict(),
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
                residuals,
                CurveNoise.from_dict(data["noise"]) if "noise" in data else CurveNoise(),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a reference of the model is malformed: {error!r}") from error
        if residuals.shape != (N_BINS,):
            raise ValueError(f"a reference needs {N_BINS} residuals; found {residuals.size}")
        return made


@dataclass(frozen=True)
class Family:
    """References that one shape is fitted to: one metric and label, and one schedule unless ``response`` joins them all.

    ``kin`` are the same label's other schedules: how much one run strays from its schedule's curve is estimated together.
    ``is_mixed``: of all schedules, though nothing but their likeness joins them.
    """

    references: tuple[Reference, ...]
    settings: ShapeSettings
    response: ResponseMean | None = None
    kin: tuple[Family, ...] = ()
    unit: float = 1.0
    is_mixed: bool = False

    @property
    def name(self) -> str:
        """Label, schedule and metric in words."""
        first = self.references[0]
        schedule = "no schedule" if first.recipe is None else str(first.recipe.schedule)
        within = "all schedules" if self.response is not None or self.is_mixed else schedule
        return " · ".join(part for part in (first.family, within, first.metric.name) if part)

    def accepts(self, family: str, metric: Metric, recipe: Recipe | None) -> bool:
        """True if a run of that label, metric and recipe belongs here; an empty label fits any."""
        first = self.references[0]
        if not self.has_label(family, metric):
            return False
        if self.is_mixed:
            return coordinates_of(recipe).is_scheduled
        return self.response.covers(recipe) if self.response is not None else _same_schedule(recipe, first.recipe)

    def spans(self, recipe: Recipe | None) -> bool:
        """True if the references suffice to bend the shape to a run.

        That is at least :data:`OWN_SHAPE` of them, with whatever control the run has outside their range varying among them.
        """
        known = coordinates_of(recipe).controls
        ranges = {c: self._ranges[c] for c in known if c in self._ranges}
        return len(self.references) >= OWN_SHAPE and all(
            high - low > SAME_CONTROL or low - SAME_CONTROL <= known[c] <= high + SAME_CONTROL
            for c, (low, high) in ranges.items()
        )

    def suits(self, recipe: Recipe | None) -> int:
        """Return how well the family suits a run that it accepts, the more the better: see :meth:`CollapseModel.family_of`."""
        if self.response is not None:
            return 1 if self.response.rates is None else 2
        return -1 if self.is_mixed else 3 if self.spans(recipe) else 0

    def has_label(self, family: str, metric: Metric) -> bool:
        """True if a run of that label and metric may belong here; an empty label fits any."""
        return has_label(self.references[0], family, metric)

    @cached_property
    def surrogate(self) -> Surrogate | None:
        """The papers' surrogate fitted to the references, where the settings ask for it and τ, TPP and schedule are known."""
        if self.settings.mean != "surrogate" or self.references[0].metric.transform != "log":
            return None
        late = NODES >= SURROGATE_FROM
        known = [(r.residuals[late], r.recipe) for r in self.references if r.recipe is not None]
        samples = [(NODES[late], np.exp(row), recipe) for row, recipe in known if np.all(np.isfinite(row))]
        return fit_surrogate_to(samples).surrogate

    def mean_curve(self, recipe: Recipe | None, fractions: FloatArray) -> FloatArray:
        """Return m(t̂) of a run, known before any shape is fitted: zero at t̂ = 1."""
        if self.response is not None and recipe is not None:
            return self.response.shape(recipe, fractions)
        if self.surrogate is not None:
            return surrogate_mean(self.surrogate, recipe, fractions)
        return np.zeros_like(fractions)

    def _past_burn_in(self, reference: Reference) -> FloatArray:
        """Return a reference's residuals as far as they can be compared with others': along a response mean, past its burn-in.

        That takes a number of steps, not a part of training: under another horizon the same t̂ lies elsewhere. Before it a
        run is taken to keep its distance from the mean.
        """
        known = np.isfinite(reference.residuals) & (self.begins(reference.recipe) <= NODES)
        if self.response is None or not known.any():
            return reference.residuals
        first, mean = int(np.argmax(known)), self._mean_between_points(reference)
        carried = mean + reference.residuals[first] - mean[first]
        return np.where(np.arange(NODES.size) >= first, reference.residuals, np.where(NODES >= CARRIED_FROM, carried, np.nan))

    def begins(self, recipe: Recipe | None) -> float:
        """Return the fraction from which on a run can be compared with the family's."""
        return self.response.begins(recipe) if self.response is not None and recipe is not None else 0.0

    def _mean_between_points(self, reference: Reference) -> FloatArray:
        """Return m at the nodes of a reference, interpolated from where it was logged as its residuals are.

        Between few points a straight line lies above the curve; of both, their difference has no such error.
        """
        logged = np.maximum(reference.noise.fractions, NODES[0])
        if logged.size == 0:  # of a model file that does not tell
            return self.mean_curve(reference.recipe, NODES)
        mean = self.mean_curve(reference.recipe, logged)
        return np.asarray(np.interp(np.log(NODES), np.log(logged), mean), dtype=np.float64)

    def shape_for(self, runs: Sequence[Coordinates]) -> Shape:
        """Return the shape conditioned on what both the references and ``runs`` know."""
        return self.fit(self.controls_for(runs))

    def controls_for(self, runs: Sequence[Coordinates]) -> tuple[str, ...]:
        """Return what runs are told apart by: see :mod:`hpo.core.family_controls`."""
        return self._teaching.controls_for(runs, self.settings)

    @cached_property
    def _teaching(self) -> Teaching:
        return Teaching(self._coordinates)

    def fit(self, controls: tuple[str, ...]) -> Shape:
        """Return the shape for the given controls; fitted once."""
        if controls not in self._shapes:
            residuals = np.stack([self._past_burn_in(r) for r in self.references])
            means = np.stack([self._mean_between_points(r) for r in self.references])
            noises = [r.noise for r in self.references]
            self._shapes[controls] = fit_shape(
                residuals, self._coordinates, controls, self.settings, means, noises, self._kin, self.unit
            )
        return self._shapes[controls]

    @cached_property
    def _kin(self) -> Kin:
        return Kin.of([one.shape_for([]) for one in self.kin])

    @cached_property
    def _ranges(self) -> dict[str, tuple[float, float]]:
        """Lowest and highest value of each control over the references that know it."""
        names = {c for run in self._coordinates for c in run.controls}
        columns = {c: [run.controls[c] for run in self._coordinates if c in run.controls] for c in names}
        return {c: (min(column), max(column)) for c, column in columns.items()}

    @cached_property
    def _coordinates(self) -> tuple[Coordinates, ...]:
        return tuple(coordinates_of(r.recipe) for r in self.references)

    @cached_property
    def _shapes(self) -> dict[tuple[str, ...], Shape]:
        return {}


def has_label(reference: Reference, family: str, metric: Metric) -> bool:
    """True if a run of that label and metric may be compared with a reference; an empty label fits any."""
    return metric == reference.metric and (not family or reference.family in ("", family))


def why_not_reference(curve: Curve) -> str | None:
    """Return why the curve of a run that has ended cannot teach the shape, None if it can."""
    curve = curve.ended()
    if curve.nonfinite_step is not None:
        return f"not finite at step {curve.nonfinite_step:g}"
    if curve.fraction_seen is None:
        return "its total length is unknown"
    if curve.final_loss is None:
        return f"ends at {curve.fraction_seen:.0%} of its length"
    if curve.diverging:
        return "diverging"
    begun = curve.fractions[curve.fractions > 0]  # log t̂ has no place for a point at 0
    if begun.size < 2 or begun[0] > 0.5:
        return "logged too late or too rarely"
    inside = curve.metric.to_model(np.append(curve.means, curve.final_loss))
    return None if np.all(np.isfinite(inside)) else f"values outside the domain of {curve.metric.transform}"


def is_reference(curve: Curve) -> bool:
    """True if a curve can teach the shape: complete, finite, not diverging, and logged from the first half on."""
    return why_not_reference(curve) is None


def families_of(references: Sequence[Reference], settings: ShapeSettings) -> tuple[Family, ...]:
    """Return the families of the references.

    First those joined by a response mean, of each label, metric and size that one suits; then one for each schedule, in the
    order of their first members.
    """
    by_label = _grouped(references, lambda a, b: (a.family, a.metric) == (b.family, b.metric))
    by_size = [alike for group in by_label for alike in _of_one_size(group)] if settings.mean == "response" else []
    joined = [family for alike in by_size for family in _joined(alike, settings)]
    return (*joined, *(f for group in by_label for f in _by_schedule(group, settings)))


def mixed_families_of(references: Sequence[Reference], settings: ShapeSettings) -> tuple[Family, ...]:
    """Return for each label and metric the family of all its references, for runs whose schedule none of them has.

    Where no response mean joins schedules, how far one's curve is from another's is not known: the forecast is as wide as that.
    """
    if settings.mean != "response" or settings.schedule_sd == 0:
        return ()
    scheduled = [r for r in references if coordinates_of(r.recipe).is_scheduled]
    loose = replace(settings, schedule_sd=MIXED_SCHEDULE_SD)
    groups = [tuple(g) for g in _grouped(scheduled, lambda a, b: (a.family, a.metric) == (b.family, b.metric))]
    return tuple(Family(g, loose, unit=typical_unit(g, loose), is_mixed=True) for g in groups)


def typical_unit(references: Sequence[Reference], settings: ShapeSettings, is_joined: bool = False) -> float:
    """Return the unit of the scale on which references of one metric count (:mod:`hpo.core.unit`).

    Of a log, only references tell it that one law describes or whose controls are known; those of a study may fall by anything.
    """
    if not references:
        return 1.0
    has_log = references[0].metric.transform != "identity"
    teaching = Teaching(tuple(coordinates_of(r.recipe) for r in references))
    if has_log and not is_joined and not teaching.controls_for([], settings):
        return 1.0
    found = unit_of([r.residuals for r in references], NODES)
    return rounded(found) if has_log else found


def _by_schedule(group: Sequence[Reference], settings: ShapeSettings) -> list[Family]:
    """Return one label's families of one schedule each, every one with the others as kin."""
    unit = typical_unit(group, settings)
    alone = [Family(tuple(g), settings, unit=unit) for g in _grouped(group, lambda a, b: _same_schedule(a.recipe, b.recipe))]
    return [replace(one, kin=tuple(k for k in alone if k is not one)) for one in alone]


def _of_one_size(group: Sequence[Reference]) -> list[list[Reference]]:
    """Return the references with a known recipe, those of one size and batch together."""
    return _grouped([r for r in group if r.recipe is not None], lambda a, b: are_alike([a.recipe, b.recipe]))


def _joined(group: Sequence[Reference], settings: ShapeSettings) -> list[Family]:
    """Return the families of all schedules, one for each response mean that fits the group well enough."""
    unit, has_log = typical_unit(group, settings, is_joined=True), group[0].metric.transform != "identity"
    means = fit_responses([(r.recipe, _levels(r)) for r in group if r.recipe is not None], unit, is_log=has_log)
    usable = [mean for mean in means if mean.rms * mean.scale <= MAX_RESPONSE_RMS * unit]
    return [Family(tuple(r for r in group if mean.covers(r.recipe)), settings, mean, unit=unit) for mean in usable]


def _levels(reference: Reference) -> FloatArray:
    """Return y at the response mean's grid, NaN before the run's first point and far from any."""
    known = np.isfinite(reference.residuals)
    nodes, rows = np.append(NODES[known], 1.0), np.append(reference.residuals[known], 0.0)
    inside = np.interp(np.log(GRID), np.log(nodes), rows) + float(reference.metric.to_model(reference.final_loss))
    logged = reference.noise.fractions
    near = np.ones(GRID.size, dtype=bool) if logged.size == 0 else _distance(GRID, logged) <= 0.5 * np.gradient(GRID)
    near[-1] = True  # the final value is known
    return np.where((nodes[0] <= GRID) & near, inside, np.nan)


def _distance(to: FloatArray, points: FloatArray) -> FloatArray:
    """Return how far each value is from the nearest of the points."""
    return np.asarray(np.min(np.abs(to[:, None] - points[None, :]), axis=1), dtype=np.float64)


def _grouped(references: Sequence[Reference], alike: Callable[[Reference, Reference], bool]) -> list[list[Reference]]:
    groups: list[list[Reference]] = []
    for reference in references:
        home = next((g for g in groups if alike(reference, g[0])), None)
        if home is None:
            groups.append([reference])
        else:
            home.append(reference)
    return groups


def _same_schedule(a: Recipe | None, b: Recipe | None) -> bool:
    if a is None or b is None:
        return a is None and b is None
    return share_schedule(a, b)
