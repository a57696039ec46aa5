"""What one decision of the Ray scheduler takes in a large experiment: many finished trials, many reports each.

python -m bench.decision_latency --trials 1000 --reports 1000
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from hpo.adapters.ray_scheduler import CollapseScheduler

N_TIMED = 20
_CONTROLLER = SimpleNamespace(search_alg=None, _resumed=False)


def measure(n_trials: int, n_reports: int) -> dict[str, float]:
    """Return milliseconds of processor time a report, once ``n_trials`` of ``n_reports`` are known.

    ``report_ms`` is the median over all reports of :data:`N_TIMED` trials that come after, ``judged_ms`` over those for
    which a forecast was made, ``learned_us`` what each earlier report took.
    """
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        made = CollapseScheduler(metric="loss", mode="min", total=n_reports, log=Path(folder) / "log.jsonl")
        began = time.process_time()
        for number in range(n_trials):
            losses = _losses(rng, 3.3 - 0.3 * number / n_trials, n_reports)
            results = [{"training_iteration": i + 1, "loss": float(loss)} for i, loss in enumerate(losses)]
            made.learn(_CONTROLLER, _trial(f"known{number}"), results)
            made.on_trial_complete(_CONTROLLER, _trial(f"known{number}"), results[-1])
        learned_s = time.process_time() - began
        every, judged = [], []
        for number in range(N_TIMED):
            took, were_judged = _timed(made, f"new{number}", _losses(rng, 3.0 + 0.02 * number, n_reports))
            every += took
            judged += [one for one, was in zip(took, were_judged, strict=True) if was]
    return {
        "report_ms": 1e3 * float(np.median(every)),
        "judged_ms": 1e3 * float(np.median(judged)),
        "p99_ms": 1e3 * float(np.percentile(every, 99)),
        "learned_us": 1e6 * learned_s / (n_trials * n_reports),
    }


def _timed(made: CollapseScheduler, name: str, losses: Sequence[float]) -> tuple[list[float], list[bool]]:
    """Return what each report of a trial took until it was stopped or came to its end, and whether a forecast was made."""
    took, judged = [], []
    made.on_trial_add(_CONTROLLER, _trial(name))
    for i, loss in enumerate(losses):
        result = {"training_iteration": i + 1, "loss": float(loss)}
        before, began = made.decision(name), time.process_time()
        answer = made.on_trial_result(_CONTROLLER, _trial(name), result)
        took.append(time.process_time() - began)
        now = made.decision(name)
        judged.append(now is not before and now is not None and now.forecast is not None)
        if answer == made.STOP:
            break
    made.on_trial_complete(_CONTROLLER, _trial(name), result)
    return took, judged


def _losses(rng: np.random.Generator, final: float, n: int) -> list[float]:
    t = np.arange(1, n + 1) / n
    return [float(loss) for loss in final * (1 + 0.3 * (t**-0.3 - 1)) * (1 + 0.002 * rng.standard_normal(n))]


def _trial(name: str) -> SimpleNamespace:
    """Return a trial with two searched settings of its own, so that the landscape has its say."""
    rng = np.random.default_rng(list(name.encode()))
    return SimpleNamespace(
        trial_id=name, config={"lr": float(10 ** rng.uniform(-4, -1)), "dropout": float(rng.uniform(0, 0.5))}
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a line or one JSON document."""
    parser = argparse.ArgumentParser(prog="bench.decision_latency", description="What one decision of the Ray scheduler takes.")
    parser.add_argument("--trials", type=int, default=1000, help="finished trials")
    parser.add_argument("--reports", type=int, default=1000, help="reports of each")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    found = measure(given.trials, given.reports)
    text = "a report {report_ms:.2f} ms (p99 {p99_ms:.1f}), with a forecast {judged_ms:.2f} ms; learned in {learned_us:.0f} µs"
    print(json.dumps(found) if given.json else text.format(**found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
