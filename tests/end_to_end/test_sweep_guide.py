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


def test_the_guide_names_every_key_of_the_configuration(repository: Path) -> None:
    from hpo.engine.config import SweepConfig

    guide = (repository / "docs" / "sweep.md").read_text(encoding="utf-8")
    names = set(re.findall(r"[a-z_0-9]+", guide))
    schema = SweepConfig.model_json_schema()
    keys = {key for block in (schema, *schema["$defs"].values()) for key in block.get("properties", {})}
    assert keys - names - {"family", "rule"} == set()
