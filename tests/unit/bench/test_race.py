"""Tokens to the same final loss: what is counted, and when a rule has missed."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import protocol_text, sweep_frame, write

pytest.importorskip("ray")

from bench.asynchronous import Clock
from bench.protocol import load_protocol
from bench.race import RACERS, race, race_table
from bench.table import write_race

pytestmark = pytest.mark.usefixtures("quiet_optuna")

CLOCK = Clock(n_workers=2, n_seeds=2, n_looks=10)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return curves whose winner looks bad early, and their protocol."""
    folder = tmp_path_factory.mktemp("race")
    path = folder / "p.yaml"
    path.write_text(protocol_text())
    return write(folder / "curves", sweep_frame(lrs=np.geomspace(1e-4, 8e-3, 8).tolist())), load_protocol(path)


@pytest.fixture(scope="module")
def summary(made):
    return race(*made, CLOCK)["summary"]


@pytest.mark.parametrize("rule", sorted(RACERS))
def test_every_rule_pays_less_for_a_loss_that_is_easier_to_reach(summary, rule):
    row = summary[rule]
    assert 0 < row["tokens_1"] <= row["tokens_0.5"] <= row["tokens_0"] <= 1 + row["spent"]
    assert 0 <= row["missed_1"] <= row["missed_0"] <= 1


def test_training_everything_misses_nothing_and_has_the_best_before_its_end(summary):
    row = summary["everything"]
    assert (row["spent"], row["missed_0"], row["references"]) == (1.0, 0.0, 0.0)
    assert row["tokens_0"] < 1.0


def test_a_rule_that_stops_the_winner_is_charged_the_whole_sweep_besides(summary):
    row = summary["current_quarter"]
    assert row["missed_0"] == 1.0
    assert row["tokens_0"] == pytest.approx(1 + row["spent"])


def test_a_selection_pays_its_first_part_and_the_winners_rest(made):
    paid = race(*made, Clock(n_workers=1, n_seeds=1, n_looks=10), ["select_20"])["tasks"][0]["results"]["select_20"]
    assert paid["missed_0"] == 0.0
    assert paid["tokens_0"] == pytest.approx((8 * 0.2 + 0.8) / 8)  # the likeliest winner is finished first, and wins
    assert paid["references"] == pytest.approx(0.5)


def test_rungs_cost_no_more_than_the_look_at_their_end(summary):
    assert summary["rungs_10_20_30"]["spent"] <= summary["select_30"]["spent"]
    assert summary["rungs_10_20_30"]["missed_0"] == 0


def test_the_table_has_a_row_a_rule_and_the_means_stand_beside_it(made, tmp_path):
    result = race(*made, CLOCK, ["everything", "select_20"])
    assert race(*made, CLOCK, ["everything", "select_20"]) == result
    table = race_table(result)
    assert [line.split(" | ")[0] for line in table.splitlines()[4:]] == ["| everything", "| select_20"]
    write_race(tmp_path / "race.md", [result], [table])
    assert table in (tmp_path / "race.md").read_text()
    assert '"tokens_0"' in (tmp_path / "race.json").read_text()


def test_an_unknown_rule_is_named(made):
    with pytest.raises(ValueError, match=r"rules must be among everything.*found 'oracle'"):
        race(*made, rules=["oracle"])
