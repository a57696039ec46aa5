"""The live race: peers train the same candidates, and what finishes when is counted from their own notes."""

from __future__ import annotations

import json

import pytest
from sweeps_here import config, sweep_here

pytest.importorskip("torch")
pytest.importorskip("optuna")

from bench.live_race import Candidate, PeerSession, _study, run_peer, work
from bench.live_race_report import EVENTS, live_race_table, race_of_seed, read_events
from bench.own_demo import finals_of
from hpo.engine.plan import plan_sweep
from hpo.engine.run_folder import RunFolder
from hpo.engine.runs_on_disk import RunsOnDisk

N_STEPS = 30
SPACE = {"parameters": {"lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 7}}}


@pytest.fixture(scope="module")
def verified_sweep(tmp_path_factory):
    """Return the folder of a sweep whose candidates were all trained, and their final losses by number."""
    folder = tmp_path_factory.mktemp("race") / "seed-0"
    made = config(search={"space": SPACE}, stopping={"at": 0.2, "keep_max": 2}, metric="val_loss")
    sweep_here(folder, {**made, "target": {**made["target"], "val_every": 2, "nan_above": 1.0}}, verify=True)
    plan = plan_sweep(RunFolder(folder).read_config())
    finals = finals_of(plan, RunsOnDisk(plan, RunFolder(folder)))
    return folder, {number: finals[run.name] for number, run in enumerate(plan.candidates) if run.name in finals}


def candidate(number, lr):
    settings = {
        "model": {"width": 8, "depth": 1, "head_dim": 4},
        "data": {"seq_len": 4},
        "training": {"lr": lr, "n_steps": N_STEPS, "batch_sequences": 2, "evaluations": 5, "held_out_sequences": 8},
    }
    return Candidate(number, settings, N_STEPS)


def write_events(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [dict(zip(("candidate", "tokens", "ends", "val_loss", "at_s"), row, strict=True)) for row in rows]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_peers_study_trains_every_candidate_and_what_ends_has_its_loss(tmp_path):
    candidates = [candidate(0, 0.01), candidate(1, 0.03)]
    study = _study("optuna_median", tmp_path)
    for one in candidates:
        study.enqueue_trial({"candidate": one.number})
    work("optuna_median", candidates, tmp_path)
    finished, spent, seconds = read_events(tmp_path / EVENTS, whole=2.0 * N_STEPS * 8)
    assert (len(finished), spent) == (2, pytest.approx(1.0))
    assert seconds > 0
    assert sorted(one.loss for one in finished) == pytest.approx(sorted(trial.value for trial in study.trials))


def test_a_run_stops_when_its_peer_says_so_but_not_at_its_last_step(tmp_path):
    told = []

    def tell(percent, value):
        told.append(percent)
        return percent >= 40

    session = PeerSession(candidate(0, 0.01), tmp_path / EVENTS, tell)
    session.report(step=6, loss=3.0, tokens=48.0, val_loss=3.1)
    session.report(step=7, loss=3.0, tokens=56.0)
    assert (told, session.should_stop()) == ([20], False)
    session.report(step=12, loss=3.0, tokens=96.0, val_loss=3.0)
    assert session.should_stop()
    session.report(step=N_STEPS, loss=2.0, tokens=240.0, val_loss=2.5)
    assert not session.should_stop()


def test_what_was_trained_by_a_finish_counts_and_a_peer_that_is_done_is_left_alone(tmp_path):
    write_events(tmp_path / EVENTS, (0, 50.0, False, 3.0, 1.0), (1, 100.0, True, 2.0, 2.0), (0, 80.0, False, 2.9, 3.0))
    (tmp_path / "done").touch()
    run_peer("optuna_median", [], tmp_path)
    finished, spent, seconds = read_events(tmp_path / EVENTS, whole=200.0)
    assert [(one.loss, one.share) for one in finished] == [(2.0, 0.75)]
    assert (spent, seconds) == (0.9, 2.0)


def test_unknown_peers_and_empty_folders_are_bad_input(tmp_path):
    with pytest.raises(ValueError, match="peers must be among"):
        run_peer("hope", [], tmp_path)
    with pytest.raises(ValueError, match="found none"):
        read_events(tmp_path / EVENTS, 1.0)


def test_a_rule_that_stops_the_best_is_charged_the_whole_sweep_besides(verified_sweep, tmp_path):
    demo, finals = verified_sweep
    ranked = sorted(finals, key=lambda number: finals[number])
    tokens = 1e4
    write_events(tmp_path / "good" / EVENTS, (ranked[0], tokens, True, finals[ranked[0]], 1.0))
    write_events(tmp_path / "bad" / EVENTS, (ranked[-1], tokens, True, finals[ranked[-1]], 1.0))
    found = race_of_seed(0, demo, {"good": tmp_path / "good", "bad": tmp_path / "bad"})
    rules = found["rules"]
    assert rules["good"]["regret_pct"] == pytest.approx(0.0)
    assert not rules["good"]["missed_0"]
    assert rules["bad"]["missed_0"]
    assert rules["bad"]["tokens_0"] == pytest.approx(1.0 + rules["bad"]["spent"])
    assert rules["everything"]["tokens_0"] <= 1.0
    assert 0 < rules["select"]["spent"] < 1.0
    assert rules["select"]["proxies"] > 0
    table = live_race_table([found])
    assert table.count("\n| ") == 1 + len(rules)


def test_verified_sweeps_are_played_to_all_rules(verified_sweep):
    from bench.live_race_play import RULES, played

    demo, finals = verified_sweep
    found = played(demo.parent, [0])
    assert set(found["summary"]) == set(RULES)
    assert found["tasks"][0]["n_targets"] == len(finals)
    assert found["summary"]["everything"]["missed_0"] == 0.0
    assert found["summary"]["select_20"]["references"] > 0
