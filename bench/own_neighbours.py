"""More pairs of neighbours for the question from which size on a family collapses within 1 %.

Two changes of :mod:`bench.own_ladder`, all else as there: its two larger sizes at a context of five bytes instead of four
(as many tokens a batch), and its smallest at half its batch, so with twice the steps.
"""

from __future__ import annotations

from dataclasses import replace

from bench.own_ladder import MIDDLE, SEEDS, SEQ_LEN, SIZES, ladder_runs
from bench.own_runs import OwnRun

CONTEXT = 5
SMALLEST, LARGEST = min(SIZES), max(SIZES)


def neighbour_runs() -> list[OwnRun]:
    """Return the runs, cheapest first; their names, ``own-ladder`` apart, say what differs."""
    matched = {(run.width, run.seed): run for run in ladder_runs() if run.group == "matched"}
    return [
        *(_half_batch(matched[SMALLEST, seed]) for seed in SEEDS),
        *(_longer(matched[width, seed]) for width in (MIDDLE, LARGEST) for seed in SEEDS),
    ]


def _half_batch(run: OwnRun) -> OwnRun:
    batch = run.batch_sequences // 2
    return replace(run, run_id=f"ladder-w{run.width}-batch{batch}-seed{run.seed}", group="half_batch", batch_sequences=batch)


def _longer(run: OwnRun) -> OwnRun:
    return replace(
        run,
        run_id=f"ladder-w{run.width}-context{CONTEXT}-seed{run.seed}",
        group="context",
        batch_sequences=round(run.batch_sequences * SEQ_LEN / CONTEXT),
        data={"seq_len": CONTEXT},
    )
