from __future__ import annotations

import numpy as np
import pytest
from recorded import protocol_text, sweep_frame, write

from bench.asynchronous import CONTENDERS, Clock, replay_asynchronously
from bench.protocol import load_protocol
from bench.records import load_records
from bench.simulation import Sweep, in_two_phases, simulate
from bench.tasks import make_tasks


@pytest.fixture
def made(tmp_path):
    folder = write(tmp_path / "curves", sweep_frame(lrs=np.geomspace(1e-4, 8e-3, 8).tolist()))
    path = tmp_path / "p.yaml"
    path.write_text(protocol_text())
    return folder, load_protocol(path)


@pytest.fixture
def sweep(made):
    folder, protocol = made
    (task,), _ = make_tasks(protocol, load_records(folder, protocol))
    return Sweep(task, "min", np.arange(1, 11) / 10)


class Recorder:
    """Stops trial 0 at its third report and notes what it is told."""

    def __init__(self):
        self.seen = []

    def begin(self, trial):
        self.seen.append(("begin", trial))

    def report(self, trial, look):
        self.seen.append((trial, look))
        return trial == 0 and look == 2

    def end(self, trial):
        self.seen.append(("end", trial))


def test_a_stopped_trial_goes_no_further_and_its_worker_takes_the_next(sweep):
    rule = Recorder()
    outcome = simulate(sweep, rule, n_workers=1, order=list(range(8)))
    assert outcome.reach.tolist() == [pytest.approx(0.3)] + [1.0] * 7
    assert outcome.completed.tolist() == [False] + [True] * 7
    assert rule.seen[:5] == [("begin", 0), (0, 0), (0, 1), (0, 2), ("begin", 1)]


def test_workers_report_side_by_side(sweep):
    rule = Recorder()
    simulate(sweep, rule, n_workers=3, order=[5, 6, 7, 0, 1, 2, 3, 4])
    assert [what for what in rule.seen if what[0] != "begin"][:4] == [(5, 0), (6, 0), (7, 0), (5, 1)]


def test_two_phases_run_everyone_to_the_stop_and_the_kept_to_the_end(sweep):
    outcome = in_two_phases(sweep, 0.2, [3])
    assert outcome.reach[3] == 1.0
    assert outcome.reach[[0, 1, 2]].tolist() == [0.2] * 3
    assert np.flatnonzero(outcome.completed).tolist() == [3]


@pytest.mark.parametrize("rule", sorted(CONTENDERS))
def test_every_rule_plays_and_says_the_same_again(made, rule):
    folder, protocol = made
    clock = Clock(n_workers=2, n_seeds=2, n_looks=10)
    once = replay_asynchronously(folder, protocol, clock, [rule])
    assert once == replay_asynchronously(folder, protocol, clock, [rule])
    scores = once["summary"][rule]
    assert 0 < scores["tokens_share"] <= 1
    assert scores["tokens"] <= scores["tokens_all"]
    assert 0 <= scores["winner_stopped"] <= 1


def test_training_everything_loses_nothing_and_saves_nothing(made):
    folder, protocol = made
    scores = replay_asynchronously(folder, protocol, Clock(2, 1, 10), ["everything"])["summary"]["everything"]
    assert (scores["regret_pct"], scores["winner_stopped"], scores["tokens_share"]) == (0.0, 0.0, 1.0)


def test_selecting_by_the_forecast_keeps_the_winner_that_the_current_best_drops(made):
    folder, protocol = made
    summary = replay_asynchronously(folder, protocol, Clock(2, 2, 10), ["select", "current_top1"])["summary"]
    assert summary["select"]["winner_stopped"] == 0
    assert summary["current_top1"]["winner_stopped"] == 1


def test_a_trial_that_diverges_is_no_winner_and_upsets_no_rule(tmp_path, made):
    frame = sweep_frame(lrs=np.geomspace(1e-4, 8e-3, 8).tolist())
    frame.loc[frame.run_id.str.contains("lr0.008") & (frame.step > 500), "val_loss"] = np.nan
    result = replay_asynchronously(write(tmp_path / "other", frame), made[1], Clock(2, 1, 10))
    assert all(row["regret_pct"] < 50 for row in result["summary"].values())


def test_wrong_arguments_are_named(made):
    with pytest.raises(ValueError, match=r"rules must be among everything.*found 'oracle'"):
        replay_asynchronously(*made, rules=["oracle"])
    with pytest.raises(ValueError, match="n_workers must be at least 1; found 0"):
        Clock(n_workers=0)


@pytest.mark.parametrize(("rule", "seen"), [("transfer_pick", 0.0), ("power_law_pick", 0.2), ("landscape_pick", 0.2)])
def test_a_methods_first_choice_alone_is_finished(made, rule, seen):
    folder, protocol = made
    scores = replay_asynchronously(folder, protocol, Clock(2, 1, 10), [rule])["summary"][rule]
    n = round(1 / scores["completed_share"])
    assert scores["tokens_share"] == pytest.approx((1 + seen * (n - 1)) / n)
