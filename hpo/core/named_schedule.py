"""A schedule of which only the name is known, and what finished runs of that name recorded.

Of a run that goes on the logged learning rate says nothing of the rest. Its schedule's name does, once other runs of that name
have come to their end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hpo.core.curve import Curve
from hpo.core.recipe import Recipe, share_schedule


def with_named_schedule(curve: Curve, others: Iterable[Recipe | None]) -> Curve:
    """Return the curve with the schedule that other runs of its schedule's name recorded.

    The same object if its schedule is known or has no name, or if the others do not agree within the tolerance of
    :func:`hpo.core.schedules.schedules_match`.
    """
    recipe = curve.recipe
    if recipe is None or recipe.schedule.is_known or not recipe.schedule.label:
        return curve
    known = [r for r in others if r is not None and r.schedule.is_known and r.schedule.label == recipe.schedule.label]
    if not known:
        return curve
    first, *rest = known
    if not all(share_schedule(first, other) for other in rest):
        return curve
    return replace(curve, recipe=replace(recipe, schedule=first.schedule))
