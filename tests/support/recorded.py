"""Small curve files in the tidy layout, made up from a law with a known winner."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml


def run_rows(
    run_id: str, values: Sequence[float] | np.ndarray, *, total: int, hp: dict[str, Any] | None = None, **columns: Any
):
    """Return the rows of one run whose values are spread evenly up to its last step."""
    steps = np.linspace(0, total, len(values) + 1)[1:]
    frame = pd.DataFrame({"step": steps, "val_loss": np.asarray(values, dtype=float)})
    about = {"source": "made", "family": "f", "group": "g", "run_id": run_id, "total_steps": total, **columns}
    return frame.assign(**about, hp=json.dumps(hp or {}))


def loss(lr: float, total: int, n: int = 50, *, best: float = 1e-3) -> np.ndarray:
    """Return a linear-decay loss curve; the final value is lowest at ``best``, but early on small LRs look better."""
    t = np.linspace(0, 1, n + 1)[1:]
    final = 3.0 * (total / 1000) ** -0.05 * (1 + 0.02 * np.log(lr / best) ** 2)
    return final * (t**-0.08 + 0.08 * (lr / best) ** 0.7 * (1 - t))


def sweep_frame(totals: Sequence[int] = (1000, 2000), lrs: Sequence[float] = (2.5e-4, 5e-4, 1e-3, 2e-3), **columns: Any):
    """Return an LR sweep at each horizon, with recipe columns."""
    about = {"n_params": 1e5, "batch_tokens": 100.0, "weight_decay": 0.1, "schedule": "linear", "optimizer": "adamw"} | columns
    runs = [
        run_rows(f"T{total}-lr{lr:g}", loss(lr, total), total=total, lr=lr, total_tokens=100.0 * total, **about)
        for total in totals
        for lr in lrs
    ]
    return pd.concat(runs, ignore_index=True)


def write(folder: Path, frame: pd.DataFrame, name: str = "anything.parquet") -> Path:
    """Write a curve file and return its folder."""
    folder.mkdir(exist_ok=True)
    frame.to_parquet(folder / name)
    return folder


def protocol_text(**changes: Any) -> str:
    """Return a protocol for :func:`sweep_frame`: the longer horizon from the shorter."""
    base = {
        "name": "made-up",
        "file": "anything.parquet",
        "metric": "val_loss",
        "targets": {"total_steps": 2000},
        "references": {"total_steps": 1000},
        "min_targets": 3,
        "stop_at": [0.2, 0.5],
        "noise": 0.0004,
        "role": "test",
    }
    return yaml.safe_dump(base | changes)
