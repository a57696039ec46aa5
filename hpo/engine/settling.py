"""Settles a tie by more seeds: the candidates that the forecasts could not tell apart, each trained to its end several times.

The first seed is the sweep's own run, or a copy of it that goes on where it was stopped. The result says each candidate's mean
final loss over the seeds with its standard error, and which mean is lowest; a difference below the errors is still a tie.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from hpo.adapters.atomic import write_json
from hpo.adapters.training_session import remove_checkpoints
from hpo.engine.context import Context
from hpo.engine.judging import Judgement
from hpo.engine.plan import Run
from hpo.engine.worker import Job


def settle_ties(context: Context, judgement: Judgement, n_seeds: int) -> dict[str, Any] | None:
    """Train the tie set with ``n_seeds`` seeds and write what came out into ``settled.json``; None where there is no tie."""
    tied = [context.candidates[verdict.run] for verdict in judgement.verdicts if verdict.is_tied]
    if len(tied) < 2:
        context.progress.say("nothing to settle: the forecasts told all candidates apart")
        return None
    context.progress.say(f"settling: {len(tied)} candidates with {n_seeds} seeds each")
    jobs = {run.name: [_job(context, run, seed) for seed in range(n_seeds)] for run in tied}
    context.train([job for of_one in jobs.values() for job in of_one], "4-settle")
    for of_one in jobs.values():
        for job in of_one[1:]:
            remove_checkpoints(job.folder)
    losses = {run.name: [context.runs.final_loss(run, job.name) for job in jobs[run.name]] for run in tied}
    told = [_told(run, context.numbers[run.name], losses[run.name]) for run in tied]
    known = [one for one in told if one["mean"] is not None]
    best = min(known, key=lambda one: float(one["mean"]), default=None)
    settled = {"seeds": n_seeds, "winner": None if best is None else best["settings"], "trials": told}
    write_json(context.folder.settled, settled)
    return settled


def _job(context: Context, run: Run, seed: int) -> Job:
    """Return the job of one more seed; of the first, the run itself where it is complete, else a run of its own."""
    if seed == 0 and context.runs.is_complete(run):
        return context.runs.job(run, run.n_steps)
    settings = context.plan.workload.settings(run.searched, {}, seed)
    name = f"seed-{seed}-{run.name}"
    again = replace(run, settings=settings)
    context.progress.expect_more(run.flops)
    context.progress.add(name, again, 0, is_new=False)
    return context.runs.job(again, run.n_steps, name)


def _told(run: Run, number: int, losses: list[float | None]) -> dict[str, Any]:
    finite = np.array([loss for loss in losses if loss is not None and math.isfinite(loss)])
    return {
        "number": number,
        "settings": dict(run.searched),
        "final_losses": losses,
        "mean": float(finite.mean()) if finite.size else None,
        "standard_error": float(finite.std(ddof=1) / math.sqrt(finite.size)) if finite.size > 1 else None,
    }
