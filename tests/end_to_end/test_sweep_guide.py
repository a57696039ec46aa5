"""The guide's own training function and configuration, as they stand in docs/sweep.md."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(120)
def test_the_guides_training_function_runs_as_it_stands(repository: Path, tmp_path: Path) -> None:
    guide = (repository / "docs" / "sweep.md").read_text(encoding="utf-8")
    for language, name in (("python", "mine.py"), ("yaml", "mine.yaml")):
        block = re.search(rf"```{language}\n# {re.escape(name)}\n(.*?)```", guide, flags=re.DOTALL)
        assert block is not None
        (tmp_path / name).write_text(block[1], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "hpo", "sweep", "mine.yaml", "--out", "run", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(repository)},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert abs(result["forecast_error_pct"]) < 5
    assert [t["state"] for t in result["trials"]].count("winner") == 1


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_guides_python_example_runs_as_it_stands(repository: Path, tmp_path: Path) -> None:
    """As a script, so that its function exists in ``__main__`` only and is sent to the workers."""
    guide = (repository / "docs" / "sweep.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n# digits.py\n(.*?)```", guide, flags=re.DOTALL)
    assert block is not None
    (tmp_path / "digits.py").write_text(block[1], encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(repository), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "digits.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "digits-run" / "result.json").read_text())
    assert done.stdout == f"{result['winner']} {result['actual_final_loss']}\n"
    assert [t["state"] for t in result["trials"]].count("winner") == 1
    assert all(t["forecast"]["status"] == "ok" for t in result["trials"])
    worst = max(result["trials"], key=lambda t: t["forecast"]["final_loss"])
    assert worst["settings"]["lr"] < 3e-3  # too small to get anywhere in so few steps


def test_the_guide_names_every_key_of_the_configuration(repository: Path) -> None:
    from hpo.engine.config import SweepConfig

    guide = (repository / "docs" / "sweep.md").read_text(encoding="utf-8")
    names = set(re.findall(r"[a-z_0-9]+", guide))
    schema = SweepConfig.model_json_schema()
    keys = {key for block in (schema, *schema["$defs"].values()) for key in block.get("properties", {})}
    assert keys - names - {"family", "rule"} == set()
