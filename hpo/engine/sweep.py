"""One sweep, from its plan to its result, in phases that can be repeated.

1. A rule trains and judges (:mod:`hpo.engine.rules`).
2. The study is told, the result written, the winner exported.
3. On request every other candidate is trained to its end (``verify``), or those that could not be told apart with more seeds
   (``settle``).

Each phase looks at what is on disk and does only what is missing, so a resume is the same call again.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hpo.adapters.atomic import write_json
from hpo.adapters.training_session import last_logged_step, remove_checkpoints
from hpo.engine.config import check_seeds
from hpo.engine.context import Context
from hpo.engine.cost import estimate
from hpo.engine.export import export_winner
from hpo.engine.judging import Judgement
from hpo.engine.pausing import pause_on_signal
from hpo.engine.plan import Plan, Run
from hpo.engine.progress import SweepProgress
from hpo.engine.ray_cluster import available_cores, needs_of
from hpo.engine.result import Candidate, candidates_of, make_result
from hpo.engine.rules import RULES
from hpo.engine.run_folder import RunFolder
from hpo.engine.settling import settle_ties
from hpo.engine.study_record import Ending
from hpo.engine.trouble import OutsideError, SweepError
from hpo.engine.worker import Job

__all__ = ["OutsideError", "SweepError", "expected_flops", "run_sweep", "trials_at_once", "verification"]

ENDINGS: dict[str, Ending] = {
    "winner": "COMPLETE",
    "complete": "COMPLETE",
    "failed": "FAIL",
    "out_of_memory": "FAIL",
    "not_started": "FAIL",
}
"""How a candidate's trial ends in the study; a diverged or stopped one is PRUNED."""


def run_sweep(
    plan: Plan,
    folder: RunFolder,
    progress: SweepProgress,
    *,
    resume: bool = False,
    retry_failed: bool = False,
    verify: bool = False,
    settle: int = 0,
) -> dict[str, Any]:
    """Run, or with ``resume`` go on with, the sweep of ``plan`` in ``folder``; return its result (also in ``result.json``).

    Parameters
    ----------
    retry_failed : bool
        First forget how those runs ended that have failed, as far as they can still take part: they train again.
    verify : bool
        Afterwards train every stopped candidate to its end, in a folder of its own.
    settle : int
        Afterwards train those that could not be told apart with so many seeds each; 0: no.

    Raises
    ------
    SweepError
        No candidate could be trained to its end; or, an :class:`OutsideError`, Ray or the storage failed, and what is saved
        can be gone on with.
    KeyboardInterrupt
        Interrupted; everything is saved.
    OSError
        The disk is full; what there is is saved.
    InputError
        The storage cannot be opened, the machine is too small for one trial, or ``settle`` is no number of seeds.
    """
    if settle:
        check_seeds("settle", settle)
    with ExitStack() as stack:
        stack.enter_context(pause_on_signal(folder.pause, progress.say))
        context = Context(plan, folder, progress, stack, resume, retry_failed=retry_failed)
        judgement = RULES[plan.config.stopping.rule].run(context)
        ending = _Ending(context, judgement)
        result = ending.conclude()
        if verify:
            result = ending.verify()
        if settle:
            settle_ties(context, judgement, settle)
            result = ending.write_result()
        ending.clean_up()
        export_winner(plan, result, folder)
        return result


def verification(run: Run) -> str:
    """Return the name under which a stopped candidate is trained to its end."""
    return f"verify-{run.name}"


def trials_at_once(plan: Plan) -> int:
    """Return how many trials run side by side on this machine."""
    resources = plan.config.resources
    needs = needs_of(resources)
    fitting = max(1, int(available_cores() / needs["CPU"]))
    if needs["GPU"] > 0:
        fitting = max(1, min(fitting, int(len(list(Path("/dev").glob("nvidia[0-9]*"))) / needs["GPU"])))
    return min(fitting, resources.max_concurrent or fitting)


def expected_flops(plan: Plan) -> float:
    """Return what the sweep is expected to cost in all."""
    return estimate(plan, trials_at_once(plan)).spending.total


class _Ending:
    """What happens once the candidates are judged and the winner is trained."""

    def __init__(self, context: Context, judgement: Judgement) -> None:
        self._context, self._runs, self._judgement = context, context.runs, judgement
        self._candidates = candidates_of(context.runs, judgement, context.numbers, context.smoke.suspicion)

    def conclude(self) -> dict[str, Any]:
        """Tell the study and write the result."""
        for i, candidate in enumerate(self._candidates):
            self._tell(i, candidate)
        return self.write_result()

    def verify(self) -> dict[str, Any]:
        """Train the candidates that were stopped to their end, in folders of their own; return the result with regrets."""
        others = [
            c.run for c in self._candidates if c.state == "stopped" and self._runs.has_status(c.run, "reached", "stopped")
        ]
        self._context.progress.say(f"verifying: the {len(others)} stopped candidates train to their end")
        jobs = [self._verification(run) for run in others]
        self._context.train(jobs, "3-verify")
        for job in jobs:
            remove_checkpoints(job.folder)
        return self.write_result()

    def clean_up(self) -> None:
        """Delete the checkpoints that nothing needs any more, as ``keep_checkpoints`` says."""
        keep = self._context.plan.config.keep_checkpoints
        kept_states = {"all": None, "complete": ("winner", "complete")}.get(keep, ("winner",))
        for candidate in self._candidates:
            if kept_states is not None and candidate.state not in kept_states:
                remove_checkpoints(self._context.folder.trial(candidate.run.name))

    def write_result(self) -> dict[str, Any]:
        """Write and return the result; its seconds are those until the first time, so without verifications and resumes."""
        folder, seconds = self._context.folder, self._context.stopwatch.seconds
        if folder.result.exists():
            seconds = float(json.loads(folder.result.read_text(encoding="utf-8"))["seconds"])
        verified = {run.name: self._runs.final_loss(run, verification(run)) for run in self._context.plan.candidates}
        known = {name: loss for name, loss in verified.items() if loss is not None}
        reuse = self._context.reuse
        result = make_result(self._runs, self._judgement, self._candidates, seconds, known or None, reuse.stand_ins)
        if reuse.block is not None:
            result["library"] = reuse.to_result()
        if folder.settled.exists():
            result["settled"] = json.loads(folder.settled.read_text(encoding="utf-8"))
        write_json(folder.result, result)
        return result

    def _verification(self, run: Run) -> Job:
        """Return the job that trains a stopped candidate to its end, beginning with a copy of what it has."""
        job = self._runs.job(run, run.n_steps, verification(run))
        self._runs.copy(run, job.name)
        done = last_logged_step(job.folder)
        self._context.progress.expect_more(run.flops - run.flops_at(done))
        self._context.progress.add(job.name, run, done, is_new=False)
        return job

    def _tell(self, i: int, candidate: Candidate) -> None:
        """Close the candidate's trial in the study."""
        attributes: dict[str, Any] = {"reason": candidate.reason, "stopped_at": self._runs.steps(candidate.run)}
        if candidate.verdict is not None:
            forecast = candidate.verdict.forecast
            attributes |= {"predicted_final": forecast["final_loss"]}
            attributes |= {key: forecast[key] for key in ("lower", "upper", "p_best", "status")}
        if candidate.state in ("diverged", "out_of_memory"):
            attributes["reason"] = candidate.state
        if candidate.final_loss is not None:
            del attributes["stopped_at"]
        self._context.record.annotate(i, attributes)
        self._context.record.close(i, ENDINGS.get(candidate.state, "PRUNED"), candidate.final_loss)
