"""The rule prune: candidates judged as they go, by forecasts and by people."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from hpo.adapters.training_session import read_log
from hpo.engine.worker import read_outcome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def pruned(own_sweep) -> Callable[..., dict[str, Any]]:
    """Return a maker of pruned sweeps over nine learning rates, two at a time."""

    def make(**target: Any) -> dict[str, Any]:
        config = own_sweep(**target)
        config["search"] = {
            "space": {"parameters": {"lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 9}}}
        }
        return {**config, "stopping": "prune", "resources": {"max_concurrent": 2}}

    return make


def _wait(what: Callable[[], bool], driver: subprocess.Popen[str] | None = None, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come"
        assert driver is None or driver.poll() is None, driver.communicate()[1]
        time.sleep(0.05)


def _steps(run: Path, name: str) -> int:
    return int(read_log(run / "trials" / name)["step"].size)


def _events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def _study(run: Path) -> optuna.Study:
    backend = optuna.storages.journal.JournalFileBackend(str(run / "study.journal"))
    return optuna.load_study(study_name="own", storage=optuna.storages.JournalStorage(backend))


def test_what_cannot_win_is_stopped_on_its_way_and_the_best_is_found(hpo, pruned):
    faulty = pruned(sleep_s=0.002, trouble="jump", trouble_lr=0.01)  # from 60 % of its training on the winner has a fault
    code, out, err = hpo("sweep", hpo.write({**faulty, "price_per_hour": 36.0}), "--out", hpo.run, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["winner"]["lr"] == pytest.approx(0.01)
    stopped = [t for t in result["trials"] if t["state"] == "stopped"]
    assert len(stopped) >= 5
    assert {t["reason"] for t in stopped} == {"cannot_win"}
    assert result["error_spent"] <= 0.05
    assert result["price"] == pytest.approx(result["seconds"] / 100, abs=0.01)
    steps = {f"trial-0{t['number']}": _steps(hpo.run, f"trial-0{t['number']}") for t in stopped}
    assert all(120 <= n < 600 for n in steps.values())
    assert sum(n <= 140 for n in steps.values()) >= 4  # most of them as soon as they may be judged
    told = {t.user_attrs["candidate"]: t for t in _study(hpo.run).trials}
    (suspect,) = [t for t in result["trials"] if t["suspect"]]
    assert (suspect["state"], suspect["suspect"]["kind"]) == ("winner", "step")
    assert suspect["suspect"]["onset"] == pytest.approx(0.6, abs=0.02)
    assert told[suspect["number"]].user_attrs["suspect_kind"] == "step"
    assert f"trial-0{suspect['number']} is suspect: it left the proxies' curve from 60%" in err
    assert f"Trial {suspect['number']} is suspect" in (hpo.run / "report.html").read_text()
    watched = json.loads(hpo("watch", hpo.run, "--once", "--json")[1])
    assert [run["number"] for run in watched["runs"] if run["suspect"]] == [suspect["number"]]
    for t in stopped:
        trial = told[t["number"]]
        assert trial.state.name == "PRUNED"
        assert trial.user_attrs["stopped_at"] == steps[f"trial-0{t['number']}"]
        assert trial.user_attrs["predicted_final"] == t["forecast"]["final_loss"]
    before = {p: p.read_bytes() for p in hpo.run.rglob("*") if p.is_file() and "logs" not in p.parts and p.name != ".lock"}
    assert hpo("sweep", "--resume", hpo.run, "--json")[1] == out
    assert {p: p.read_bytes() for p in before} == before


def test_if_the_one_that_nobody_could_beat_fails_another_goes_on(hpo, pruned):
    config = pruned(late_sleep_s=0.015, trouble="error", trouble_lr=0.01, trouble_from=4000, trouble_at=0.6)
    config["search"]["space"]["parameters"]["lr"] |= {"low": 1e-2, "points": 2}
    config["proxies"] |= {"settings": 2}
    code, out, err = hpo("sweep", hpo.write(config), "--out", hpo.run, "--json")
    assert code == 0, err
    assert {round(t["settings"]["lr"], 3): t["state"] for t in json.loads(out)["trials"]} == {0.01: "failed", 0.1: "winner"}
    assert "goes on after all: none of those that it could not beat came to its end" in err
    (winner,) = [t for t in json.loads(out)["trials"] if t["state"] == "winner"]
    assert np.array_equal(read_log(hpo.run / "trials" / f"trial-0{winner['number']}")["step"], np.arange(1, 601))
    assert json.loads(hpo("sweep", "--resume", hpo.run, "--json")[1]) == json.loads(out)


def test_a_killed_driver_comes_to_the_same_decisions_from_the_same_events(hpo, pruned):
    hurry = hpo.folder / "hurry"
    config = hpo.write(pruned(sleep_s=0.01, hurry=str(hurry)))
    with hpo.start("sweep", config, "--out", hpo.run) as driver:
        _wait(
            lambda: (hpo.run / "events.jsonl").exists() and '"how": "stopped"' in (hpo.run / "events.jsonl").read_text(), driver
        )
        driver.send_signal(signal.SIGKILL)
    hurry.touch()
    before = _events(hpo.run)
    code, out, err = hpo("sweep", "--resume", hpo.run, "--json")
    assert code == 0, err
    assert json.loads(out)["winner"]["lr"] == pytest.approx(0.01)
    assert _events(hpo.run)[: len(before)] == before
    reports = [(e["id"], e["step"]) for e in _events(hpo.run) if e["event"] == "report"]
    assert len(reports) == len(set(reports))
    logs = [read_log(log.parent)["step"] for log in (hpo.run / "trials").glob("*/log.csv")]
    assert all(np.array_equal(steps, np.arange(1, steps.size + 1)) for steps in logs)
    assert _decided_again(hpo.run) == _decided(_events(hpo.run))


def test_people_keep_stop_revive_and_extend_candidates_of_a_running_sweep(hpo, pruned):
    config = hpo.write({**pruned(sleep_s=0.03), "proxies": {"sizes": [{"n_params": 1000, "n_steps": 60}], "settings": 3}})
    folder = hpo.run / "trials"
    with hpo.start("sweep", config, "--out", hpo.run, "--json") as driver:
        _wait(lambda: (folder / "trial-08").exists(), driver)
        assert hpo("sweep-control", hpo.run, "keep", "trial-08")[0] == 0
        running = _first_two_running(folder, driver)
        code, out, _ = hpo("sweep-control", hpo.run, "stop", running[0])
        assert (code, out) == (0, f"{running[0]} stops at its next report\n")
        _wait(lambda: (read_outcome(folder / running[0]) or None) is not None, driver)
        ended = read_outcome(folder / running[0])
        assert (ended.status, ended.message) == ("stopped", "stopped_by_hand")
        code, out, _ = hpo("sweep-control", hpo.run, "stop", running[0], "--json")
        assert (code, json.loads(out)["ok"]) == (1, False)
        code, out, _ = hpo("sweep-control", hpo.run, "revive", running[0])
        assert (code, out) == (0, f"{running[0]} goes on from checkpoint at step {ended.step} to its end\n")
        assert hpo("sweep-control", hpo.run, "extend", "7", "--to", "0.5")[0] == 0
        code, out, err = hpo("sweep-control", hpo.run, "keep", "trial-77")
        assert (code, out) == (2, "")
        assert "TRIAL: expected one of trial-00 to trial-08" in err
        out, err = driver.communicate()
    assert driver.returncode == 0, err
    trials = {f"trial-0{t['number']}": t for t in json.loads(out)["trials"]}
    assert trials["trial-08"]["state"] == "complete"
    assert "trial-08: stops" not in err  # it goes on, against its forecast
    assert trials[running[0]]["state"] in ("complete", "winner")
    assert np.array_equal(read_log(folder / running[0])["step"], np.arange(1, 601))
    assert trials["trial-07"]["state"] == "stopped"
    assert 300 <= _steps(hpo.run, "trial-07") < 330
    assert json.loads(out)["winner"]["lr"] == pytest.approx(0.01)
    assert hpo("sweep-control", hpo.run, "revive", "1")[1].endswith(
        "no driver works on this sweep: hpo sweep --resume heeds it\n"
    )


def test_when_the_time_is_up_nothing_begins_and_the_best_so_far_has_won(hpo, pruned):
    config = {**pruned(sleep_s=0.01), "time_budget": "8s"}
    code, out, err = hpo("sweep", hpo.write(config), "--out", hpo.run, "--json")
    assert code == 0, err
    result = json.loads(out)
    states = [t["state"] for t in result["trials"]]
    assert "not_started" in states
    assert {t["reason"] for t in result["trials"] if t["state"] == "not_started"} == {"time_budget"}
    assert states.count("winner") == 1
    assert states.count("complete") <= 1  # two at a time: the other may have ended with the first
    told = {t.user_attrs["candidate"]: t.state.name for t in _study(hpo.run).trials}
    assert [told[i] == "FAIL" for i, s in enumerate(states)] == [s == "not_started" for s in states]


def _first_two_running(folder: Path, driver: subprocess.Popen[str]) -> list[str]:
    def running() -> list[str]:
        logs = [log for log in folder.glob("trial-*/log.csv") if log.stat().st_size > 2000]
        return [log.parent.name for log in logs if read_outcome(log.parent) is None and log.parent.name < "trial-07"]

    _wait(lambda: len(running()) > 0, driver)
    return running()


def _decided(events: list[dict[str, Any]]) -> list[tuple[str, str, Any]]:
    return [(e["id"], e["reason"], e["step"]) for e in events if e["event"] == "decision"]


def _decided_again(run: Path) -> list[tuple[str, str, Any]]:
    """Feed a fresh judge everything that was added, reported and ended, and return what it decides."""
    from types import SimpleNamespace

    from hpo.adapters.ray_scheduler import CollapseScheduler

    log = run / "again.jsonl"
    events = _events(run)
    about = {e["id"]: e["about"] for e in events if e["event"] == "add"}
    from hpo.core.recipe import recipe_from_dict

    fresh = CollapseScheduler(
        run / "model.json",
        metric="loss",
        mode="min",
        total=600,
        min_fraction=0.2,
        recipe=lambda config: recipe_from_dict(about[config["id"]]["recipe"]),
        family=lambda config: about[config["id"]]["family"],
        log=log,
    )
    controller = SimpleNamespace(search_alg=None)
    for e in events:
        searched = about.get(e.get("id"), {}).get("searched")
        trial = SimpleNamespace(trial_id=e.get("id"), config={"id": e.get("id")}, evaluated_params=searched)
        if e["event"] == "add":
            fresh.on_trial_add(controller, trial)
        elif e["event"] == "report":
            result = {"training_iteration": e["step"], "loss": e["value"]}
            fresh.learn(controller, trial, [result]) if e.get("learned") else fresh.on_trial_result(controller, trial, result)
        elif e["event"] == "end" and e["how"] != "failed":
            fresh.on_trial_complete(controller, trial, {})
    return _decided([json.loads(line) for line in log.read_text().splitlines()])
