"""A run of which more is known than of its references: what they do not say cannot contradict it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpo.adapters.curve_files import RecordedRun
    from hpo.core.recipe import Recipe


def as_little_known(run: RecordedRun, references: Sequence[Recipe | None]) -> tuple[RecordedRun, str]:
    """Return the run with no more of a recipe than its references have, and the words for what is left out ("": nothing).

    Without a recipe where none of them has one, and without a schedule where none of them names one. Where neither side says a
    schedule and the run has no recipe, it has theirs.
    """
    from hpo.core.schedules import unknown_schedule

    known = [one for one in references if one is not None]
    own = run.recipe
    if not references or (own is None and (not known or any(one.schedule.is_known for one in known))):
        return run, ""
    if not known:
        return replace(run, recipe=None), "the references do not say their recipe, so the run's is not compared with it"
    if own is None:
        return replace(run, recipe=known[0]), ""
    is_unnamed = len(known) == len(references) and all(one.schedule == unknown_schedule("") for one in known)
    if not own.schedule.is_known or not is_unnamed:
        return run, ""
    words = f"the references do not name their schedule, so the run's, {own.schedule}, is not compared with it"
    return replace(run, recipe=replace(own, schedule=known[0].schedule)), words
