"""Three real faults in our own training (``bench.monitor_faults``), told by ``hpo monitor`` from their recorded curves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from pyarrow import parquet
from typer.testing import CliRunner

from hpo.commands.monitor import monitor

DATA = Path(__file__).resolve().parents[2] / "bench" / "data"
FAULTS = DATA / "own_faults.parquet"
ONSET = 0.6


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """The recorded runs without their learning rates, as most logs are."""
    path = tmp_path_factory.mktemp("logs") / "faults.parquet"
    parquet.write_table(parquet.read_table(FAULTS).drop_columns(["lr_at_step"]), path)
    return path


def told(path, run, metric="train_loss", reference="faults-reference-*"):
    app = typer.Typer()
    app.command()(monitor)
    given = ["--run", f"faults-{run}", "--reference", str(path), "--reference-run", reference, "--json"]
    done = CliRunner().invoke(app, [str(path), *given, "--metric", metric])
    assert done.exit_code in (0, 1), done.output
    return json.loads(done.stdout)


@pytest.mark.parametrize("metric", ["train_loss", "val_loss"])
def test_the_run_without_a_fault_is_silent(logs, metric):
    assert told(logs, "healthy", metric)["status"] == "ok"


@pytest.mark.parametrize("metric", ["train_loss", "val_loss"])
def test_a_low_precision_loss_after_a_restart_is_told_within_a_few_bins(logs, metric):
    """It doubles the loss for a while, and what stays in the end is 13 % more than in the run without the fault."""
    said = told(logs, "low-precision-loss", metric)
    assert (said["status"], said["kind"]) == ("alarm", "step")
    assert said["onset"] == pytest.approx(ONSET, abs=0.04)
    assert said["detected_at"] < ONSET + 0.04
    assert said["cost_pct"] == pytest.approx(13, abs=3)
    end = {"train_loss": 1.915, "val_loss": 1.952}[metric]
    assert said["lower"] < end < said["upper"]


def test_a_mild_one_is_told_where_a_run_with_the_same_data_is_the_reference(logs):
    """It costs 1.6 % at the end, which other seeds' curves do not show."""
    said = told(logs, "mild-low-precision-loss", reference="faults-healthy")
    assert said["status"] == "alarm"
    assert said["kind"] in ("drift", "step")
    assert ONSET < said["detected_at"] < ONSET + 0.15
    assert said["cost_pct"] > 0


def test_repeated_data_sinks_the_training_loss_and_lifts_the_other(logs):
    said = told(logs, "repeated-data")
    assert (said["status"], said["kind"]) == ("alarm", "repeated_data")
    assert said["onset"] == pytest.approx(ONSET, abs=0.03)
    assert said["detected_at"] < ONSET + 0.05
    other = told(logs, "repeated-data", "val_loss")
    assert (other["status"], other["kind"]) == ("alarm", "drift")
    assert other["onset"] == pytest.approx(ONSET, abs=0.03)


def test_a_schedule_that_began_anew_is_told_by_the_loss_and_named_by_the_rate(logs):
    by_loss, by_rate = told(logs, "wrong-lr"), told(FAULTS, "wrong-lr")
    assert (by_loss["status"], by_loss["kind"]) == ("alarm", "step")  # too high a rate looks like that
    assert by_loss["size_pct"] > 0
    assert (by_rate["status"], by_rate["kind"]) == ("alarm", "wrong_lr")
    assert by_rate["onset"] == pytest.approx(ONSET, abs=0.01)
    assert by_rate["detected_at"] < by_loss["detected_at"]
