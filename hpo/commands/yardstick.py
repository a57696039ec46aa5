"""What ``hpo monitor`` holds a run against: a model's family, or finished runs, and what is assumed where the log says little.

References are finished, as the user says: one whose log does not say its length ended where its log ends. A log hardly ever
says its schedule, and one that was resumed with a wrong learning rate shows another one than was meant. So where the file does
not name it, the run's schedule is taken to be that of all its references, if they have one; and it is said. Where neither says
one, schedules are not compared, whatever else of a recipe the logs hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hpo.commands.little_known import as_little_known

if TYPE_CHECKING:
    from hpo.adapters.curve_files import RecordedRun
    from hpo.core.common_noise import CommonNoise, FreedTemplate, Points
    from hpo.core.model import CollapseModel
    from hpo.core.monitor import Monitor
    from hpo.core.recipe import Recipe
    from hpo.core.template import Template


@dataclass(frozen=True, kw_only=True)
class Yardstick:
    """What the user names: a model file, or reference logs.

    Attributes
    ----------
    reference_run : str or None
        Which runs of the reference logs: an id, or a wildcard over ids.
    same_data : bool
        The references saw the run's batches.
    total : float or None
        Length of the run.
    force : bool
        Another family or metric is accepted.
    """

    model: Path | None
    references: Sequence[str] = ()
    reference_run: str | None = None
    same_data: bool = False
    total: float | None = None
    force: bool = False
    _read: dict[str, list[RecordedRun]] = field(default_factory=dict, repr=False)

    def monitor_of(self, run: RecordedRun) -> tuple[Callable[[], Monitor], tuple[str, ...]]:
        """Return a maker of monitors of the run, which a log that is written anew asks for again, and what is assumed.

        Raises
        ------
        ValueError
            Unknown length, or nothing to hold the run against.
        """
        from hpo.core.monitor import Monitor

        horizon = run.horizon if self.total is None else self.total
        if horizon is None:
            raise ValueError(
                f"run {run.run_id}: its total number of steps is unknown, so the fraction of training is: give --total"
            )
        run, notes = self._with_schedule(self._on_their_scale(run))
        asked, left_out = as_little_known(run, self._recipes(run))
        notes += (f"run {run.run_id}: {left_out}",) if left_out else ()
        if any(_is_same_log(one, run) for one in self._read.get(run.metric.name, ())):
            notes += (f"run {run.run_id}: it is among the references as well: left out of them",)
        template, common = self._template_of_model(asked) if self.model is not None else self._template_of_references(asked)
        freed = None if self.model is not None or self.same_data else self._if_same_data(asked, template)
        make = partial(Monitor, template, run.recipe, total=horizon, metric=run.metric, common=common, if_same_data=freed)
        return make, notes

    def _on_their_scale(self, run: RecordedRun) -> RecordedRun:
        """Return the run with the metric of its references: one value of 0 does not put a loss on another scale."""
        known = [one.metric for one in (self._fitted().references if self.model is not None else self._healthy(run))]
        theirs = next((one for one in known if (one.name, one.mode) == (run.metric.name, run.metric.mode)), run.metric)
        return run if theirs.end != run.metric.end else replace(run, metric=theirs)

    def _with_schedule(self, run: RecordedRun) -> tuple[RecordedRun, tuple[str, ...]]:
        """Return the run under its references' schedule where its own is not named, and the words for it."""
        from hpo.core.recipe import Recipe
        from hpo.core.schedules import schedules_match

        own, theirs = run.recipe, [one for one in self._recipes(run) if one is not None and one.schedule.is_known]
        named = own is not None and own.schedule.is_known and own.schedule.name != "recorded"
        if named or not theirs or not all(schedules_match(one.schedule, theirs[0].schedule) for one in theirs):
            return run, ()
        first = theirs[0]
        if own is not None and own.schedule.is_known and schedules_match(own.schedule, first.schedule):
            return run, ()
        warmup = own.warmup_fraction if own is not None and own.warmup_fraction is not None else first.warmup_fraction
        recipe = replace(own or Recipe(schedule=first.schedule), schedule=first.schedule, warmup_fraction=warmup)
        if own is not None and own.schedule.is_known:
            said = f"the logged learning rate is not that of the references: held against theirs, {first.schedule}"
        else:
            said = f"the log does not name its schedule: taken to be that of the references, {first.schedule}"
        return replace(run, recipe=recipe), (f"run {run.run_id}: {said}",)

    def _recipes(self, run: RecordedRun) -> list[Recipe | None]:
        if self.model is None:
            return [one.recipe for one in self._healthy(run)]
        return [one.recipe for one in self._fitted().references if one.metric.name == run.metric.name]

    def _healthy(self, run: RecordedRun) -> list[RecordedRun]:
        """Return the reference runs but the run itself, which it would always follow, with its metric; read once a metric."""
        from hpo.adapters.curve_files import read_runs

        name = run.metric.name
        if name not in self._read:
            try:
                found = read_runs(self.references, metric=name)
            except ValueError as error:
                found = read_runs(self.references)
                if not self.force:
                    raise ValueError(f"--reference: {error} (--force accepts another metric)") from None
            read = [one for one in found if self._is_wanted(one.run_id)]
            if not read:
                raise ValueError(f"--reference-run: expected a reference's id or a wildcard; found {self.reference_run!r}")
            self._read[name] = [one if one.horizon is not None else replace(one, horizon=float(one.steps[-1])) for one in read]
        others = [one for one in self._read[name] if not _is_same_log(one, run)]
        if not others:
            raise ValueError(f"--reference: expected another run than {run.run_id}; found the same log")
        return others

    def _is_wanted(self, run_id: str) -> bool:
        return self.reference_run is None or run_id == self.reference_run or fnmatchcase(run_id, self.reference_run)

    def _fitted(self) -> CollapseModel:
        from hpo.adapters.model_files import read_model

        if self.model is None:
            raise ValueError("expected --model; found none")
        return read_model(self.model)

    def _template_of_references(self, run: RecordedRun) -> tuple[Template, CommonNoise | None]:
        """Return the template of the reference runs, and the noise that they share with the run if they saw the same data."""
        from hpo.core.common_noise import fit_with_common_noise
        from hpo.core.model import CollapseModel
        from hpo.core.template import template_of_reference

        healthy = self._healthy(run)
        for one in healthy:
            for name, mine, theirs in (("family", run.family, one.family), ("metric", run.metric.name, one.metric.name)):
                if mine and theirs and mine != theirs and not self.force:
                    raise ValueError(f"--reference: expected the run's {name} {mine!r}; found {theirs!r} (--force accepts it)")
        if len(healthy) == 1 and not self.same_data:
            return template_of_reference(healthy[0].curve()), None
        template, common = self._template(CollapseModel.fit([one.curve() for one in healthy]), run), None
        if self.same_data and template is not None:
            model, common = fit_with_common_noise(self._points(run))
            freed = self._template(model, run)
            template = None if freed is None else freed.wandering_as(template)
        if template is None:
            raise ValueError(
                f"--reference: none of {len(healthy)} runs is complete with the run's metric and schedule; found "
                f"{', '.join(sorted({str(one.recipe.schedule) if one.recipe else 'no schedule' for one in healthy}))}"
            )
        return template, common

    def _if_same_data(self, run: RecordedRun, as_they_are: Template) -> FreedTemplate | None:
        """Return the template freed of the noise that the references share, None where they share none to speak of."""
        from hpo.core.common_noise import FreedTemplate, fit_with_common_noise

        points = self._points(run)
        if len(points) < 2:  # one reference's noise cancels by itself, or cannot be told from its shape
            return None
        try:
            model, common = fit_with_common_noise(points)
        except ValueError:
            return None
        freed = self._template(model, run)
        return None if freed is None else FreedTemplate(freed.wandering_as(as_they_are), common)

    def _points(self, run: RecordedRun) -> list[Points]:
        """Return the references that are not the run itself for a while (resumed from one checkpoint)."""
        from hpo.core.common_noise import Points, shares_trunk

        points = [Points(one.curve(), one.steps, one.values) for one in self._healthy(run)]
        return [one for one in points if not shares_trunk(one, run.steps, run.values)]

    def _template(self, model: CollapseModel, run: RecordedRun) -> Template | None:
        from hpo.core.template import template_of_model

        first = self._healthy(run)[0]
        family = first.family if self.force else run.family
        return template_of_model(model, first.metric if self.force else run.metric, run.recipe, family)

    def _template_of_model(self, run: RecordedRun) -> tuple[Template, None]:
        from hpo.core.template import template_of_model

        model = self._fitted()
        template = template_of_model(model, run.metric, run.recipe, run.family)
        if template is None and self.force and model.references:
            other = model.references[0]
            template = template_of_model(model, other.metric, other.recipe, other.family)
        if template is None:
            found = ", ".join(family.name for family in model.families[:4]) or "no references"
            raise ValueError(
                f"--model: no family of {self.model} has the run's metric, family and schedule; found {found} "
                "(--force accepts one)"
            )
        return template, None


def _is_same_log(one: RecordedRun, other: RecordedRun) -> bool:
    import numpy as np

    return np.array_equal(one.steps, other.steps) and np.array_equal(one.values, other.values, equal_nan=True)
