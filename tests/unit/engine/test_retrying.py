"""What has failed trains again once its cause is mended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest
import sweeps_here
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from sweeps_here import Killed, config, sweep_here

from hpo.engine.run_folder import RunFolder
from hpo.engine.trouble import SweepError

pytestmark = pytest.mark.usefixtures("quiet_optuna")


def _away(_settings: Any, _session: Any) -> None:
    raise FileNotFoundError("/data/tokens.bin")


def _result(run: Path) -> dict[str, Any]:
    return json.loads((run / "result.json").read_text())


def _last_states(run: Path) -> dict[int, str]:
    """Return the state of each candidate's last trial in the study."""
    storage = JournalStorage(JournalFileBackend(str(run / "study.journal")))
    trials = optuna.load_study(study_name="here", storage=storage).trials
    return {trial.user_attrs["candidate"]: trial.state.name for trial in trials}


@pytest.mark.parametrize("rule", ["select", "prune"])
def test_a_sweep_whose_runs_all_failed_finds_its_winner_after_all(rule: str, tmp_path: Path, monkeypatch: Any) -> None:
    undisturbed = _result(sweep_here(tmp_path / "undisturbed", config(stopping=rule)).path)
    run, train = tmp_path / "run", sweeps_here.train
    monkeypatch.setattr(sweeps_here, "train", _away)
    with pytest.raises(SweepError, match=r"FileNotFoundError: /data/tokens.bin; once that is mended: .* --retry-failed$"):
        sweep_here(run, config(stopping=rule))
    monkeypatch.setattr(sweeps_here, "train", train)
    with pytest.raises(SweepError):
        sweep_here(run)
    sweep_here(run, retry_failed=True)
    assert _result(run)["winner"] == undisturbed["winner"]
    assert [t["state"] for t in _result(run)["trials"]] == [t["state"] for t in undisturbed["trials"]]
    assert sorted(_last_states(run).values()) == sorted(_last_states(tmp_path / "undisturbed").values())
    before = (run / "study.journal").read_bytes()
    sweep_here(run, retry_failed=True)  # with nothing to try again it is any resume
    assert (run / "study.journal").read_bytes() == before


def test_what_went_on_and_failed_goes_on_from_where_it_was_and_what_was_decided_stays(tmp_path: Path, monkeypatch: Any) -> None:
    run, train = tmp_path / "run", sweeps_here.train
    sets: dict[str, Any] = {"stopping": {"at": 0.2, "keep_min": 2}, "checkpoint_every_s": 1e-6}

    def at_the_end(name: str) -> None:
        if (run / "decisions.jsonl").exists():
            monkeypatch.setattr(sweeps_here, "train", _away)

    with pytest.raises(SweepError, match="--retry-failed"):
        sweep_here(run, config(**sets), before=at_the_end)
    decided = (run / "decisions.jsonl").read_text()
    monkeypatch.setattr(sweeps_here, "train", train)
    sweep_here(run, retry_failed=True)
    assert [line for line in (run / "decisions.jsonl").read_text().splitlines() if line not in decided] == []
    states = [trial["state"] for trial in _result(run)["trials"]]
    assert states.count("winner") == 1
    assert states.count("complete") >= 1
    assert "failed" not in states
    assert set(_last_states(run).values()) == {"COMPLETE", "PRUNED"}
    for folder in RunFolder(run).trials.glob("trial-*"):
        steps = [line.split(",")[0] for line in (folder / "log.csv").read_text().splitlines()[1:]]
        assert steps == [str(step) for step in range(1, len(steps) + 1)]


def test_a_driver_killed_while_it_tries_again_is_gone_on_with(tmp_path: Path, monkeypatch: Any) -> None:
    run, train = tmp_path / "run", sweeps_here.train
    monkeypatch.setattr(sweeps_here, "train", _away)
    with pytest.raises(SweepError):
        sweep_here(run, config())
    monkeypatch.setattr(sweeps_here, "train", train)

    def killed(name: str) -> None:
        if name == "trial-05":
            raise Killed

    with pytest.raises(Killed):
        sweep_here(run, retry_failed=True, before=killed)
    sweep_here(run)
    assert _result(run)["winner"] == {"lr": pytest.approx(0.01), "kind": "plain"}
    assert set(_last_states(run).values()) <= {"COMPLETE", "PRUNED"}
