"""Which recorded runs the rule of sustained divergence alone would stop, and what became of them.

Every file of curves, every run of at least ten values, training and validation losses, each report in turn. A stop was
*false* if the run ended in the best quarter of its group: the runs that were meant to be compared.

    HPO_CURVES=... python -m bench.divergence_stops
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from hpo.adapters.curve_files import RecordedRun, read_runs
from hpo.adapters.readers.registry import read_table
from hpo.core.divergence import DivergenceWatch

METRICS = ("train_loss", "val_loss")
FEWEST_VALUES = 10
BEST_SHARE = 0.25


@dataclass(frozen=True)
class Fate:
    """One run: its end (the median of its last three values), and the share of training at which it would be stopped."""

    group: str
    end: float
    stopped_at: float | None


def first_stop(run: RecordedRun) -> float | None:
    """Return the share of training at which the rule stops a run, None if it never does."""
    horizon = float(run.horizon or run.steps[-1])
    watch = DivergenceWatch(horizon)
    finite = np.isfinite(run.values)
    for step, value in zip(run.steps[finite].tolist(), run.values[finite].tolist(), strict=True):
        watch.add(step, value)
        if watch.diverging:
            return float(step) / horizon
    return None


def fates(path: Path, metric: str) -> Iterator[Fate]:
    """Yield the fate of each run of a file that has enough finite values of a metric."""
    frame = read_table(path).arrow.to_pandas()
    groups = frame.assign(run_id=frame["run_id"].astype(str)).groupby("run_id")[["family", "group"]].first()
    for run in read_runs(path, metric=metric):
        finite = run.values[np.isfinite(run.values)]
        if finite.size >= FEWEST_VALUES:
            yield Fate("/".join(map(str, groups.loc[run.run_id])), float(np.median(finite[-3:])), first_stop(run))


def row(found: Sequence[Fate]) -> tuple[int, int, int, int]:
    """Return how many runs there are, are stopped, are stopped in their group's best quarter, and are stopped as its best."""
    table = pd.DataFrame([(f.group, f.end, f.stopped_at is not None) for f in found], columns=["group", "end", "stopped"])
    ranks = table.groupby("group")["end"]
    is_good, is_best = ranks.rank(pct=True) <= BEST_SHARE, ranks.rank(method="min") == 1
    stopped = table["stopped"]
    return len(table), int(stopped.sum()), int((stopped & is_good).sum()), int((stopped & is_best).sum())


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for each file and metric."""
    parser = argparse.ArgumentParser(prog="python -m bench.divergence_stops", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--curves", type=Path, default=Path(os.environ.get("HPO_CURVES", "../shared/curves")))
    options = parser.parse_args(arguments)
    print("| file | loss | runs | stopped | of the best quarter | the best |\n|---|---|---|---|---|---|")
    total = np.zeros(4, dtype=int)
    for path in sorted(options.curves.glob("*.parquet")):
        names = read_table(path).arrow.column_names
        for metric in (m for m in METRICS if m in names):
            found = list(fates(path, metric))
            if found:
                counts = row(found)
                total += counts
                print(f"| {path.stem} | {metric} | " + " | ".join(map(str, counts)) + " |")
    print("| all | | " + " | ".join(map(str, total.tolist())) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
