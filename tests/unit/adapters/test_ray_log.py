from __future__ import annotations

import resource
import tracemalloc
from pathlib import Path

import pytest

from hpo.adapters import ray_log
from hpo.adapters.optuna_record import TrialDecision
from hpo.adapters.ray_log import EventLog, decision_event, decision_from


def test_what_is_read_is_what_was_written_since_the_last_start(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "folder" / "log.jsonl")
    for event in ({"event": "start"}, {"event": "old"}, {"event": "start"}, {"event": "a", "value": float("nan")}):
        log.write(event)
    assert list(log.read()) == [{"event": "a", "value": "nan"}]


def test_a_line_cut_short_is_skipped_and_the_next_begins_on_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"event": "a"}\n{"event": "b", "va')
    log = EventLog(path)
    log.write({"event": "c"})
    assert [e["event"] for e in log.read()] == ["a", "c"]


def test_no_path_no_log() -> None:
    log = EventLog(None)
    log.write({"event": "a"})
    assert list(log.read()) == []


def test_a_decision_comes_back_as_it_was(tmp_path: Path) -> None:
    made = TrialDecision(3, 20, "stop", True, "cannot_win", "why", 0.2, 3.1, 3.0, float("inf"), 2.9, 0.001, 0.005, "f", 6, 1.0)
    log = EventLog(tmp_path / "log.jsonl")
    log.write(decision_event("t", made))
    assert decision_from(next(log.read()), 3) == made


def test_reading_a_long_log_holds_one_event_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"event": "start"}\n' + '{"event": "report", "id": "a", "step": 1, "value": 2.5}\n' * 20_000)
    tracemalloc.start()
    n_read = sum(1 for _ in EventLog(path).read())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert n_read == 20_000
    assert peak < 500_000


def _write(log: EventLog, kinds: str) -> None:
    for kind in kinds:
        log.write({"event": kind})


def test_what_cannot_be_written_for_a_while_is_written_later(tmp_path: Path) -> None:
    """The folder's name is taken by a file meanwhile, as if its file server were away."""
    folder = tmp_path / "folder"
    log = EventLog(folder / "log.jsonl")
    folder.write_text("")
    with pytest.warns(RuntimeWarning, match="cannot be logged") as told:
        _write(log, "ab")
    assert len(told) == 1
    folder.unlink()
    log.write({"event": "c"})
    assert [e["event"] for e in log.read()] == ["a", "b", "c"]


def test_a_line_that_a_full_disk_cut_short_is_written_again(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log.jsonl")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40, hard))
    try:
        with pytest.warns(RuntimeWarning, match="cannot be logged"):
            _write(log, "abcd")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.write({"event": "e"})
    assert [e["event"] for e in log.read()] == list("abcde")


def test_a_log_that_is_never_written_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_log, "MOST_UNWRITTEN", 3)
    (tmp_path / "file").write_text("")
    log = EventLog(tmp_path / "file" / "log.jsonl")
    with pytest.warns(RuntimeWarning) as told:
        _write(log, "abcdefghi")
    assert [str(one.message).split(",")[0].split(":")[0] for one in told] == [
        "events cannot be logged",
        "events are no longer logged",
    ]
    assert log.path is None
