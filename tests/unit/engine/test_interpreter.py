from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hpo.engine import interpreter
from hpo.engine.config import InputError


class ReplacedError(Exception):
    """Stands for the process that execv would have become."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    calls: list[list[str]] = []

    def execv(path: str, arguments: list[str]) -> None:
        calls.append([path, *arguments])
        raise ReplacedError

    monkeypatch.setattr(interpreter.os, "execv", execv)
    monkeypatch.setattr(interpreter.tempfile, "gettempdir", lambda: str(tmp_path))
    return calls


def environment(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch()
    monkeypatch.setattr(sys, "prefix", str(folder))
    monkeypatch.setattr(sys, "executable", str(folder / "bin" / "python"))
    return folder


def test_an_environment_in_a_path_with_a_space_is_entered_through_a_link(started, monkeypatch, tmp_path):
    home = environment(monkeypatch, tmp_path / "my project" / "venv")
    for _ in range(2):  # the second time the link is there
        with pytest.raises(ReplacedError):
            interpreter.restart_in_startable_path(["sweep", "a b.yaml"])
    path, *arguments = started[0]
    assert interpreter.is_startable(path)
    assert Path(path).parents[1].readlink() == home
    assert arguments == [path, "-m", "hpo", "sweep", "a b.yaml"]
    assert started[0] == started[1]


def test_an_ordinary_environment_is_left_alone(started, monkeypatch, tmp_path):
    environment(monkeypatch, tmp_path / "venv")
    interpreter.restart_in_startable_path(["sweep"])
    assert started == []


def test_without_a_usable_folder_for_the_link_the_reason_is_told(monkeypatch, tmp_path):
    environment(monkeypatch, tmp_path / "my project" / "venv")
    monkeypatch.setattr(interpreter.tempfile, "gettempdir", lambda: str(tmp_path / "my temp"))
    with pytest.raises(InputError, match="TMPDIR: expected a path that a shell takes as one word"):
        interpreter.restart_in_startable_path([])
