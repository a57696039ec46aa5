"""Our own sweep for the paper's comparison (section 5): a target grid that costs ten times all its proxies together.

Targets are all trained to the end, so the truth is known: learning rate × AdamW timescale at 163k parameters, once for each
seed (initial weights and data order). Proxies are runs of two smaller sizes with the same tokens per parameter and schedule,
on a part of the same grid; batches grow as √N. The runs are scored by an ordinary replay protocol (``own_sweep_val``), whose
tasks are the seeds: a family's label carries its seed, so a task learns from its own proxies only.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from bench.own_runs import OwnRun, is_finished

SEEDS = (0, 1, 2)
LRS = (1.5e-3, 3.8e-3, 9.5e-3, 2.4e-2)
TAUS = (0.1, 0.35, 1.2)
GRID = tuple(product(LRS, TAUS))
TPP = 10.0
N_HEADS = 8
TARGET = (48, 8)
"""Width, and sequences a batch."""
PROXIES = {
    (24, 4): (
        *((LRS[0], TAUS[0]), (LRS[0], TAUS[2]), (LRS[1], TAUS[1]), (LRS[2], TAUS[2]), (LRS[3], TAUS[0])),
        *((LRS[2], TAUS[0]), (LRS[2], TAUS[1]), (LRS[3], TAUS[2])),
    ),
    (32, 5): ((LRS[1], TAUS[2]), (LRS[2], TAUS[0])),
}
"""(Width, sequences a batch) → points of the grid: the small size maps the landscape, two runs at the larger show the trend.

Ten in all: with two settings searched and two sizes the landscape wants that many references.
"""


def sweep_runs(seeds: tuple[int, ...] = SEEDS) -> list[OwnRun]:
    """Return the runs seed by seed, each seed's proxies before its targets."""
    return [run for seed in seeds for run in (*_proxies(seed), *_targets(seed))]


def finished_seeds(folder: Path) -> tuple[int, ...]:
    """Return the seeds of which ``folder`` holds every run to its end.

    Raises
    ------
    ValueError
        There is none.
    """
    found = tuple(seed for seed in SEEDS if all(is_finished(run, folder) for run in sweep_runs((seed,))))
    if not found:
        raise ValueError(f"{folder}: expected at least one seed with all its runs finished; found none (call again to go on)")
    return found


def _targets(seed: int) -> list[OwnRun]:
    return [_run("target", *TARGET, lr, tau, seed) for lr, tau in GRID]


def _proxies(seed: int) -> list[OwnRun]:
    return [_run("proxy", width, batch, lr, tau, seed) for (width, batch), points in PROXIES.items() for lr, tau in points]


def _run(group: str, width: int, batch: int, lr: float, tau: float, seed: int) -> OwnRun:
    return OwnRun(
        run_id=f"sweep-w{width}-lr{lr:g}-tau{tau:g}-seed{seed}",
        group=group,
        family=f"own-sweep-seed{seed}",
        width=width,
        tpp=TPP,
        batch_sequences=batch,
        lr=lr,
        tau=tau,
        seed=seed,
        model={"depth": 3, "head_dim": width // N_HEADS},
        notes={"lr": lr, "tau": tau},
    )
