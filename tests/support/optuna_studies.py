"""Small Optuna studies of known truth, for the pruner's tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from hpo import CollapsePruner

HORIZON = 100
_clock = (datetime(2030, 1, 1) + timedelta(seconds=i) for i in itertools.count())


def steps(every: int = 5, horizon: int = HORIZON, first: int | None = None) -> list[int]:
    """Return report steps up to and including the horizon."""
    return sorted({*range(every if first is None else first, horizon, every), horizon})


def curve(final: float, at: Iterable[int], horizon: int = HORIZON, wiggle: float = 0.0, seed: int = 0) -> dict[int, float]:
    """Return reports of a loss that ends at ``final``, all of one family; ``wiggle`` bends each seed a little differently."""
    t = {step: max(step, 0.5) / horizon for step in at}
    bend = wiggle * np.random.default_rng(seed).standard_normal()
    return {s: float(final * (1 + 0.3 * (x**-0.4 - 1)) * np.exp(bend * np.log(x))) for s, x in t.items()}


def add(
    study: optuna.Study,
    reports: Mapping[int, float],
    value: float | None = None,
    state: TrialState = TrialState.COMPLETE,
    **attributes: Any,
) -> None:
    """Add a finished trial; its value is its last report by default."""
    final = reports[max(reports)] if value is None and state == TrialState.COMPLETE else value
    made = create_trial(state=state, value=final, intermediate_values=dict(reports), user_attrs=attributes)
    made.datetime_start = made.datetime_complete = next(_clock)
    study.add_trial(made)


def add_family(study: optuna.Study, n: int = 6, sign: float = 1.0, every: int = 5, **attributes: Any) -> None:
    """Add ``n`` finished trials of one family whose finals lie between 3.0 and 3.3."""
    for i, final in enumerate(np.linspace(3.3, 3.0, n)):
        add(study, {s: sign * v for s, v in curve(final, steps(every), wiggle=0.002, seed=i).items()}, **attributes)


def running(study: optuna.Study, reports: Mapping[int, float], **attributes: Any) -> optuna.Trial:
    """Return a live trial with these reports."""
    trial = study.ask()
    for key, value in attributes.items():
        trial.set_user_attr(key, value)
    for step, value in reports.items():
        trial.report(value, step)
    return trial


def frozen(number: int, reports: Mapping[int, float], **attributes: Any) -> FrozenTrial:
    """Return a running trial's snapshot, as Optuna hands it to a pruner."""
    made = create_trial(state=TrialState.RUNNING, intermediate_values=dict(reports), user_attrs=attributes)
    made.number = number
    return made


def first_stop(study: optuna.Study, reports: Mapping[int, float], order: Sequence[int] | None = None, **attributes: Any) -> int:
    """Return the step at which a live trial is first told to stop, 0 if never; the trial is then pruned or completed."""
    trial = running(study, {}, **attributes)
    for step in order or sorted(reports):
        trial.report(reports[step], step)
        if trial.should_prune():
            study.tell(trial, state=TrialState.PRUNED)
            return step
    study.tell(trial, reports[max(reports)])
    return 0


def attach(study: optuna.Study, **settings: Any) -> CollapsePruner:
    """Give a study a pruner, told the horizon unless that is among its settings; return the pruner."""
    settings.setdefault("total_steps", HORIZON)
    study.pruner = CollapsePruner(**settings)
    return study.pruner
