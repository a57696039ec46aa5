"""The commands of our own runs: report without training, say what is missing in one line, go on where they were left."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import own_ladder
from bench.cli import app
from bench.own_runs import OwnRun, collect
from bench.own_sweep import LRS, finished_seeds, sweep_runs
from hpo.adapters.training_session import FolderSession

FEW = {"evaluations": 10, "held_out_sequences": 64}


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, result.stderr


def made_up(runs: list[OwnRun], folder: Path, every: int = 20) -> None:
    """Leave logs in which the loss is lowest at the second rate and falls like a power of t̂, thinner than a real log."""
    for one in runs:
        end = 2.0 * (1e5 / (one.recipe.n_params or 1)) ** 0.1 + 0.02 * math.log(one.lr / LRS[1]) ** 2
        end += 0.01 * math.log((one.tau or 1) / 0.35) ** 2
        with FolderSession(folder / one.run_id, stop_step=one.n_steps) as session:
            for step in [*range(every, one.n_steps, every), one.n_steps]:
                loss = end * (step / one.n_steps) ** -0.08
                session.report(step=step, loss=loss, tokens=step * 512.0, lr=one.lr, val_loss=loss)


@pytest.mark.parametrize("command", ["own-ladder", "own-sweep", "own-transfer"])
def test_a_report_without_curves_is_one_line_and_exits_with_2(command: str, tmp_path: Path) -> None:
    code, out, err = run(command, "--report-only", "--data", str(tmp_path), "--out", str(tmp_path))
    assert (code, out) == (2, "")
    assert err.startswith(f"hpo: {tmp_path}")
    assert err.endswith("no such file; train first (without --report-only)\n")


def test_no_minutes_are_refused(tmp_path: Path) -> None:
    code, _, err = run("own-sweep", "--minutes", "0", "--runs", str(tmp_path), "--data", str(tmp_path), "--out", str(tmp_path))
    assert code == 2
    assert err == "hpo: --minutes must be above 0; found 0.0\n"


def test_the_sweep_is_scored_from_kept_curves(tmp_path: Path) -> None:
    runs = sweep_runs((0,))
    made_up(runs, tmp_path / "runs")
    collect(runs, tmp_path / "runs", tmp_path / "own_sweep.parquet")
    code, out, _ = run("own-sweep", "--report-only", "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--json")
    found = json.loads(out)
    assert code == 0
    assert found["tasks"][0]["n_targets"] == 12
    assert found["tasks"][0]["n_references"] == 10
    assert found["cost"]["target_flops"] >= 10 * found["cost"]["proxy_flops"]
    assert found["summary"]["landscape"]["0.2"]["regret_pct"] == pytest.approx(0.0, abs=1e-6)
    assert found["summary"]["random"]["0.2"]["regret_pct"] > 0.5
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".json", ".md", ".svg"}


def test_only_whole_seeds_count_as_finished(tmp_path: Path) -> None:
    made_up(sweep_runs((1,)), tmp_path)
    made_up(sweep_runs((0,))[:-1], tmp_path)
    assert finished_seeds(tmp_path) == (1,)
    with pytest.raises(ValueError, match="expected at least one seed with all its runs finished"):
        finished_seeds(tmp_path / "nothing")


@pytest.mark.slow
def test_the_ladder_is_trained_kept_and_reported_and_then_found_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = [one for one in own_ladder.ladder_runs() if one.group == "matched" and one.width < 76]
    short = [
        replace(one, tpp=0.4, batch_sequences=8 * one.batch_sequences, model={**one.model, "depth": 1}, training=FEW)
        for one in small
    ]
    monkeypatch.setattr(own_ladder, "ladder_runs", lambda: short)
    folders = ["--runs", str(tmp_path / "runs"), "--data", str(tmp_path), "--out", str(tmp_path / "out")]
    code, out, err = run("own-ladder", *folders)
    assert code == 0
    assert "| neighbours: width 16 and 36 |" in out
    assert "0 of 4 runs are finished" in err
    code, _, err = run("own-ladder", *folders)
    assert code == 0
    assert "4 of 4 runs are finished" in err
