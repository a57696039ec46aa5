"""The command line called in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

Hpo = Callable[..., tuple[int, str, str]]


@pytest.fixture
def hpo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Hpo:
    """Run ``hpo`` with arguments; returns exit code, stdout, stderr."""
    from hpo.cli import main

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hpo", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return run
