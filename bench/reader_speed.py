"""How long each reader takes for a log of a million rows.

    python -m bench.reader_speed --rows 1000000
    python -m bench.reader_speed --rows 100000 --formats tensorboard,wandb

Times are of :func:`hpo.adapters.curve_files.read_runs`, the file being in the page cache, on one core; each format is written
first, into a folder that goes away. TensorBoard's and Weights & Biases' own files are read by their own libraries, a record at
a time in Python.
"""

from __future__ import annotations

import json
import struct
import tempfile
import time
import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer
from pyarrow import csv, parquet

from bench.command_line import input_errors
from hpo.adapters.curve_files import read_runs


def _table(rows: int) -> pa.Table:
    steps = np.arange(1, rows + 1)
    losses = 2.0 + np.random.default_rng(0).random(rows)
    return pa.table({"step": steps, "train_loss": losses, "lr": 1e-3 * (1 - steps / (rows + 1))})


def _csv(folder: Path, rows: int) -> Path:
    csv.write_csv(_table(rows), folder / "log.csv")
    return folder / "log.csv"


def _tsv(folder: Path, rows: int) -> Path:
    csv.write_csv(_table(rows), folder / "log.tsv", csv.WriteOptions(delimiter="\t"))
    return folder / "log.tsv"


def _parquet(folder: Path, rows: int) -> Path:
    parquet.write_table(_table(rows), folder / "log.parquet")
    return folder / "log.parquet"


def _json_lines(folder: Path, rows: int) -> Path:
    with (folder / "log.jsonl").open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in _table(rows).to_pylist())
    return folder / "log.jsonl"


def _json(folder: Path, rows: int) -> Path:
    (folder / "log.json").write_text(json.dumps(_table(rows).to_pylist()))
    return folder / "log.json"


def _trainer_state(folder: Path, rows: int) -> Path:
    history = [{"loss": row["train_loss"], "step": row["step"], "learning_rate": row["lr"]} for row in _table(rows).to_pylist()]
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": history, "max_steps": rows}))
    return folder / "trainer_state.json"


def _text(folder: Path, rows: int) -> Path:
    with (folder / "train.log").open("w") as file:
        file.writelines(
            f"iter {row['step']}: loss {row['train_loss']:.4f}, lr {row['lr']:.3e}, time 12.3ms\n"
            for row in _table(rows).to_pylist()
        )
    return folder / "train.log"


def _mlflow(folder: Path, rows: int) -> Path:
    (folder / "metrics").mkdir()
    (folder / "meta.yaml").write_text("run_id: a\n")
    with (folder / "metrics" / "train_loss").open("w") as file:
        file.writelines(f"1700000000000 {row['train_loss']} {row['step']}\n" for row in _table(rows).to_pylist())
    return folder


def _tensorboard(folder: Path, rows: int) -> Path:
    """Write an event file of frames: length, its checksum, event, its checksum."""
    event_type = import_module("tensorboard.compat.proto.event_pb2").Event
    masked = import_module("tensorboard.compat.tensorflow_stub.pywrap_tensorflow").masked_crc32c
    path = folder / "events.out.tfevents.1.host"
    with path.open("wb") as file:
        for row in _table(rows).to_pylist():
            event = event_type(step=row["step"], wall_time=1.0)
            event.summary.value.add(tag="train_loss", simple_value=row["train_loss"])
            data, length = event.SerializeToString(), struct.pack("<Q", event.ByteSize())
            file.write(length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data)))
    return path


def _wandb(folder: Path, rows: int) -> Path:
    """Write an offline run: frames of checksum, length and kind, in blocks of 32 KiB."""
    record_type = import_module("wandb.proto.wandb_internal_pb2").Record
    path, at = folder / "run-speed.wandb", len(_WANDB_MAGIC)
    with path.open("wb") as file:
        file.write(_WANDB_MAGIC)
        for row in _table(rows).to_pylist():
            record = record_type()
            record.history.step.num = row["step"]
            for name in ("train_loss", "lr"):
                record.history.item.add(key=name, value_json=repr(row[name]))
            frames = _frames(record.SerializeToString(), at)
            at += file.write(frames)
    return path


_WANDB_MAGIC = b":W&B\xe1\xbe\x00"
_BLOCK, _FRAME_HEADER = 32_768, 7


def _frames(data: bytes, at: int) -> bytes:
    """Return a record as it is written at byte ``at``: whole, or in parts where a block ends within it."""
    out, part = b"", 0
    while True:
        left = _BLOCK - (at + len(out)) % _BLOCK
        if left < _FRAME_HEADER:
            out += bytes(left)
            continue
        piece, rest = data[: left - _FRAME_HEADER], data[left - _FRAME_HEADER :]
        kind = (1 if not rest else 2) if part == 0 else (4 if not rest else 3)
        marked = bytes([kind])
        out += struct.pack("<IHB", zlib.crc32(marked + piece), len(piece), kind) + piece
        if not rest:
            return out
        data, part = rest, part + 1


WRITERS: dict[str, Callable[[Path, int], Path]] = {
    "csv": _csv,
    "tsv": _tsv,
    "parquet": _parquet,
    "jsonl": _json_lines,
    "json": _json,
    "trainer_state": _trainer_state,
    "text": _text,
    "mlflow": _mlflow,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
}


def seconds(name: str, rows: int) -> float:
    """Return the CPU seconds that reading ``rows`` rows of a format takes.

    Raises
    ------
    ValueError
        The rows that come back are not those written.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = WRITERS[name](Path(folder), rows)
        start = time.process_time()
        (run,) = read_runs(path)
        taken = time.process_time() - start
    if run.steps.size != rows or run.steps[-1] != rows:
        raise ValueError(f"{name}: expected {rows} rows back; found {run.steps.size}")
    return taken


def speed_command(
    rows: Annotated[int, typer.Option(min=1, help="Rows of each log.")] = 1_000_000,
    formats: Annotated[str, typer.Option(help="Formats, comma-separated.")] = ",".join(WRITERS),
) -> None:
    """Write and read a log of each format and say how long the reading takes."""
    chosen = formats.split(",")
    with input_errors():
        unknown = sorted(set(chosen) - set(WRITERS))
        if unknown:
            raise ValueError(f"--formats: expected any of {', '.join(WRITERS)}; found {', '.join(unknown)}")
        for name in chosen:
            typer.echo(f"{name:<14}{rows:>9} rows{seconds(name, rows):>8.2f} s of CPU")


if __name__ == "__main__":
    typer.run(speed_command)
