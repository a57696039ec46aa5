"""More pairs of neighbours for the question from which size on a family collapses within 1 %.

Three changes of :mod:`bench.own_ladder`, all else as there: its smallest size at half its batch, so with twice the steps; its
two larger sizes at a context of five bytes instead of four, as many tokens a batch; and the same two at twice the tokens per
parameter.
"""

from __future__ import annotations

from dataclasses import replace

from bench.own_ladder import MIDDLE, SEEDS, SEQ_LEN, SIZES, ladder_runs
from bench.own_runs import OwnRun

CONTEXT = 5
LONGER = 2.0
SMALLEST, LARGEST = min(SIZES), max(SIZES)


def neighbour_runs() -> list[OwnRun]:
    """Return the runs, cheapest first; their names and groups say what differs."""
    matched = {(run.width, run.seed): run for run in ladder_runs() if run.group == "matched"}
    return [
        *(_half_batch(matched[SMALLEST, seed]) for seed in SEEDS),
        *(_context(matched[width, SEEDS[0]]) for width in (MIDDLE, LARGEST)),
        *(_longer(matched[width, SEEDS[0]]) for width in (MIDDLE, LARGEST)),
    ]


def _half_batch(run: OwnRun) -> OwnRun:
    batch = run.batch_sequences // 2
    return replace(run, run_id=f"ladder-w{run.width}-batch{batch}-seed{run.seed}", group="half_batch", batch_sequences=batch)


def _context(run: OwnRun) -> OwnRun:
    return replace(
        run,
        run_id=f"ladder-w{run.width}-context{CONTEXT}-seed{run.seed}",
        group="context",
        batch_sequences=round(run.batch_sequences * SEQ_LEN / CONTEXT),
        data={"seq_len": CONTEXT},
    )


def _longer(run: OwnRun) -> OwnRun:
    tpp = LONGER * run.tpp
    return replace(run, run_id=f"ladder-w{run.width}-tpp{tpp:g}-seed{run.seed}", group="longer", tpp=tpp)
