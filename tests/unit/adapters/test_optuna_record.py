"""The decision log."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from hpo.adapters.optuna_record import DecisionLog, TrialDecision

RECORD = TrialDecision(3, 10, "stop", True, "cannot_win", "text", forecast=3.0, upper=float("inf"))


def test_a_decision_is_logged_when_it_says_something_new(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "deep" / "log.jsonl")
    for record in (RECORD, replace(RECORD, step=11), replace(RECORD, reason="audited"), replace(RECORD, trial=4)):
        log.write("study", record)
    lines = [json.loads(line) for line in (tmp_path / "deep" / "log.jsonl").read_text().splitlines()]
    assert [(x["trial"], x["step"], x["reason"]) for x in lines] == [
        (3, 10, "cannot_win"),
        (3, 10, "audited"),
        (4, 10, "cannot_win"),
    ]
    assert lines[0]["upper"] == "inf"
    assert lines[0]["study"] == "study"


def test_a_log_that_cannot_be_written_is_given_up_with_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = DecisionLog(tmp_path / "file" / "log.jsonl")
    with pytest.warns(RuntimeWarning, match="no longer logged"):
        log.write("study", RECORD)
    log.write("study", replace(RECORD, trial=4))


def test_no_path_is_no_log_and_a_log_can_be_pickled(tmp_path: Path) -> None:
    DecisionLog(None).write("study", RECORD)
    assert pickle.loads(pickle.dumps(DecisionLog(tmp_path / "x"))).path == tmp_path / "x"
