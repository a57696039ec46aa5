"""A sweep that judges by a held-out loss reported beside the training loss."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sweeps_here import config, sweep_here

from hpo.adapters.curve_files import read_runs
from hpo.adapters.training_session import read_log
from hpo.engine.config import InputError, load_config, parse_config
from hpo.engine.context import SweepError
from hpo.engine.run_folder import RunFolder

SPACE = {"parameters": {"lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 5}}}


def settings(val_every: int | None = 2, **changes: Any) -> dict[str, Any]:
    made = config(search={"space": SPACE}, metric="val_loss", stopping={"at": 0.2, "keep_max": 1})
    target, proxies = {**made["target"], "val_every": val_every}, {**made["proxies"], "settings": 5}
    return {**made, "target": target, "proxies": proxies, **changes}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunFolder:
    return sweep_here(tmp_path_factory.mktemp("metric") / "run", settings(), verify=True)


@pytest.fixture
def result(run):
    return json.loads(run.result.read_text())


def test_final_losses_are_the_last_held_out_ones(run, result):
    for trial in result["trials"]:
        if trial["state"] != "diverged":
            name = f"trial-{trial['number']:02d}"
            log = read_log(run.trial(name if trial["state"] == "winner" else f"verify-{name}"))
            assert trial["actual_final_loss"] == log["val_loss"][-1] == pytest.approx(log["loss"][-1] + 1.0)


def test_forecasts_and_the_loss_so_far_are_of_the_held_out_loss(run, result):
    for trial in result["trials"]:
        if trial["state"] != "diverged":
            assert trial["forecast"]["final_loss"] == pytest.approx(trial["actual_final_loss"], rel=0.02)
            log = read_log(run.trial(f"trial-{trial['number']:02d}"))
            assert trial["loss_at_stop"] == log["val_loss"][log["step"] == 20][0]


def test_the_curves_hold_the_steps_that_have_it_under_its_name(run):
    runs = read_runs([run.curves])
    assert {one.metric.name for one in runs} == {"val_loss"}
    assert {one.metric.end for one in runs} == {"last"}
    whole = next(one for one in runs if one.run_id == "proxy-0-00")
    assert whole.steps.tolist() == list(range(2, 61, 2))


def test_a_candidate_that_diverges_between_two_evaluations_is_still_seen(result):
    diverged = [trial for trial in result["trials"] if trial["settings"]["lr"] > 0.09]
    assert [trial["state"] for trial in diverged] == ["diverged"]
    assert diverged[0]["forecast"]["final_loss"] is None


def test_a_function_that_does_not_report_it_is_told_in_one_line(tmp_path):
    with pytest.raises(SweepError, match="no run has reported val_loss"):
        sweep_here(tmp_path / "run", settings(val_every=None))


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("tokens", "expected loss, or the name of another loss"),
        ("two words", "expected loss, or"),
        ("accuracy", "loss or val_loss"),
    ],
)
def test_other_metrics_are_refused(tiny, metric, said):
    with pytest.raises(InputError, match=f"metric: .*{said}"):
        parse_config({**tiny, "metric": metric})


def test_the_rule_that_judges_reports_takes_the_loss_only():
    with pytest.raises(InputError, match="metric: expected loss with rule prune"):
        parse_config(settings(stopping="prune"))


def test_too_few_evaluations_before_the_stop_are_refused(tiny):
    tiny["metric"] = "val_loss"
    with pytest.raises(InputError, match=r"training\.evaluations: expected at least 20 .* \(0\.2\); found 1"):
        parse_config(tiny)
    tiny["training"] |= {"evaluations": 20, "held_out_sequences": 64}
    assert parse_config(tiny).training.held_out_sequences == 64


def test_the_metric_is_kept_in_the_run_folder(run):
    assert load_config(run.config).metric == "val_loss"
