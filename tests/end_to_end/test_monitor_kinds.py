"""Every kind of fault, put into a run of our own ladder and told by ``hpo monitor --json``: kind, onset, size, direction."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from hpo.adapters.curve_files import read_runs, write_run
from hpo.commands.monitor import monitor

LADDER = Path(__file__).resolve().parents[2] / "bench" / "data" / "own_ladder.parquet"
WATCHED = "ladder-w36-seed1"
ROWS = 200
T = np.arange(1, ROWS + 1) / ROWS


@pytest.fixture(scope="module")
def ladder(tmp_path_factory):
    """The watched run's losses, in a folder with the ladder's other matched runs as references."""
    folder = tmp_path_factory.mktemp("ladder")
    (folder / "others").mkdir()
    runs = {
        name: [one for one in read_runs(LADDER, metric=name) if one.group == "matched"] for name in ("train_loss", "val_loss")
    }
    for one in runs["train_loss"]:
        if one.run_id != WATCHED:
            write_run(folder / "others" / f"{one.run_id}.parquet", one)
    return folder, {name: next(one for one in own if one.run_id == WATCHED) for name, own in runs.items()}


@pytest.fixture
def told(ladder, tmp_path):
    """Return what is said of the run with a fault, given as log(faulty/healthy) at each row, and the exit code."""
    folder, runs = ladder
    app = typer.Typer()
    app.command()(monitor)

    def tell(fault=0.0, rates=None):
        run = runs["train_loss"]
        faulty = replace(
            run, values=run.values * np.exp(fault), learning_rates=rates if rates is not None else run.learning_rates
        )
        write_run(tmp_path / "run.parquet", faulty)
        return asked(tmp_path / "run.parquet")

    def asked(path, *more):
        done = CliRunner().invoke(app, [str(path), "--reference", str(folder / "others"), "--json", *more])
        assert done.exit_code in (0, 1), done.output
        return json.loads(done.stdout), done.exit_code

    tell.asked = asked
    return tell


def after(onset, shape):
    return np.where(onset - 1e-9 <= T, shape, 0.0)


@pytest.mark.parametrize(
    ("kind", "onset", "fault", "size", "costs"),
    [
        ("spike", 0.5, np.where((T > 0.5) & (T <= 0.51), 0.15, 0.0), 15, False),
        ("step", 0.5, after(0.5, 0.05), 5, True),
        ("drift", 0.5, after(0.5, 0.4 * (T - 0.5)), 20, True),
        ("restart", 0.5, after(0.5, 0.12 * np.exp(-(T - 0.5) / 0.02)), 12, False),
        ("wrong_lr", 0.7, after(0.7, -0.06), -6, True),
        ("repeated_data", 0.5, after(0.5, -0.4 * (T - 0.5)), -18, True),
    ],
)
def test_each_kind_is_told_with_its_onset_size_and_direction(told, kind, onset, fault, size, costs):
    said, code = told(fault)
    assert (code, said["status"], said["kind"]) == (1, "alarm", kind)
    assert said["onset"] == pytest.approx(onset, abs=0.03)
    assert onset - 0.01 <= said["detected_at"] <= onset + 0.25
    assert said["size_pct"] == pytest.approx(size, rel=0.35)
    assert np.sign(said["cost_pct"]) == (np.sign(size) if costs else 0)
    late = [value for t, value, _ in said["residual"] if t > 0.9]
    assert np.sign(np.mean(late)) == np.sign(size) or not costs


def test_a_healthy_run_of_ours_is_silent(told):
    said, code = told()
    assert (code, said["status"], said["kind"]) == (0, "ok", None)


def test_a_fault_inside_the_usual_alignment_window_does_not_contaminate_it(told):
    said, code = told(after(0.35, 0.06))
    assert (code, said["kind"]) == (1, "step")
    assert said["onset"] == pytest.approx(0.35, abs=0.03)
    assert said["size_pct"] == pytest.approx(6, rel=0.35)


def test_a_run_that_is_rescaled_from_its_start_is_another_level_and_nothing_else(told):
    healthy, _ = told()
    said, code = told(np.full(ROWS, 0.2))
    assert (code, said["status"]) == (0, "ok")
    assert said["final_loss"] == pytest.approx(healthy["final_loss"] * np.exp(0.2), rel=1e-3)


def test_a_learning_rate_that_starts_anew_is_told_by_the_rate_alone(told, ladder):
    rates = ladder[1]["train_loss"].learning_rates.copy()
    rates[120:] = rates[:80]
    said, code = told(rates=rates)
    assert (code, said["kind"]) == (1, "wrong_lr")
    assert said["onset"] == pytest.approx(0.6, abs=0.02)


def table(runs, fault=0.0):
    """Return the rows of a log with training loss, validation loss in every fourth row, and total."""
    train, val = runs["train_loss"], dict(zip(runs["val_loss"].steps.tolist(), runs["val_loss"].values.tolist(), strict=True))
    values = train.values * np.exp(fault)
    return [
        [step, train.horizon, value, val.get(step, "")]
        for step, value in zip(train.steps.tolist(), values.tolist(), strict=True)
    ]


def log(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["step", "total_steps", "train_loss", "val_loss"], *rows])
    return path


def gap(rows):
    return [row for row, t in zip(rows, T, strict=True) if not 0.42 < t < 0.58]


def resumed(rows):
    return [*rows[:120], *rows[100:]]


def nan_rows(rows):
    return [row if k % 5 else [row[0], row[1], "nan", 1.0] for k, row in enumerate(rows)]


def irregular(rows):
    kept = np.random.default_rng(0).random(ROWS) < np.where(T < 0.5, 0.4, 0.9)
    return [row for row, keep in zip(rows, kept, strict=True) if keep]


@pytest.mark.parametrize("spoil", [gap, resumed, nan_rows, irregular])
def test_what_is_odd_about_a_log_and_not_about_its_run_is_no_alarm(told, ladder, tmp_path, spoil):
    said, code = told.asked(log(tmp_path / "log.csv", spoil(table(ladder[1]))))
    assert (code, said["status"]) == (0, "ok")


@pytest.mark.parametrize("spoil", [gap, resumed, nan_rows, irregular])
def test_a_step_is_found_in_such_logs_too(told, ladder, tmp_path, spoil):
    said, code = told.asked(log(tmp_path / "log.csv", spoil(table(ladder[1], after(0.65, 0.08)))))
    assert (code, said["status"]) == (1, "alarm")
    assert said["onset"] == pytest.approx(0.65, abs=0.03)
    assert said["size_pct"] > 4


def test_a_loss_that_is_not_finite_is_told_where_it_began(told, ladder, tmp_path):
    rows = table(ladder[1])
    for row in rows[100:]:
        row[2] = "nan"
    said, code = told.asked(log(tmp_path / "log.csv", rows))
    assert (code, said["kind"]) == (1, "non_finite")
    assert said["onset"] == pytest.approx(0.505, abs=0.01)


def test_a_training_loss_that_sinks_beside_a_validation_loss_that_does_not_is_overfitting(ladder, tmp_path):
    app = typer.Typer()
    app.command()(monitor)
    both = {name: {one.run_id: one for one in read_runs(LADDER, metric=name)} for name in ("train_loss", "val_loss")}
    others = [run_id for run_id, one in both["train_loss"].items() if one.group == "matched" and run_id != WATCHED]
    references = [
        log(tmp_path / f"{run_id}.csv", table({name: own[run_id] for name, own in both.items()})) for run_id in others
    ]
    run = log(tmp_path / "run.csv", table(ladder[1], after(0.5, -0.4 * (T - 0.5))))
    given = [str(word) for path in references for word in ("--reference", path)]
    done = CliRunner().invoke(app, [str(run), *given, "--validation", "val_loss", "--json"])
    said = json.loads(done.stdout)
    assert (done.exit_code, said["kind"]) == (1, "overfitting")
    assert said["onset"] == pytest.approx(0.5, abs=0.05)
    assert said["size_pct"] < 0
