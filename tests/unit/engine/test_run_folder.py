"""Where a sweep lives, and that only one driver works on it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from hpo.engine.config import InputError, parse_config
from hpo.engine.run_folder import RunFolder, exclusive_file, existing_run_folder, locked, new_run_folder


def test_a_new_folder_holds_the_resolved_configuration(tmp_path, tiny):
    run = new_run_folder(tmp_path / "run", parse_config(tiny))
    assert run.read_config() == parse_config(tiny)


def test_the_default_folder_is_named_after_the_sweep(tmp_path, tiny, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = new_run_folder(None, parse_config(tiny))
    assert run.path.parent == tmp_path / "runs"
    assert run.path.name.startswith("tiny-2")


def test_a_folder_with_a_run_is_refused_and_names_the_way_on(tmp_path, tiny):
    new_run_folder(tmp_path / "run", parse_config(tiny))
    with pytest.raises(InputError, match="--resume"):
        new_run_folder(tmp_path / "run", parse_config(tiny))


def test_a_folder_with_something_else_is_refused(tmp_path, tiny):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        new_run_folder(tmp_path, parse_config(tiny))
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_cannot_be_made_is_refused(tmp_path, tiny):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="--out: expected a folder that can be written"):
        new_run_folder(tmp_path / "file" / "run", parse_config(tiny))


def test_resuming_nothing_is_refused(tmp_path):
    with pytest.raises(InputError, match="--resume: expected the folder of a run"):
        existing_run_folder(tmp_path)


HOLD = """
import sys
from pathlib import Path
from hpo.engine.run_folder import RunFolder, locked
with locked(RunFolder(Path(sys.argv[1]))):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_driver_is_refused_until_the_first_is_gone(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", HOLD, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InputError, match=f"in use by process {other.pid}"), locked(RunFolder(tmp_path)):
            pass
        other.kill()
    with locked(RunFolder(tmp_path)):
        pass


def test_decisions_are_written_whole_and_read_back(tmp_path):
    run = RunFolder(tmp_path)
    assert run.read_decisions() == []
    run.write_decisions([{"trial": 0, "action": "stop"}, {"trial": 1, "action": "continue"}])
    assert [line["trial"] for line in run.read_decisions()] == [0, 1]


def test_one_who_looks_for_an_instant_keeps_no_driver_from_starting(tmp_path):
    looking = threading.Event()

    def look() -> None:
        with exclusive_file(tmp_path / ".lock"):
            looking.set()
            time.sleep(0.3)

    other = threading.Thread(target=look)
    other.start()
    looking.wait()
    with locked(RunFolder(tmp_path)):
        assert (tmp_path / ".lock").read_text() == str(os.getpid())
    other.join()
