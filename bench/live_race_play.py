"""The training of verified sweeps played to the rules of :mod:`bench.race`: more seeds and orders than can be trained live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.asynchronous import Clock
from bench.protocol import Protocol
from bench.race import race_records
from bench.records import Record
from hpo.engine.plan import plan_sweep
from hpo.engine.run_folder import RunFolder
from hpo.engine.runs_on_disk import RunsOnDisk
from hpo.engine.sweep import verification

RULES = ("everything", "ray_asha", "optuna_hyperband", "optuna_median", "prune", "select_10", "select_20", "rungs_10_20_30")
CLOCK = Clock(n_workers=2, n_seeds=3, n_looks=50)


def played(folder: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the race of :data:`RULES` over the candidates of the verified sweeps ``seed-…`` in ``folder``."""
    records = [record for seed in seeds for record in _records(folder / f"seed-{seed}", seed)]
    protocol = Protocol(
        name="own_demo",
        file="own_demo",
        metric="val_loss",
        targets={"group": "candidate"},
        references={"group": "proxy"},
        task_by=["seed"],
        study_size=None,
        min_targets=2,
        stop_at=[0.2],
        noise=0.0,
        role="test",
    )
    return race_records(records, protocol, CLOCK, RULES)


def _records(demo: Path, seed: int) -> list[Record]:
    plan = plan_sweep(RunFolder(demo.absolute()).read_config())
    runs = RunsOnDisk(plan, RunFolder(demo.absolute()))
    found = []
    for run in (*plan.proxies, *plan.candidates):
        name = run.name if runs.is_complete(run) else verification(run)
        made = replace(runs.recorded(run, name=name), run_id=f"{run.name}-seed{seed}", family=f"own-demo-seed{seed}")
        found.append(Record(made, {"group": run.role, "seed": seed, "n_params": run.recipe.n_params}, {}))
    return found
