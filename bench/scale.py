"""How large a sweep one driver carries: up to a few dozen real Ray actors, beyond that on a simulated clock.

Of the simulated sweep the workers alone are simulated (:mod:`bench.scale_simulated`): :class:`hpo.CollapseSearch` suggests each
trial, an Optuna study in memory keeps it, :class:`hpo.CollapseScheduler` takes and judges every report, and the trial waits
until it has, as Ray's do. Ray is left out there: its two or three milliseconds a report come on top (``--ray-ms``, measured
with ``--actors``, where the same scheduler and search run in a real ``tune.Tuner``).

    python -m bench.scale --workers 1000 --trials 10000 --json
    python -m bench.scale --actors 32 --trials 128 --json
"""

from __future__ import annotations

import argparse
import json
import math
import os
import secrets
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray

from bench.scale_report import actors_lines, scale_lines, write_actors, write_scale
from bench.scale_simulated import HORIZON, Load, SimulatedSweep
from hpo.adapters.curve_files import read_runs

RECORDED = "multipowerlaw.parquet"


def recorded_curves(folder: Path, name: str = RECORDED) -> NDArray[np.float64]:
    """Return the train losses of the recorded runs of a file, each as :data:`HORIZON` means; shape (n_runs, HORIZON).

    Raises
    ------
    ValueError
        No such file, or no run in it that is long enough.
    """
    made = [_means(run.steps, run.values) for run in read_runs([folder / name])]
    usable = [curve for curve in made if curve is not None]
    if not usable:
        raise ValueError(f"{folder / name}: expected recorded runs of at least {HORIZON} points; found none")
    return np.array(usable)


def _means(steps: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    finite = np.isfinite(values) & (values > 0)
    if finite.sum() < HORIZON:
        return None
    t = steps[finite] / steps[finite][-1]
    place = np.clip(np.ceil(t * HORIZON).astype(int), 1, HORIZON) - 1
    counts = np.bincount(place, minlength=HORIZON)
    sums = np.bincount(place, weights=values[finite], minlength=HORIZON)
    if np.any(counts == 0):
        grid = np.arange(1, HORIZON + 1) / HORIZON
        return np.asarray(np.interp(grid, t, values[finite]), dtype=np.float64)
    return np.asarray(sums / counts, dtype=np.float64)


def measure(
    loads: Sequence[Load],
    curves: NDArray[np.float64],
    *,
    traces_memory: bool = False,
    tells: bool = False,
    within_s: float = math.inf,
) -> list[Mapping[str, Any]]:
    """Return each load with what it took."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    found: list[Mapping[str, Any]] = []
    for load in loads:
        with tempfile.TemporaryDirectory() as folder:
            how: dict[str, Any] = {"traces_memory": traces_memory, "tells": tells, "within_s": within_s}
            sweep = SimulatedSweep(load, curves, Path(folder) / "events.jsonl", **how)
            found.append({"load": asdict(load), "measured": asdict(sweep.run())})
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one load, or a ladder of them, and print a table or one JSON document."""
    parser = argparse.ArgumentParser(prog="bench.scale", description="How large a sweep one driver carries.")
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--trials", type=int, nargs="+", default=[1000])
    parser.add_argument("--trial-s", type=float, default=600.0, help="seconds that a whole trial trains")
    parser.add_argument("--reports", type=int, default=HORIZON, help="reports of a whole trial")
    parser.add_argument("--ray-ms", type=float, default=2.5, help="what Ray's driver adds to each report")
    parser.add_argument("--actors", type=int, help="so many real Ray actors on this machine instead of simulated workers")
    parser.add_argument("--plain", action="store_true", help="with --actors: Ray's own scheduler and search, to compare")
    parser.add_argument("--curves", type=Path, default=Path(os.environ.get("HPO_CURVES", "../shared/curves")))
    parser.add_argument("--trace-memory", action="store_true", help="count allocations, which takes as much time again")
    parser.add_argument("--within-s", type=float, default=math.inf, help="end a load after so many seconds, as far as it is")
    parser.add_argument("--progress", action="store_true", help="say on stderr how far it has come")
    parser.add_argument("--out", type=Path, help="folder for scale.md and scale.svg, or for scale_actors.md")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    try:
        curves = recorded_curves(given.curves)
        loads = [
            Load(w, n, trial_s=given.trial_s, ray_ms=given.ray_ms, n_reports=given.reports)
            for n in given.trials
            for w in given.workers
        ]
    except ValueError as error:
        parser.error(str(error))
    if given.actors is not None:
        return _print_actors(given, curves)
    found = measure(loads, curves, traces_memory=given.trace_memory, tells=given.progress, within_s=given.within_s)
    if given.out is not None:
        write_scale(given.out, found)
    print(json.dumps(found, indent=2, allow_nan=False) if given.json else "\n".join(scale_lines(found)))
    return 0


def _print_actors(given: argparse.Namespace, curves: NDArray[np.float64]) -> int:
    for name, value in (("RAY_AUTH_MODE", "token"), ("RAY_AUTH_TOKEN", secrets.token_hex(32))):
        os.environ.setdefault(name, value)  # else Ray keeps a token in the home folder
    from bench.scale_actors import measure_actors

    shape = given.trial_s, given.reports, curves
    found = [measure_actors(given.actors, n, *shape, is_plain=given.plain) for n in given.trials]
    if given.out is not None:
        write_actors(given.out, found)
    print(json.dumps(found, indent=2) if given.json else "\n".join(actors_lines(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
