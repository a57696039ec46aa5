"""Judges candidates while they train: the ``prune`` rule of a sweep.

:class:`hpo.CollapseScheduler` decides, on the thinned means that the runs report; here its trials are the sweep's runs, by
name, and its STOP becomes a mark in the run's folder, so that the run ends in its own time with a checkpoint. All that was
reported and decided is in ``events.jsonl`` in the run folder. A restarted driver reads it back and adds what the runs' own logs
know beyond it, so the same runs lead to the same decisions whatever was interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hpo.adapters.optuna_record import TrialDecision
from hpo.adapters.ray_log import Event, EventLog
from hpo.adapters.training_session import read_log
from hpo.core.model import CollapseModel
from hpo.engine.hand import Hand
from hpo.engine.plan import Run
from hpo.engine.runs_on_disk import RunsOnDisk
from hpo.engine.stop_marks import mark_stopped
from hpo.engine.thinning import Report, thinned

_CONTROLLER = SimpleNamespace(search_alg=None, _resumed=True)
"""Stands for Ray's: no search beside it, and the log in the run folder is always this sweep's."""


class LiveJudge:
    """The candidates of one sweep before the scheduler.

    Parameters
    ----------
    runs : RunsOnDisk
        The sweep's runs.
    hand : Hand
        What people wish; it goes before any forecast.
    model : CollapseModel or None
        References from proxies, or none; what every candidate has logged so far is learned at once.

    Notes
    -----
    A run that was revived is a new trial to the scheduler, which has closed the old one; the new one knows its reports.
    """

    def __init__(self, runs: RunsOnDisk, hand: Hand, model: CollapseModel | None) -> None:
        from hpo.adapters.ray_scheduler import CollapseScheduler

        self._runs, self._hand = runs, hand
        self._begun: set[str] = set()
        stopping, by_name = runs.plan.config.stopping, {run.name: run for run in runs.plan.candidates}
        self._scheduler = CollapseScheduler(
            model,
            metric="mean_loss",
            mode="min",
            time_attr="mean_step",
            total=lambda config: float(by_name[config["run"]].n_steps),
            min_fraction=stopping.at,
            margin=stopping.margin,
            alpha=stopping.alpha,
            min_references=stopping.min_references,
            n_trials=len(by_name),
            recipe=lambda config: by_name[config["run"]].recipe,
            family=lambda _config: runs.plan.workload.family,
            log=runs.folder.events,
        )
        started = [run for run in runs.plan.candidates if runs.steps(run) > 0]
        for run in sorted(started, key=runs.ended_at):
            self._learn(run)

    def started(self, run: Run) -> None:
        """A candidate was given a worker."""
        self._scheduler.on_trial_add(_CONTROLLER, self._trial(run))

    def reported(self, run: Run, report: Report) -> None:
        """Judge a candidate at its report, and mark it if it should stop."""
        self._heed_hand(run, report.mean_step / run.n_steps)
        trial = self._trial(run)
        if self._scheduler.on_trial_result(_CONTROLLER, trial, vars(report)) == self._scheduler.STOP:
            self._stop(run)

    def decision(self, run: Run) -> TrialDecision | None:
        """Return what was last decided about a candidate."""
        return self._scheduler.decision(self._trial(run).trial_id)

    def ended(self, run: Run) -> None:
        """A candidate ended; if it was whole, others are now judged by it too."""
        outcome = self._runs.outcome(run)
        if outcome is None:
            return
        if outcome.status in ("failed", "out_of_memory"):
            self._scheduler.on_trial_error(_CONTROLLER, self._trial(run))
        else:
            self._scheduler.on_trial_complete(_CONTROLLER, self._trial(run), {})

    def _learn(self, run: Run) -> None:
        """Take what a run has logged beyond what the scheduler knows of it, and how it ended."""
        log, trial = read_log(self._runs.folder.trial(run.name)), self._trial(run)
        job = self._runs.job(run, run.n_steps)
        outcome = self._runs.outcome(run)
        last = run.n_steps if outcome is None else outcome.step
        reports = thinned(
            log["step"].astype(int).tolist(), log["loss"].tolist(), run.n_steps, last, job.n_reports, job.n_end_reports
        )
        self._scheduler.learn(_CONTROLLER, trial, [vars(report) for report in reports])
        decision = self._scheduler.decision(trial.trial_id)
        if outcome is not None:
            self.ended(run)
        elif decision is not None and decision.pruned:
            self._stop(run)

    def _stop(self, run: Run) -> None:
        decision = self.decision(run)
        if decision is not None and decision.reason != "non_finite":  # the run ends by itself there
            mark_stopped(self._runs.folder.trial(run.name), decision.reason)

    def _heed_hand(self, run: Run, fraction: float) -> None:
        name = self._trial(run).trial_id
        if run.name in self._hand.kept or fraction < self._hand.until.get(run.name, -math.inf):
            self._scheduler.keep(name)
        else:
            self._scheduler.release(name)

    def _trial(self, run: Run) -> SimpleNamespace:
        """Return the run as the scheduler knows it; the first time after a revival, with its reports so far."""
        n_revived = self._hand.n_revived[run.name]
        name = run.name if n_revived == 0 else f"{run.name}+{n_revived}"
        trial = SimpleNamespace(trial_id=name, config={"run": run.name, **run.searched}, evaluated_params=run.searched)
        if n_revived and name not in self._begun:
            self._begun.add(name)
            self._learn(run)
        return trial


def decisions_in(events: Path) -> dict[str, list[Event]]:
    """Return everything decided according to the file of events, by the name of the run, in order."""
    found: dict[str, list[Event]] = {}
    for event in EventLog(events).read():
        if event["event"] == "decision":
            found.setdefault(_run_of(event["id"]), []).append(event)
    return found


def first_forecast(decisions: Sequence[Event]) -> Mapping[str, Any] | None:
    """Return the first of a run's decisions that rests on a forecast, None without one."""
    return next((event for event in decisions if event.get("forecast") is not None), None)


def _run_of(trial_id: str) -> str:
    return trial_id.split("+", 1)[0]
