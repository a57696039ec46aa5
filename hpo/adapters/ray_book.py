"""What one driver knows of its Ray trials, in the form in which the pruner reads a study.

:class:`TrialBook` offers the few things of an Optuna study that :class:`hpo.CollapsePruner` reads, without a storage behind
them, so that the scheduler and the pruner decide alike by construction. Trials count as finished in the order in which they
ended here, not by the clock; a book that is filled from the same events therefore leads to the same decisions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from hpo.adapters.optuna_pruner import CollapsePruner, on_values_alone
from hpo.adapters.optuna_record import TrialDecision
from hpo.adapters.optuna_trials import Follower, guess_recipe
from hpo.adapters.optuna_view import StudyView
from hpo.adapters.ray_kept import StepsInCommon, as_key
from hpo.core.curve import Curve
from hpo.core.decision import check_values
from hpo.core.model import CollapseModel
from hpo.core.recipe import Recipe, recipe_from_dict
from hpo.core.rivals import MOST_RUNNING

Ending = Literal["stopped", "finished", "failed"]
_FIRST = datetime(2000, 1, 1)
_TAUGHT = {TrialState.COMPLETE, TrialState.PRUNED}


@dataclass
class RayTrial:
    """One trial: what it is, what it reported, and how it ended.

    Attributes
    ----------
    status : str
        ``"running"``; ``"stopping"`` once it was told to stop; then one of :data:`Ending`.
    decision, logged : TrialDecision or None
        The last about it, and the last of it that is in the log.
    is_between : bool
        True if the last report fell into the same per cent of training as the one before: that decision still stands.
    failed : str or None
        Which function of the user's failed for it, and how: such a trial is judged by its values alone and teaches nothing.
    """

    frozen: FrozenTrial
    family: str
    recipe: Recipe | None
    horizon: float | None
    status: Literal["running", "stopping", "stopped", "finished", "failed"] = "running"
    first_step: float = -1.0
    last_step: float = -1.0
    decision: TrialDecision | None = None
    logged: TrialDecision | None = None
    is_between: bool = False
    failed: str | None = None

    @property
    def has_ended(self) -> bool:
        """True if nothing more is learned from it."""
        return self.status in ("stopped", "finished")

    def take(self, step: float, value: float) -> None:
        """Take the report of a later step."""
        is_first = not self.frozen.intermediate_values
        self.is_between = not is_first and self.horizon is not None and self._per_cent(step) == self._per_cent(self.last_step)
        self.first_step = step if is_first else self.first_step
        self.last_step = step
        self.frozen.intermediate_values[as_key(step)] = value

    @property
    def rival_forecast(self) -> float | None:
        """Its last forecast final value if it was judged and goes on, else None."""
        known = self.decision
        return known.forecast if known is not None and known.reason in ("may_win", "no_incumbent") else None

    @property
    def teaches(self) -> bool:
        """True if others are judged by it once it has ended: it was stopped, or came to its horizon."""
        has_end = self.status == "stopped" or (self.status == "finished" and self.is_whole)
        return has_end and self.failed is None and bool(self.frozen.intermediate_values)

    @property
    def is_whole(self) -> bool:
        """True if no further report is due before the horizon, or the horizon is unknown."""
        n = len(self.frozen.intermediate_values)
        gap = (self.last_step - self.first_step) / (n - 1) if n > 1 else 0.0
        return self.horizon is None or self.last_step >= self.horizon - max(1.05 * gap, 0.005 * self.horizon)

    def _per_cent(self, step: float) -> int:
        return int(100 * step / (self.horizon or 1.0) + 1e-9)


class TrialBook:
    """All trials of one experiment by Ray's trial id; stands in for an Optuna study where the pruner reads one."""

    study_name = "ray"

    def __init__(self) -> None:
        self.direction = StudyDirection.MINIMIZE
        self.trials: dict[str, RayTrial] = {}
        self.n_finished = 0
        self.has_whole = False
        self._by_number: list[RayTrial] = []
        self._going: dict[str, RayTrial] = {}
        self._finished: list[FrozenTrial] = []
        self._steps = StepsInCommon()

    @property
    def directions(self) -> list[StudyDirection]:
        """The one direction, in a list, as a study has it."""
        return [self.direction]

    @property
    def running(self) -> list[RayTrial]:
        """The trials that run and have not been told to stop."""
        return [trial for trial in self._going.values() if trial.status == "running"]

    def n_open(self, n_trials: int) -> int:
        """Return how many of ``n_trials`` may still be stopped: those that run or are to come, but one if none is whole yet."""
        return len(self.running) + max(n_trials - len(self.trials), 0) - (not self.has_whole)

    def get_trials(self, deepcopy: bool = True, states: Collection[TrialState] | None = None) -> list[FrozenTrial]:
        """Return what has ended so far and can be learned from, in that order; not to be changed."""
        del deepcopy
        if states is None or _TAUGHT.issubset(states):
            return self._finished
        return [t for t in self._finished if t.state in states]

    def add(self, trial_id: str, about: dict[str, Any]) -> RayTrial:
        """Return a trial, new or known; a failed one runs again with the reports that it had.

        Parameters
        ----------
        about : dict
            ``settings`` (numbers and names of its config), ``searched`` (those of them that are searched), ``family``,
            ``recipe`` (as dict) and ``horizon``, or ``failed`` (why the last three are not known); JSON-ready.
        """
        known = self.trials.get(trial_id)
        if known is not None:
            if known.status == "failed":
                known.status, self._going[trial_id] = "running", known
            return known
        frozen = create_trial(state=TrialState.RUNNING, user_attrs=dict(about.get("settings") or {}))
        frozen.params = dict(about.get("searched") or {})  # a study would know their distributions too
        frozen.number = len(self._by_number)
        said = about.get("recipe")
        recipe = guess_recipe(frozen) if said is None else recipe_from_dict(said)
        trial = RayTrial(frozen, about.get("family") or "", recipe, about.get("horizon"), failed=about.get("failed"))
        self.trials[trial_id] = trial
        self._by_number.append(trial)
        self._going[trial_id] = trial
        return trial

    def report(self, trial_id: str, step: float, value: float) -> bool:
        """Take a report; return False if it was ignored because the trial has ended or is already past that step."""
        trial = self.trials[trial_id]
        if trial.has_ended or step <= trial.last_step:
            return False
        trial.take(step, value)
        return True

    def end(self, trial_id: str, how: Ending) -> None:
        """Note how a trial ended; what ended by itself before its horizon, or failed, teaches nothing."""
        trial = self.trials[trial_id]
        if trial.has_ended:
            return
        trial.status = how
        self._going.pop(trial_id, None)
        if how == "failed":  # it may run again
            return
        frozen, teaches = trial.frozen, trial.teaches
        values, frozen.intermediate_values = frozen.intermediate_values, {}
        if not teaches:
            return
        self.n_finished += 1
        self.has_whole = self.has_whole or how == "finished"
        frozen.state = TrialState.COMPLETE if how == "finished" else TrialState.PRUNED
        frozen.value = values[next(reversed(values))]
        frozen.datetime_complete = _FIRST + timedelta(seconds=self.n_finished)
        frozen.intermediate_values = self._steps.keep(values)  # type: ignore[assignment]
        self._finished.append(frozen)

    def of(self, trial: FrozenTrial) -> RayTrial:
        """Return the trial that one of :meth:`get_trials`, or a running one's ``frozen``, belongs to."""
        return self._by_number[trial.number]

    def horizon_of(self, trial: FrozenTrial) -> float | None:
        """Return the last step of a full run of a trial."""
        return self.of(trial).horizon

    def recipe_of(self, trial: FrozenTrial) -> Recipe | None:
        """Return the recipe of a trial."""
        return self.of(trial).recipe

    def family_of(self, trial: FrozenTrial) -> str | None:
        """Return the family label of a trial, None if none was given."""
        return self.of(trial).family or None


class BookPruner(CollapsePruner):
    """The pruner over a book.

    Reading a book costs nothing, so whatever has ended is heeded at the next report; and a trial is judged at its first report
    in each per cent of training, whatever others do meanwhile. A decision then follows from the events before it alone, in a
    restarted driver as in the first.
    """

    def __init__(
        self, book: TrialBook, model: CollapseModel | str | Path | None, n_trials: int | None = None, **settings: Any
    ) -> None:
        super().__init__(model, total_steps=book.horizon_of, recipe=book.recipe_of, family=book.family_of, **settings)
        self._book, self._n_trials = book, n_trials
        self._n_seen = 0

    def judge(self, trial: RayTrial) -> TrialDecision:
        """Return the decision about a trial after its last report, and keep it there."""
        self.prune(self._book, trial.frozen)  # type: ignore[arg-type]
        trial.decision = self._decisions[self._book.study_name, trial.frozen.number]
        return trial.decision

    def let_go(self, trial: RayTrial) -> None:
        """Forget how far a trial that has ended was followed; one that runs again is followed anew."""
        self.view_of(self._book).followers.pop(trial.frozen.number, None)  # type: ignore[arg-type]

    def release(self, trial_number: int) -> None:
        """Take back what was done by hand about a trial."""
        self._by_hand.withdraw(self._book.study_name, trial_number)

    def _running_rivals(self, view: StudyView, trial: FrozenTrial) -> Sequence[Curve]:
        """Return the curves of the running trials with the best forecasts: here it is known who still runs."""
        sign = -1.0 if self._book.direction == StudyDirection.MAXIMIZE else 1.0
        others = [known for known in self._book.running if known.frozen is not trial]
        may_win = [(sign * f, one.frozen.number, one.frozen) for one in others if (f := one.rival_forecast) is not None]
        best = sorted(may_win, key=lambda rival: rival[:2])[:MOST_RUNNING]
        rivals = sorted((frozen for *_, frozen in best), key=lambda frozen: frozen.number)
        return [view.curve_of(frozen, view.follow(frozen)) for frozen in rivals]

    def _n_open(self) -> int | None:
        return None if self._n_trials is None else self._book.n_open(self._n_trials)

    def _said_at_stop(self, trial: FrozenTrial) -> float | None:
        decision = self._book.of(trial).decision
        return None if decision is None or decision.reason != "cannot_win" else decision.p_best

    def _is_look_due(self, follower: Follower) -> bool:
        del follower
        before, self._n_seen = self._n_seen, self._book.n_finished
        return before != self._n_seen

    def _judge(self, view: StudyView, follower: Follower, trial: FrozenTrial) -> TrialDecision:
        known = self._book.of(trial)
        if known.failed is not None:
            return on_values_alone(trial, "function_failed", known.failed)
        if known.is_between and known.decision is not None and check_values(view.curve_of(trial, follower)) is None:
            return known.decision
        follower.judged = None
        return super()._judge(view, follower, trial)
