"""A whole sweep of real, tiny models, and what it leaves behind."""

from __future__ import annotations

import json

import numpy as np
import optuna
import pytest
import yaml

from hpo.adapters.curve_files import read_runs
from hpo.adapters.training_session import read_log

KEYS = {
    *("winner", "forecast", "actual_final_loss", "forecast_error_pct", "p_best", "error_spent", "tie_set"),
    *("current_best_pick", "transfer_pick", "flops_spent", "flops_full_sweep", "saved_fraction", "break_even_trials"),
    *("trials", "seconds", "regret_pct"),
}

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def result(finished):
    _, code, out, err = finished
    assert code == 0, err
    return json.loads(out)


def test_the_result_has_its_keys_and_is_the_file(finished, result):
    assert set(result) == KEYS
    assert set(result["forecast"]) == {"final_loss", "lower", "upper", "at_fraction"}
    assert set(result["flops_spent"]) == {"proxies", "candidates", "winner", "total"}
    assert all({"number", "settings", "state", "reason", "forecast"} <= set(trial) for trial in result["trials"])
    assert json.loads((finished[0].run / "result.json").read_text()) == result


def test_one_candidate_won_and_the_others_were_stopped(result):
    states = [trial["state"] for trial in result["trials"]]
    assert len(states) == 6
    assert states.count("winner") == 1
    assert states.count("stopped") == 5


def test_the_winner_is_the_trial_with_the_lowest_forecast(result):
    judged = [trial for trial in result["trials"] if trial["forecast"]["final_loss"] is not None]
    best = max(judged, key=lambda trial: trial["forecast"]["p_best"])
    assert best["settings"] == result["winner"]
    assert result["p_best"] == best["forecast"]["p_best"]


def test_a_verification_gives_every_candidate_its_final_loss(result):
    finals = [trial["actual_final_loss"] for trial in result["trials"]]
    assert all(np.isfinite(finals))
    assert set(result["regret_pct"]) == {"ours", "current_best", "transfer"}
    assert result["regret_pct"]["ours"] == pytest.approx(100 * (result["actual_final_loss"] / min(finals) - 1))


def test_verification_is_not_counted_as_spent(result):
    spent = result["flops_spent"]
    assert spent["total"] == pytest.approx(spent["proxies"] + spent["candidates"] + spent["winner"])
    assert spent["candidates"] == pytest.approx(0.2 * result["flops_full_sweep"], rel=0.02)
    assert spent["winner"] == pytest.approx(0.8 * result["flops_full_sweep"] / 6, rel=0.02)
    assert result["saved_fraction"] == pytest.approx(1 - spent["total"] / result["flops_full_sweep"])


def test_the_run_folder_holds_all_that_is_promised(finished):
    run = finished[0].run
    assert yaml.safe_load((run / "config.yaml").read_text())["name"] == "tiny"
    assert json.loads((run / "model.json").read_text())["schema"] == 1
    assert (run / "logs").is_dir()
    assert len(list((run / "curves").glob("*.parquet"))) == 4 + 6
    decisions = [json.loads(line) for line in (run / "decisions.jsonl").read_text().splitlines()]
    assert [line["trial"] for line in decisions] == [0, 1, 2, 3, 4, 5]
    assert {line["action"] for line in decisions} == {"continue", "stop"}


def test_curves_are_read_back_with_recipe_and_settings(finished, result):
    runs = {run.run_id: run for run in read_runs([finished[0].run / "curves"])}
    proxy = next(run for name, run in runs.items() if name.startswith("proxy"))
    assert proxy.curve().is_complete
    assert set(proxy.settings) == {"lr", "tau"}
    assert proxy.recipe is not None
    assert proxy.recipe.tau == pytest.approx(proxy.settings["tau"])
    stopped = next(t for t in result["trials"] if t["state"] == "stopped")
    assert runs[f"trial-0{stopped['number']}"].curve().fraction_seen == pytest.approx(0.2, abs=0.01)


def test_the_study_says_the_same(finished, result):
    backend = optuna.storages.journal.JournalFileBackend(str(finished[0].run / "study.journal"))
    study = optuna.load_study(study_name="tiny", storage=optuna.storages.JournalStorage(backend))
    states = {"winner": "COMPLETE", "stopped": "PRUNED"}
    assert [t.state.name for t in study.trials] == [states[t["state"]] for t in result["trials"]]
    assert study.best_params == result["winner"]
    assert study.best_value == result["actual_final_loss"]
    for trial, told in zip(study.trials, result["trials"], strict=True):
        assert trial.user_attrs["predicted_final"] == told["forecast"]["final_loss"]
        assert 0 < len(trial.intermediate_values) <= 200
        if told["state"] == "stopped":
            assert trial.user_attrs["reason"] == told["reason"]
            assert trial.user_attrs["stopped_at"] == max(trial.intermediate_values)


def test_no_step_was_trained_twice(finished):
    for log in (finished[0].run / "trials").glob("*/log.csv"):
        steps = read_log(log.parent)["step"]
        assert np.array_equal(steps, np.arange(1, steps.size + 1))


def test_only_the_checkpoints_of_complete_candidates_stay(finished, result):
    winner = next(t["number"] for t in result["trials"] if t["state"] == "winner")
    kept = {path.parent.name for path in (finished[0].run / "trials").glob("*/checkpoint-*")}
    assert kept == {f"trial-0{winner}"}


def test_progress_is_plain_lines_on_stderr_and_ray_is_silent(finished):
    err = finished[3]
    assert "run folder" in err
    assert "left" in err
    assert "\x1b" not in err
    assert "ray" not in err.lower()


def test_resuming_a_finished_sweep_changes_nothing(finished, result):
    hpo = finished[0]
    before = {path: path.read_bytes() for path in hpo.run.rglob("*") if path.is_file() and "logs" not in path.parts}
    code, out, err = hpo("sweep", "--resume", hpo.run, "--json")
    assert code == 0, err
    assert json.loads(out) == result
    after = {path: path.read_bytes() for path in hpo.run.rglob("*") if path.is_file() and "logs" not in path.parts}
    changed = {path.name for path in before if before[path] != after.get(path)} | {p.name for p in after.keys() - before.keys()}
    assert changed <= {".lock"}


def test_fit_and_forecast_take_the_sweeps_own_curves(finished, result):
    hpo = finished[0]
    assert hpo("fit", "run/curves/proxy-*.parquet", "-o", "model.json")[0] == 0
    winner = next(t for t in result["trials"] if t["state"] == "winner")
    curve = f"run/curves/trial-0{winner['number']}.parquet"
    code, out, _ = hpo("forecast", curve, "--model", "model.json", "--at", 0.2, "--json")
    said = json.loads(out)
    assert code == 0
    assert said["status"] == "ok"
    assert said["final_loss"] == pytest.approx(winner["forecast"]["final_loss"], rel=0.05)  # the sweep judges jointly
    assert said["actual"] == pytest.approx(result["actual_final_loss"])
