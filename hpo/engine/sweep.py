"""One sweep, from its plan to its result, in phases that can be repeated.

1. The proxies train to their end and every candidate to the stopping point, side by side.
2. The model is fitted on the proxies, and all candidates are judged together.
3. The selected candidates go on from their checkpoints to the end; should all of them fail, the next best are tried.
4. The study is told, the result written. With ``verify``, every other candidate is then trained to its end as well.

Each phase looks at what is on disk and does only what is missing, so a resume is the same call again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hpo.adapters.atomic import new_folder, write_json
from hpo.adapters.model_files import write_model
from hpo.adapters.training_session import remove_checkpoints
from hpo.core.decision import REASONS, StoppingSettings
from hpo.core.model import CollapseModel
from hpo.engine.cost import estimate, spending
from hpo.engine.judging import Judgement, judge
from hpo.engine.pausing import pause_on_signal
from hpo.engine.plan import Plan, Run
from hpo.engine.progress import SweepProgress
from hpo.engine.ray_trials import available_cores, ray_on_this_machine, run_jobs
from hpo.engine.result import Candidate, candidates_of, judged_runs, make_result
from hpo.engine.run_folder import RunFolder
from hpo.engine.runs_on_disk import RunsOnDisk, Stopwatch
from hpo.engine.study_record import Ending, StudyRecord, open_study
from hpo.engine.worker import Job

ENDINGS: dict[str, Ending] = {"winner": "COMPLETE", "complete": "COMPLETE", "failed": "FAIL", "out_of_memory": "FAIL"}
"""How a candidate's trial ends in the study; a diverged or stopped one is PRUNED."""


class SweepError(Exception):
    """The sweep ran and has no winner; its text is the line to show."""


def run_sweep(
    plan: Plan, folder: RunFolder, progress: SweepProgress, *, resume: bool = False, verify: bool = False
) -> dict[str, Any]:
    """Run, or with ``resume`` go on with, the sweep of ``plan`` in ``folder``; return its result (also in ``result.json``).

    Raises
    ------
    SweepError
        No candidate could be trained to its end.
    KeyboardInterrupt
        Interrupted; everything is saved.
    InputError
        The storage cannot be opened, or the machine is too small for one trial.
    """
    with ExitStack() as stack:
        stack.enter_context(pause_on_signal(folder.pause, progress.say))
        sweep = _Sweep(plan, folder, progress, stack, resume)
        sweep.train_to_stop()
        judgement = sweep.judge()
        sweep.train_selected(judgement)
        result = sweep.conclude(judgement)
        if verify:
            result = sweep.verify(judgement)
        sweep.clean_up()
        return result


def verification(run: Run) -> str:
    """Return the name under which a stopped candidate is trained to its end."""
    return f"verify-{run.name}"


def trials_at_once(plan: Plan) -> int:
    """Return how many trials run side by side on this machine."""
    resources = plan.config.resources
    fitting = max(1, int(available_cores() / resources.cpu))
    if resources.gpu > 0:
        fitting = max(1, min(fitting, int(len(list(Path("/dev").glob("nvidia[0-9]*"))) / resources.gpu)))
    return min(fitting, resources.max_concurrent or fitting)


class _Sweep:
    """What the phases share; Ray is started when the first run needs it."""

    def __init__(self, plan: Plan, folder: RunFolder, progress: SweepProgress, stack: ExitStack, resume: bool) -> None:
        self.plan, self.folder, self.progress, self._stack = plan, folder, progress, stack
        self.runs = RunsOnDisk(plan, folder)
        study = open_study(plan.config.name, plan.config.storage, folder.journal, resume=resume)
        self.record = StudyRecord(study, plan.space, [run.searched for run in plan.candidates])
        self.numbers = [self.record.number(i) for i in range(len(plan.candidates))]
        self._stopwatch = Stopwatch(folder)
        self._ray_is_up = False
        for run in (*plan.proxies, *plan.candidates):
            folder.trial(run.name).mkdir(exist_ok=True)
            progress.add(run.name, run, self.runs.steps(run))

    def train_to_stop(self) -> None:
        """Phase 1; proxies are the longer runs, so they start first."""
        runs = (*self.plan.proxies, *self.plan.candidates)
        self._train([self.runs.job(run, run.stop_step) for run in runs], "1-to-stop")
        self.runs.save_curves(runs)
        for run in self.plan.proxies:
            remove_checkpoints(self.folder.trial(run.name))
        if not any(self.runs.has_status(run, "reached") for run in self.plan.candidates):
            self._give_up("no candidate could be trained to the stopping point")

    def judge(self) -> Judgement:
        """Phase 2; what was decided once stays decided."""
        decided = self.folder.read_decisions()
        if decided:
            return Judgement.read(decided)
        model = CollapseModel.fit([self.runs.curve(run) for run in self.plan.proxies])
        write_model(self.folder.model, model)
        self.progress.say(f"model fitted on {len(model.references)} of {len(self.plan.proxies)} proxies")
        runs = judged_runs(self.runs)
        curves = [self.runs.curve(run, run.stop_step) for run in runs]
        number_of = dict(zip((run.name for run in self.plan.candidates), self.numbers, strict=True))
        trials = [number_of[run.name] for run in runs]
        judgement = judge(model, curves, trials, self._stopping(), self.plan.config.seed)
        self.folder.write_decisions(judgement.to_lines())
        for verdict in judgement.verdicts:
            if verdict.action == "continue" and verdict.forecast["final_loss"] is None:
                self.progress.say(f"{verdict.run} goes on because it could not be forecast: {REASONS[verdict.reason]}")
        return judgement

    def train_selected(self, judgement: Judgement) -> None:
        """Phase 3."""
        runs = {run.name: run for run in self.plan.candidates}
        going_on = [runs[verdict.run] for verdict in judgement.kept]
        reserve = [runs[verdict.run] for verdict in judgement.reserve]
        self._train_to_end(going_on)
        while not any(self.runs.has_status(run, "reached") for run in going_on):
            if not reserve:
                self._give_up("no selected candidate could be trained to its end")
            going_on = [reserve.pop(0)]
            self.progress.say(f"no selected candidate reached its end; going on with {going_on[0].name}")
            self._train_to_end(going_on)

    def conclude(self, judgement: Judgement) -> dict[str, Any]:
        """Phase 4."""
        candidates = candidates_of(self.runs, judgement, self.numbers)
        for i, candidate in enumerate(candidates):
            self._tell(i, candidate)
        return self._write_result(judgement, candidates)

    def verify(self, judgement: Judgement) -> dict[str, Any]:
        """Train the candidates that were stopped to their end, in folders of their own; return the result with regrets."""
        candidates = candidates_of(self.runs, judgement, self.numbers)
        others = [c.run for c in candidates if c.state == "stopped" and self.runs.has_status(c.run, "reached")]
        self.progress.say(f"verifying: the {len(others)} stopped candidates train to their end")
        jobs = [self._verification(run) for run in others]
        self._train(jobs, "3-verify")
        for job in jobs:
            remove_checkpoints(job.folder)
        return self._write_result(judgement, candidates)

    def clean_up(self) -> None:
        """Delete the checkpoints that nothing needs any more: all but those of runs at their end."""
        for run in self.plan.candidates:
            if self.runs.final_loss(run) is None:
                remove_checkpoints(self.folder.trial(run.name))

    def _stopping(self) -> StoppingSettings:
        s = self.plan.config.stopping
        return StoppingSettings(
            min_fraction=min(s.at, 0.1),
            alpha=s.alpha,
            margin=s.margin,
            min_references=s.min_references,
            keep_min=s.keep_min,
            keep_max=s.keep_max,
        )

    def _train_to_end(self, runs: Sequence[Run]) -> None:
        steps = {run.name: self.runs.steps(run) for run in (*self.plan.proxies, *self.plan.candidates)}
        self.progress.expect(spending(self.plan, steps | {run.name: run.n_steps for run in runs}).total)
        self._train([self.runs.job(run, run.n_steps) for run in runs], "2-to-end")
        self.runs.save_curves(runs)

    def _train(self, jobs: Sequence[Job], phase: str) -> None:
        if not self._ray_is_up and any(job.outcome is None for job in jobs):
            self._stack.enter_context(ray_on_this_machine(self.folder, self.plan.config.resources))
            self._ray_is_up = True
        config = self.plan.config
        try:
            run_jobs(
                jobs,
                run=self.folder,
                resources=config.resources,
                retries=config.retries,
                events=_Events(self.progress, self.record, {run.name: i for i, run in enumerate(self.plan.candidates)}),
                phase=phase,
            )
        finally:
            self._stopwatch.save()

    def _verification(self, run: Run) -> Job:
        """Return the job that trains a stopped candidate to its end, beginning with a copy of what it has."""
        job = self.runs.job(run, run.n_steps, verification(run))
        if not job.folder.exists():
            with new_folder(job.folder) as copy:
                shutil.copytree(self.folder.trial(run.name), copy, dirs_exist_ok=True)
        self.progress.expect_more(run.flops - run.flops_at(run.stop_step))
        self.progress.add(job.name, run, run.stop_step, is_new=False)
        return job

    def _tell(self, i: int, candidate: Candidate) -> None:
        """Close the candidate's trial in the study."""
        attributes: dict[str, Any] = {"reason": candidate.reason, "stopped_at": self.runs.steps(candidate.run)}
        if candidate.verdict is not None:
            forecast = candidate.verdict.forecast
            attributes |= {"predicted_final": forecast["final_loss"]}
            attributes |= {key: forecast[key] for key in ("lower", "upper", "p_best", "status")}
        if candidate.state in ("diverged", "out_of_memory"):
            attributes["reason"] = candidate.state
        if candidate.final_loss is not None:
            del attributes["stopped_at"]
        self.record.annotate(i, attributes)
        self.record.close(i, ENDINGS.get(candidate.state, "PRUNED"), candidate.final_loss)

    def _write_result(self, judgement: Judgement, candidates: Sequence[Candidate]) -> dict[str, Any]:
        """Write and return the result; its seconds are those until the first time, so without verifications and resumes."""
        seconds = self._stopwatch.seconds
        if self.folder.result.exists():
            seconds = float(json.loads(self.folder.result.read_text(encoding="utf-8"))["seconds"])
        verified = {run.name: self.runs.final_loss(run, verification(run)) for run in self.plan.candidates}
        known = {name: loss for name, loss in verified.items() if loss is not None}
        result = make_result(self.runs, judgement, candidates, seconds, known or None)
        write_json(self.folder.result, result)
        return result

    def _give_up(self, what: str) -> None:
        """Close the trials that ended badly and raise :class:`SweepError` with the first one's trouble."""
        for i, run in enumerate(self.plan.candidates):
            outcome = self.runs.outcome(run)
            if outcome is not None and outcome.status != "reached":
                self.record.annotate(i, {"reason": outcome.status, "stopped_at": outcome.step})
                self.record.close(i, "PRUNED" if outcome.status == "diverged" else "FAIL")
        bad = [(run, out) for run in self.plan.candidates if (out := self.runs.outcome(run)) and out.status != "reached"]
        example = f"; {bad[0][0].name}: {bad[0][1].status}: {bad[0][1].message}" if bad else ""
        raise SweepError(f"{what}{example}")


class _Events:
    """Passes what happens to the trials to the progress display, and what candidates report to the study."""

    def __init__(self, progress: SweepProgress, record: StudyRecord, candidates: Mapping[str, int]) -> None:
        self._progress, self._record, self._candidates = progress, record, candidates

    def started(self, job: Job) -> None:
        self._progress.started(job)

    def reported(self, job: Job, step: int, loss: float) -> None:
        self._progress.reported(job, step, loss)
        if job.name in self._candidates:
            self._record.report(self._candidates[job.name], step, loss)

    def ended(self, job: Job) -> None:
        self._progress.ended(job)


def expected_flops(plan: Plan) -> float:
    """Return what the sweep is expected to cost in all."""
    return estimate(plan, trials_at_once(plan)).spending.total
