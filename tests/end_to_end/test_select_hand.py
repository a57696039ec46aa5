"""The rule select with people and ties: what is extended is judged again, what is tied is settled by seeds."""

from __future__ import annotations

import json

import pytest

from hpo.adapters.training_session import read_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


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
