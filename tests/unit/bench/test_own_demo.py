"""The demo over seeds: judged again from the curves alone, it comes to what the sweeps themselves decided."""

from __future__ import annotations

import json
import shutil
import time

import pytest
import yaml
from sweeps_here import config, sweep_here

from bench import own_demo
from bench.own_demo import RULES, demo_report, demo_table, is_verified, sweep_arguments
from hpo.engine.config import load_config

SPACE = {"parameters": {"lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 7}}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Write a verified sweep as seed 0, one that was not verified as seed 1, and nothing as seed 2."""
    folder = tmp_path_factory.mktemp("demo")
    made = config(search={"space": SPACE}, stopping={"at": 0.2, "keep_max": 2})
    sweep_here(folder / "seed-0", made, verify=True)
    sweep_here(folder / "seed-1", made)
    return folder


@pytest.fixture
def result(runs):
    return json.loads((runs / "seed-0" / "result.json").read_text())


def test_only_what_was_trained_to_the_end_is_reported(runs):
    assert [is_verified(runs / f"seed-{seed}") for seed in range(3)] == [True, False, False]
    report = demo_report(runs, range(3))
    assert [row["seed"] for row in report["seeds"]] == [0]
    assert report["left_out"] == [1, 2]


def test_the_present_model_comes_to_what_the_sweep_decided(runs, result):
    (row,) = demo_report(runs, [0])["seeds"]
    assert row["regret_pct"] == pytest.approx(result["regret_pct"])
    assert row["saved_fraction"] == pytest.approx(result["saved_fraction"])
    assert row["error_pct"] == pytest.approx(result["forecast_error_pct"])
    assert (row["final_loss"], row["forecast"]) == pytest.approx(
        (result["actual_final_loss"], result["forecast"]["final_loss"])
    )
    assert row["n_kept"] == sum(trial["state"] in ("winner", "complete") for trial in result["trials"])
    assert row["is_inside"] == (result["forecast"]["lower"] <= row["final_loss"] <= result["forecast"]["upper"])


def test_judging_again_needs_no_decisions_and_changes_nothing(runs, tmp_path):
    shutil.copytree(runs / "seed-0", tmp_path / "seed-0")
    for name in ("decisions.jsonl", "model.json", "study.journal"):
        (tmp_path / "seed-0" / name).unlink()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    again, first = demo_report(tmp_path, [0]), demo_report(runs, [0])
    assert again == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_candidates_that_stopped_a_step_too_soon_are_judged_at_the_same_step_as_the_others(runs, result, tmp_path):
    shutil.copytree(runs / "seed-0", tmp_path / "seed-0")
    stopped = [trial["number"] for trial in result["trials"] if trial["state"] == "stopped"]
    for number in stopped:
        log = next((tmp_path / "seed-0" / "trials").glob(f"trial-*{number}/log.csv"))
        log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    assert stopped
    assert demo_report(tmp_path, [0]) == demo_report(runs, [0])


def test_the_table_has_a_row_a_seed_and_one_of_means(runs):
    lines = demo_table(demo_report(runs, range(3))).splitlines()
    assert len({line.count("|") for line in lines[:4]}) == 1
    assert all(name in lines[0] for name in RULES.values())
    assert lines[3].startswith("| **all** |")
    assert "Not trained yet: seeds 1, 2" in lines[-1]


def test_without_a_verified_seed_there_is_one_line(hpo, tmp_path):
    code, out, err = hpo("bench", "own-demo", "--report-only", "--runs", tmp_path, "--out", tmp_path)
    assert (code, out) == (2, "")
    assert "expected at least one seed trained and verified; found none" in err


def test_each_seed_changes_weights_data_order_and_draws_of_the_demo(tmp_path):
    demo = tmp_path / "demo.yaml"
    demo.write_text(yaml.safe_dump({**TINY_DEMO}))
    first, *rest = sweep_arguments(demo, tmp_path / "seed-3", 3)
    made = load_config(demo, [rest[i + 1] for i, part in enumerate(rest) if part == "--set"])
    assert first == str(demo)
    assert (made.seed, made.training.seed, made.training.data_seed) == (3, 3, 3)
    (tmp_path / "seed-3").mkdir()
    (tmp_path / "seed-3" / "config.yaml").write_text("")
    assert sweep_arguments(demo, tmp_path / "seed-3", 3) == ["--resume", str(tmp_path / "seed-3")]


def test_a_sweep_is_interrupted_when_the_time_is_up_and_none_is_begun_after(tmp_path, monkeypatch):
    script = tmp_path / "sweep.py"
    script.write_text(
        "import pathlib, signal, sys, time\n"
        "pathlib.Path(sys.argv[1]).touch()\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit(130))\n"
        "pathlib.Path(sys.argv[1] + '-ready').touch()\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setattr(own_demo, "sweep_arguments", lambda _config, run, _seed: [str(run)])
    begun = own_demo.subprocess.Popen

    def instead(command, **how):
        process = begun([command[0], str(script), command[4]], **how)
        while not (tmp_path / "seed-0-ready").exists():
            time.sleep(0.01)
        return process

    monkeypatch.setattr(own_demo.subprocess, "Popen", instead)
    before = time.monotonic()
    own_demo.train_seeds(tmp_path / "demo.yaml", tmp_path, range(2), seconds=0.2)
    assert time.monotonic() - before < 30
    assert (tmp_path / "seed-0").exists()
    assert not (tmp_path / "seed-1").exists()


TINY_DEMO = {
    "model": {"width": 8, "depth": 1, "head_dim": 8},
    "training": {"tpp": 5.0},
    "search": {"space": "lr"},
    "proxies": {"sizes": [{"width": 4, "head_dim": 4}], "settings": 3},
}
