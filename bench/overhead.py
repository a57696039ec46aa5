"""What a sweep costs besides the training: the same trials in a sweep, and by themselves in one process.

Both train the same function for the same number of steps, one trial after the other on one core, in turns; with
``--together`` at the same time, which tells more on a machine that is busy with other things, as they then disturb both
alike. The sweep's own is everything: starting Ray is told apart, as it happens once; then the reports, the log of every step,
checkpoints, the study, the decisions, and the time from one trial's end to the next one's first step. Wall-clock is what
users wait for, and is noisy on a busy machine; the trial's processor time says what the worker did besides training.

    python -m bench.overhead --trial-s 60 --trials 3 --repeats 2 --together
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from bench.sessions import WithoutCheckpoints
from hpo.adapters.atomic import write_text
from hpo.core.session import Session

STEP_S = 0.02
_SIZE = 96


class _Nobody(WithoutCheckpoints):
    """A session that does nothing: the training alone."""

    def report(self, *, step: int, loss: float, tokens: float | None = None, **extra: float) -> None:
        """Take nothing."""

    def should_stop(self) -> bool:
        """Return False."""
        return False


def train(settings: Mapping[str, Any], session: Session) -> None:
    """Multiply matrices, so much a step, and leave when it was and what the processor spent in ``settings["notes"]``."""
    began_s, began_cpu_s = time.time(), time.process_time()
    session.restore()
    rotation = _rotation()
    weights = rotation.copy()
    for step in range(1, settings["n_steps"] + 1):
        for _ in range(settings["products"]):
            weights = rotation @ weights
        session.report(step=step, loss=1.0 + 1.0 / step, tokens=float(step))
        session.checkpoint(lambda to, weights=weights: np.save(to / "weights.npy", weights))  # type: ignore[misc]
        if session.should_stop():
            break
    line = {"began_s": began_s, "ended_s": time.time(), "cpu_s": time.process_time() - began_cpu_s, "lr": settings["lr"]}
    with Path(settings["notes"]).open("a", encoding="utf-8") as notes:
        notes.write(json.dumps(line) + "\n")


def measure(trial_s: float, n_trials: int, n_repeats: int, *, is_together: bool = False) -> dict[str, Any]:
    """Return the medians over repeats, and every repeat.

    Raises
    ------
    RuntimeError
        A sweep failed; its last words follow.
    """
    products = _products_a_step()
    settings = {"n_steps": round(trial_s / STEP_S), "products": products, "n_params": 1000, "batch_tokens": 1}
    repeats = []
    for _ in range(n_repeats):
        with tempfile.TemporaryDirectory() as folder:
            repeats.append(_both(settings, n_trials, Path(folder), is_together=is_together))
        ratio = repeats[-1]["sweep"]["wall_s"] / repeats[-1]["alone"]["wall_s"]
        print(f"{len(repeats)} of {n_repeats}: wall-clock, sweep / alone {ratio:.3f}", file=sys.stderr, flush=True)
    over = {
        "wall_ratio": [r["sweep"]["wall_s"] / r["alone"]["wall_s"] for r in repeats],
        "cpu_ratio": [r["sweep"]["cpu_s"] / r["alone"]["cpu_s"] for r in repeats],
        "next_start_s": [gap for r in repeats for gap in r["sweep"]["gaps_s"]],
        "first_start_s": [r["sweep"]["first_start_s"] for r in repeats],
    }
    medians = {name: statistics.median(values) for name, values in over.items() if values}
    return {"trial_s": trial_s, "n_trials": n_trials, "medians": medians, "repeats": repeats, **over}


def _products_a_step() -> int:
    """Return how many products take about :data:`STEP_S` of this processor's time."""
    rotation = _rotation()
    weights, began = rotation, time.process_time()
    for _ in range(2000):
        weights = rotation @ weights
    return max(1, round(2000 * STEP_S / (time.process_time() - began)))


def _rotation() -> NDArray[np.float64]:
    """Return a matrix that no number of products makes large or small."""
    return np.asarray(np.linalg.qr(np.random.default_rng(0).standard_normal((_SIZE, _SIZE))).Q, dtype=np.float64)


def _both(settings: Mapping[str, Any], n_trials: int, folder: Path, *, is_together: bool) -> dict[str, Any]:
    """Train alone and in a sweep, one after the other, or both at once."""
    if not is_together:
        alone = _alone(settings, n_trials, folder)
        return {"alone": alone, "sweep": _swept(settings, n_trials, folder)}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        other = pool.submit(_alone, settings, n_trials, folder)
        swept = _swept(settings, n_trials, folder)
        return {"alone": other.result(), "sweep": swept}


def _alone(settings: Mapping[str, Any], n_trials: int, folder: Path) -> dict[str, Any]:
    notes = folder / "alone.jsonl"
    for number in range(n_trials):
        train({**settings, "lr": float(number + 1), "notes": str(notes)}, _Nobody())
    return _noted(notes)


def _swept(settings: Mapping[str, Any], n_trials: int, folder: Path) -> dict[str, Any]:
    """Run the same trials in a sweep whose rule stops none of them, one at a time."""
    notes = folder / "swept.jsonl"
    config = {
        "name": "overhead",
        "trainable": "bench.overhead:train",
        "target": {**settings, "notes": str(notes)},
        "search": {"space": {"parameters": {"lr": {"type": "float", "grid": [float(i + 1) for i in range(n_trials)]}}}},
        "stopping": {"rule": "prune", "min_references": 10**6},
        "resources": {"max_concurrent": 1},
    }
    (folder / "sweep.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    started_s = time.time()
    command = [sys.executable, "-m", "hpo", "sweep", "sweep.yaml", "--out", "run"]
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths}
    )
    if done.returncode != 0:
        raise RuntimeError(f"the sweep failed: {done.stderr.strip().splitlines()[-1]}")
    found = _noted(notes)
    return {**found, "first_start_s": found["began_s"] - started_s}


def _noted(notes: Path) -> dict[str, Any]:
    """Return what the trials left: from the first one's begin to the last one's end, and what lay between."""
    lines = [json.loads(line) for line in notes.read_text(encoding="utf-8").splitlines()]
    return {
        "began_s": lines[0]["began_s"],
        "wall_s": lines[-1]["ended_s"] - lines[0]["began_s"],
        "cpu_s": sum(line["cpu_s"] for line in lines),
        "gaps_s": [after["began_s"] - before["ended_s"] for before, after in pairwise(lines)],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a few lines or one JSON document."""
    parser = argparse.ArgumentParser(prog="bench.overhead", description="What a sweep costs besides the training.")
    parser.add_argument("--trial-s", type=float, default=60.0, help="seconds that a trial trains by itself, about")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--together", action="store_true", help="both at the same time, on two cores")
    parser.add_argument("--out", type=Path, help="folder for overhead.md")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found = measure(given.trial_s, given.trials, given.repeats, is_together=given.together)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        write_text(given.out / "overhead.md", _page(found, is_together=given.together))
    print(json.dumps(found, indent=1) if given.json else "\n".join(_lines(found)))
    return 0


def _page(found: Mapping[str, Any], *, is_together: bool) -> str:
    """Return the table as a page of the results."""
    options = f"--trial-s {found['trial_s']:g} --trials {found['n_trials']} --repeats {len(found['repeats'])}"
    command = f"python -m bench.overhead {options}{' --together' if is_together else ''}"
    return f"Made by `{command} --out bench/results`: medians, and each repeat.\n\n```\n" + "\n".join(_lines(found)) + "\n```\n"


def _lines(found: Mapping[str, Any]) -> list[str]:
    load = os.getloadavg()[0]
    medians = found["medians"]
    return [
        f"{len(found['repeats'])} repeats of {found['n_trials']} trials of about {found['trial_s']:g} s; load {load:.1f}",
        f"wall-clock, sweep / alone       {medians['wall_ratio']:.3f}  ({', '.join(f'{r:.3f}' for r in found['wall_ratio'])})",
        f"processor time, sweep / alone   {medians['cpu_ratio']:.3f}  ({', '.join(f'{r:.3f}' for r in found['cpu_ratio'])})",
        f"from one trial to the next      {medians.get('next_start_s', float('nan')):.2f} s",
        f"until the first one (once)      {medians['first_start_s']:.1f} s",
    ]


if __name__ == "__main__":
    sys.exit(main())
