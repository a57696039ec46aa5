"""A stand-in for Ray's driver: light trials, interleaved reports, crashes at a chosen report; no cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from optuna_studies import HORIZON, curve, steps

from hpo.adapters.ray_scheduler import CollapseScheduler

METRIC = "loss"


def scheduler(**settings: Any) -> CollapseScheduler:
    """Return a scheduler of a loss over 100 steps, as Ray sets one up."""
    made = CollapseScheduler(**{"metric": METRIC, "mode": "min", "total": HORIZON, **settings})
    assert made.set_search_properties(None, None)
    return made


def trial(trial_id: str, **config: Any) -> SimpleNamespace:
    return SimpleNamespace(trial_id=trial_id, config=config)


def controller(search: Any = None, resumed: bool = False) -> SimpleNamespace:
    return SimpleNamespace(search_alg=search, _resumed=resumed)


def run(
    made: CollapseScheduler, one: SimpleNamespace, reports: Mapping[float, Any], search: Any = None, key: str = METRIC
) -> float:
    """Run one trial through its reports; return the step at which it was stopped, 0 if it came to its end."""
    made.on_trial_add(controller(search), one)
    result: dict[str, Any] = {}
    for step, value in reports.items():
        result = {"training_iteration": step, key: value}
        if made.on_trial_result(controller(search), one, result) == "STOP":
            made.on_trial_complete(controller(search), one, {**result, "done": True})
            if search is not None:
                search.on_trial_complete(one.trial_id, {**result, "done": True})
            return step
        if search is not None:
            search.on_trial_result(one.trial_id, result)
    made.on_trial_complete(controller(search), one, {**result, "done": True})
    if search is not None:
        search.on_trial_complete(one.trial_id, {**result, "done": True})
    return 0


def teach(made: CollapseScheduler, n: int = 6, sign: float = 1.0, search: Any = None, **config: Any) -> None:
    """Run trials to their end; each ends better than those before it, from 3.3 to 3.0, so that none is stopped."""
    for i, final in enumerate(np.linspace(3.3, 3.0, n)):
        name = f"taught{i}"
        if search is not None:
            search.suggest(name)
        reports = curve(final, steps(), wiggle=0.002, seed=i)
        assert run(made, trial(name, **config), {s: sign * v for s, v in reports.items()}, search) == 0


@dataclass
class Driver:
    """Runs trials ``width`` at a time, one report of each in turn; may lose its scheduler at a report.

    Parameters
    ----------
    finals : dict
        Where each trial would end, by id.
    make : callable
        Returns a new scheduler.
    crash_at : int or None
        Number of the report before which the scheduler is lost and made anew.
    from_scratch : bool
        Trials had no checkpoint: after the crash they report their steps again from the first.
    """

    finals: Mapping[str, float]
    make: Callable[[], CollapseScheduler]
    crash_at: int | None = None
    from_scratch: bool = False
    width: int = 3
    stops: dict[str, float] = field(default_factory=dict)

    def run(self) -> CollapseScheduler:
        """Return the scheduler at the end."""
        self.scheduler, self.n_reports = self.make(), 0
        self.waiting, self.running, self.known = list(self.finals), {}, {}
        while self.waiting or self.running:
            while self.waiting and len(self.running) < self.width:
                name = self.waiting.pop(0)
                self.known[name] = trial(name)
                self.running[name] = self.reports(name)
                self.scheduler.on_trial_add(controller(), self.known[name])
            for name in list(self.running):
                self.step(name)
        return self.scheduler

    def reports(self, name: str) -> list[tuple[int, float]]:
        return list(curve(self.finals[name], range(1, HORIZON + 1), wiggle=0.003, seed=len(name) + int(name[1:])).items())

    def step(self, name: str) -> None:
        if self.n_reports == self.crash_at:
            self.crash()
        self.n_reports += 1
        step, value = self.running[name].pop(0)
        result = {"training_iteration": step, METRIC: value}
        stops = self.scheduler.on_trial_result(controller(), self.known[name], result) == "STOP"
        if stops:
            self.stops[name] = step
        if stops or not self.running[name]:
            self.scheduler.on_trial_complete(controller(), self.known[name], result)
            del self.running[name]

    def crash(self) -> None:
        self.scheduler, self.crash_at = self.make(), None
        for name in reversed(self.known):
            self.scheduler.on_trial_add(controller(resumed=True), self.known[name])
        if self.from_scratch:
            self.running = {name: self.reports(name) for name in self.running}
