"""What the phases of a sweep share: its plan, its folder, its study, and the one way in which jobs are trained."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack

from hpo.adapters.blas_threads import in_one_blas_thread
from hpo.adapters.model_files import write_model
from hpo.core.model import CollapseModel
from hpo.engine.commands_file import CommandsFile
from hpo.engine.hand import Hand
from hpo.engine.job_queue import JobQueue
from hpo.engine.judging import Judgement
from hpo.engine.plan import Plan, Run
from hpo.engine.progress import SweepProgress
from hpo.engine.ray_cluster import ray_for
from hpo.engine.ray_trials import run_jobs
from hpo.engine.retrying import FAILURES, forget_failures
from hpo.engine.reuse import Reuse
from hpo.engine.run_folder import RunFolder
from hpo.engine.runs_on_disk import RunsOnDisk
from hpo.engine.smoke_detector import SmokeDetector, Suspicion
from hpo.engine.study_record import StudyRecord, open_study
from hpo.engine.thinning import Report
from hpo.engine.time_budget import MayStart, Stopwatch, TimeBudget, always
from hpo.engine.trial_events import TrialEvents
from hpo.engine.trouble import SweepError
from hpo.engine.worker import Job


class Context:
    """One driver's view of a sweep; Ray is started when the first run needs it, and stays until ``stack`` closes."""

    def __init__(
        self,
        plan: Plan,
        folder: RunFolder,
        progress: SweepProgress,
        stack: ExitStack,
        resume: bool,
        *,
        retry_failed: bool = False,
    ) -> None:
        self.plan, self.folder, self.progress, self._stack = plan, folder, progress, stack
        self.reuse = Reuse(plan, folder)
        self.runs = RunsOnDisk(plan, folder)
        study = open_study(plan.config.name, plan.config.storage, folder.journal, resume=resume)
        again = forget_failures(self.runs) if retry_failed else []
        places = [i for i, run in enumerate(plan.candidates) if run.name in again]
        self.record = StudyRecord(study, plan.space, [run.searched for run in plan.candidates], again=places)
        self.numbers = {run.name: self.record.number(i) for i, run in enumerate(plan.candidates)}
        self.stopwatch = Stopwatch(folder)
        self.budget = TimeBudget(plan.config.time_budget, self.stopwatch, self.runs)
        self.candidates = {run.name: run for run in plan.candidates}
        self.by_name = {run.name: run for run in (*plan.proxies, *plan.candidates)}
        self.smoke = SmokeDetector(self.runs, self._suspect, self.progress.say)
        self._positions = {run.name: i for i, run in enumerate(plan.candidates)}
        self._ray_is_up = False
        self.add_runs((*self.reuse.proxies, *plan.candidates))
        self.hand = Hand(self.runs, CommandsFile(folder.path))
        self.hand.say = self.progress.say
        if retry_failed:
            self.progress.say(f"what had failed may train again: {', '.join(again) or 'nothing'}")

    def add_runs(self, runs: Iterable[Run]) -> None:
        """Make runs known to whoever shows the sweep, each with a folder of its own."""
        for run in runs:
            self.folder.trial(run.name).mkdir(exist_ok=True)
            self.progress.add(run.name, run, self.runs.steps(run), number=self.numbers.get(run.name))

    @in_one_blas_thread
    def learn(self) -> CollapseModel:
        """Write and return the model that judges: the library's, if the sweep follows it, else that of its own proxies."""
        model, proxies = self.reuse.model, self.plan.proxies
        if model is None:
            model = CollapseModel.fit([self.runs.curve(run) for run in proxies])
            if proxies:
                self.progress.say(f"model fitted on {len(model.references)} of {len(proxies)} proxies")
            kept = self.reuse.keep(model)
            if kept is not None:
                self.progress.say(kept)
        write_model(self.folder.model, model)
        return model

    def train(
        self,
        jobs: Sequence[Job],
        phase: str,
        *,
        may_start: MayStart = always,
        again: Callable[[Run], Job] | None = None,
        events: Callable[[JobQueue, TrialEvents], TrialEvents] = lambda _queue, usual: usual,
    ) -> None:
        """Train the jobs that have not ended; how each ended is then in its folder.

        Parameters
        ----------
        may_start : callable
            Asked about each run when its turn comes.
        again : callable, optional
            Returns the job of a candidate that is revived meanwhile; None: none can be, and no wish is heeded until later.
        events : callable
            Given the queue and the usual watcher of trials, returns the one to use.
        """
        waiting = [job for job in jobs if job.outcome is None]
        if not waiting:
            return
        if not self._ray_is_up:
            self._stack.enter_context(ray_for(self.folder, self.plan.config))
            self._ray_is_up = True
        queue = JobQueue(waiting, lambda job: not job.is_paused() and self._has_leave(job, may_start))
        self.hand.enqueue = lambda run: queue.add(again(run)) if again is not None else None
        templates = {run.name: self.runs.job(run, run.n_steps) for run in self.by_name.values()}
        try:
            run_jobs(
                queue,
                templates | {job.name: job for job in jobs},
                run=self.folder,
                config=self.plan.config,
                events=events(queue, _Usual(self, heeds_wishes=again is not None)),
                phase=phase,
            )
        finally:
            self.hand.enqueue = lambda _run: None
            self.stopwatch.save()

    def _has_leave(self, job: Job, may_start: MayStart) -> bool:
        """Return whether a job may start; where it may not although people wished it, that is said."""
        run = self.by_name.get(job.name)
        if run is None or may_start(run):
            return True
        if run.name in {*self.hand.kept, *self.hand.until}:
            self.progress.say(f"{run.name} does not go on, although it was wished: there is no time left")
        return False

    def _suspect(self, run: Run, why: Suspicion) -> None:
        """Mark a candidate suspect, for whoever shows the sweep and in the study."""
        self.progress.suspected(run.name, why.to_dict())
        about = {"kind": why.kind, "onset": why.onset, "size_pct": why.size_pct, "reason": why.reason}
        self.record.annotate(
            self._positions[run.name], {"suspect": True, **{f"suspect_{key}": value for key, value in about.items()}}
        )

    def write_judgement(self, judgement: Judgement, news: Collection[str]) -> None:
        """Write a judgement, and tell the verdicts on the runs named in ``news``."""
        self.folder.write_decisions(judgement.to_lines())
        for verdict in judgement.verdicts:
            if verdict.run in news:
                self.progress.decided(verdict.run, verdict.action, verdict.reason, verdict.told)
                would_stop = verdict.action == "stop" or verdict.reason == "kept_by_hand"
                if would_stop and (wish := self.hand.wish(verdict.run, verdict.numbers.get("fraction"))):
                    self.progress.say(wish)

    def give_up(self, what: str) -> None:
        """Close the trials that ended badly and raise :class:`SweepError` with the first one's trouble, and what mends it."""
        bad, has_failed = [], False
        for i, run in enumerate(self.plan.candidates):
            outcome = self.runs.outcome(run)
            if outcome is not None and outcome.status not in ("reached", "stopped"):
                bad.append(f"{run.name}: {outcome.status}: {outcome.message}")
                has_failed = has_failed or outcome.status in FAILURES
                self.record.annotate(i, {"reason": outcome.status, "stopped_at": outcome.step})
                self.record.close(i, "PRUNED" if outcome.status == "diverged" else "FAIL")
        hint = [f"once that is mended: {self.folder.resume_command} --retry-failed"] if has_failed else []
        raise SweepError("; ".join([what, *bad[:1], *hint]))


class _Usual:
    """Passes what happens to the trials to whoever shows it, and what candidates report to the study; looks for wishes."""

    def __init__(self, context: Context, *, heeds_wishes: bool) -> None:
        self._context, self._heeds_wishes = context, heeds_wishes
        self._positions = {run.name: i for i, run in enumerate(context.plan.candidates)}

    def tick(self) -> None:
        self._context.progress.tick()
        self._context.stopwatch.tick()
        if self._heeds_wishes:
            self._context.hand.look()

    def started(self, job: Job) -> None:
        self._context.progress.started(job)

    def reported(self, job: Job, report: Report) -> None:
        self._context.progress.reported(job, report)
        if job.name in self._positions:
            self._context.record.report(self._positions[job.name], report.step, report.loss)
            self._context.smoke.reported(self._context.candidates[job.name], report)

    def ended(self, job: Job) -> None:
        self._context.progress.ended(job)
        if job.name in self._positions:
            self._context.smoke.ended(self._context.candidates[job.name])
