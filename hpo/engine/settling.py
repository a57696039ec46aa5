"""Settles a tie by more seeds: the candidates that the forecasts could not tell apart, each trained to its end several times.

The first seed is the sweep's own run, or a copy of it that goes on where it was stopped (from its beginning, where its
checkpoint is gone). The winner is one of them, tied or not. The result says each candidate's mean
final loss over the seeds with its standard error, and which mean is lowest; a difference below the errors is still a tie.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hpo.adapters.atomic import write_json
from hpo.adapters.training_session import last_logged_step, remove_checkpoints
from hpo.engine.context import Context
from hpo.engine.judging import Judgement
from hpo.engine.plan import Run
from hpo.engine.worker import Job


def settle_ties(context: Context, judgement: Judgement, n_seeds: int) -> dict[str, Any] | None:
    """Train the tie set, and the winner beside it, with ``n_seeds`` seeds and write what came out into ``settled.json``.

    None where there is no tie.
    """
    tied = [context.candidates[verdict.run] for verdict in judgement.verdicts if verdict.is_tied]
    if len(tied) < 2:
        context.progress.say("nothing to settle: no two candidates were tied")
        return None
    tied = _with_winner(context, tied)
    context.progress.say(f"settling: {len(tied)} candidates with {n_seeds} seeds each")
    jobs = {run.name: [_job(context, run, seed) for seed in range(n_seeds)] for run in tied}
    context.train([job for of_one in jobs.values() for job in of_one], "4-settle")
    for job in (job for of_one in jobs.values() for job in of_one):
        if job.name not in context.candidates:
            remove_checkpoints(job.folder)
    losses = {run.name: [context.runs.final_loss(run, job.name) for job in jobs[run.name]] for run in tied}
    told = [_told(run, context.numbers[run.name], losses[run.name]) for run in tied]
    for run in tied:
        if is_deaf_to_seeds(losses[run.name]):
            context.progress.say(
                f"warning: all seeds of {run.name} ended at exactly the same loss: does the training use settings['seed']?"
            )
    known = [one for one in told if one["mean"] is not None]
    best = min(known, key=lambda one: float(one["mean"]), default=None)
    settled = {"seeds": n_seeds, "winner": None if best is None else best["settings"], "trials": told}
    write_json(context.folder.settled, settled)
    return settled


def _with_winner(context: Context, tied: list[Run]) -> list[Run]:
    """Return the tied runs and the one with the lowest final loss, which people may have kept although it was not tied."""
    finals = context.runs.final_losses(context.plan.candidates)
    winner = min(finals, key=lambda name: finals[name])
    names = {winner, *(run.name for run in tied)}
    return [run for run in context.plan.candidates if run.name in names]


def _job(context: Context, run: Run, seed: int) -> Job:
    """Return the job of one seed: of the first the run itself where it is complete, or a copy that goes on; else a new run."""
    if seed == 0 and context.runs.is_complete(run):
        return context.runs.job(run, run.n_steps)
    settings = context.plan.workload.settings(run.searched, {}, seed)
    again = replace(run, settings=settings)
    job = context.runs.job(again, run.n_steps, f"seed-{seed}-{run.name}")
    if seed == 0:
        context.runs.copy(run, job.name)
    if job.outcome is None:
        done = last_logged_step(job.folder)
        context.progress.expect_more(run.flops - run.flops_at(done))
        context.progress.add(job.name, again, done, is_new=False)
    return job


def is_deaf_to_seeds(losses: Sequence[float | None]) -> bool:
    """True if several seeds ended at one loss to the last digit: they were hardly other seeds, and tell no error."""
    finite = [loss for loss in losses if loss is not None and math.isfinite(loss)]
    return len(finite) > 1 and len(set(finite)) == 1


def _told(run: Run, number: int, losses: list[float | None]) -> dict[str, Any]:
    finite = np.array([loss for loss in losses if loss is not None and math.isfinite(loss)])
    return {
        "number": number,
        "settings": dict(run.searched),
        "final_losses": losses,
        "mean": float(finite.mean()) if finite.size else None,
        "standard_error": float(finite.std(ddof=1) / math.sqrt(finite.size)) if finite.size > 1 else None,
    }
