"""What an Optuna trial says about its run: horizon, recipe, family, and its reports as a curve.

Whatever a trial does not say stays unknown. Recipes are read from ``user_attrs`` and ``params`` under the usual names; a value
that cannot be right (a learning rate of 0) counts as not said.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from math import isfinite
from typing import Any, TypedDict

import numpy as np
from optuna.trial import FrozenTrial, Trial

from hpo.adapters.optuna_record import TrialDecision
from hpo.adapters.optuna_scale import Scale
from hpo.adapters.schedule_names import parse_schedule
from hpo.core.curve import Curve, CurveStream
from hpo.core.recipe import Recipe
from hpo.core.schedules import Schedule, unknown_schedule

AnyTrial = FrozenTrial | Trial
TotalSteps = int | Callable[[Any], "float | None"] | None
RecipeOf = Callable[[Any], "Recipe | None"]
FamilyOf = Callable[[Any], Hashable]
AGREEMENT = 0.8
"""Share of finished trials that must end at one step before that step is taken for the horizon."""
FEWEST_TO_DOUBT, MOST_SHORT = 3, 0.05
"""A stated length is doubted when so many trials have finished, and all but few of them ended by this share before it."""

_NAMES: dict[str, tuple[str, ...]] = {
    "lr": ("lr", "learning_rate", "peak_lr", "max_lr", "eta"),
    "weight_decay": ("weight_decay", "wd"),
    "n_params": ("n_params", "num_params", "n_parameters", "num_parameters"),
    "n_tokens": ("n_tokens", "total_tokens", "num_tokens"),
    "batch_tokens": ("batch_tokens", "tokens_per_batch"),
    "warmup_fraction": ("warmup_fraction", "warmup_ratio"),
    "base_lr": ("base_lr",),
    "base_weight_decay": ("base_weight_decay",),
}
_SCHEDULE_NAMES = ("schedule", "lr_schedule", "lr_scheduler", "lr_scheduler_type", "scheduler")
_SCHEDULE_WORDS = ("sched", "anneal", "cosine", "cooldown", "lr_decay", "step_decay", "warm_restart")
"""What is in the name of a searched choice that changes the learning-rate schedule, and with it the shape of the curve."""
_CONSTRAINTS = "constraints"
"""System attribute under which Optuna keeps what a sampler's ``constraints_func`` gave; ``set_constraint`` adds ``:name``."""
_AT_ONCE = 64  # more new reports than this are taken faster by sorting them all
_MAY_BE_ZERO = {"weight_decay", "base_weight_decay", "warmup_fraction"}


class FunctionError(Exception):
    """A function that the user gave raised an error, or returned what it must not; the text says which, for which trial."""

    def __init__(self, name: str, trial: AnyTrial, what: str) -> None:
        super().__init__(f"{name} {what} for trial {trial.number}")
        self.name = name


class Identity(TypedDict):
    """Fields of a curve that do not come from its reports."""

    run_id: str
    recipe: Recipe | None
    family: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class TrialReader:
    """How a trial's horizon, recipe and family are found.

    Parameters
    ----------
    total_steps : int, callable or None
        Horizon of all trials, or of one; None reads ``user_attrs["total_steps"]``.
    recipe, family : callable or None
        None reads the usual names.

    Notes
    -----
    Every method raises :class:`FunctionError` where a function of the user's does not answer as it must. Whoever catches
    it goes on without the trial and tells the user with :meth:`complain`.
    """

    total_steps: TotalSteps = None
    recipe: RecipeOf | None = None
    family: FamilyOf | None = None
    _complained: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def complain(self, failure: FunctionError) -> None:
        """Warn of a failure; of the same function only once."""
        if failure.name not in self._complained:
            self._complained.add(failure.name)
            text = f"{failure}; a trial for which {failure.name} fails is not judged and teaches nothing"
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def stated_horizon(self, trial: AnyTrial) -> float | None:
        """Return the horizon that the user stated for a trial; None if none, or if an attribute cannot be one."""
        if not callable(self.total_steps):
            said = trial.user_attrs.get("total_steps") if self.total_steps is None else self.total_steps
            return _horizon(said)
        said = _asked("total_steps", self.total_steps, trial)
        horizon = _horizon(said)
        if said is not None and horizon is None:
            raise FunctionError("total_steps", trial, f"must return a number of at least 1 or None; it returned {said!r}")
        return horizon

    def recipe_of(self, trial: FrozenTrial) -> Recipe | None:
        """Return the recipe of a trial, None if nothing of it is known."""
        if self.recipe is None:
            return guess_recipe(trial, self.stated_horizon(trial))
        made = _asked("recipe", self.recipe, trial)
        if made is not None and not isinstance(made, Recipe):
            raise FunctionError("recipe", trial, f"must return a Recipe or None; it returned {made!r}")
        return made

    def label_of(self, trial: FrozenTrial) -> str:
        """Return the family label of a trial; empty if none is stated."""
        if self.family is None:
            label = trial.user_attrs.get("family")
            return "" if label is None else str(label)
        said = _asked("family", self.family, trial)
        return "" if said is None else _asked("family", str, trial, said)

    def check(self, trial: FrozenTrial) -> None:
        """Ask every function that the user gave about a trial."""
        if callable(self.total_steps):
            self.stated_horizon(trial)
        if self.recipe is not None:
            self.recipe_of(trial)
        if self.family is not None:
            self.label_of(trial)

    def identity_of(self, trial: FrozenTrial) -> Identity:
        """Return what a trial's curve says of whose it is, running or finished alike."""
        return {
            "run_id": str(trial.number),
            "recipe": self.recipe_of(trial),
            "family": self.label_of(trial),
            "settings": dict(trial.params),
        }


def _asked(name: str, function: Callable[[Any], Any], trial: AnyTrial, *of: Any) -> Any:
    """Return what a function of the user's answers about a trial, or about ``of``."""
    try:
        return function(*of or (trial,))
    except Exception as error:  # whatever it is, it must not end the study
        raise FunctionError(name, trial, f"raised {type(error).__name__}: {error}") from error


def is_feasible(trial: FrozenTrial) -> bool:
    """Return True unless a constraint of a finished trial is broken (above 0): Optuna then never calls it the best."""
    said = trial.system_attrs
    values = [*(said.get(_CONSTRAINTS) or ()), *(value for key, value in said.items() if key.startswith(f"{_CONSTRAINTS}:"))]
    return all(value <= 0.0 for value in values)


def guess_recipe(trial: FrozenTrial, total_steps: float | None = None) -> Recipe | None:
    """Return what ``user_attrs`` (first) and ``params`` say about the recipe under the usual names; None if nothing.

    A batch given in tokens and a stated number of steps give the number of tokens. A batch size in
    sequences needs ``seq_len``.
    """
    said = {**trial.params, **trial.user_attrs}
    known = {name: _first(said, names, name in _MAY_BE_ZERO) for name, names in _NAMES.items()}
    if known["batch_tokens"] is None:
        sequences, length = _first(said, ("batch_size", "batch_sequences")), _first(said, ("seq_len", "sequence_length"))
        known["batch_tokens"] = _number(sequences * length) if sequences and length else None
    if known["n_tokens"] is None and known["batch_tokens"] and total_steps:
        known["n_tokens"] = _number(total_steps * known["batch_tokens"])
    if known["warmup_fraction"] is not None and known["warmup_fraction"] >= 1:
        known["warmup_fraction"] = None
    schedule = _schedule(said, trial.params, known["lr"])
    if schedule is None and all(v is None for v in known.values()):
        return None
    return Recipe(schedule=schedule or unknown_schedule(""), **known)


def _schedule(said: Mapping[str, Any], searched: Mapping[str, Any], lr: float | None) -> Schedule | None:
    """Return the schedule that is named; choices that bear on it, searched under other names, are part of its label."""
    name = next((said[key] for key in _SCHEDULE_NAMES if isinstance(said.get(key), str)), None)
    choices = [key for key in sorted(searched) if key not in _SCHEDULE_NAMES and isinstance(searched[key], str | bool)]
    about = [f"{key}={searched[key]}" for key in choices if any(word in key.lower() for word in _SCHEDULE_WORDS)]
    if about:
        return unknown_schedule(", ".join([name, *about] if name is not None else about))
    return None if name is None else parse_schedule(name, lr) or unknown_schedule(name)


def _first(said: Mapping[str, Any], names: tuple[str, ...], zero: bool = False) -> float | None:
    found = (_number(said[name], zero) for name in names if name in said)
    return next((x for x in found if x is not None), None)


def _horizon(value: Any) -> float | None:
    number = _number(value)
    return number if number is not None and number >= 1 else None


def _number(value: Any, zero: bool = False) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return None
    return float(value) if isfinite(value) and (value > 0 or (zero and value == 0)) else None


@dataclass
class Horizons:
    """Where finished trials ended, by the horizon stated for them; what follows for the others.

    Loops that count from 0 end one report before the stated horizon. Finished trials show it, and their last step is then
    the horizon: otherwise no trial with few reports would ever count as complete.
    """

    ends: dict[float | None, Counter[int]] = field(default_factory=dict)
    gaps: dict[int, float] = field(default_factory=dict)

    def add(self, stated: float | None, trial: FrozenTrial) -> None:
        """Count a finished trial."""
        steps = trial.intermediate_values
        if not steps:
            return
        first, last = min(steps), max(steps)
        self.ends.setdefault(stated, Counter())[last] += 1
        self.gaps[last] = (last - first) / (len(steps) - 1) if len(steps) > 1 else 0.0

    def settle(self, stated: float | None) -> float | None:
        """Return the horizon of a trial; None while it is unknown: nobody finished, or finished trials end apart."""
        counts = self.ends.get(stated)
        if not counts:
            return stated
        last, count = max(counts.items(), key=lambda item: (item[1], item[0]))
        if last <= 0 or count < AGREEMENT * counts.total():
            return stated
        if stated is None:
            return float(last)
        return float(last) if stated - 1.05 * self.gaps[last] <= last < stated else stated

    def settled(self) -> dict[float | None, float | None]:
        """Return the horizon of each stated one seen."""
        return {stated: self.settle(stated) for stated in self.ends}

    def doubt(self, stated: float | None) -> str:
        """Say where a stated length is not that of the finished trials, which then teach nothing; "" where it may be."""
        counts = self.ends.get(stated)
        if stated is None or not counts or counts.total() < FEWEST_TO_DOUBT:
            return ""
        last, count = max(counts.items(), key=lambda item: (item[1], item[0]))
        is_other = count >= AGREEMENT * counts.total() and self.settle(stated) == stated and last < (1 - MOST_SHORT) * stated
        return f"finished trials end at step {last}, total_steps says {stated:g}" if is_other else ""

    def explain(self, stated: float | None) -> str:
        """Say why a horizon is unknown."""
        counts = self.ends.get(stated)
        if not counts:
            return "total_steps is not given and no trial has finished"
        shown = ", ".join(f"{n} at step {last}" for last, n in counts.most_common(3))
        return f"total_steps is not given and finished trials end at different steps ({shown})"


@dataclass
class Follower:
    """One running trial's reports, taken up as they come: O(1) a report while steps increase.

    Parameters
    ----------
    scale : Scale
        Of the study when the stream was begun.
    horizon : float or None
        Likewise; a change of either begins a new stream.
    next_look_fraction, next_look_count : float, int
        Share of training, or number of reports while the horizon is unknown, from which the study is read again.
    judged : tuple or None
        Version of the view, bin of the last point, and the decision made then.
    curve : Curve or None
        The trial's curve up to its last report, once it has been asked for.
    """

    scale: Scale
    horizon: float | None
    next_look_fraction: float = 0.0
    next_look_count: int = 1
    judged: tuple[int, int, TrialDecision] | None = None
    curve: Curve | None = None
    stream: CurveStream = field(init=False)
    n_taken: int = 0
    last_taken: int | None = None
    furthest: int = 0

    def __post_init__(self) -> None:
        self.stream = CurveStream(horizon=self.horizon, metric=self.scale.metric)

    def take(self, values: dict[int, float]) -> None:
        """Take what is new in a trial's ``intermediate_values``; reports out of order rebuild the stream, sorted."""
        n_new = len(values) - self.n_taken
        latest = list(islice(reversed(values), max(n_new, 0) + 1))[::-1]
        known, fresh = (latest[:-n_new], latest[-n_new:]) if n_new > 0 else (latest, [])
        follows = n_new >= 0 and known == ([] if self.last_taken is None else [self.last_taken])
        in_order = all(a < b for a, b in pairwise(latest))
        if not (follows and in_order) or n_new > _AT_ONCE:
            self._rebuild(values)
            return
        for step in fresh:
            self.stream.add(step, self.scale.to_core(values[step]))
        self.curve = None if fresh else self.curve
        self.n_taken, self.last_taken = len(values), latest[-1] if latest else None
        self.furthest = max(self.furthest, *fresh) if fresh else self.furthest

    def _rebuild(self, values: dict[int, float]) -> None:
        self.stream, self.judged, self.curve = CurveStream(horizon=self.horizon, metric=self.scale.metric), None, None
        steps, losses = sorted_reports(values, self.scale)
        self.stream.extend(steps, losses)
        self.n_taken, self.last_taken = len(values), next(reversed(values), None)
        self.furthest = max(values, default=0)


def sorted_reports(values: Mapping[int, float], scale: Scale) -> tuple[Any, Any]:
    """Return a trial's steps, ascending, and its values on the core's side, shape (n,) each."""
    steps = np.fromiter(values.keys(), dtype=np.float64, count=len(values))
    losses = np.fromiter(values.values(), dtype=np.float64, count=len(values))
    order = np.argsort(steps, kind="stable")
    return steps[order], scale.offset + scale.factor * losses[order]


def finished_curve(trial: FrozenTrial, scale: Scale, horizon: float | None, reader: TrialReader) -> Curve:
    """Return the curve of a finished trial; a COMPLETE one ends, where the scale says so, in what its objective returned."""
    stream = CurveStream(horizon=horizon, metric=scale.metric, **reader.identity_of(trial))
    stream.extend(*sorted_reports(trial.intermediate_values, scale))
    if trial.state.name != "COMPLETE" or trial.value is None or not scale.uses_objective_value:
        return stream.snapshot()
    return replace(stream.snapshot(), end_value=scale.to_core(trial.value))
