"""No bytes crash a reader: it returns runs, or a ``ValueError`` of one line that names the file."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hpo.adapters.curve_files import read_runs
from hpo.adapters.curve_rows import logged_last

LOGS = Path(__file__).resolve().parents[1] / "support" / "logs"
NAMES = (
    "a.csv",
    "a.jsonl",
    "a.json",
    "a.log",
    "a.parquet",
    "run-a.wandb",
    "events.out.tfevents.1.a",
    "trainer_state.json",
    "a",
)
WORDS = (
    b"step", b"loss", b"epoch", b"iter 1: ", b"loss 3.5", b",", b"\n", b"\t", b";", b"{", b"}", b'"step": 1', b'"loss"', b": ",
    b"[", b"]", b'"log_history"', b"nan", b"-inf", b"1e999", b"9" * 400, b"PAR1", b":W&B\xe1\xbe\x00", b"\x00", b"\xff\xfe",
    b"\xef\xbb\xbf", b"'", b"\r", b"run_id", b"hp", b"total_steps", b"1", b"2", b"0.5", b" - train/loss", b"__MIN",
)  # fmt: skip
JUNK = st.one_of(st.binary(max_size=300), st.lists(st.sampled_from(WORDS), max_size=60).map(b"".join))


def read(name: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        said = None
        try:
            runs = read_runs(path)
        except ValueError as error:
            said, runs = str(error), []
    assert (said is None) == bool(runs)
    assert said is None or (str(path) in said and "\n" not in said)
    assert all(one.steps.size == one.values.size for one in runs)


@given(name=st.sampled_from(NAMES), data=JUNK)
@example(name="a.json", data=b"[" * 100_000)
@example(name="a.jsonl", data=b'{"step":' * 50_000)
@example(name="a.csv", data=b"step,loss\n1,2\n" + b"9" * 500 + b",1\n")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_junk_is_refused_in_one_line(name: str, data: bytes) -> None:
    read(name, data)


@pytest.mark.parametrize("file", sorted(str(p.relative_to(LOGS)) for p in LOGS.rglob("*") if p.is_file()))
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_damage_anywhere_in_a_real_log_is_survived(file: str, data: st.DataObject) -> None:
    raw = bytearray((LOGS / file).read_bytes())
    at = data.draw(st.integers(0, max(len(raw) - 1, 0)))
    raw[at : at + 1] = data.draw(st.binary(max_size=3))
    read(Path(file).name, bytes(raw[: data.draw(st.integers(0, len(raw)))]))


@given(st.lists(st.integers(0, 30), max_size=40))
def test_stitched_steps_ascend_and_end_as_the_log_does(written: list[int]) -> None:
    steps = np.array(written, dtype=float)
    rows, restarts = logged_last(np.arange(steps.size), steps)
    assert np.all(np.diff(steps[rows]) > 0)
    assert len(restarts) <= max(1, 0.1 * steps.size)
    if steps.size and len(restarts) == np.sum(np.diff(steps) < 0):
        assert rows[-1] == steps.size - 1
