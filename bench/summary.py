"""From the scores of tasks to what a reader compares: means, paired differences against the baselines, calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bench.calibration import Pairs, bootstrap_interval, pair_calibration

Row = Mapping[str, float | None]
BASELINES = ("current_best", "transfer")
PAIRED = ("regret_pct", "regret_capped_pct", "mae_pct", "crps")
WITH_MEDIAN = ("regret_pct", "mae_pct", "crps")


def summarise(rows: Sequence[Row]) -> dict[str, float | int | None]:
    """Return the mean over tasks of each score and its standard error (``_se``), None where no task has it.

    Where losses near zero make relative errors explode, ``_median`` over tasks says more than the mean.
    """
    out: dict[str, float | int | None] = {"n_tasks": len(rows)}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = known(rows, name)
        out[name] = float(values.mean()) if values.size else None
        out[name + "_se"] = float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else None
        if name in WITH_MEDIAN:
            out[name + "_median"] = float(np.median(values)) if values.size else None
    return out


def known(rows: Sequence[Row], name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the values of a score that are not None."""
    return np.array([row[name] for row in rows if row.get(name) is not None], dtype=np.float64)


def paired_differences(rows: Sequence[Row], others: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Return, per score, the mean over tasks of ours minus theirs, its standard error and 95 % bootstrap interval."""
    out: dict[str, dict[str, Any]] = {}
    for name in PAIRED:
        pairs = [(a.get(name), b.get(name)) for a, b in zip(rows, others, strict=True)]
        gaps = np.array([a - b for a, b in pairs if a is not None and b is not None], dtype=np.float64)
        if gaps.size:
            error = float(gaps.std(ddof=1) / np.sqrt(gaps.size)) if gaps.size > 1 else None
            out[name] = {"mean": float(gaps.mean()), "se": error, "interval": bootstrap_interval(gaps.tolist()), "n": gaps.size}
    return out


def calibration(rows: Sequence[Row], pairs: Sequence[Pairs]) -> dict[str, Any]:
    """Return the calibration of pairs, and the mean coverage of 90 % intervals with its bootstrap interval over tasks."""
    coverage = known(rows, "coverage90")
    mean = float(coverage.mean()) if coverage.size else None
    return {**pair_calibration(pairs), "coverage90": mean, "coverage90_interval": bootstrap_interval(coverage.tolist())}
