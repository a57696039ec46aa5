"""The collapse model: references in, forecasts of final values out.

:class:`CollapseModel` is a value: its references (complete curves of cheaper or finished runs, reduced to the grid) and its
settings. References are grouped into families of one metric, one family label and one schedule; a forecast uses the family
its curve belongs to, aligned by generalised least squares (:mod:`hpo.core.posterior`) to the family's shape
(:mod:`hpo.core.shape`), or it abstains and says why. What is fitted follows from the references, so that the saved model
holds no matrix that a reader could not check.

With its variances at zero a forecast is the papers' surrogate with early-align (see :class:`hpo.core.shape.ShapeSettings`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpo.core.beyond import distances, drift_apart, kept_level
from hpo.core.coordinates import coordinates_of, kind_of
from hpo.core.curve import Curve
from hpo.core.forecast import Forecast, SweepForecast
from hpo.core.found import Found
from hpo.core.hindsight import Correction
from hpo.core.landscape import Landscape, fit_landscape, joint_dof, update
from hpo.core.landscape_point import Point, point_of
from hpo.core.landscape_trust import LandscapeOf, Trust
from hpo.core.looking_back import Home, LookingBack
from hpo.core.metric import Metric
from hpo.core.model_settings import ModelSettings
from hpo.core.posterior import Law, align_jointly, mixed_dof, noise_of_ends, probability_best
from hpo.core.prefix import prefixes_of
from hpo.core.ranks import chance_by_rank, have_ranks, pooled
from hpo.core.recipe import Recipe
from hpo.core.references import Family, Reference, families_of, has_label, is_reference, mixed_families_of, typical_unit
from hpo.core.remembered import Remembered
from hpo.core.response import ResponseMean
from hpo.core.rivals import Finished
from hpo.core.standing import Prefix

FloatArray = NDArray[np.float64]
SCHEMA = 1
COMMON_NOISE = 0.75
"""Share of the noise of final values that tells no trial from another: nearly all where they see the data in one order, little
where they do not (between the two as recorded studies order it)."""
PAST_HORIZON = 0.01
"""Runs may end a report after their stated horizon; further on the horizon is not believed."""


class CollapseModel:
    """References and settings; immutable. Build it with :meth:`fit`."""

    def __init__(self, references: Sequence[Reference], settings: ModelSettings | None = None) -> None:
        self.settings = settings or ModelSettings()
        self.references = tuple(references)
        self.families = families_of(self.references, self.settings.shape)
        self._every_family = (*self.families, *mixed_families_of(self.references, self.settings.shape))
        self._landscapes: dict[tuple[str, Metric, ResponseMean | None], LandscapeOf | None] = {}
        self._kinds = {kind_of(r.recipe) for r in self.references}
        self._last: tuple[tuple[Curve, ...], Found] | None = None
        self._homes: Remembered[tuple[str, Metric, Recipe | None], Home | None] = Remembered()
        self._points: Remembered[Hashable, Point] = Remembered()
        self._back = LookingBack(self._every_family, self.settings.shape)

    @classmethod
    def fit(cls, curves: Sequence[Curve], settings: ModelSettings | None = None) -> CollapseModel:
        """Return the model of all usable references among ``curves``.

        Used are complete curves whose values are finite, not diverging, inside the metric's domain, and whose first point
        lies in the first half of training; others are left out. Order does not matter to any forecast. ``ValueError`` if
        ``curves`` is no list of curves.
        """
        strange = [curves] if not isinstance(curves, Sequence) else [c for c in curves if not isinstance(c, Curve)]
        if strange:
            raise ValueError(f"curves must be a list of Curve; found {strange[0]!r:.80}")
        usable = sorted((c for c in curves if is_reference(c)), key=lambda c: c.run_id)
        return cls([Reference.of(c) for c in usable], settings)

    def without(self, run_id: str) -> CollapseModel:
        """Return the model without the references of that run: a run must not be forecast from its own end."""
        kept = [r for r in self.references if r.run_id != run_id]
        return self if len(kept) == len(self.references) else CollapseModel(kept, self.settings)

    def family_of(self, curve: Curve) -> Family | None:
        """Return the family a curve belongs to, None if there is none.

        The references of its own schedule, if they span its controls; else those of all schedules joined by a response mean,
        if there is one, rather by one of its own rate; else those of its own schedule after all. None for a run that has none
        of these: it may still be forecast from what all schedules have in common, widely.
        """
        home = self._home_of(curve)
        return None if home is None or home[0] >= len(self.families) else self.families[home[0]]

    def _home_of(self, curve: Curve) -> Home | None:
        return self._homes.get((curve.family, curve.metric, curve.recipe), lambda: self._find_home(curve))

    def _find_home(self, curve: Curve) -> Home | None:
        every = self._every_family
        matches = [k for k, f in enumerate(every) if f.accepts(curve.family, curve.metric, curve.recipe)]
        if not matches:
            return None
        best = max(matches, key=lambda k: (every[k].suits(curve.recipe), len(every[k].references)))
        return best, every[best].controls_for([coordinates_of(curve.recipe)])

    def forecast(self, curve: Curve) -> Forecast:
        """Return the forecast of one run by itself."""
        return self._align([curve]).forecasts([curve])[0]

    def forecast_many(self, curves: Sequence[Curve], rng: np.random.Generator) -> SweepForecast:
        """Return forecasts of a sweep's runs made together, with P(best) from joint draws.

        Runs of one family share its shape's uncertainty, and the landscape of finished runs bears on their differences.
        """
        found = self._with_landscape(curves, self._align(curves))
        forecasts = found.forecasts(curves)
        p_best = np.full(len(curves), np.nan)
        if not found.law.members:
            return SweepForecast(forecasts, p_best, np.full((self.settings.n_draws, len(curves)), np.nan))
        noise = COMMON_NOISE * np.array([found.ends.get(i, 0.0) for i in found.law.members])
        drawn = replace(found.law, covariance=found.law.covariance - np.diag(noise)).draw(rng, self.settings.n_draws)
        p_best[found.law.members] = probability_best(drawn)
        if found.law.members == list(range(len(curves))):
            return SweepForecast(forecasts, p_best, drawn)
        draws = np.full((self.settings.n_draws, len(curves)), np.nan)
        draws[:, found.law.members] = drawn
        return SweepForecast(forecasts, p_best, draws)

    def joint_law(self, curves: Sequence[Curve], finished: Sequence[Finished] = (), noise: float = 0.0) -> Law:
        """Return the joint law of the final values of runs and of finished runs, whose values are known exactly.

        Members count through ``curves``, then ``finished``. As in :meth:`forecast_many`, the landscape bears on differences;
        the finished ones tie it to their level.

        Parameters
        ----------
        noise : float
            Variance of the first run's final value that is left out, as it is of the finished runs' levels.
        """
        found = self._align(curves)
        law, about = found.law, found.about
        level = np.array([f.level for f in finished])
        n = len(law.members)
        covariance = np.zeros((n + level.size, n + level.size))
        covariance[:n, :n] = law.covariance
        if law.members and law.members[0] == 0:
            covariance[0, 0] = max(covariance[0, 0] - noise, 0.0)
            about = {**about, 0: {**about.get(0, {}), "end_sd": math.sqrt(max(found.ends.get(0, 0.0) - noise, 0.0))}}
        ended = range(len(curves), len(curves) + level.size)
        whole = Law([*law.members, *ended], np.concatenate((law.level, level)), covariance, (*law.dofs, *[np.inf] * level.size))
        status = {**found.status, **dict.fromkeys(ended, "complete")}
        return self._with_landscape([*curves, *(f.run for f in finished)], Found(whole, status, about)).law

    def heeding_ranks(self, chance: float | None, curve: Curve, best: float | None) -> float | None:
        """Return the ``chance`` that a run ends below ``best``, on the model's scale, pooled with the one that ranks tell.

        See :mod:`hpo.core.ranks`; as it was where ranks tell none, or ``best`` is not known.
        """
        if chance is None or best is None or curve.is_complete or (home := self._home_of(curve)) is None:
            return chance
        known, correction = self._back.at(home, curve)
        law = self._align([curve]).law if have_ranks(known) else Law.of([])
        return pooled(chance, chance_by_rank(known, correction, float(law.level[0]), best)) if law.members else chance

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict with a ``schema`` number."""
        return {
            "schema": SCHEMA,
            "settings": self.settings.to_dict(),
            "references": [r.to_dict() for r in self.references],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CollapseModel:
        """Return the model of :meth:`to_dict`.

        Raises
        ------
        ValueError
            Not a model, a newer schema, or malformed content.
        """
        schema = data.get("schema") if isinstance(data, Mapping) else None
        if not isinstance(schema, int):
            raise ValueError("not a collapse model: it has no schema number")
        if schema > SCHEMA:
            raise ValueError(f"model schema {schema} is newer than this version reads ({SCHEMA}); upgrade collapse-hpo")
        references = data.get("references")
        if not isinstance(references, Sequence) or not isinstance(data.get("settings"), Mapping):
            raise ValueError("not a collapse model: references and settings are missing")
        return cls([Reference.from_dict(r) for r in references], ModelSettings.from_dict(data["settings"]))

    def _with_landscape(self, curves: Sequence[Curve | Reference], found: Found) -> Found:
        """Return what has been found once the landscape of each label and metric has been taken into account.

        Nobody whose curve misleads is judged, unless the landscape mends that.
        """
        law, status = found.law, dict(found.status)
        level, covariance, dofs = law.level.copy(), law.covariance.copy(), list(law.dofs)
        for own, landscape, points in self._reached(curves, law):
            block, runs = np.ix_(own, own), [curves[law.members[k]] for k in own]
            trusts = [self._trust(landscape, run) for run in runs]
            told = law.level[own], law.covariance[block], np.array([found.ends.get(law.members[k], 0.0) for k in own])
            level[own], covariance[block] = self._meeting(landscape[0], points, runs, trusts, told)
            for k, trust in zip(own, trusts, strict=True):
                dofs[k] = joint_dof(dofs[k], law.covariance[k, k], covariance[k, k], landscape[0].dof)
                if not trust.misleads and status[law.members[k]] == "misleading":
                    status[law.members[k]] = "ok"
        together = replace(law, level=level, covariance=covariance, dofs=tuple(dofs))
        return Found(together, status, found.about).without_misleading()

    def _reached(self, curves: Sequence[Curve | Reference], law: Law) -> Iterator[tuple[list[int], LandscapeOf, list[Point]]]:
        """Yield, of each label and metric, the members that its landscape bears on (two or more), it, and where they lie."""
        groups: dict[tuple[str, Metric], list[int]] = {}
        for k, i in enumerate(law.members):
            groups.setdefault((curves[i].family, curves[i].metric), []).append(k)
        for (family, metric), own in groups.items():
            known = self._landscape([curves[law.members[k]] for k in own], family, metric)
            if known is None:
                continue
            landscape, points = known
            reached = [j for j, is_reached in enumerate(landscape[0].bears_on(points)) if is_reached]
            if len(reached) > 1:
                yield [own[j] for j in reached], landscape, [points[j] for j in reached]

    def _meeting(
        self,
        landscape: Landscape,
        points: Sequence[Point],
        runs: Sequence[Curve | Reference],
        trusts: Sequence[Trust],
        told: tuple[FloatArray, FloatArray, FloatArray],
    ) -> tuple[FloatArray, FloatArray]:
        """Return level and covariance of runs from what their curves have ``told`` and from a landscape.

        The noise of a final value, the third of what is told (a variance), is in both, and is no error of either: they are
        taken together without it.
        """
        level, before, noise = told
        mean, spread = landscape.prior(points)
        doubt = np.sqrt([trust.factor for trust in trusts])
        apart = distances([kind_of(run.recipe) for run in runs], self._kinds)
        spread = spread * np.outer(doubt, doubt) + drift_apart(landscape.rates(points), apart, landscape.unit)
        spread -= np.diag(np.minimum(noise, (doubt * landscape.noise) ** 2))
        level, after = update(level, before - np.diag(noise), mean, spread, landscape.unit)
        after += np.diag(noise)
        return level, after + kept_level(before, after, apart, landscape.unit)

    def landscape_of(
        self, recipes: Sequence[Recipe | None], family: str, metric: Metric
    ) -> tuple[Landscape | None, ResponseMean | None]:
        """Return the landscape of the references of one label and metric, None with too few.

        And the response mean that it is about, if there is one that covers all ``recipes``.
        """
        response = self._response_for(recipes, family, metric)
        known = self._landscape_about(family, metric, response)
        return None if known is None else known[0], response

    def _response_for(self, recipes: Sequence[Recipe | None], family: str, metric: Metric) -> ResponseMean | None:
        means = [f.response for f in self.families if f.response is not None and f.has_label(family, metric)]
        of_all_rates_first = sorted(means, key=lambda mean: mean.rates is not None)  # laws of single rates share no level
        return next((mean for mean in of_all_rates_first if all(mean.covers(r) for r in recipes)), None)

    def _landscape_about(self, family: str, metric: Metric, response: ResponseMean | None) -> LandscapeOf | None:
        """Return a landscape and the references that it is fitted to, None with too few; fitted once."""
        key = (family, metric, response)
        if key not in self._landscapes:
            runs = [r for r in self.references if has_label(r, family, metric)]
            runs = [r for r in runs if response is None or response.covers(r.recipe)]
            finals = metric.to_model([r.final_loss for r in runs])
            unit = typical_unit(runs, self.settings.shape) if response is None else response.unit
            fitted = fit_landscape([point_about(r.recipe, r.settings, response) for r in runs], finals, unit)
            self._landscapes[key] = None if fitted is None else (fitted, runs)
        return self._landscapes[key]

    def _trust(self, landscape: LandscapeOf, run: Curve | Reference) -> Trust:
        """Return how far a landscape is believed for a run that has got so far (:mod:`hpo.core.landscape_trust`)."""
        home = None if isinstance(run, Reference) or run.is_complete else self._home_of(run)
        return Trust() if home is None or isinstance(run, Reference) else self._back.trust(landscape, home, run)

    def _landscape(
        self, curves: Sequence[Curve | Reference], family: str, metric: Metric
    ) -> tuple[LandscapeOf, list[Point]] | None:
        """Return the landscape of one label and metric and where runs lie in it, about the response mean if that covers all."""
        if not self.settings.landscape:
            return None
        response = self._response_for([c.recipe for c in curves], family, metric)
        known = self._landscape_about(family, metric, response)
        return None if known is None else (known, [self._place_of(c, response) for c in curves])

    def _place_of(self, run: Curve | Reference, response: ResponseMean | None) -> Point:
        """Return :func:`point_about` of a run, remembered: a running trial and its rivals are asked about again and again."""
        key = (id(response), run.recipe, *run.settings.items())  # a model's means live as long as it does
        try:
            return self._points.get(key, lambda: point_about(run.recipe, run.settings, response))
        except TypeError:  # a setting that has no hash
            return point_about(run.recipe, run.settings, response)

    def _align(self, curves: Sequence[Curve]) -> Found:
        """Return who is judged, their joint law from the prefixes, and what is known of each run.

        The last answer is kept: a run that is forecast is then often asked about among its rivals.
        """
        last = self._last
        if last is not None and len(last[0]) == len(curves) and all(a is b for a, b in zip(last[0], curves, strict=True)):
            return last[1]
        found = self._align_anew(curves)
        self._last = (tuple(curves), found)
        return found

    def _align_anew(self, curves: Sequence[Curve]) -> Found:
        found = Found(Law.of([]), {}, {})
        groups: dict[Home, list[int]] = {}
        blocks: list[_Block] = []
        for i, curve in enumerate(curves):
            status = self._abstains(curve)
            if status is not None:
                found.status[i] = status
            elif curve.final_loss is not None:
                found.status[i] = "complete"
                blocks.append(([i], curve.metric.to_model([curve.final_loss]), np.zeros((1, 1)), (np.inf,)))
            else:
                home = self._home_of(curve)
                if home is None:
                    found.status[i] = "no_family"
                    continue
                groups.setdefault(home, []).append(i)
        for home, members in groups.items():
            blocks += self._align_group(home, members, curves, found)
        return replace(found, law=Law.of(blocks))

    def _abstains(self, curve: Curve) -> str | None:
        """Return the status under which a curve is not judged whatever its family, None if none applies."""
        if curve.nonfinite_step is not None:
            return "non_finite"
        if curve.fraction_seen is None:
            return "unknown_horizon"
        if curve.fraction_seen > 1.0 + PAST_HORIZON:
            return "past_horizon"
        return None if curve.is_complete or self.references else "no_references"

    def _align_group(self, home: Home, members: list[int], curves: Sequence[Curve], found: Found) -> list[_Block]:
        """Return one group's joint law without the runs that cannot be judged; note statuses and misfits."""
        shape = self._every_family[home[0]].fit(home[1])
        judged = self._judged(home, members, curves, found)
        if not judged:
            return []
        runs, prefixes = [curves[i] for i in judged], list(judged.values())
        back = [self._back.at(home, run) for run in runs]
        aligned = align_jointly(prefixes, shape.covariance, shape.settings.scale_dof)
        if not home[1]:  # else controls say why a run is apart from others
            aligned = replace(aligned, scale=self._back.scales(back, runs, aligned))
        scales = np.array([shape.calibration(run.fraction_seen or 1.0) for run in runs])
        covariance = aligned.scaled(scales)
        if shape.noise is not None:
            own, shared = noise_of_ends(prefixes, shape.noise)
            covariance = covariance + (shared + np.diag(own)) * np.outer(scales, scales)
            for k, i in enumerate(judged):
                found.about[i]["end_sd"] = float(scales[k] * np.sqrt(own[k]))
                found.about[i]["shared_end_sd"] = float(scales[k] * np.sqrt(shared[k, k]))
        level = np.array([correction.of(aligned.level[k]) for k, (_, correction) in enumerate(back)])
        dofs = tuple(mixed_dof(shape.dof, float(share)) for share in aligned.noise_share)
        return [(list(judged), level, covariance, dofs)]

    def _judged(self, home: Home, members: list[int], curves: Sequence[Curve], found: Found) -> dict[int, Prefix]:
        """Return the prefixes of a group's runs that can be judged, by position; note what is known of all.

        Not those of runs that left the family: they say nothing of the others.
        """
        family, controls = self._every_family[home[0]], home[1]
        made = prefixes_of([curves[i] for i in members], family, family.fit(controls))
        about = {"family": family.name, "n_references": len(family.references), "controls": controls}
        judged = {}
        for i, prefix in zip(members, made, strict=True):
            found.about[i], found.status[i] = dict(about), "too_few_points"
            if prefix is None or prefix.standing is None:
                continue
            found.about[i]["misfit"] = prefix.standing.misfit
            found.status[i] = self._status_of(prefix.standing.misfit, self._back.at(home, curves[i])[1])
            if found.status[i] != "bad_misfit":
                judged[i] = prefix
        return judged

    def _status_of(self, misfit: float, correction: Correction) -> str:
        if misfit > self.settings.max_misfit:
            return "bad_misfit"
        return "misleading" if correction.misleads else "ok"


def point_about(recipe: Recipe | None, settings: Mapping[str, Any], response: ResponseMean | None) -> Point:
    """Return a run's place in the landscape; with a response mean that covers it, its recipe says all that matters."""
    if response is None or recipe is None or not response.covers(recipe):
        return point_of(recipe, settings if response is None else {})
    return point_of(recipe, {}, response.final(recipe))


_Block = tuple[list[int], FloatArray, FloatArray, tuple[float, ...]]
