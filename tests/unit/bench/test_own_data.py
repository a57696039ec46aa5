"""The curves that come with the bench: readable, complete, small, and showing what the log says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.own_ladder import ladder_runs
from bench.own_neighbours import neighbour_runs
from bench.own_report import ladder_report
from bench.own_sweep import sweep_runs
from bench.own_transfer import transfer_report
from bench.protocol import load_protocol
from bench.records import OWN_DATA, load_records
from bench.tasks import make_tasks
from hpo.adapters.curve_files import read_runs

LARGEST_BYTES = 400_000


@pytest.mark.parametrize("metric", ["val_loss", "train_loss"])
def test_every_kept_run_is_complete_and_has_the_recipe_of_its_design(metric: str) -> None:
    designed = {run.run_id: run for run in [*ladder_runs(), *sweep_runs(), *neighbour_runs()]}
    for name in ("own_ladder", "own_sweep", "own_neighbours"):
        runs = read_runs(OWN_DATA / f"{name}.parquet", metric=metric)
        assert runs
        for run in runs:
            assert run.curve().is_complete, run.run_id
            assert run.recipe is not None
            expected = designed[run.run_id].recipe
            for value in ("tau", "tpp", "n_params", "lr", "flops"):
                assert getattr(run.recipe, value) == pytest.approx(getattr(expected, value)), (run.run_id, value)


def test_the_files_are_small() -> None:
    assert max(path.stat().st_size for path in OWN_DATA.glob("*.parquet")) < LARGEST_BYTES


def test_timescales_break_the_kept_ladder_and_ways_to_reach_one_do_not() -> None:
    made = ladder_report(OWN_DATA / "own_ladder.parquet", loose=OWN_DATA / "own_sweep.parquet")
    rows = {row["name"]: row for row in made["comparisons"]}
    assert rows["tau"]["collapse"] is False
    assert rows["tau"]["mismatched"] == ["tau"]
    assert rows["tau_by"]["collapse"] is True
    assert rows["loose"]["collapse"] is False
    assert rows["loose"]["deviation_pct"] > 6.0
    assert rows["tpp"]["collapse"] is False
    assert rows["ladder"]["deviation_pct"] < 1.5 < 3.0 < rows["tau"]["deviation_pct"]


def test_a_protocol_finds_curves_of_our_own_where_the_folder_lacks_them(tmp_path: Path) -> None:
    protocol = load_protocol("own_sweep_val")
    tasks, left_out = make_tasks(protocol, load_records(tmp_path, protocol))
    assert not left_out
    for task in tasks:
        assert {r.fields["seed"] for r in (*task.targets, *task.references)} == {task.targets[0].fields["seed"]}
        assert (len(task.targets), len(task.references)) == (12, 10)


def test_the_best_rate_drifts_with_width_in_the_standard_parameterisation_and_not_under_completep() -> None:
    rows = {
        (r["parameterisation"], r["width"], r["depth"]): r for r in transfer_report(OWN_DATA / "own_transfer.parquet")["shapes"]
    }
    assert rows["sp", 96, 2]["drift"] < -1.5
    assert rows["sp", 48, 2]["drift"] < -0.9
    assert max(abs(row["drift"]) for (name, _, _), row in rows.items() if name == "completep") < 0.4
