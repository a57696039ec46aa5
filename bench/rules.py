"""Our own rules on the simulated clock: the forecast as it goes (``prune``) and all together (``select``), and current best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from bench.simulation import Outcome, Sweep, in_two_phases
from hpo.core.curve import Curve
from hpo.core.decision import StoppingSettings, SweepState, decide, is_decided_early, select
from hpo.core.forecast import Forecast
from hpo.core.model import CollapseModel
from hpo.core.rivals import MOST_FINISHED, MOST_RUNNING, Finished, probability_lowest

REFIT_SHARE = 0.2
"""The model is fitted anew when the finished trials have grown by this share of what it was fitted to."""


class Prune:
    """Judges each report by the joint law of the trial, the best finished ones and the best running ones, as a sweep does.

    It learns from the references and from the trials that have finished.
    """

    def __init__(self, sweep: Sweep, settings: StoppingSettings | None = None) -> None:
        self._sweep = sweep
        self._settings = settings or StoppingSettings()
        self._references = [r.full for r in sweep.task.references]
        self._finished: list[Curve] = []
        self._running: dict[int, tuple[Curve, float]] = {}
        self._best: list[Finished] = []
        self._state, self._n_stopped = SweepState(), 0
        self._fit()

    def begin(self, trial: int) -> None:
        """Nothing to note."""

    def report(self, trial: int, look: int) -> bool:
        """Return True if the forecast says that the trial cannot win."""
        curve = self._sweep.trials[trial].prefix(float(self._sweep.looks[look]))
        early = is_decided_early(curve, self._state, self._settings)
        forecast = None if early else self._model.forecast(curve)
        chance = partial(self._chance, trial, curve, forecast)
        state = replace(self._state, n_open=self._n_open) if forecast is not None and forecast.controls else self._state
        decision = decide(curve, forecast, state, self._settings, chance)
        self._running.pop(trial, None)
        if decision.action == "stop":
            self._n_stopped += 1
            self._state = replace(self._state, error_spent=self._state.error_spent + decision.error_spent)
        elif forecast is not None and forecast.level is not None:
            self._running[trial] = (curve, forecast.level)
        return decision.action == "stop"

    @property
    def _n_open(self) -> int:
        """How many may still be stopped: all but one, if nobody has finished."""
        return len(self._sweep.trials) - self._n_stopped - max(len(self._finished), 1)

    def _chance(self, trial: int, curve: Curve, forecast: Forecast | None) -> float | None:
        """Return P(best) among the best finished and, where its controls are known, running trials."""
        others = [run for number, run in self._running.items() if number != trial]
        rivals = sorted(others, key=lambda run: run[1])[:MOST_RUNNING] if forecast is not None and forecast.controls else []
        law = self._model.joint_law([curve, *(run for run, _ in rivals)], self._best)
        margin, best = math.log1p(self._settings.margin), self._state.best_level
        return self._model.heeding_ranks(probability_lowest(law, margin), curve, None if best is None else best + margin)

    def end(self, trial: int) -> None:
        """Take a finished trial as reference and, perhaps, as incumbent."""
        self._running.pop(trial, None)
        curve = self._sweep.trials[trial].full
        if curve.final_loss is None:
            return
        self._finished.append(curve)
        level = float(curve.metric.to_model(curve.final_loss))
        self._best = sorted([*self._best, Finished(curve, level)], key=lambda f: f.level)[:MOST_FINISHED]
        best = self._state.best_level
        self._state = replace(self._state, best_level=level if best is None else min(best, level))
        if len(self._finished) >= self._refit_at:
            self._fit()

    def _fit(self) -> None:
        self._model = CollapseModel.fit([*self._references, *self._finished])
        known = len(self._references) + len(self._finished)
        self._refit_at = len(self._finished) + max(1, math.ceil(REFIT_SHARE * known))


def selected(sweep: Sweep, stop: float, settings: StoppingSettings | None = None) -> Outcome:
    """Return the outcome of ``select``: everyone to ``stop``, then the smallest set that holds the best."""
    curves = [r.prefix(stop) for r in sweep.trials]
    model = CollapseModel.fit([r.full for r in sweep.task.references])
    forecast = model.forecast_many(curves, np.random.default_rng(sweep.seed))
    return in_two_phases(sweep, stop, select(curves, forecast, settings or StoppingSettings()).kept)


def current_top(sweep: Sweep, stop: float, k: int) -> Outcome:
    """Return the outcome of running everyone to ``stop`` and the ``k`` with the best value so far to the end."""
    return in_two_phases(sweep, stop, best_first(sweep, stop)[:k])


def best_first(sweep: Sweep, stop: float) -> Sequence[int]:
    """Return the trials by their value so far, the best first, ties in random order."""
    look = int(np.argmin(np.abs(sweep.looks - stop)))
    values = sweep.values[:, look] if sweep.mode == "min" else -sweep.values[:, look]
    order = np.random.default_rng(sweep.seed).permutation(len(values))
    ranked = order[np.argsort(np.where(np.isnan(values), np.inf, values)[order], kind="stable")]
    return [int(i) for i in ranked]
