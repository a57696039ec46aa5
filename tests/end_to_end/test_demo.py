"""The demo as a stranger runs it: `make sweep` in the checkout, with its result read from the run folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run the recipe's command on the demo; the environment it would set up is the one these tests run in."""
    root, folder = Path(__file__).resolve().parents[2], tmp_path_factory.mktemp("demo") / "run with a space"
    recipe = subprocess.run(["make", "--dry-run", "sweep"], cwd=root, capture_output=True, text=True, check=True).stdout
    assert "hpo sweep bench/demo.yaml" in recipe
    hpo = shutil.which("hpo", path=str(Path(sys.executable).parent)) or "hpo"
    command = [hpo, "sweep", "bench/demo.yaml", "--out", str(folder)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, env={**os.environ, "CI": "true"})
    assert done.returncode == 0, done.stderr[-2000:]
    return folder, done.stdout


def test_the_demo_saves_more_than_half_of_the_full_sweep_proxies_counted(run):
    result = json.loads((run[0] / "result.json").read_text())
    spent = result["flops_spent"]
    assert spent["total"] == pytest.approx(spent["proxies"] + spent["candidates"] + spent["winner"])
    assert result["saved_fraction"] == pytest.approx(1 - spent["total"] / result["flops_full_sweep"])
    assert result["saved_fraction"] >= 0.5


def test_the_demo_finishes_one_of_its_candidates_and_forecasts_all(run):
    result = json.loads((run[0] / "result.json").read_text())
    assert len(result["trials"]) >= 9
    assert [t["state"] for t in result["trials"]].count("winner") == 1
    assert all(t["forecast"]["final_loss"] is not None for t in result["trials"])
    assert result["forecast"]["at_fraction"] == pytest.approx(0.2, abs=0.001)  # the evaluation nearest to a fifth of training


def test_the_demo_says_how_far_off_its_forecast_was(run):
    result = json.loads((run[0] / "result.json").read_text())
    error = 100 * (result["forecast"]["final_loss"] / result["actual_final_loss"] - 1)
    assert result["forecast_error_pct"] == pytest.approx(error)
    assert f"{result['actual_final_loss']:.4f}" in run[1]
