"""Trains again what has failed, once its cause is mended: a file server that was away, a fault in the training function.

Such a cause fails one run after the other until the queue is empty, retries and all. What was decided meanwhile stays decided:
under a rule with rounds only those runs can still take part that the last decision let go on.
"""

from __future__ import annotations

from hpo.engine.judging import Judgement
from hpo.engine.runs_on_disk import RunsOnDisk
from hpo.engine.worker import Outcome, forget_outcome, read_outcome, write_outcome

FAILURES = ("failed", "out_of_memory")
_AFTERWARDS = ("verify-*", "seed-*")
"""Runs beside the sweep's own: of a verification, of a tie that is settled."""


def forget_failures(runs: RunsOnDisk) -> list[str]:
    """Forget that runs have failed, so that they may train again; return the names of the sweep's own."""
    decided = runs.folder.read_decisions() if runs.plan.config.stopping.has_rounds else []
    own, in_reserve = [*runs.plan.proxies, *runs.plan.candidates], list[str]()
    if decided:
        judgement = Judgement.read(decided)
        in_reserve = _put_back(runs, judgement)
        going_on = {verdict.run for verdict in judgement.kept}
        own = [run for run in own if run.name in going_on]
    again = [run for run in own if runs.has_status(run, *FAILURES)]
    for run in again:
        runs.forget_ending(run)
    for folder in (found for pattern in _AFTERWARDS for found in runs.folder.trials.glob(pattern)):
        outcome = read_outcome(folder)
        if outcome is not None and outcome.status in FAILURES:
            forget_outcome(folder)
    return [*in_reserve, *(run.name for run in again)]


def _put_back(runs: RunsOnDisk, judgement: Judgement) -> list[str]:
    """Put those that failed in the place of the selected ones back to the stopping point; return their names."""
    reserve = {verdict.run for verdict in judgement.reserve}
    failed = [run for run in runs.plan.candidates if run.name in reserve and runs.has_status(run, *FAILURES)]
    there = [run for run in failed if runs.steps(run) >= run.stop_step]
    for run in there:
        write_outcome(runs.folder.trial(run.name), Outcome("reached", runs.steps(run), 0.0))
    return [run.name for run in there]
