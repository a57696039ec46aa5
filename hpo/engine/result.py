"""What a sweep says at its end: ``result.json``, and how each candidate fared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpo.engine.cost import spending
from hpo.engine.judging import Judgement, Verdict, current_best, transfer
from hpo.engine.plan import Plan, Run
from hpo.engine.runs_on_disk import RunsOnDisk
from hpo.engine.smoke_detector import Suspicion
from hpo.engine.stop_marks import OUT_OF_TIME

IN_RESERVE = "in_reserve"
"""Why a candidate that was not selected is complete: those that were selected had failed."""


@dataclass(frozen=True)
class Candidate:
    """How one candidate fared.

    Attributes
    ----------
    state : str
        ``winner``, ``complete``, ``stopped``, ``not_started``, ``diverged``, ``out_of_memory`` or ``failed``.
    reason : str
        The decision's reason code, or what went wrong.
    verdict : Verdict or None
        None where there was no curve to judge.
    final_loss : float or None
        Where it was trained to its end (not by a verification).
    suspicion : Suspicion or None
        Why it is suspect, where it has left its proxies' curve.
    """

    run: Run
    number: int
    state: str
    reason: str
    verdict: Verdict | None
    final_loss: float | None
    suspicion: Suspicion | None = None


def judged_runs(runs: RunsOnDisk) -> list[Run]:
    """Return the candidates that have a curve to judge: at the stopping point, or diverged before it."""
    return [run for run in runs.plan.candidates if runs.steps(run) >= run.stop_step or runs.has_status(run, "diverged")]


def candidates_of(
    runs: RunsOnDisk,
    judgement: Judgement,
    numbers: Mapping[str, int],
    suspicion: Callable[[Run], Suspicion | None] = lambda _run: None,
) -> list[Candidate]:
    """Return how each candidate fared, ``numbers`` being their trials' numbers in the study by name."""
    verdicts = {verdict.run: verdict for verdict in judgement.verdicts}
    complete = runs.final_losses(runs.plan.candidates)
    winner = min(complete, key=lambda name: complete[name], default=None)
    fared = []
    for run in runs.plan.candidates:
        outcome, verdict = runs.outcome(run), verdicts.get(run.name)
        state = "stopped"
        if run.name in complete:
            state = "winner" if run.name == winner else "complete"
        elif outcome is not None and outcome.status != "reached":
            state = outcome.status
        elif outcome is None and runs.steps(run) == 0:
            state = "not_started"
        reason = "" if verdict is None else verdict.reason
        if outcome is not None and outcome.status in ("failed", "out_of_memory", "stopped"):
            reason = outcome.message
        elif state == "not_started" or (state == "stopped" and verdict is not None and verdict.action == "continue"):
            reason = OUT_OF_TIME
        elif verdict is not None and verdict.is_by_forecast and run.name in complete:
            reason = IN_RESERVE
        fared.append(Candidate(run, numbers[run.name], state, reason, verdict, complete.get(run.name), suspicion(run)))
    return fared


def make_result(
    runs: RunsOnDisk,
    judgement: Judgement,
    candidates: Sequence[Candidate],
    seconds: float,
    verified: Mapping[str, float] | None = None,
    stand_ins: tuple[Sequence[Run], Mapping[str, float]] = ((), {}),
) -> dict[str, Any]:
    """Return the content of ``result.json``; with the final losses of a verification, by name, also ``regret_pct``.

    ``stand_ins`` are runs of a library that stood for the proxies, and their final losses by name.
    """
    plan = runs.plan
    winner = next(c for c in candidates if c.state == "winner")
    forecast = _forecast(winner)
    picks = _picks(plan, judgement, runs, *stand_ins)
    steps = {run.name: runs.steps(run) for run in (*plan.proxies, *plan.candidates)}
    ended = {c.run.name for c in candidates if c.state in ("diverged", "out_of_memory", "failed")}
    result = {
        "winner": dict(winner.run.searched),
        "forecast": {**{k: forecast[k] for k in ("final_loss", "lower", "upper")}, "at_fraction": _at_fraction(plan, winner)},
        "actual_final_loss": winner.final_loss,
        "forecast_error_pct": error_pct(forecast["final_loss"], winner.final_loss),
        "p_best": forecast["p_best"],
        "error_spent": judgement.error_spent,
        "tie_set": judgement.tie_set,
        **{f"{rule}_pick": None if run is None else dict(run.searched) for rule, run in picks.items()},
        **spending(plan, steps, ended).to_result(),
        "trials": [_trial(c, verified) for c in candidates],
        "seconds": round(seconds, 1),
    }
    if plan.config.price_per_hour is not None:
        result["price"] = round(result["seconds"] / 3600 * plan.config.price_per_hour, 4)
    if verified is not None:
        finals = {c.run.name: c.final_loss for c in candidates if c.final_loss is not None} | dict(verified)
        result["regret_pct"] = regrets({"ours": winner.run, **picks}, finals)
    return result


def failed_result(runs: RunsOnDisk, error: str) -> dict[str, Any]:
    """Return what there is to say of a sweep that ended without a winner: the error, and how far each run came."""
    return {
        "error": error,
        "run_folder": str(runs.folder.path),
        "winner": None,
        "trials": [_come_so_far(runs, run) for run in runs.plan.candidates],
        "proxies": [_come_so_far(runs, run) for run in runs.plan.proxies],
    }


def _come_so_far(runs: RunsOnDisk, run: Run) -> dict[str, Any]:
    outcome = runs.outcome(run)
    state, message = ("unfinished", "") if outcome is None else (outcome.status, outcome.message)
    return {"name": run.name, "settings": dict(run.searched), "state": state, "reason": message, "step": runs.steps(run)}


def regrets(picks: Mapping[str, Run | None], finals: Mapping[str, float]) -> dict[str, float | None]:
    """Return by how many % each pick's final loss exceeds the best one's; None for a pick that has no final loss."""
    best = min(finals.values())
    losses = {rule: None if run is None else finals.get(run.name) for rule, run in picks.items()}
    return {rule: error_pct(loss, best) for rule, loss in losses.items()}


def error_pct(value: float | None, truth: float | None) -> float | None:
    """Return 100 · (value − truth) / |truth|, None where one is unknown or the truth is 0."""
    if value is None or truth is None or truth == 0:
        return None
    return 100.0 * (value - truth) / abs(truth)


def _picks(
    plan: Plan, judgement: Judgement, runs: RunsOnDisk, others: Sequence[Run], finals: Mapping[str, float]
) -> dict[str, Run | None]:
    by_name: dict[str | None, Run] = {run.name: run for run in plan.candidates}
    proxies = (*plan.proxies, *others)
    return {
        "current_best": by_name.get(current_best(judgement)),
        "transfer": by_name.get(transfer(plan.candidates, proxies, {**runs.final_losses(plan.proxies), **finals})),
    }


def _trial(candidate: Candidate, verified: Mapping[str, float] | None) -> dict[str, Any]:
    final = candidate.final_loss if candidate.final_loss is not None else (verified or {}).get(candidate.run.name)
    return {
        "number": candidate.number,
        "settings": dict(candidate.run.searched),
        "state": candidate.state,
        "reason": candidate.reason,
        "loss_at_stop": None if candidate.verdict is None else candidate.verdict.current_loss,
        "forecast": _forecast(candidate),
        "actual_final_loss": final,
        "suspect": None if candidate.suspicion is None else candidate.suspicion.to_dict(),
    }


def _forecast(candidate: Candidate) -> dict[str, Any]:
    nothing = dict.fromkeys(("status", "final_loss", "sd", "lower", "upper", "p_best"))
    return nothing if candidate.verdict is None else candidate.verdict.forecast


def _at_fraction(plan: Plan, winner: Candidate) -> float | None:
    """Return the share of training after which the winner was forecast last."""
    seen = None if winner.verdict is None else winner.verdict.numbers.get("fraction")
    return winner.run.stop_step / winner.run.n_steps if seen is None and plan.config.stopping.has_rounds else seen
