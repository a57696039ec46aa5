from __future__ import annotations

import json
from pathlib import Path

from hpo.adapters.progress_log import ProgressTail, read_progress


def line(**event: object) -> bytes:
    return json.dumps({"time": 1.0, **event}).encode() + b"\n"


def test_a_line_that_is_being_written_waits_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    tail, whole = ProgressTail(path), line(event="said", text="später")
    assert tail.new() == []  # not even there yet
    path.write_bytes(line(event="said", text="first") + whole[:20])
    assert [event["text"] for event in tail.new()] == ["first"]
    assert tail.new() == []
    with path.open("ab") as file:
        file.write(whole[20:])
    assert [event["text"] for event in tail.new()] == ["später"]


def test_a_line_that_a_crash_cut_short_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_bytes(line(event="said", text="a") + b'{"event": "repor\n' + b"\xff\xfe\n[1]\n" + line(event="said", text="b"))
    assert [event["text"] for event in read_progress(path)] == ["a", "b"]


def test_what_is_no_event_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_text('{"event": "said"}\n{"time": 1}\n{"event": 3, "time": 1}\nnull\n\n')
    assert read_progress(path) == []


def test_a_log_that_became_shorter_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    path.write_bytes(line(event="said", text="a") * 3)
    tail = ProgressTail(path)
    assert len(tail.new()) == 3
    path.write_bytes(line(event="said", text="new"))
    assert [event["text"] for event in tail.new()] == ["new"]
