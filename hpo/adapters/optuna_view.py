"""What one process knows of a study: finished trials as references, the incumbent, and the error already spent.

Reading a study's trials is what makes pruners slow, so a view is refreshed only when the pruner asks. Finished trials never
change; each is read once, in the order in which they finished, and everything here follows from them alone. Which of them
serve as references, and the best level among them, is kept by :mod:`hpo.adapters.optuna_references`. A process that
opens the study later therefore comes to the same references, incumbent and spent error: for a PRUNED trial the decision is
made again from its stored reports and from what had finished before it, and where that decision is a stop by forecast, its
probability of being best counts as spent; where it is not, what the trial itself says it was stopped with does. Trials that
another pruner or a person stopped spend nothing.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from math import inf, isfinite
from statistics import median

import numpy as np
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from hpo.adapters.optuna_audit import Audit
from hpo.adapters.optuna_references import References
from hpo.adapters.optuna_scale import TYPICAL_FALL, Extremes, Kind, Scale, extremes_of, kind_for, late_fall
from hpo.adapters.optuna_trials import AnyTrial, Follower, FunctionError, Horizons, TrialReader, finished_curve
from hpo.core.curve import Curve
from hpo.core.decision import Decision, StoppingSettings, SweepState, decide, is_decided_early
from hpo.core.model import CollapseModel
from hpo.core.references import Reference, is_reference
from hpo.core.rivals import probability_lowest
from hpo.core.usual_rise import without_usual_rise

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
SPREAD_FROM = 3
"""Finished trials from which the spread of values without a log is taken."""
UNLABELLED = "study"


class StudyView:
    """One process's knowledge of one study; guard its use by :attr:`lock`.

    Parameters
    ----------
    sign : float
        1 for a study that minimises, −1 for one that maximises.
    model : CollapseModel or None
        References from elsewhere, of one metric.
    transform : str or None
        Scale of the values; None follows from them.
    audit : Audit or None
        Told how trials ended.
    counts_would_be_stops : bool
        Spend error for trials that would have been stopped and finished (shadow mode).
    stops_diverging : bool
        False: a trial that rises is judged as any other.
    said_at_stop : callable or None
        Returns the P(best) with which a PRUNED trial was stopped by its forecast, as it says itself; None if it does not.
    """

    def __init__(
        self,
        sign: float,
        reader: TrialReader,
        settings: StoppingSettings,
        model: CollapseModel | None = None,
        transform: Kind | None = None,
        audit: Audit | None = None,
        counts_would_be_stops: bool = False,
        stops_diverging: bool = True,
        said_at_stop: Callable[[FrozenTrial], float | None] | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.reader, self.settings = reader, settings
        self._without_margin = replace(settings, margin=0.0)
        self.followers: dict[int, Follower] = {}
        self.pending: dict[int, float] = {}
        self.version = 0
        self._has_complained = self._has_told_of_scale = self._has_told_of_rises = False
        self._n_risen, self._has_told_of_length = 0, False
        self.audit = audit or Audit(0.0)
        self.is_suspended = False
        self._sign, self._base, self._transform = sign, model, transform
        self._counts_would_be_stops, self._stops_diverging = counts_would_be_stops, stops_diverging
        self._said_at_stop = said_at_stop or (lambda _trial: None)
        self._seen: set[int] = set()
        self._extremes = Extremes()
        self._horizons = Horizons()
        self._settled: dict[float | None, float | None] = {}
        labels = {r.family for r in self.given}
        self._label = labels.pop() if len(labels) == 1 else UNLABELLED
        self.scale = self._scale_for(Extremes())
        self._references = References(model, self._curve)
        self._spent: dict[int, float] = {}
        self._spent_in_all = 0.0

    @property
    def given(self) -> tuple[Reference, ...]:
        """References from elsewhere."""
        return () if self._base is None else self._base.references

    @property
    def best_level(self) -> float | None:
        """Best final level of the finished trials, less the noise of single reports; None before any has finished."""
        return self._references.best_level

    def refresh(self, study: Study) -> bool:
        """Read what has finished since the last time; return True if anything has."""
        trials = study.get_trials(deepcopy=False, states=FINISHED)
        new = self._unseen(trials)
        if not new:
            return False
        for trial in new:
            self._count(trial)
        if self._has_new_terms(trials):
            self._forget()
            new = trials
        for trial in sorted(new, key=_order):
            self._learn(trial)
        self.version += 1
        self._heed_audit()
        return True

    def horizon_of(self, trial: AnyTrial) -> tuple[float | None, str]:
        """Return a trial's horizon, and why it is unknown where it is."""
        stated = self.reader.stated_horizon(trial)
        horizon = self._horizons.settle(stated)
        return horizon, "" if horizon is not None else self._horizons.explain(stated)

    def doubt_about(self, trial: FrozenTrial) -> str:
        """Say where a trial's stated length cannot be right, also in a warning, once; "" otherwise."""
        said = self._horizons.doubt(self.reader.stated_horizon(trial))
        if said and not self._has_told_of_length:
            self._has_told_of_length = True
            warnings.warn(f"{said}: they count as unfinished, and nothing is judged by them", RuntimeWarning, stacklevel=2)
        return said

    def horizon_if_known(self, trial: AnyTrial) -> float | None:
        """Return a trial's horizon; None while it is unknown, also because the user's function fails."""
        try:
            return self.horizon_of(trial)[0]
        except FunctionError:
            return None

    def finished_curve(self, trial: FrozenTrial) -> Curve | None:
        """Return the curve of a finished trial; None where a function of the user's fails."""
        try:
            return self._curve(trial)
        except FunctionError as failure:
            self.reader.complain(failure)
            return None

    def complain(self, error: Exception, trial: FrozenTrial) -> None:
        """Warn, once in this view, that the pruner failed on a trial: the study goes on without a decision about it."""
        if not self._has_complained:
            self._has_complained = True
            text = (
                f"the pruner failed on trial {trial.number}, which is therefore not judged and teaches nothing; please report"
            )
            warnings.warn(f"{text} {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)

    def follow(self, trial: FrozenTrial) -> Follower:
        """Return the follower of a running trial, with all its reports taken."""
        scale, (horizon, _) = self.scale, self.horizon_of(trial)
        known = self.followers.get(trial.number)
        if known is None or (known.scale, known.horizon) != (scale, horizon):
            looks = (0.0, 1) if known is None else (known.next_look_fraction, known.next_look_count)
            known = self.followers[trial.number] = Follower(scale, horizon, *looks)
        known.take(trial.intermediate_values)
        return known

    def curve_of(self, trial: FrozenTrial, follower: Follower) -> Curve:
        """Return a running trial's curve with its recipe and family: the same object until it reports again."""
        if follower.curve is not None:
            return follower.curve
        said = self.reader.identity_of(trial)
        said["family"] = said["family"] or self._label
        follower.curve = replace(follower.stream.snapshot(), **said)
        return follower.curve

    def judge(
        self,
        curve: Curve,
        spent: float,
        running: Callable[[], Sequence[Curve]] = list[Curve],
        n_open: int | None = None,
    ) -> Decision:
        """Return the decision for a trial with what is known now, ``spent`` of the error budget gone.

        Parameters
        ----------
        running : callable
            Returns the running trials that it is compared with besides the finished ones. They count only where a model of
            other runs was given and the trial's controls are known: else only an end tells how far apart trials end.
        n_open : int, optional
            How many trials may still be stopped; it counts where running ones do.
        """
        best = self.best_level
        curve = self._without_usual_rise(curve)
        threshold = None if best is None else self.scale.worse_by(best, self.settings.margin)
        state, settings = SweepState(threshold, spent), self._without_margin
        if is_decided_early(curve, state, settings):
            return decide(curve, None, state, settings)
        try:
            forecast = self._references.model_for(curve.family).forecast(curve)
        except (ValueError, ArithmeticError):  # no inverse, or values at the end of what floats hold
            return Decision("continue", "no_fit", {"fraction": curve.fraction_seen})
        against_own = forecast.family is not None and forecast.family == self._references.best_family
        settled = forecast.settled(against_own)  # as the best level is, less its reports' noise
        noise = (forecast.level_sd or 0.0) ** 2 - (settled.level_sd or 0.0) ** 2
        if not (self.given and forecast.controls):
            return decide(curve, settled, state, settings, partial(self._chance, curve, noise, list[Curve]))
        return decide(curve, settled, replace(state, n_open=n_open), settings, partial(self._chance, curve, noise, running))

    def _without_usual_rise(self, curve: Curve) -> Curve:
        """Return the curve as what rises in this study by design is to be seen: not as diverging.

        That is where finished trials or given references have risen alike, and while none has finished but several were stopped
        for it.
        """
        if not curve.diverging:
            return curve
        if not self._stops_diverging:
            return replace(curve, diverging=False)
        if self.best_level is None and self._n_risen >= self.settings.min_references:
            self._tell_of_rises()
            return replace(curve, diverging=False)
        return without_usual_rise(curve, self._references.model_for(curve.family).references)

    def _tell_of_rises(self) -> None:
        if not self._has_told_of_rises:
            self._has_told_of_rises = True
            text = f"{self._n_risen} trials were stopped as diverging and none has finished: a rise stops no more until one has"
            warnings.warn(f"{text} (stop_diverging=False for good)", RuntimeWarning, stacklevel=2)

    def _chance(self, curve: Curve, noise: float, running: Callable[[], Sequence[Curve]]) -> float | None:
        """Return P(best) of a trial among the best of its label that have finished or run, as the landscape of all sees it."""
        rivals, best = self._references.rivals(curve.family), self.best_level
        if best is not None and (not rivals or rivals[0].level > best):  # the best is another label's, or no reference
            return None
        others = running()
        if not rivals and not others:
            return None
        try:
            model = self._references.model_for(curve.family)
            law = model.joint_law([curve, *others], rivals, noise)
            base = float(law.level.min()) if best is None else best
            threshold = self.scale.worse_by(base, self.settings.margin)
            jointly = probability_lowest(law, threshold - base)
            return model.heeding_ranks(jointly, curve, None if best is None else threshold)
        except (ValueError, ArithmeticError):
            return None

    def spent_without(self, number: int) -> float:
        """Return the error spent by trials other than ``number``."""
        spent = self._spent_in_all + sum(p for n, p in self.pending.items() if n not in self._spent)
        return spent - self._spent.get(number, self.pending.get(number, 0.0))

    def final_level(self, trial: FrozenTrial) -> float:
        """Return the measured final level of a complete trial, NaN if it has none."""
        value = float("nan") if trial.value is None else self.scale.to_core(trial.value)
        if not self.scale.uses_objective_value:
            measured = self._curve(trial).final_loss
            value = value if measured is None else measured
        return float(self.scale.metric.to_model(value)) if isfinite(value) else float("nan")

    @property
    def incumbent(self) -> float | None:
        """Best final value, in the study's terms."""
        return None if self.best_level is None else self.scale.to_study(float(self.scale.metric.to_raw(self.best_level)))

    def _heed_audit(self) -> None:
        if not self.is_suspended and self.audit.contradicts:
            self.is_suspended = True
            warnings.warn(f"no trial is stopped by forecast any more: {self.audit}", RuntimeWarning, stacklevel=2)

    def _unseen(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Return the finished trials that are new, looking back from the newest until all are found."""
        missing, found = len(trials) - len(self._seen), list[FrozenTrial]()
        for trial in reversed(trials):
            if len(found) >= missing:
                break
            if trial.number not in self._seen:
                found.append(trial)
        return found[::-1]

    def _count(self, trial: FrozenTrial) -> None:
        """Take up what settles horizons and scale."""
        self._seen.add(trial.number)
        self.followers.pop(trial.number, None)
        if trial.state == TrialState.COMPLETE and trial.value is not None:
            values = np.array([*trial.intermediate_values.values(), trial.value], dtype=np.float64)
            self._extremes = self._extremes.including(extremes_of(self._sign * values))
            try:
                self._horizons.add(self.reader.stated_horizon(trial), trial)
            except FunctionError as failure:
                self.reader.complain(failure)

    def _has_new_terms(self, trials: Sequence[FrozenTrial]) -> bool:
        """Settle horizons and scale anew; return True if what was learned under the old ones is void."""
        settled, scale = self._horizons.settled(), self._scale_for(self._extremes)
        self._tell_of_scale(scale)
        changed = any(self._settled.get(k, v) != v for k, v in settled.items()) or scale.kind != self.scale.kind
        self._settled = settled
        if changed:
            self.scale = scale
        if self.scale.kind == "identity" and self._base is None and abs(self.scale.factor) == 1.0:
            spread = self._spread(trials)
            if spread is not None:
                self.scale, changed = self.scale.with_spread(spread), True
        return changed

    def _tell_of_scale(self, scale: Scale) -> None:
        """Warn, once in this view, of finished trials' values that the model or ``transform`` does not allow."""
        seen = self._extremes
        if self._has_told_of_scale or scale.metric.transform != "log" or seen.high < seen.low:
            return
        lowest, value = min((scale.offset + scale.factor * self._sign * x, self._sign * x) for x in (seen.low, seen.high))
        if lowest > 0:
            return
        self._has_told_of_scale = True
        whose = f"the model's {scale.metric.name}" if self.given else f"transform={self._transform!r}"
        text = f"{whose} allows no value of {value:g}, which a finished trial has: such trials are not judged and teach nothing"
        warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _scale_for(self, seen: Extremes) -> Scale:
        if self.given:
            return Scale.for_metric(self._sign, self.given[0].metric)
        return Scale.for_study(self._sign, self._transform or kind_for(seen))

    def _spread(self, trials: Sequence[FrozenTrial]) -> float | None:
        """Return what values without a log are divided by, from the first complete curves; None while there are too few."""
        falls: list[float] = []
        for trial in sorted((t for t in trials if t.state == TrialState.COMPLETE), key=_order):
            curve = self.finished_curve(trial)
            if curve is not None and is_reference(curve):
                falls.append(late_fall(curve))
            if len(falls) == SPREAD_FROM:
                typical = median(falls) / TYPICAL_FALL
                return typical if 0 < typical < inf and typical != 1.0 else None
        return None

    def _forget(self) -> None:
        """Drop what was learned from finished trials, before learning it anew under other terms."""
        self._references.forget()
        self._spent.clear()
        self._spent_in_all, self._n_risen = 0.0, 0

    def _learn(self, trial: FrozenTrial) -> None:
        """Take up one finished trial; those before it have been."""
        would_have_spent = self.pending.pop(trial.number, None)
        if trial.state == TrialState.FAIL or (trial.state == TrialState.PRUNED and not trial.intermediate_values):
            return
        counts = trial.state == TrialState.PRUNED or self._counts_would_be_stops
        if counts and would_have_spent is not None:
            self._spend(trial.number, would_have_spent)
        try:
            self.reader.check(trial)
            if trial.state == TrialState.PRUNED:
                self._learn_stop(trial)
            else:
                self._learn_end(trial)
        except FunctionError as failure:
            self.reader.complain(failure)
        except Exception as error:  # noqa: BLE001 - the trials after it are to be learned all the same
            self.complain(error, trial)

    def _learn_stop(self, trial: FrozenTrial) -> None:
        """Take up a PRUNED trial: where the rule stops it as well, or the trial says so, that has spent its P(best)."""
        self._spend(trial.number, 0.0)
        decision = self.judge(self._curve(trial), self._spent_in_all)
        self._n_risen += decision.reason == "diverging"
        stated = None if decision.action == "stop" else self._said_at_stop(trial)
        self._spend(trial.number, decision.error_spent if stated is None else stated)

    def _learn_end(self, trial: FrozenTrial) -> None:
        """Take up a COMPLETE trial."""
        level = self.final_level(trial)
        self.audit.settle(trial.number, level)
        if isfinite(level):
            self._references.add(self.reader.label_of(trial) or self._label, trial, level)

    def _spend(self, number: int, error: float) -> None:
        """Note what a trial has spent of the error budget, instead of what it had spent before."""
        before = self._spent.get(number, 0.0)
        self._spent_in_all += error - before
        self._spent[number] = error

    def _curve(self, trial: FrozenTrial) -> Curve:
        """Return the curve of a finished trial under its label, or the study's; raises where a function of the user's fails."""
        curve = finished_curve(trial, self.scale, self.horizon_of(trial)[0], self.reader)
        return curve if curve.family else replace(curve, family=self._label)


def _order(trial: FrozenTrial) -> tuple[datetime, int]:
    return trial.datetime_complete or datetime.min, trial.number
