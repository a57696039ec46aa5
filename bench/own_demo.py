"""The demo over several seeds: what its forecasts are worth, against transfer and current best, with everything verified.

Each seed is one sweep of ``bench/demo.yaml`` with other initial weights and another data order, run and resumed by ``hpo sweep
--verify``. What is reported is judged again from the curves in the run folders, by the model as it is now, so that another
version answers on the same training. Only the look at the stopping fraction is judged; people's wishes and rungs are not.
"""

from __future__ import annotations

import math
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpo.core.model import CollapseModel
from hpo.engine.cost import spending
from hpo.engine.judging import Judgement, current_best, judge, transfer
from hpo.engine.plan import Plan, Run, plan_sweep
from hpo.engine.result import error_pct
from hpo.engine.run_folder import RunFolder
from hpo.engine.runs_on_disk import RunsOnDisk
from hpo.engine.select_rule import stopping_settings
from hpo.engine.sweep import verification

INTERRUPTED = 130
SEED_KEYS = ("seed", "training.seed", "training.data_seed")
RULES = {"ours": "forecast", "transfer": "transfer", "current_best": "current best"}


def train_seeds(config: Path, folder: Path, seeds: Sequence[int], seconds: float | None = None) -> None:
    """Run the verified sweep of every seed that ``folder`` does not hold yet, in order.

    After ``seconds`` the sweep under way is interrupted, so that the next call goes on with it, and no other is begun.

    Raises
    ------
    ValueError
        A sweep failed; what it said was shown.
    """
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    for seed in seeds:
        run = folder / f"seed-{seed}"
        if is_verified(run) or time.monotonic() >= deadline:
            continue
        command = [sys.executable, "-m", "hpo", "sweep", *sweep_arguments(config, run, seed), "--verify"]
        code = _run_until(command, deadline)
        if code not in (0, INTERRUPTED):
            raise ValueError(f"{run}: expected a sweep that ends; it failed (the same command goes on with it)")


def _run_until(command: Sequence[str], deadline: float) -> int:
    """Run a command, its output on stderr, and interrupt it at the deadline; return its exit code."""
    with subprocess.Popen(command, stdout=sys.stderr) as process:
        try:
            return process.wait(None if math.isinf(deadline) else max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            return process.wait()


def sweep_arguments(config: Path, run: Path, seed: int) -> list[str]:
    """Return the arguments of ``hpo sweep`` that begin a seed's run, or go on with it."""
    if (run / "config.yaml").exists():
        return ["--resume", str(run)]
    return [str(config), "--out", str(run), *(part for key in SEED_KEYS for part in ("--set", f"{key}={seed}"))]


def is_verified(run: Path) -> bool:
    """Return True if every proxy and every candidate of a run folder was trained to its end, or ended by itself."""
    if not (run / "result.json").exists():
        return False
    plan = plan_sweep(RunFolder(run.absolute()).read_config())
    runs = RunsOnDisk(plan, RunFolder(run.absolute()))
    return all(runs.is_complete(one) or _diverged(runs, one) for one in plan.proxies) and not _missing(plan, runs)


def demo_report(folder: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Return, JSON-ready, one row a verified seed and the means over them.

    Raises
    ------
    ValueError
        No seed is verified yet.
    """
    rows = [judged_again(folder / f"seed-{seed}", seed) for seed in seeds if is_verified(folder / f"seed-{seed}")]
    if not rows:
        raise ValueError(f"{folder}: expected at least one seed trained and verified; found none (call again to go on)")
    errors = [abs(row["error_pct"]) for row in rows]
    everyone = [abs(error) for row in rows for error in row["errors_pct"]]
    return {
        "seeds": rows,
        "left_out": [seed for seed in seeds if seed not in {row["seed"] for row in rows}],
        "regret_pct": {rule: statistics.fmean(row["regret_pct"][rule] for row in rows) for rule in RULES},
        "median_error_pct": statistics.median(errors),
        "median_error_of_all_pct": statistics.median(everyone),
        "n_inside": sum(row["is_inside"] for row in rows),
        "coverage90": sum(row["n_inside"] for row in rows) / len(everyone),
        "saved_fraction": statistics.fmean(row["saved_fraction"] for row in rows),
    }


def judged_again(path: Path, seed: int) -> dict[str, Any]:
    """Return what the present model would have done with a verified run, and how that would have ended."""
    folder = RunFolder(path.absolute())
    plan = plan_sweep(folder.read_config())
    runs = RunsOnDisk(plan, folder)
    finals = finals_of(plan, runs)
    judgement = judgement_of(plan, runs)
    kept = [verdict for verdict in judgement.kept if verdict.run in finals]
    winner = min(kept, key=lambda verdict: finals[verdict.run])
    picks = {
        "ours": winner.run,
        "transfer": transfer(plan.candidates, plan.proxies, runs.final_losses(plan.proxies)),
        "current_best": current_best(judgement),
    }
    forecasts = {v.run: v.forecast for v in judgement.verdicts if v.forecast["final_loss"] is not None and v.run in finals}
    best = min(finals.values())
    saved = saved_fraction(plan, runs, [verdict.run for verdict in judgement.kept])
    return {
        "seed": seed,
        "regret_pct": {rule: error_pct(finals.get(name or ""), best) for rule, name in picks.items()},
        "picks": picks,
        "best": min(finals, key=lambda name: finals[name]),
        "n_kept": len(judgement.kept),
        "p_of_best": max((v.p_best for v in judgement.verdicts if finals.get(v.run) == best), default=None),
        "final_loss": finals[winner.run],
        "forecast": forecasts.get(winner.run, {}).get("final_loss"),
        "error_pct": error_pct(forecasts.get(winner.run, {}).get("final_loss"), finals[winner.run]) or math.nan,
        "is_inside": _is_inside(forecasts.get(winner.run), finals[winner.run]),
        "errors_pct": [error_pct(one["final_loss"], finals[name]) for name, one in forecasts.items()],
        "n_inside": sum(_is_inside(one, finals[name]) for name, one in forecasts.items()),
        "saved_fraction": saved,
    }


def judgement_of(plan: Plan, runs: RunsOnDisk) -> Judgement:
    """Return the present model's judgement of all candidates at the stopping fraction, learned from the proxies.

    All are seen up to the same step: of one whose own training stopped before it (the step was once rounded down), by the log
    of its verification.
    """
    model = CollapseModel.fit([runs.curve(run) for run in plan.proxies])
    curves = [runs.curve(run, run.stop_step, _log_to_the_stop(runs, run)) for run in plan.candidates]
    return judge(model, curves, range(len(curves)), stopping_settings(plan), plan.config.seed)


def _log_to_the_stop(runs: RunsOnDisk, run: Run) -> str:
    is_short = runs.steps(run) < run.stop_step and runs.is_complete(run, verification(run))
    return verification(run) if is_short else run.name


def finals_of(plan: Plan, runs: RunsOnDisk) -> dict[str, float]:
    """Return every candidate's final loss by name, of its verification where it was stopped."""
    found = {}
    for run in plan.candidates:
        own, verified = runs.final_loss(run), runs.final_loss(run, verification(run))
        if own is not None or verified is not None:
            found[run.name] = float(own if own is not None else verified or 0.0)
    return found


def _missing(plan: Plan, runs: RunsOnDisk) -> list[str]:
    finals = finals_of(plan, runs)
    return [run.name for run in plan.candidates if run.name not in finals and not _diverged(runs, run)]


def _diverged(runs: RunsOnDisk, run: Any) -> bool:
    return runs.has_status(run, "diverged")


def saved_fraction(plan: Plan, runs: RunsOnDisk, kept: Sequence[str]) -> float:
    """Return the share of the full sweep's FLOPs that is saved when these go on, proxies counted."""
    ended = {run.name: runs.steps(run) for run in (*plan.proxies, *plan.candidates) if _diverged(runs, run)}
    steps = {run.name: run.stop_step for run in (*plan.proxies, *plan.candidates)}
    steps |= {run.name: run.n_steps for run in plan.candidates if run.name in kept}
    return spending(plan, steps | ended, ended).saved_fraction


def _is_inside(forecast: Mapping[str, Any] | None, final: float) -> bool:
    return forecast is not None and forecast["lower"] is not None and forecast["lower"] <= final <= forecast["upper"]


def demo_table(report: Mapping[str, Any]) -> str:
    """Return the report as a Markdown table with a line of means."""
    columns = ("seed", *(f"regret, {name}" for name in RULES.values()), "final loss", "forecast", "error", "inside 90 %")
    lines = [f"| {' | '.join((*columns, 'all inside', 'FLOPs saved'))} |", "|---" * (len(columns) + 2) + "|"]
    for row in report["seeds"]:
        regrets = (_number(row["regret_pct"][rule]) for rule in RULES)
        losses = f"{row['final_loss']:.4f} | {row['forecast']:.4f} | {row['error_pct']:+.2f}"
        inside = f"{'yes' if row['is_inside'] else 'no'} | {row['n_inside']} of {len(row['errors_pct'])}"
        lines.append(f"| {row['seed']} | {' | '.join(regrets)} | {losses} | {inside} | {row['saved_fraction']:.0%} |")
    means = " | ".join(_number(report["regret_pct"][rule]) for rule in RULES)
    inside = f"{report['n_inside']} of {len(report['seeds'])} | {report['coverage90']:.0%}"
    median = f"median {report['median_error_pct']:.2f}"
    lines.append(f"| **all** | {means} | | | {median} | {inside} | {report['saved_fraction']:.0%} |")
    tail = f"Regrets and errors in %. Median error over all candidates: {report['median_error_of_all_pct']:.2f} %."
    if report["left_out"]:
        tail += f" Not trained yet: seeds {', '.join(map(str, report['left_out']))}."
    return "\n".join([*lines, "", tail])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
