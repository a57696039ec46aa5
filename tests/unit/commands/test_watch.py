"""hpo watch: it reads a log that somebody else writes, and knows when nobody does."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpo.adapters.progress_log import ProgressTail
from hpo.commands import watch as module

Hpo = Callable[..., tuple[int, str, str]]


class Driver:
    """Writes a log as a driver does."""

    def __init__(self, folder: Path, pid: int) -> None:
        self.folder, self.log = folder, folder / "logs" / "progress.jsonl"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        (folder / "config.yaml").write_text("name: mine\n")
        self.tell("driver", name="mine", rule="select", at=0.2, pid=pid, host=socket.gethostname(), total_flops=200.0)
        about = {"n_steps": 100, "stop_step": 20, "flops": 100.0, "settings": {"lr": 0.1}}
        self.tell("run", name="trial-00", role="candidate", number=0, of="trial-00", step=0, counted=True, **about)
        self.tell("started", name="trial-00", until=20)
        self.tell("reported", name="trial-00", step=10, loss=2.5)

    def tell(self, kind: str, **about: Any) -> None:
        with self.log.open("a") as file:
            file.write(json.dumps({"event": kind, "time": time.time(), **about}) + "\n")


def test_the_metric_that_is_judged_is_named_and_shown(hpo: Hpo, tmp_path: Path) -> None:
    driver = Driver(tmp_path, os.getpid())
    driver.tell("driver", name="mine", rule="select", at=0.2, pid=os.getpid(), host=socket.gethostname(), metric="val_loss")
    driver.tell("started", name="trial-00", until=20)
    driver.tell("reported", name="trial-00", step=12, loss=2.4, judged=3.125)
    _, out, _ = hpo("watch", tmp_path, "--once")
    assert "val_loss 3.1250" in out
    assert "2.4000" not in out
    _, out, _ = hpo("watch", tmp_path, "--once", "--json")
    assert json.loads(out)["metric"] == "val_loss"
    assert json.loads(out)["runs"][0]["loss"] == 3.125


@pytest.fixture
def dead_pid() -> int:
    """The process id of a process that is no more."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_it_shows_where_a_sweep_stands(hpo: Hpo, tmp_path: Path) -> None:
    Driver(tmp_path, os.getpid())
    code, out, err = hpo("watch", tmp_path, "--once")
    assert (code, err) == (0, "")
    assert "trial-00: running, 10%, loss 2.5000" in out
    assert "driver" not in out


def test_the_json_document_has_every_run(hpo: Hpo, tmp_path: Path) -> None:
    Driver(tmp_path, os.getpid())
    code, out, _ = hpo("watch", tmp_path, "--once", "--json")
    said = json.loads(out)
    assert code == 0
    assert said | {"name": "mine", "finished": False, "error": None, "trouble": None, "done_fraction": 0.05} == said
    assert said["runs"][0] | {"name": "trial-00", "state": "running", "step": 10, "loss": 2.5} == said["runs"][0]


def test_a_killed_driver_is_noticed_and_how_to_go_on_is_said(hpo: Hpo, tmp_path: Path, dead_pid: int) -> None:
    driver = Driver(tmp_path, dead_pid)
    with driver.log.open("a") as file:
        file.write('{"event": "reported", "time": 1.0, "na')  # torn
    _, out, _ = hpo("watch", tmp_path, "--once")
    assert f"its driver is gone; go on with: hpo sweep --resume {tmp_path}" in out
    assert "trial-00: running, 10%" in out


def test_a_driver_on_another_machine_is_missed_once_its_log_has_long_been_silent(hpo: Hpo, tmp_path: Path) -> None:
    driver = Driver(tmp_path, os.getpid())
    driver.tell("driver", name="mine", rule="select", at=0.2, pid=1, host="elsewhere", total_flops=200.0)
    assert "no sign" not in hpo("watch", tmp_path, "--once")[1]
    os.utime(driver.log, (time.time() - 300, time.time() - 300))
    assert re.search(r"no sign of its driver for 3\d\d s", hpo("watch", tmp_path, "--once")[1])


@pytest.mark.parametrize(("error", "code"), [(None, 0), ("no candidate could be trained to its end", 1)])
def test_it_follows_to_the_end_and_leaves_as_the_sweep_did(
    hpo: Hpo, tmp_path: Path, error: str | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(tmp_path, os.getpid())
    monkeypatch.setattr(module, "POLL_S", 0.01)
    is_followed, read = threading.Event(), ProgressTail.new

    def new(tail: ProgressTail) -> list[Any]:
        found = read(tail)
        is_followed.set()
        return found

    monkeypatch.setattr(ProgressTail, "new", new)

    def go_on() -> None:
        is_followed.wait(60)
        driver.tell("ended", name="trial-00", status="reached", step=100, n_steps=100, message="")
        driver.tell("said", text="model fitted")
        driver.tell("finished", error=error)

    writer = threading.Thread(target=go_on)
    writer.start()
    left, out, err = hpo("watch", tmp_path)
    writer.join()
    assert left == code
    assert "trial-00: step 100 of 100, done" in out
    assert "model fitted" in out
    assert (out.endswith(f"{tmp_path}: finished\n") and err == "") if error is None else err == f"hpo: {error}\n"


def test_it_ends_where_nobody_drives_the_sweep_for_long(
    hpo: Hpo, tmp_path: Path, dead_pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    Driver(tmp_path, dead_pid)
    monkeypatch.setattr(module, "GIVEN_UP_S", 0.1)
    monkeypatch.setattr(module, "POLL_S", 0.01)
    code, _, err = hpo("watch", tmp_path)
    assert code == 1
    assert "its driver is gone" in err


def test_wrong_folders_and_options_are_one_line(hpo: Hpo, tmp_path: Path) -> None:
    assert hpo("watch", tmp_path)[0::2] == (
        2,
        f"hpo: RUN: expected the folder of a sweep, with its config.yaml; found {tmp_path}\n",
    )
    (tmp_path / "config.yaml").write_text("name: old\n")
    assert hpo("watch", tmp_path, "--json")[0] == 2
    (tmp_path / "result.json").write_text("{}")
    code, _, err = hpo("watch", tmp_path)
    assert code == 2
    assert "found one of an older version" in err
    code, _, err = hpo("report", tmp_path / "nothing")
    assert (code, err.count("\n")) == (2, 1)
