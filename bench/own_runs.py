"""Training runs of our own: designed as data, made once and resumed where they were left, kept as one small Parquet file.

A run is a name, a group, and the settings of :func:`proxies.trainable.train`. :func:`train_missing` trains what a folder of
runs does not hold yet; killed at any moment, it goes on from the latest checkpoint. :func:`collect` writes what is finished in
the tidy columns of recorded curves, thinned: 200 rows a run, the training loss as the mean over the steps since the last row,
and the loss on fixed held-out text, the same for all runs, in every fourth row.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from hpo.adapters.atomic import write_bytes
from hpo.adapters.curve_files import FILE_KEY, FILE_SCHEMA
from hpo.adapters.training_session import FolderSession, read_log
from hpo.core.metric import Metric
from hpo.core.recipe import Recipe
from hpo.engine.run_folder import exclusive_file
from proxies import trainable
from proxies.architecture import Architecture

N_ROWS, N_EVALUATIONS, HELD_OUT_SEQUENCES = 200, 50, 256
DATASET = "Python standard library sources, bytes"
SOURCE = "collapse-hpo"
METRIC = "val_loss"
"""What is judged unless another column is asked for."""


@dataclass(frozen=True, kw_only=True)
class OwnRun:
    """One run of our own.

    Parameters
    ----------
    run_id, group, family : str
        Names; ``group`` holds runs that are meant to be compared, ``family`` those that can learn from each other.
    width : int
        Model dimension; the rest of the shape is in ``model``.
    tpp : float
        Tokens per parameter.
    batch_sequences : int
    lr : float
        Base peak learning rate.
    tau, weight_decay : float, optional
        AdamW timescale, or the base decay itself: exactly one of the two.
    seed : int
        Of the initial weights and of the data order.
    model, data, training : dict
        Further settings of the three blocks.
    notes : dict
        What was searched, kept as the run's settings (``hp``) beside its seed.
    """

    run_id: str
    group: str
    family: str
    width: int
    tpp: float
    batch_sequences: int
    lr: float
    tau: float | None = None
    weight_decay: float | None = None
    seed: int = 0
    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.tau is None) == (self.weight_decay is None):
            raise ValueError(
                f"run {self.run_id}: exactly one of tau and weight_decay; found {self.tau} and {self.weight_decay}"
            )

    @cached_property
    def n_steps(self) -> int:
        """Optimiser steps T = TPP·N/B."""
        seq_len = self.data.get("seq_len", 64)
        n_params = Architecture(**{**self.model, "width": self.width}).n_params
        return max(1, round(self.tpp * n_params / (self.batch_sequences * int(seq_len))))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Settings for :func:`proxies.trainable.train`, JSON-ready."""
        decay = self.weight_decay if self.tau is None else 1.0 / (self.lr * self.tau * self.n_steps)
        own = {"lr": self.lr, "n_steps": self.n_steps, "weight_decay": decay, "batch_sequences": self.batch_sequences}
        fixed = {"device": "cpu", "evaluations": N_EVALUATIONS, "held_out_sequences": HELD_OUT_SEQUENCES}
        return {
            "model": {**self.model, "width": self.width},
            "data": dict(self.data),
            "training": {**fixed, **own, "seed": self.seed, "data_seed": self.seed, **self.training},
        }

    @cached_property
    def recipe(self) -> Recipe:
        """Sizes, tokens and the learning rate and decay that reach the hidden matrices."""
        return trainable.recipe(self.settings)


def train_missing(runs: Sequence[OwnRun], folder: Path, n_workers: int = 1, seconds: float | None = None) -> None:
    """Train the runs that ``folder`` does not hold yet, in their order, ``n_workers`` at a time; progress goes to stderr.

    After ``seconds`` the run under way saves a checkpoint and no other is begun. One that another process trains is left alone.

    Raises
    ------
    ValueError
        Two runs of one name, fewer than one worker, or settings that cannot work (before any training).
    """
    if n_workers < 1:
        raise ValueError(f"workers must be at least 1; found {n_workers}")
    names = [run.run_id for run in runs]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"run ids must be distinct; found {repeated[0]} twice")
    missing = [run for run in runs if not is_finished(run, folder)]
    for run in missing[:1]:
        trainable.check(run.settings)
    _say(f"{len(runs) - len(missing)} of {len(runs)} runs are finished")
    deadline = math.inf if seconds is None else time.time() + seconds
    if n_workers == 1:
        for run in missing:
            _train(run, folder, deadline)
        return
    with ProcessPoolExecutor(n_workers, mp_context=get_context("spawn")) as pool:
        for one in [pool.submit(_train, run, folder, deadline) for run in missing]:
            one.result()


def is_finished(run: OwnRun, folder: Path) -> bool:
    """Return True if ``folder`` holds the run to its end, or to its divergence."""
    steps, losses = (read_log(folder / run.run_id)[name] for name in ("step", "loss"))
    return bool(steps.size) and bool(steps[-1] >= run.n_steps or not np.isfinite(losses[-1]))


def _train(run: OwnRun, folder: Path, deadline: float) -> None:
    if time.time() > deadline:
        return
    home = folder / run.run_id
    home.mkdir(parents=True, exist_ok=True)
    with exclusive_file(home / ".lock") as holder:
        if holder is not None:
            _say(f"{run.run_id}: left to process {holder}, which trains it")
        elif not is_finished(run, folder):
            _train_alone(run, home, deadline)


def _train_alone(run: OwnRun, home: Path, deadline: float) -> None:
    started = time.time()
    with FolderSession(home, stop_step=run.n_steps, wants_pause=lambda: time.time() > deadline) as session:
        trainable.train(run.settings, session)
        end = "diverged at" if session.diverged else "paused at" if session.paused else "reached"
        _say(f"{run.run_id}: {end} step {session.last_step} in {time.time() - started:.0f} s")


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def collect(runs: Sequence[OwnRun], folder: Path, path: str | os.PathLike[str]) -> None:
    """Write finished runs to the Parquet file ``path``.

    Raises
    ------
    ValueError
        No run, or one that is not finished.
    """
    unfinished = [run.run_id for run in runs if not is_finished(run, folder)]
    if unfinished or not runs:
        raise ValueError(f"{folder}: expected finished runs; found {f'{unfinished[0]} unfinished' if unfinished else 'none'}")
    keep([thinned(run, read_log(folder / run.run_id)) for run in runs], path)


def keep(rows: Sequence[pd.DataFrame], path: str | os.PathLike[str]) -> None:
    """Write the tidy rows of runs to the Parquet file ``path``, in one step."""
    frame = pd.concat(rows, ignore_index=True)
    frame = frame.astype(dict.fromkeys(("run_id", *_TEXTS), "category"))
    table = pa.Table.from_pandas(frame, preserve_index=False)
    about = json.dumps({"schema": FILE_SCHEMA, "metric": Metric(METRIC, end="last").to_dict()})
    buffer = io.BytesIO()
    options = {"compression": "zstd", "compression_level": 15}
    parquet.write_table(table.replace_schema_metadata({FILE_KEY: about}), buffer, **options)
    write_bytes(path, buffer.getvalue())


def thinned(run: OwnRun, log: dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]) -> pd.DataFrame:
    """Return the tidy rows of a run from its log of every step."""
    steps = log["step"]
    ends = np.arange(1, N_ROWS + 1) * run.n_steps / N_ROWS
    at = np.unique(np.searchsorted(steps, np.round(ends[ends < steps[-1] + 0.5]), side="right") - 1)
    at = at[at >= 0]
    sums = np.concatenate(([0.0], np.cumsum(log["loss"])))
    mean = np.diff(sums[np.concatenate(([0], at + 1))]) / np.diff(np.concatenate(([-1], at)))
    held_out = log.get("val_loss", np.full(steps.shape, np.nan))
    return pd.DataFrame(
        {
            "run_id": run.run_id,
            **_scalars(run),
            "step": steps[at].astype(np.int32),
            "tokens": steps[at] * run.batch_sequences * run.data.get("seq_len", 64),
            "train_loss": mean.astype(np.float32),
            "val_loss": held_out[at].astype(np.float32),
            "lr_at_step": log["lr"][at].astype(np.float32),
        }
    )


_TEXTS = ("source", "family", "group", "optimizer", "schedule", "dataset", "hp")


def _scalars(run: OwnRun) -> dict[str, Any]:
    training, known = run.settings["training"], run.recipe
    return {
        "source": SOURCE,
        "family": run.family,
        "group": run.group,
        "seed": run.seed,
        "n_params": known.n_params,
        "batch_tokens": known.batch_tokens,
        "seq_len": run.data.get("seq_len", 64),
        "optimizer": "adamw",
        "lr": known.lr,
        "weight_decay": known.weight_decay,
        "base_lr": training["lr"],
        "base_weight_decay": training["weight_decay"],
        "beta1": training.get("beta1", 0.9),
        "beta2": training.get("beta2", 0.95),
        "warmup_fraction": training.get("warmup_fraction", 0.1),
        "schedule": str(known.schedule),
        "total_steps": run.n_steps,
        "total_tokens": known.n_tokens,
        "flops_exact": known.flops_exact,
        "dataset": DATASET,
        "hp": json.dumps({**run.notes, "seed": run.seed}, sort_keys=True),
    }
