"""The rule select with people and ties: what is extended is judged again, what is tied is settled by seeds."""

from __future__ import annotations

import json
import time

import pytest

from hpo.adapters.training_session import read_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_a_tie_is_settled_by_seeds_and_people_extend_and_revive_what_was_stopped(hpo, own_sweep):
    config = own_sweep()  # two of these four rates are equally far from the best, on either side of it
    config["search"] = {"space": {"parameters": {"lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 4}}}}
    code, out, err = hpo("sweep", hpo.write(config), "--out", hpo.run, "--settle", "2", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["tie_set"] == [1, 2]
    settled = result["settled"]
    assert settled["seeds"] == 2
    assert [one["number"] for one in settled["trials"]] == [1, 2]
    assert all(len(one["final_losses"]) == 2 and None not in one["final_losses"] for one in settled["trials"])
    assert settled["winner"] == min(settled["trials"], key=lambda one: one["mean"])["settings"]
    assert [t["state"] for t in result["trials"]].count("winner") == 1

    for wish in (("extend", "0", "--to", "0.4"), ("revive", "3")):
        assert hpo("sweep-control", hpo.run, *wish)[1].endswith("hpo sweep --resume heeds it\n")
    code, out, err = hpo("sweep", "--resume", hpo.run, "--json")
    assert code == 0, err
    trials = json.loads(out)["trials"]
    assert (trials[0]["state"], trials[0]["reason"]) == ("stopped", "not_selected")
    assert read_log(hpo.run / "trials" / "trial-00")["step"].size == 240
    assert trials[3]["state"] == "complete"
    decided = {line["run"]: line for line in map(json.loads, (hpo.run / "decisions.jsonl").read_text().splitlines())}
    assert decided["trial-00"]["numbers"]["fraction"] == pytest.approx(0.4)
    assert decided["trial-01"]["numbers"]["fraction"] == pytest.approx(0.2)
    answers = [json.loads(line) for line in (hpo.run / "answers.jsonl").read_text().splitlines()]
    assert [answer["ok"] for answer in answers] == [True, True]


def test_the_winners_configuration_trains_it_again_as_it_is_and_the_next_one_sweeps_a_larger_size(undisturbed):
    hpo, before = undisturbed
    again, larger = [
        hpo("sweep", hpo.run / f"{name}.yaml", "--out", hpo.folder / name, "--json") for name in ("winner", "next-size")
    ]
    assert (again[0], larger[0]) == (0, 0), again[2] + larger[2]
    again, larger = json.loads(again[1]), json.loads(larger[1])
    assert again["winner"] == before["winner"]
    assert again["actual_final_loss"] == before["actual_final_loss"]
    assert larger["winner"] == before["winner"]
    assert larger["actual_final_loss"] < before["actual_final_loss"]
    assert read_log(hpo.folder / "next-size" / "trials" / "trial-00")["step"].size == 900  # the old winner is the first


def test_one_candidate_is_finished_even_if_the_time_is_up_before_any_began(hpo, own_sweep):
    code, out, err = hpo("sweep", hpo.write(own_sweep() | {"time_budget": 0.5}), "--out", hpo.run, "--json")
    assert code == 0, err
    states = [t["state"] for t in json.loads(out)["trials"]]
    assert sorted(states) == ["not_started"] * (len(states) - 1) + ["winner"]


def test_rungs_look_again_at_the_doubtful_and_a_resume_decides_nothing_twice(hpo, own_sweep):
    config = own_sweep(sleep_s=0.005)
    config["search"] = {"space": {"parameters": {"lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 4}}}}
    config["stopping"] = {"at": 0.1, "rungs": [0.2, 0.4], "keep_max": 1}
    with hpo.start("sweep", hpo.write(config), "--out", hpo.run) as driver:
        while not (hpo.run / "decisions.jsonl").exists():
            assert driver.poll() is None, driver.communicate()[1]
            time.sleep(0.02)
        driver.kill()  # somewhere on the way to the first rung
    first = (hpo.run / "decisions.jsonl").read_text()
    code, out, err = hpo("sweep", "--resume", hpo.run, "--json")
    assert code == 0, err
    result, text = json.loads(out), (hpo.run / "decisions.jsonl").read_text()
    steps = [read_log(hpo.run / "trials" / f"trial-0{i}")["step"].size for i in range(4)]
    assert sorted(steps) == [60, 60, 240, 600]  # the hopeless at the first look, of the tied one at the last
    assert [t["reason"] for t in sorted(result["trials"], key=lambda t: steps[t["number"]])][2:] == ["capped", "selected"]
    assert set(first.splitlines()) <= set(text.splitlines())
    looks = [(line["run"], line["look"]) for line in map(json.loads, text.splitlines())]
    assert sorted(looks) == [("trial-00", 0), *[(f"trial-0{i}", k) for i in (1, 2) for k in range(3)], ("trial-03", 0)]
    assert result["forecast"]["at_fraction"] == pytest.approx(0.4)
    trained = sum(steps) / (4 * 600)
    spent = result["flops_spent"]
    assert (spent["candidates"] + spent["winner"]) / result["flops_full_sweep"] == pytest.approx(trained)
