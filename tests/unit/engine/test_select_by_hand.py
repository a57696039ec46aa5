"""The rule select with people's wishes: whole sweeps in this process, wished at a chosen job."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sweeps_here import config, sweep_here

from hpo.engine.commands_file import CommandsFile
from hpo.engine.settling import _with_winner, is_deaf_to_seeds
from hpo.engine.time_budget import TimeBudget

SPACE = {"parameters": {"lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 4}}}


def swept(folder: Path, wish: tuple[Any, ...] | None = None, at: str = "trial-03", **changes: Any) -> dict[str, Any]:
    """Return the result of a sweep of four rates in ``folder``, or of going on there; ``wish`` is made at a job's turn."""
    asked: list[str] = []

    def before(name: str) -> None:
        if wish is not None and name == at and not asked:
            asked.append(name)
            CommandsFile(folder).ask(*wish)

    how = {key: changes.pop(key) for key in ("settle", "verify") if key in changes}
    settings = None
    if not folder.exists():
        settings = config(search={"space": SPACE}, **{"stopping": {"at": 0.2, "keep_max": 1}, **changes})
        settings["proxies"]["settings"] = 4
    return json.loads(sweep_here(folder, settings, before=before, **how).result.read_text())


def fared(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(trial["state"], trial["reason"]) for trial in result["trials"]]


@pytest.mark.parametrize("stopping", [{"at": 0.2, "keep_max": 1}, {"at": 0.1, "rungs": [0.2, 0.4], "keep_max": 1}])
def test_a_kept_candidate_is_trained_to_its_end_and_said_to_be_kept(tmp_path, stopping, capsys):
    plain = swept(tmp_path / "plain", stopping=stopping)
    assert fared(plain)[0] == ("stopped", "not_selected")
    result = swept(tmp_path / "kept", ("keep", "trial-00"), stopping=stopping)
    assert fared(result)[0] == ("complete", "kept_by_hand")
    assert capsys.readouterr().err.count("trial-00 goes on all the same: kept by hand\n") == 1
    assert result["winner"] == plain["winner"]
    kept = plain["trials"][0]["forecast"]["p_best"]
    assert result["error_spent"] == pytest.approx(plain["error_spent"] - kept)
    lines = [json.loads(line) for line in (tmp_path / "kept" / "decisions.jsonl").read_text().splitlines()]
    assert [(one["action"], one["reason"]) for one in lines if one["run"] == "trial-00"] == [("continue", "kept_by_hand")]


def test_one_that_is_revived_after_the_judgement_is_decided_on_again(tmp_path):
    swept(tmp_path / "run")
    CommandsFile(tmp_path / "run").ask("revive", "trial-00")
    result = swept(tmp_path / "run")
    assert fared(result)[0] == ("complete", "kept_by_hand")
    lines = [json.loads(line) for line in (tmp_path / "run" / "decisions.jsonl").read_text().splitlines()]
    assert [one["reason"] for one in lines if one["run"] == "trial-00"] == ["not_selected", "kept_by_hand"]
    assert fared(swept(tmp_path / "run"))[0] == ("complete", "kept_by_hand")  # a resume decides nothing anew


def test_one_that_was_revived_can_be_stopped_again(tmp_path):
    """Both wishes are made while the winner is finished, one as it begins and one as the revived one does."""
    folder, asked = tmp_path / "run", []

    def before(name: str) -> None:
        if (folder / "decisions.jsonl").exists() and len(asked) < 2:
            wish = ("stop", "trial-00") if asked else ("revive", "trial-00")
            asked.append(CommandsFile(folder).ask(*wish))

    settings = config(search={"space": SPACE}, stopping={"at": 0.2, "keep_max": 1})
    settings["proxies"]["settings"] = 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hpo.engine.hand.LOOK_EVERY_S", 0.0)
        result = json.loads(sweep_here(folder, settings, before=before).result.read_text())
    answers = CommandsFile(folder).answers()
    assert [answers[command.id].ok for command in asked] == [True, True]
    assert fared(result)[0] == ("stopped", "stopped_by_hand")


def test_a_kept_candidate_for_which_there_is_no_time_says_so(tmp_path, capsys, monkeypatch):
    def leaves_time_for(budget: TimeBudget, flops: float) -> bool:
        return not (tmp_path / "run" / "decisions.jsonl").exists()

    monkeypatch.setattr(TimeBudget, "leaves_time_for", leaves_time_for)
    result = swept(tmp_path / "run", ("keep", "trial-00"), time_budget=1000.0)
    assert fared(result)[0] == ("stopped", "time_budget")
    assert [state for state, _ in fared(result)].count("winner") == 1
    assert "trial-00 does not go on, although it was wished: there is no time left" in capsys.readouterr().err


def test_a_tie_is_settled_and_no_training_is_done_twice(tmp_path):
    """The one that was capped goes on from its checkpoint."""
    result = swept(tmp_path / "run", ("keep", "trial-00"), settle=2)
    assert result["tie_set"] == [1, 2]
    settled = {one["number"]: one["final_losses"] for one in result["settled"]["trials"]}
    assert sorted(settled) == [1, 2]
    copy = tmp_path / "run" / "trials" / "seed-0-trial-02" / "log.csv"
    stopped = (tmp_path / "run" / "trials" / "trial-02" / "log.csv").read_text()
    assert copy.read_text().startswith(stopped)
    best = min(result["settled"]["trials"], key=lambda one: one["mean"])
    assert f"mean final loss {best['mean']:.4f} over 2 seeds" in (tmp_path / "run" / "winner.yaml").read_text()
    again = swept(tmp_path / "run", settle=3)
    assert [one["final_losses"][:2] for one in again["settled"]["trials"]] == list(settled.values())


def test_what_is_wished_while_a_tie_is_settled_waits_for_the_next_driver(tmp_path):
    """Nothing that was decided is trained on there, so no answer may say that it is."""
    result = swept(tmp_path / "run", ("revive", "trial-00"), at="seed-1-trial-02", settle=2)
    assert CommandsFile(tmp_path / "run").answers() == {}
    assert fared(result)[0] == ("stopped", "not_selected")
    assert fared(swept(tmp_path / "run"))[0] == ("complete", "kept_by_hand")


def test_a_winner_that_was_not_tied_is_settled_beside_those_that_were():
    plan = SimpleNamespace(candidates=[SimpleNamespace(name=name) for name in "abcd"])
    runs = SimpleNamespace(final_losses=lambda _runs: {"a": 2.0, "c": 2.1})
    context = SimpleNamespace(plan=plan, runs=runs)
    assert [run.name for run in _with_winner(context, plan.candidates[2:])] == ["a", "c", "d"]


def test_seeds_that_end_at_one_loss_were_not_heard():
    assert is_deaf_to_seeds([2.5, 2.5, None])
    assert not is_deaf_to_seeds([2.5, 2.5000001])
    assert not is_deaf_to_seeds([2.5, None])
