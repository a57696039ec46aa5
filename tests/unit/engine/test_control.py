"""``hpo sweep-control``: what is refused before a driver is asked, and what it says when none is there."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from hpo.engine.commands_file import Answer, CommandsFile
from hpo.engine.config import SweepConfig
from hpo.engine.run_folder import RunFolder, locked, new_run_folder


@pytest.fixture
def run(tiny, tmp_path: Path) -> RunFolder:
    made = new_run_folder(tmp_path / "run", SweepConfig.model_validate(tiny))
    for i in range(3):
        made.trial(f"trial-0{i}").mkdir()
    return made


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no/such", "keep", "1"), "RUN: expected the folder of a sweep, with its config.yaml; found no/such"),
        (("RUN", "kill", "1"), "ACTION: expected one of keep, stop, revive, extend; found kill"),
        (("RUN", "keep", "trial-03"), "TRIAL: expected one of trial-00 to trial-02, or its number; found trial-03"),
        (("RUN", "keep", "1", "--to", "0.5"), "--to: expected a fraction in (0, 1], with extend; found 0.5 with keep"),
        (("RUN", "extend", "1", "--to", "1.5"), "--to: expected a fraction in (0, 1], with extend; found 1.5 with extend"),
    ],
)
def test_a_wrong_wish_is_one_line(run, hpo, arguments, message):
    code, out, err = hpo("sweep-control", *(str(run.path) if a == "RUN" else a for a in arguments))
    assert (code, out, err) == (2, "", f"hpo: {message}\n")
    assert not (run.path / "commands.jsonl").exists()


def test_without_a_driver_the_wish_waits_for_one(run, hpo):
    code, out, _ = hpo("sweep-control", run.path, "stop", "2", "--json")
    said = json.loads(out)
    assert (code, said["ok"]) == (0, None)
    assert said["text"] == "stop trial-02: no driver works on this sweep: hpo sweep --resume heeds it"
    assert [command.trial for command in CommandsFile(run.path).commands()] == ["trial-02"]


@pytest.mark.parametrize(("ok", "expected"), [(True, 0), (False, 1)])
def test_the_drivers_answer_is_told(run, hpo, ok, expected):
    def drive() -> None:
        file = CommandsFile(run.path)
        while not file.commands():
            pass
        file.answer(Answer(file.commands()[0].id, ok, "as you say"))

    with locked(run):
        driver = threading.Thread(target=drive)
        driver.start()
        code, out, _ = hpo("sweep-control", run.path, "keep", "trial-01")
        driver.join()
    assert (code, out) == (expected, "as you say\n")


def test_a_busy_driver_is_not_waited_for_for_ever(run, hpo):
    with locked(run):
        code, out, _ = hpo("sweep-control", run.path, "keep", "trial-01", "--wait", "0.2")
    assert (code, out) == (
        0,
        "keep trial-01: the sweep is busy and heeds it later, or hpo sweep --resume does once it has ended\n",
    )
