"""The rule ``prune``: every candidate starts when there is room for it, and is stopped when its forecast cannot win.

Proxies start first. As they end, the candidates still waiting are put in the order in which the proxies so far liked their
settings, so that a good one is finished early; once all have ended, the model is fitted on them, and every candidate is judged
as it reports (:mod:`hpo.engine.live_judge`): against the best of the finished ones and of those that run. Without proxies the
candidates learn from those that have finished. Should none come to its end, because those that the others could not beat have
failed, the most promising of the stopped ones goes on after all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from hpo.adapters.ray_log import Event
from hpo.adapters.training_session import remove_checkpoints
from hpo.engine.context import Context
from hpo.engine.job_queue import JobQueue
from hpo.engine.judging import Judgement, Verdict, transfer_scores
from hpo.engine.live_judge import LiveJudge, decisions_in, first_forecast
from hpo.engine.plan import Run
from hpo.engine.stop_marks import OUT_OF_TIME, mark_stopped
from hpo.engine.study_record import finite_or_none
from hpo.engine.thinning import Report
from hpo.engine.trial_events import TrialEvents
from hpo.engine.worker import Job


def run_prune(context: Context) -> Judgement:
    """Train and judge by the rule, or go on with it; return the last verdict on each candidate.

    Raises
    ------
    SweepError
        No candidate could be trained to its end.
    """
    runs = (*context.reuse.proxies, *context.plan.candidates)
    context.hand.look(at_once=True)
    context.train(
        [context.runs.job(run, run.n_steps) for run in runs],
        "prune",
        may_start=lambda _run: not context.budget.is_over or _nobody_finished(context),
        again=lambda run: context.runs.job(run, run.n_steps),
        events=lambda queue, usual: _Judged(context, queue, usual),
    )
    _finish_one(context)
    context.runs.save_curves((*context.reuse.proxies, *context.plan.candidates))
    for run in context.plan.proxies:
        remove_checkpoints(context.folder.trial(run.name))
    if _nobody_finished(context):
        context.give_up("no candidate could be trained to its end")
    return _judgement(context)


def _finish_one(context: Context) -> None:
    """Where no candidate has come to its end, let those stopped by their forecasts go on, the best first, until one has."""
    last = {name: said[-1] for name, said in decisions_in(context.folder.events).items()}
    stopped = [run for run in context.plan.candidates if context.runs.has_status(run, "stopped") and run.name in last]
    by_forecast = [run for run in stopped if last[run.name].get("reason") == "cannot_win"]
    for run in sorted(by_forecast, key=lambda run: float(last[run.name]["forecast"])):
        if not _nobody_finished(context):
            return
        context.progress.say(f"{run.name} goes on after all: none of those that it could not beat came to its end")
        context.runs.forget_ending(run)
        context.train([context.runs.job(run, run.n_steps)], "prune")


def _nobody_finished(context: Context) -> bool:
    return not any(context.runs.is_complete(run) for run in context.plan.candidates)


class _Judged:
    """The usual watcher of trials, and after it the judge, once there is a model, so that candidates are judged."""

    def __init__(self, context: Context, queue: JobQueue, usual: TrialEvents) -> None:
        self._context, self._queue, self._usual = context, queue, usual
        self._judge: LiveJudge | None = None
        self._begin_if_ready()

    def tick(self) -> None:
        self._usual.tick()
        if self._context.budget.is_over and not _nobody_finished(self._context):
            for job in self._queue.running:
                if job.name in self._context.candidates:
                    mark_stopped(job.folder, OUT_OF_TIME)

    def started(self, job: Job) -> None:
        self._usual.started(job)
        if self._judge is not None and job.name in self._context.candidates:
            self._judge.started(self._context.candidates[job.name])

    def reported(self, job: Job, report: Report) -> None:
        self._usual.reported(job, report)
        if self._judge is not None and job.name in self._context.candidates:
            run = self._context.candidates[job.name]
            self._judge.reported(run, report)
            if (decision := self._judge.decision(run)) is not None:
                action = "stop" if decision.pruned else "continue"  # the scheduler's own may be to stop a run that is kept
                self._context.progress.decided(run.name, action, decision.reason, decision.to_dict())

    def ended(self, job: Job) -> None:
        self._usual.ended(job)
        run = self._context.candidates.get(job.name)
        if run is None:
            self._begin_if_ready()
            return
        if self._judge is not None:
            self._judge.ended(run)
        self._context.runs.save_curves([run])
        if self._context.plan.config.keep_checkpoints == "live" and self._context.runs.has_status(run, "stopped"):
            remove_checkpoints(job.folder)

    def _begin_if_ready(self) -> None:
        context, reuse = self._context, self._context.reuse
        if self._judge is not None:
            return
        if any(context.runs.outcome(run) is None for run in reuse.proxies):
            if not reuse.is_open:
                self._order(context.plan.proxies, context.runs.final_losses(context.plan.proxies))
            return
        if reuse.is_open:
            context.progress.say(reuse.test([context.runs.curve(run) for run in reuse.proxies]))
            if reuse.model is None and self._queue_missing_proxies():
                return
        proxies, finals = reuse.stand_ins
        if not proxies:
            proxies = context.plan.proxies
            finals = context.runs.final_losses(proxies)
        self._judge = LiveJudge(context.runs, context.hand, context.learn() if proxies else None)
        self._order(proxies, finals)

    def _order(self, proxies: Sequence[Run], finals: Mapping[str, float]) -> None:
        """Put the candidates that wait in the order in which proxies that have finished like their settings, proxies first."""
        scores = transfer_scores(self._context.plan.candidates, proxies, finals)
        place = {name: i for i, name in enumerate(sorted(scores, key=lambda name: scores[name]))}
        self._queue.sort(lambda job: place.get(job.name, -1))

    def _queue_missing_proxies(self) -> bool:
        """Put the proxies that have not been trained before the candidates that wait; return whether there are any."""
        context = self._context
        missing = [run for run in context.reuse.proxies if context.runs.outcome(run) is None]
        context.add_runs(missing)
        for run in missing:
            self._queue.add(context.runs.job(run, run.n_steps))
        self._queue.sort(lambda job: job.name in context.candidates)
        return bool(missing)


def _judgement(context: Context) -> Judgement:
    """Return the last verdict on every candidate that has begun, and write it; what was written before keeps its time."""
    decisions = decisions_in(context.folder.events)
    before = {line["run"]: line for line in context.folder.read_decisions()}
    finals = context.runs.final_losses(context.plan.candidates)
    rank = {name: i for i, name in enumerate(sorted(finals, key=lambda name: finals[name]))}
    tied_up_to = min(finals.values()) * (1 + context.plan.config.stopping.margin)
    verdicts = []
    for run in context.plan.candidates:
        if context.runs.steps(run) > 0:
            is_tied = run.name in finals and finals[run.name] <= tied_up_to
            verdicts.append(_verdict(context, run, decisions.get(run.name, []), is_tied, rank.get(run.name)))
    written = [{**v.to_dict(), "time": before[v.run]["time"]} if v.run in before else v.to_dict() for v in verdicts]
    if [{**line, "time": ""} for line in written] != [{**line, "time": ""} for line in before.values()]:
        context.folder.write_decisions(written)
    return Judgement(tuple(verdicts))


def _verdict(context: Context, run: Run, decisions: Sequence[Event], is_tied: bool, rank: int | None) -> Verdict:
    """Return what was last decided about a run, shown with the forecast that stopped it, or the first that did not."""
    runs = context.runs
    last = decisions[-1] if decisions else {}
    was_stopped = runs.has_status(run, "stopped", "diverged")
    said = last if was_stopped and last.get("forecast") is not None else first_forecast(decisions) or {}
    shown = {key: said.get(key) for key in ("fraction", "forecast", "lower", "upper", "misfit", "family", "n_references")}
    spent = {"p_best": said.get("p_best")} if was_stopped and last.get("reason") == "cannot_win" else {}
    at_stop = runs.curve(run, run.stop_step) if runs.steps(run) >= run.stop_step else None
    return Verdict(
        time=datetime.now(UTC).isoformat(timespec="milliseconds"),
        trial=context.numbers[run.name],
        run=run.name,
        action="stop" if was_stopped else "continue",
        reason=str(last.get("reason", "")),
        numbers={**shown, **spent},
        current_loss=None if at_stop is None or at_stop.nonfinite_step else finite_or_none(at_stop.current_value),
        forecast={
            "status": "ok" if said else None,
            "final_loss": said.get("forecast"),
            "sd": None,
            **{key: said.get(key) for key in ("lower", "upper", "misfit", "family", "n_references", "p_best")},
        },
        is_tied=is_tied,
        rank=rank,
    )
