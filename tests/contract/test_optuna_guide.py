"""The guide's code runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest


def blocks(repository: Path, after: str = "") -> list[str]:
    """Return the guide's blocks of Python, those of a library by its name."""
    text = (repository / "docs" / "optuna.md").read_text(encoding="utf-8")
    return re.findall(rf"```python{after}\n(.*?)```", text, flags=re.DOTALL)


def run(script: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "guide"}
    exec(compile(script, "docs/optuna.md", "exec"), names)
    return names


def test_the_guides_blocks_run_as_one_script(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = blocks(repository)
    assert len(found) >= 6
    monkeypatch.chdir(tmp_path)
    run("\n".join(found))


def test_the_guides_figure_is_written(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly", reason="Plotly absent: pip install plotly")
    monkeypatch.chdir(tmp_path)
    plotted = blocks(repository, " plotly")
    assert len(plotted) == 1
    run("\n".join([*blocks(repository)[:3], *plotted]))
    assert "stopped by forecast" in (tmp_path / "forecasts.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("library", ["transformers", "lightning", "keras"])
def test_a_frameworks_block_runs(repository: Path, tmp_path: Path, library: str) -> None:
    if find_spec(library) is None or (library == "transformers" and find_spec("accelerate") is None):
        pytest.skip(f"{library} absent: pip install {library}" + (" accelerate" if library == "transformers" else ""))
    (script,) = blocks(repository, f" {library}")
    path = os.pathsep.join([str(repository), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "KERAS_BACKEND": "torch", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert ended.returncode == 0, ended.stderr


def test_every_block_belongs_to_a_test(repository: Path) -> None:
    text = (repository / "docs" / "optuna.md").read_text(encoding="utf-8")
    kinds = re.findall(r"^```(\S.*)$", text, flags=re.MULTILINE)
    assert set(kinds) == {"python", *(f"python {name}" for name in ("transformers", "lightning", "keras", "plotly"))}
