"""What the core's steps take: fit, one forecast, one more report, a joint forecast.

Synthetic curves of one family (the papers' surrogate with noise); medians over repetitions, in processor time, which other
programs do not lengthen, on whatever machine this runs on.
"""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from hpo.core.curve import Curve, CurveStream
from hpo.core.model import CollapseModel
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule

N_REFERENCES, N_POINTS, N_TRIALS = 112, 2000, 100
STOP = 0.2


@dataclass(frozen=True)
class Step:
    """One figure: what, how long (or large), and the goal, in ``unit``."""

    what: str
    value: float
    goal: float
    unit: str


def measure(repetitions: int = 5) -> list[Step]:
    """Return the figures; a few seconds."""
    rng = np.random.default_rng(0)
    references = [_run(rng, f"r{i}", n_steps=N_POINTS) for i in range(N_REFERENCES)]
    trials = [_run(rng, f"t{i}", n_steps=2 * N_POINTS, until=STOP) for i in range(N_TRIALS)]
    model = CollapseModel.fit(references)
    model.forecast(trials[0])  # the shape is fitted with the first one
    first = iter(trials[1:])
    again = iter([replace(trials[i % N_TRIALS]) for i in range(20 * repetitions)])  # a run that has reported is a new curve
    all_again = iter([[replace(trial) for trial in trials] for _ in range(repetitions)])
    one_again = iter([[replace(t) if i == k else t for i, t in enumerate(trials)] for k in range(2 * repetitions)])
    return [
        Step(
            f"fit of {N_REFERENCES} runs and first forecast",
            _median_ms(lambda: _fitted(references, trials), repetitions),
            1000,
            "ms",
        ),
        Step("first forecast of a run", _median_ms(lambda: model.forecast(next(first)), N_TRIALS - 1), 0.2, "ms"),
        Step("its next forecast", _median_ms(lambda: model.forecast(next(again)), 20 * repetitions), 0.2, "ms"),
        Step("one more report", 1000 * _median_ms(_reports, repetitions) / N_POINTS, 20, "µs"),
        Step(
            f"joint forecast of {N_TRIALS}, all anew",
            _median_ms(lambda: model.forecast_many(next(all_again), rng), repetitions),
            20,
            "ms",
        ),
        Step(
            f"joint forecast of {N_TRIALS} after one has reported",
            _median_ms(lambda: model.forecast_many(next(one_again), rng), 2 * repetitions),
            20,
            "ms",
        ),
        Step("a curve of 10⁵ reports less one of 10⁴", _growth(), 1, "kB"),
    ]


def table(steps: list[Step]) -> str:
    """Return the figures as Markdown."""
    rows = [f"| {s.what} | {s.value:.3g} {s.unit} | {s.goal:g} {s.unit} |" for s in steps]
    return "\n".join(["| step | median, processor time | goal |", "|---|---|---|", *rows])


def _run(rng: np.random.Generator, name: str, *, n_steps: int, until: float = 1.0) -> Curve:
    rate = float(10 ** rng.uniform(-3.5, -2.5))
    recipe = Recipe(
        schedule=schedule("linear"), n_params=1e8, batch_tokens=5e4, n_tokens=5e4 * n_steps, lr=rate, weight_decay=0.1
    )
    steps = np.arange(1, n_steps + 1)
    values = 3.0 * (steps / n_steps) ** -0.08 * np.exp(0.004 * rng.normal(size=n_steps) + 0.02 * np.log10(rate / 1e-3) ** 2)
    seen = steps <= until * n_steps
    return Curve.from_points(steps[seen], values[seen], horizon=n_steps, recipe=recipe, settings={"lr": rate}, run_id=name)


def _fitted(references: list[Curve], trials: list[Curve]) -> None:
    CollapseModel.fit(references).forecast(trials[0])


def _reports() -> None:
    stream = CurveStream(horizon=float(N_POINTS))
    for step in range(1, N_POINTS + 1):
        stream.add(step, 3.0)


def _growth() -> float:
    """Return by how many kilobytes a curve of a hundred thousand reports is larger than one of ten thousand."""
    return (_size(100_000) - _size(10_000)) / 1000


def _size(n_reports: int) -> int:
    """Return the bytes that a stream holds at the end of so many reports."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    stream = CurveStream(horizon=float(n_reports))
    for step in range(1, n_reports + 1):
        stream.add(step, 3.0)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return held


def _median_ms(call: Callable[[], object], repetitions: int) -> float:
    taken = []
    for _ in range(repetitions):
        begun = time.process_time()
        call()
        taken.append(time.process_time() - begun)
    return 1000 * statistics.median(taken)
