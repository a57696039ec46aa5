"""The examples of docs/examples, as they stand there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpo.adapters.training_session import read_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def examples(repository: Path, tmp_path: Path) -> Path:
    """A copy of the folder: the examples are run from there."""
    return Path(shutil.copytree(repository / "docs" / "examples", tmp_path / "examples"))


def _run(folder: Path, repository: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _is_sound(result: dict[str, Any]) -> None:
    assert [t["state"] for t in result["trials"]].count("winner") == 1
    assert all(t["forecast"]["status"] == "ok" for t in result["trials"])
    worst = max(result["trials"], key=lambda t: t["forecast"]["final_loss"])
    assert worst["settings"]["lr"] == min(t["settings"]["lr"] for t in result["trials"])  # too small to get anywhere
    assert abs(result["forecast_error_pct"]) < 20


def test_digits_from_python(repository, examples):
    """As a script, so that its function exists in ``__main__`` only and is sent to the workers."""
    out = _run(examples, repository, "digits.py")
    result = json.loads((examples / "digits-run" / "result.json").read_text())
    assert out == f"{result['winner']} {result['actual_final_loss']}\n"
    _is_sound(result)


@pytest.mark.parametrize(("name", "at"), [("digits", 60), ("huggingface", 66)])
def test_by_the_command_and_on_from_the_checkpoint(repository, examples, name, at):
    pytest.importorskip("transformers" if name == "huggingface" else "sklearn")
    result = json.loads(_run(examples, repository, "-m", "hpo", "sweep", f"{name}.yaml", "--out", "run", "--json"))
    _is_sound(result)
    winner = next(t["number"] for t in result["trials"] if t["state"] == "winner")
    log = read_log(examples / "run" / "trials" / f"trial-0{winner}")
    assert log["step"].tolist() == list(range(1, log["step"].size + 1))
    before, after = log["loss"][at - 8 : at].mean(), log["loss"][at : at + 8].mean()
    assert after == pytest.approx(before, rel=0.25)  # a run that began anew there would be far above
