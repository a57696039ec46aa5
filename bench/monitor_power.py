"""What the monitor finds at single looks: every run of a half, few looks at each; a minute or two a source.

    python -m bench.monitor_power --role test --source 'schaipp train'

The runs, templates and σ are those of :mod:`bench.monitor`, which follows fewer runs report by report. Here a run is cut at the
looks: while healthy (recorded and bootstrapped once) every 3 % of training; with a step of 4 σ of its own noise at 2, 2.5 and
3 % after the onset; with a drift every 2 % from 3 % after its onset on. A drift is found in time if that is no later than the
rise of the loss smoothed over 5 % by more than it ever does in 99 % of the healthy runs of its source.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from bench.cli import curves_folder
from bench.command_line import input_errors
from bench.monitor import TURN_WIDTH, clear_rises, fault, first, rise
from bench.monitor_runs import Healthy, bootstrapped, healthy_runs, others_start, residual_scatter, start_of
from hpo.core.change import Change, likeliest_change
from hpo.core.curve import Curve
from hpo.core.monitor_residuals import MIN_BINS, Seen, Shared
from hpo.core.template import Template
from hpo.core.template_noise import NoisyTemplate, noisy

FloatArray = NDArray[np.float64]
STEP_SIGMAS = 4.0
STEP_ONSETS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 0.9)
AFTER_STEP = (0.0199, 0.0249, 0.0299)
DRIFT_SIGMAS = (4.0, 8.0, 16.0, 32.0)
DRIFT_ONSETS = (0.15, 0.3, 0.5, 0.7)
DRIFTS = 12
"""Runs that each size and onset of a drift is tried on."""
HEALTHY_LOOKS: FloatArray = np.arange(0.1, 1.0001, 0.03)
NEAR = 0.03


def look(one: Healthy, values: FloatArray, upto: float, *, told: bool = False) -> Change | None:
    """Return what the test says of a run with these values up to t̂; told: of the noise that its relatives share."""
    keep = one.fractions <= upto + 1e-12
    run, steps = one.run, one.run.steps[keep]
    curve = Curve.from_points(steps, values[keep], horizon=run.horizon, recipe=run.recipe, metric=run.metric, family=run.family)
    template, shared = one.template, None
    if told and one.clean is not None and one.common is not None:
        template, shared = one.clean, Shared(one.common, run.horizon)
        for step in steps.tolist():
            shared.add(step)
    seen = Seen.of(curve, template, start_of(one), shared, _split(template))
    if seen.fractions.size < MIN_BINS:
        return None
    return likeliest_change(seen.d, seen.slow, seen.unexplained, seen.fractions, seen.dof)


_SPLITS: dict[int, NoisyTemplate | None] = {}


def _split(template: Template) -> NoisyTemplate | None:
    if id(template) not in _SPLITS:  # templates live as long as their runs
        _SPLITS[id(template)] = noisy(template)
    return _SPLITS[id(template)]


def _alarms(change: Change | None, *, upwards: bool = True) -> bool:
    return change is not None and change.is_alarm and (change.z > 0 or not upwards)


def healthy(runs: Sequence[Healthy], *, told: bool = False) -> dict[str, Any]:
    """Return how many healthy runs alarm at any look."""
    alarms = 0
    for k, one in enumerate(runs):
        drawn = bootstrapped(one, np.random.default_rng(zlib.crc32(f"{one.source}/{k}".encode())), keep_common=told)
        for values in (one.run.values, drawn):
            alarms += any(_alarms(look(one, values, float(t), told=told), upwards=False) for t in HEALTHY_LOOKS)
    return {"n": 2 * len(runs), "alarms": alarms}


SIGMAS: dict[str, Callable[[Healthy], float]] = {"own": lambda one: one.sigma, "residual": residual_scatter}
"""σ of a step: the run's own noise over 1 % of training, or the scatter of its residual's 1 % windows while healthy."""


def steps(runs: Sequence[Healthy], *, told: bool = False, sigma: str = "own") -> dict[str, float]:
    """Return per onset the share of runs in which a step of 4 σ is found within 3 % of training."""
    found = {}
    for onset in STEP_ONSETS:
        hits = []
        for one in runs:
            values = one.run.values * np.exp(fault("step", one.fractions, onset, STEP_SIGMAS * SIGMAS[sigma](one)))
            hits.append(any(_alarms(look(one, values, onset + after, told=told)) for after in AFTER_STEP))
        found[f"{onset:g}"] = float(np.mean(hits))
    return found


def drifts(runs: Sequence[Healthy], clear: float, *, told: bool = False) -> dict[str, dict[str, float]]:
    """Return per size how many drifts are found, in time, how late, and their onsets' errors at the alarm and at the end."""
    rng = np.random.default_rng(1)
    out = {}
    for sigmas in DRIFT_SIGMAS:
        chosen = [
            (onset, int(k)) for onset in DRIFT_ONSETS for k in rng.choice(len(runs), min(DRIFTS, len(runs)), replace=False)
        ]
        rows = [_drift(runs[k], onset, sigmas, clear, told) for onset, k in chosen]
        found = [row for row in rows if row["delay"] is not None]
        out[f"{sigmas:g}"] = {
            "n": len(rows),
            "found": len(found) / len(rows),
            "in_time": float(np.mean([row["in_time"] for row in rows])),
            "median_delay": float(np.median([row["delay"] for row in found])) if found else float("nan"),
            "onset_at_alarm": float(np.mean([row["at_alarm"] for row in found])) if found else float("nan"),
            "onset_at_end": float(np.mean([row["at_end"] for row in found])) if found else float("nan"),
        }
    return out


def _drift(one: Healthy, onset: float, sigmas: float, clear: float, told: bool) -> dict[str, Any]:
    values = one.run.values * np.exp(fault("drift", one.fractions, onset, sigmas * one.sigma))
    judged = one.fractions >= others_start(one)
    width = max(round(TURN_WIDTH * values.size), 1)
    rises = first(one.fractions[judged], rise(values[judged], width) > clear * one.sigma)
    for t in np.arange(onset + NEAR, 1.0001, 0.02):
        change = look(one, values, float(t), told=told)
        if change is not None and _alarms(change):
            last = look(one, values, 1.0, told=told)
            near = [one_change is not None and abs(one_change.began - onset) <= NEAR for one_change in (change, last)]
            in_time = rises is None or float(t) <= rises
            return {"delay": float(t) - onset, "in_time": in_time, "at_alarm": near[0], "at_end": near[1]}
    return {"delay": None, "in_time": False}


@cache
def _pool(folder: Path) -> list[Healthy]:
    return healthy_runs(folder)


def evaluate(
    folder: Path, role: str, source: str, parts: Sequence[str], *, told: bool = False, every: int = 1, sigma: str = "own"
) -> dict[str, Any]:
    """Return the parts asked for, of every ``every``-th run of one source and half.

    Raises
    ------
    ValueError
        A source without such runs; the message names those there are.
    """
    pool = _pool(folder)
    chosen = [one for one in pool if one.role == role and one.source == source][::every]
    runs = [one for one in chosen if not told or one.clean is not None]
    if not runs:
        raise ValueError(f"--source: expected one of {', '.join(sorted({o.source for o in pool}))}; found {source}")
    made: dict[str, Any] = {"role": role, "source": source, "told": told, "sigma": sigma, "runs": len(runs)}
    if "healthy" in parts:
        made["healthy"] = healthy(runs, told=told)
    if "steps" in parts:
        made["steps"] = steps(runs, told=told, sigma=sigma)
    if "drifts" in parts:
        made["drifts"] = drifts(runs, clear_rises(pool)[source], told=told)
    return made


PARTS = ("healthy", "steps", "drifts")


def power_command(
    source: Annotated[str, typer.Option(help="Source of the runs, as bench.monitor names them.")] = "schaipp train",
    curves: Annotated[Path | None, typer.Option(help="Folder of recorded curves (default: $HPO_CURVES).")] = None,
    role: Annotated[str, typer.Option(help="develop or test.")] = "test",
    parts: Annotated[str, typer.Option(help="What to measure, comma-separated.")] = ",".join(PARTS),
    sigma: Annotated[str, typer.Option(help=f"σ of a step, one of {', '.join(SIGMAS)}.")] = "own",
    every: Annotated[int, typer.Option(min=1, help="Every so many-th run only.")] = 1,
    same_data: Annotated[bool, typer.Option("--same-data", help="Tell the monitor of the noise that relatives share.")] = False,
) -> None:
    """Print one JSON document: alarms while healthy, steps of 4 σ found within 3 % of training, drifts."""
    with input_errors():
        if sigma not in SIGMAS:
            raise ValueError(f"--sigma: expected one of {', '.join(SIGMAS)}; found {sigma}")
        made = evaluate(curves_folder(curves), role, source, parts.split(","), told=same_data, every=every, sigma=sigma)
        print(json.dumps(made, indent=1))


if __name__ == "__main__":
    typer.run(power_command)
