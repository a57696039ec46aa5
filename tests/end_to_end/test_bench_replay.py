"""``hpo bench replay`` on a folder and a protocol that it has never seen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from recorded import protocol_text, sweep_frame, write
from typer.testing import CliRunner, Result

from bench.cli import app
from bench.protocol import built_in_names, load_protocol
from bench.records import load_records
from bench.replay import replay
from bench.tasks import make_tasks

KEYS = {"hit", "regret_pct", "rho", "mae_pct", "coverage90", "tokens", "crps", "decided", "tokens_targets", "tokens_all"}
METHODS = {"random", "current_best", "transfer", "power_law", "multi_power_law", "surrogate", "shape", "landscape", "hpo"}


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["replay", *arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "curves", sweep_frame())


@pytest.fixture
def protocol(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(protocol_text())
    return path


def test_json_has_the_published_layout_and_nothing_else_is_on_stdout(folder, protocol):
    found = invoke("--curves", str(folder), "--protocol", str(protocol), "--json")
    assert found.exit_code == 0
    result = json.loads(found.stdout)
    assert result["protocol"]["name"] == "made-up"
    (task,) = result["tasks"]
    assert (task["key"], task["n_targets"], task["n_references"]) == ("all", 4, 4)
    assert {"shared_prefix", "leaks"} <= task.keys()
    assert task["results"].keys() >= METHODS
    for method in METHODS:
        for stop in ("0.2", "0.5"):
            assert task["results"][method][stop].keys() >= KEYS | {"break_even_trials"}
            assert result["summary"][method][stop].keys() >= KEYS | {"regret_pct_se", "n_tasks"}
    assert task["results"]["hpo"] == task["results"]["landscape"]


def test_a_sweep_made_to_mislead_the_current_best_is_won_by_the_forecast(folder, protocol):
    result = replay(folder, load_protocol(protocol))
    at = {name: by_stop["0.2"] for name, by_stop in result["summary"].items()}
    assert at["current_best"]["hit"] == 0
    assert at["hpo"]["hit"] == 1
    assert at["transfer"]["hit"] == 1
    assert at["hpo"]["mae_pct"] < min(at["transfer"]["mae_pct"], at["current_best"]["mae_pct"])
    assert at["random"]["hit"] == pytest.approx(1 / 4)


def test_cost_is_counted_with_and_without_references(folder, protocol):
    (task,) = replay(folder, load_protocol(protocol), ["current_best", "transfer", "shape"])["tasks"]
    at = {name: by_stop["0.2"] for name, by_stop in task["results"].items()}
    whole = 2000 * 100.0
    assert at["current_best"]["tokens"] == pytest.approx(4 * 0.2 * whole + 0.8 * whole)
    assert at["current_best"]["tokens_all"] == at["current_best"]["tokens"]
    assert at["transfer"]["tokens"] == pytest.approx(whole)
    assert at["shape"]["tokens_all"] - at["shape"]["tokens"] == pytest.approx(4 * 1000 * 100)
    assert at["shape"]["break_even_trials"] == pytest.approx(1 + 4 * 1000 / (0.8 * 2000))


def test_the_same_again_gives_the_same_bytes_whatever_the_order_of_rows(tmp_path, folder, protocol):
    once = json.dumps(replay(folder, load_protocol(protocol)))
    shuffled = write(tmp_path / "other", sweep_frame().sample(frac=1, random_state=1))
    assert json.dumps(replay(shuffled, load_protocol(protocol))) == once
    assert json.dumps(replay(folder, load_protocol(protocol))) == once


def test_points_past_the_stop_change_no_score_but_the_truth(tmp_path, protocol):
    """Replace the future of every target by garbage: what the methods say at 20 % must not move."""
    frame = sweep_frame()
    late = (frame.total_steps == 2000) & (frame.step > 400) & (frame.step < 2000)
    garbled = frame.copy()
    garbled.loc[late, "val_loss"] = 7.0
    folders = [write(tmp_path / name, one) for name, one in (("a", frame), ("b", garbled))]
    made = [replay(one, load_protocol(protocol)) for one in folders]
    for name in METHODS:
        a, b = (result["tasks"][0]["results"][name]["0.2"] for result in made)
        np.testing.assert_equal(a, b)


def test_without_references_forecasters_abstain_and_the_ranking_is_the_current_value(tmp_path, folder):
    path = tmp_path / "none.yaml"
    path.write_text(protocol_text(references={"total_steps": 7}))
    (task,) = replay(folder, load_protocol(path))["tasks"]
    at = {name: by_stop["0.2"] for name, by_stop in task["results"].items()}
    for name in ("hpo", "surrogate", "multi_power_law_aligned"):
        assert at[name]["decided"] == 0
        assert at[name]["regret_pct"] == at["current_best"]["regret_pct"]
    assert at["transfer"]["regret_pct"] == at["random"]["regret_pct"]


def test_one_target_is_a_forecasting_task_without_selection_scores(tmp_path, folder):
    path = tmp_path / "one.yaml"
    path.write_text(protocol_text(targets={"total_steps": 2000, "lr": 1e-3}, min_targets=1))
    (task,) = replay(folder, load_protocol(path))["tasks"]
    assert task["results"]["hpo"]["0.2"]["hit"] is None
    assert task["results"]["hpo"]["0.2"]["mae_pct"] is not None


def test_a_diverging_sweep_gives_finite_json(tmp_path, protocol):
    frame = sweep_frame()
    frame.loc[(frame.run_id == "T2000-lr0.002") & (frame.step > 300), "val_loss"] = np.nan
    frame.loc[(frame.run_id == "T2000-lr0.0005") & (frame.step > 1500), "val_loss"] = np.inf
    found = invoke("--curves", str(write(tmp_path / "c", frame)), "--protocol", str(protocol), "--json")
    assert found.exit_code == 0
    assert json.loads(found.stdout)["tasks"][0]["n_diverged"] == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--protocol", "nowhere"], "no such file, nor one of the built-in"),
        (["--methods", "oracle"], "methods must be among"),
        (["--curves", "/nowhere"], "no such folder"),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_2(folder, protocol, arguments, message):
    given = {"--curves": str(folder), "--protocol": str(protocol)}
    given[arguments[0]] = arguments[1]
    found = invoke(*[part for pair in given.items() for part in pair])
    assert found.exit_code == 2
    assert message in found.stderr
    assert found.stderr.count("\n") == 1
    assert found.stdout == ""


def test_the_figure_is_a_complete_svg(folder, protocol, tmp_path):
    figure = tmp_path / "f.svg"
    found = invoke("--curves", str(folder), "--protocol", str(protocol), "--figure", str(figure), "--methods", "hpo,transfer")
    assert found.exit_code == 0
    assert "| 0.2 | hpo |" in found.stdout
    text = figure.read_text()
    assert text.startswith("<svg")
    assert text.count("<polyline") == 6


def test_every_built_in_protocol_finds_tasks_in_the_recorded_curves(curves_folder):
    for name in built_in_names():
        protocol = load_protocol(name)
        if protocol.metric == "train_loss" and name.replace("train", "val") in built_in_names():
            continue  # the same filters
        tasks, _ = make_tasks(protocol, load_records(curves_folder, protocol))
        assert tasks, name
        assert all(task.references for task in tasks), name


def test_recorded_lr_sweeps_replay(curves_folder):
    result = replay(curves_folder, load_protocol("schaipp_25k_val"), ["random", "current_best", "transfer", "hpo"])
    at = {name: by_stop["0.5"] for name, by_stop in result["summary"].items()}
    assert at["transfer"]["regret_pct"] < at["current_best"]["regret_pct"] < at["random"]["regret_pct"]
    assert result["summary_with_leaks"]["hpo"]["0.1"]["n_tasks"] + result["summary_without_leaks"]["hpo"]["0.1"]["n_tasks"] == 9


def test_the_asynchronous_protocol_compares_stopping_rules(folder, protocol):
    arguments = ["--curves", str(folder), "--protocol", str(protocol), "--asynchronous", "--seeds", "2", "--looks", "10"]
    found = invoke(*arguments, "--json", "--methods", "everything,optuna_median,prune,select")
    assert found.exit_code == 0
    result = json.loads(found.stdout)
    assert result["asynchronous"] == {"n_workers": 4, "n_seeds": 2, "n_looks": 10, "stop": 0.2}
    assert result["summary"].keys() == {"everything", "optuna_median", "prune", "select"}
    assert "| select |" in invoke(*arguments, "--methods", "select").stdout
