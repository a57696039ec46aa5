from __future__ import annotations

import json

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial
from typer.testing import CliRunner

from bench.cli import app

N_STEPS = 40


@pytest.fixture
def storage(tmp_path, quiet_optuna):
    """A SQLite study of 16 finished trials, lr best at 3e-3, and one that was pruned."""
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = optuna.create_study(storage=url, study_name="mine", direction="minimize")
    rng = np.random.default_rng(0)
    rates = {"lr": FloatDistribution(1e-4, 1e-1, log=True)}
    for rate in np.geomspace(1e-4, 1e-1, 16):
        steps = np.arange(1, N_STEPS + 1)
        end = 2.0 + 0.1 * np.log10(rate / 3e-3) ** 2
        values = end * (steps / N_STEPS) ** -0.1 * (1 + 0.002 * rng.normal(size=N_STEPS))
        reports = dict(zip(steps.tolist(), values.tolist(), strict=True))
        made = {"params": {"lr": float(rate)}, "distributions": rates, "intermediate_values": reports}
        study.add_trial(create_trial(value=float(values[-1]), **made))
    study.add_trial(create_trial(state=TrialState.PRUNED, **made))
    return url


def test_a_study_is_replayed_and_left_as_it_was(storage):
    before = optuna.load_study(study_name="mine", storage=storage).trials_dataframe()
    done = CliRunner().invoke(app, ["study", storage, "mine", "--methods", "current_best,hpo", "--sample", "6", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert (result["n_trials"], result["n_trials_used"]) == (17, 16)
    assert result["tasks"][0]["n_targets"] == 10
    at_half = result["summary"]["hpo"]["0.5"]
    assert at_half["rho"] > 0.8
    assert at_half["mae_pct"] < 1.0
    assert optuna.load_study(study_name="mine", storage=storage).trials_dataframe().equals(before)


@pytest.mark.parametrize(
    ("storage_of", "name", "said"),
    [
        (lambda url: url, "yours", "no study called 'yours'; found mine"),
        (lambda url: url + "x", "mine", "no such file"),
        (lambda _: "no/such.log", "mine", "no such journal file"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(storage, storage_of, name, said):
    done = CliRunner().invoke(app, ["study", storage_of(storage), name])
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_too_few_finished_trials_are_named(storage):
    done = CliRunner().invoke(app, ["study", storage, "mine", "--sample", "15"])
    assert done.exit_code == 2
    assert "16 finished trials" in done.stderr


def test_of_few_trials_half_teach(storage):
    study = optuna.load_study(study_name="mine", storage=storage)
    few = optuna.create_study(storage=storage, study_name="few")
    few.add_trials(study.trials[:6])
    done = CliRunner().invoke(app, ["study", storage, "few", "--methods", "current_best", "--json"])
    assert done.exit_code == 0, done.output
    (task,) = json.loads(done.stdout)["tasks"]
    assert (task["n_references"], task["n_targets"]) == (3, 3)


def test_trials_of_unknown_length_are_named(storage):
    study = optuna.create_study(storage=storage, study_name="apart")
    for n in range(8):
        study.add_trial(create_trial(value=1.0, intermediate_values=dict.fromkeys(range(1, 10 + 7 * n), 1.0)))
    done = CliRunner().invoke(app, ["study", storage, "apart"])
    assert done.exit_code == 2
    assert "0 of 8 finished trials with 5 reports or more have a known length" in done.stderr
