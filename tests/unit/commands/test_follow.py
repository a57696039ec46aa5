"""Following a log: what is unreadable for a moment is read at the next look, and what stays silent is left after a while."""

from __future__ import annotations

from functools import partial

import pytest

from hpo.adapters.curve_files import read_runs
from hpo.commands import follow
from hpo.commands.follow import growing


def read(path):
    return read_runs(path, growing=True)[0]


def test_a_log_that_is_unreadable_at_first_is_read_once_it_can_be(tmp_path):
    log = tmp_path / "log.csv"
    log.write_text("step,total_steps")  # the writer is at its header
    calls = []

    def finish_then_read():
        calls.append(1)
        if len(calls) == 2:
            log.write_text("step,total_steps,loss\n1,9,3.0\n")
        return read(log)

    looks = growing(str(log), finish_then_read, 0.001)
    assert next(looks).steps.tolist() == [1.0]
    assert len(calls) == 2


def test_a_log_that_stays_unreadable_is_left_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "STALE_S", 0.05)
    log = tmp_path / "log.csv"
    log.write_text("neither,here\n1,2\n")
    assert list(growing(str(log), partial(read, log), 0.005)) == []


@pytest.mark.parametrize("written", ["log.csv", "folder/log.csv"])
def test_each_change_is_told_once(tmp_path, monkeypatch, written):
    log = tmp_path / written
    log.parent.mkdir(exist_ok=True)
    log.write_text("step,total_steps,loss\n1,9,3.0\n")
    looks = growing(str(tmp_path / written.split("/")[0]), partial(read, log), 0.001)
    assert next(looks).steps.size == 1
    log.write_text("step,total_steps,loss\n1,9,3.0\n2,9,2.0\n")
    assert next(looks).steps.size == 2
    monkeypatch.setattr(follow, "STALE_S", 0.05)
    assert list(looks) == []
