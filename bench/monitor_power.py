"""What the monitor finds at single looks: every run of a half, few looks at each; a minute or two a source.

    python -m bench.monitor_power --role test --source 'schaipp train'

The runs, templates and σ are those of :mod:`bench.monitor`, which follows fewer runs report by report. Here a run is cut at the
looks: while healthy (recorded and bootstrapped once) every 3 % of training; with a step of 4 σ of its own noise at 2, 2.5 and
3 % after the onset; with a drift every 2 % from 3 % after its onset on. A drift is found in time if that is no later than the
rise of the loss smoothed over 5 % by more than it ever does in 99 % of the healthy runs of its source.
"""

from __future__ import annotations

import json
import math
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
from hpo.core.data_order import DataOrder
from hpo.core.monitor_residuals import MIN_BINS, Held, Seen, Shared
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
UNKNOWN, SEEN, TOLD = ORDERS = ("unknown", "seen", "told")
"""Relatives' common noise is not taken off, is where the run shows that it sees their batches, or always is."""


def look(one: Healthy, values: FloatArray, upto: float, *, order: str = UNKNOWN) -> Change | None:
    """Return what the test says of a run with these values up to t̂, given what is known of its data order."""
    keep = one.fractions <= upto + 1e-12
    run, steps = one.run, one.run.steps[keep]
    curve = Curve.from_points(steps, values[keep], horizon=run.horizon, recipe=run.recipe, metric=run.metric, family=run.family)
    seen = _seen(one, curve, steps, values[keep], order)
    if seen.fractions.size < MIN_BINS:
        return None
    return likeliest_change(seen.d, seen.slow, seen.unexplained, seen.fractions, seen.dof)


def healthy_seen(one: Healthy, order: str) -> Seen:
    """Return what the monitor sees of the whole run as it was recorded."""
    return _seen(one, one.run.curve(), one.run.steps, one.run.values, order)


def _seen(one: Healthy, curve: Curve, steps: FloatArray, values: FloatArray, order: str) -> Seen:
    """Return what the monitor sees of the curve: as it is, or freed of the noise that its relatives share."""
    if order != UNKNOWN and one.clean is not None and one.common is not None:
        watch, shared = DataOrder(one.common), Shared(one.common, one.run.horizon)
        held = Held(one.clean, None, start_of(one), shared)
        for step, value in zip(steps.tolist(), values.tolist(), strict=True):
            watch.add(step, value * math.exp(-held.expected(step / (one.run.horizon or 1.0))))
            shared.add(step)
        if order == TOLD or watch.is_shared:
            seen = Seen.of(curve, one.clean, start_of(one), shared, _split(one.clean))
            if order == TOLD or seen.is_freed:
                return seen
    return Seen.of(curve, one.template, start_of(one), None, _split(one.template))


_SPLITS: dict[int, NoisyTemplate | None] = {}


def _split(template: Template) -> NoisyTemplate | None:
    if id(template) not in _SPLITS:  # templates live as long as their runs
        _SPLITS[id(template)] = noisy(template)
    return _SPLITS[id(template)]


def _alarms(change: Change | None, *, upwards: bool = True) -> bool:
    return change is not None and change.is_alarm and (change.z > 0 or not upwards)


def healthy(runs: Sequence[Healthy], *, order: str = UNKNOWN) -> dict[str, Any]:
    """Return how many healthy runs alarm at any look."""
    alarms = 0
    for k, one in enumerate(runs):
        drawn = bootstrapped(one, np.random.default_rng(zlib.crc32(f"{one.source}/{k}".encode())), keep_common=order != UNKNOWN)
        for values in (one.run.values, drawn):
            alarms += any(_alarms(look(one, values, float(t), order=order), upwards=False) for t in HEALTHY_LOOKS)
    return {"n": 2 * len(runs), "alarms": alarms}


SIGMAS: dict[str, Callable[[Healthy], float]] = {"own": lambda one: one.sigma, "residual": residual_scatter}
"""σ of a step: the run's own noise over 1 % of training, or the scatter of its residual's 1 % windows while healthy."""


def steps(runs: Sequence[Healthy], *, order: str = UNKNOWN, sigma: str = "own") -> dict[str, float]:
    """Return per onset the share of runs in which a step of 4 σ is found within 3 % of training."""
    found = {}
    for onset in STEP_ONSETS:
        hits = []
        for one in runs:
            values = one.run.values * np.exp(fault("step", one.fractions, onset, STEP_SIGMAS * SIGMAS[sigma](one)))
            hits.append(any(_alarms(look(one, values, onset + after, order=order)) for after in AFTER_STEP))
        found[f"{onset:g}"] = float(np.mean(hits))
    return found


def drifts(runs: Sequence[Healthy], clear: float, *, order: str = UNKNOWN) -> dict[str, dict[str, float]]:
    """Return per size how many drifts are found, in time, how late, and their onsets' errors at the alarm and at the end."""
    rng = np.random.default_rng(1)
    out = {}
    for sigmas in DRIFT_SIGMAS:
        chosen = [
            (onset, int(k)) for onset in DRIFT_ONSETS for k in rng.choice(len(runs), min(DRIFTS, len(runs)), replace=False)
        ]
        rows = [_drift(runs[k], onset, sigmas, clear, order) for onset, k in chosen]
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


def _drift(one: Healthy, onset: float, sigmas: float, clear: float, order: str) -> dict[str, Any]:
    values = one.run.values * np.exp(fault("drift", one.fractions, onset, sigmas * one.sigma))
    judged = one.fractions >= others_start(one)
    width = max(round(TURN_WIDTH * values.size), 1)
    rises = first(one.fractions[judged], rise(values[judged], width) > clear * one.sigma)
    for t in np.arange(onset + NEAR, 1.0001, 0.02):
        change = look(one, values, float(t), order=order)
        if change is not None and _alarms(change):
            last = look(one, values, 1.0, order=order)
            near = [one_change is not None and abs(one_change.began - onset) <= NEAR for one_change in (change, last)]
            in_time = rises is None or float(t) <= rises
            return {"delay": float(t) - onset, "in_time": in_time, "at_alarm": near[0], "at_end": near[1]}
    return {"delay": None, "in_time": False}


@cache
def _pool(folder: Path) -> list[Healthy]:
    return healthy_runs(folder)


def runs_of(folder: Path, role: str, source: str, *, order: str = UNKNOWN, every: int = 1) -> list[Healthy]:
    """Return every ``every``-th run of one source and half; where an order is to be seen or told, those that have one.

    Raises
    ------
    ValueError
        A source without such runs; the message names those there are.
    """
    pool = _pool(folder)
    chosen = [one for one in pool if one.role == role and one.source == source][::every]
    runs = [one for one in chosen if order == UNKNOWN or one.clean is not None]
    if not runs:
        raise ValueError(f"--source: expected one of {', '.join(sorted({o.source for o in pool}))}; found {source}")
    return runs


def evaluate(
    folder: Path, role: str, source: str, parts: Sequence[str], *, order: str = UNKNOWN, every: int = 1, sigma: str = "own"
) -> dict[str, Any]:
    """Return the parts asked for, of every ``every``-th run of one source and half.

    Raises
    ------
    ValueError
        A source without such runs; the message names those there are.
    """
    runs = runs_of(folder, role, source, order=order, every=every)
    made: dict[str, Any] = {"role": role, "source": source, "order": order, "sigma": sigma, "runs": len(runs)}
    if "healthy" in parts:
        made["healthy"] = healthy(runs, order=order)
    if "steps" in parts:
        made["steps"] = steps(runs, order=order, sigma=sigma)
    if "drifts" in parts:
        made["drifts"] = drifts(runs, clear_rises(_pool(folder))[source], order=order)
    return made


PARTS = ("healthy", "steps", "drifts")


def power_command(
    source: Annotated[str, typer.Option(help="Source of the runs, as bench.monitor names them.")] = "schaipp train",
    curves: Annotated[Path | None, typer.Option(help="Folder of recorded curves (default: $HPO_CURVES).")] = None,
    role: Annotated[str, typer.Option(help="develop or test.")] = "test",
    parts: Annotated[str, typer.Option(help="What to measure, comma-separated.")] = ",".join(PARTS),
    sigma: Annotated[str, typer.Option(help=f"σ of a step, one of {', '.join(SIGMAS)}.")] = "own",
    every: Annotated[int, typer.Option(min=1, help="Every so many-th run only.")] = 1,
    order: Annotated[str, typer.Option(help=f"What is known of the data order, one of {', '.join(ORDERS)}.")] = UNKNOWN,
) -> None:
    """Print one JSON document: alarms while healthy, steps of 4 σ found within 3 % of training, drifts."""
    with input_errors():
        for option, given, known in (("sigma", sigma, SIGMAS), ("order", order, ORDERS)):
            if given not in known:
                raise ValueError(f"--{option}: expected one of {', '.join(known)}; found {given}")
        made = evaluate(curves_folder(curves), role, source, parts.split(","), order=order, every=every, sigma=sigma)
        print(json.dumps(made, indent=1))


if __name__ == "__main__":
    typer.run(power_command)
