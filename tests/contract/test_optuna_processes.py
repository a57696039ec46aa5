"""Several processes on one study, and processes that are killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from inspect import signature
from pathlib import Path

import optuna
import pytest
from child_processes import environment_of
from optuna.storages.journal import JournalFileSymlinkLock
from optuna.trial import TrialState
from optuna_studies import HORIZON, add, add_family, curve, first_stop, steps

from hpo import CollapsePruner

Open = Callable[[str], optuna.storages.BaseStorage]
WORKER = """
import sys, time
import numpy as np, optuna
from optuna_studies import HORIZON, curve, steps
from hpo import CollapsePruner
from hpo.adapters.optuna_live import attach, report
optuna.logging.set_verbosity(optuna.logging.ERROR)
url, name, n, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
storage = url if "://" in url else optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(url))
study = attach(optuna.load_study(storage=storage, study_name=name), CollapsePruner(total_steps=HORIZON))
def objective(trial):
    final = trial.suggest_float("x", 3.0, 3.6)
    for step, value in curve(final, steps(), wiggle=0.002, seed=trial.number).items():
        report(trial, step, value)
        time.sleep(pause)
    return value
study.optimize(objective, n_trials=n)
"""


def start(repository: Path, url: str, name: str, n_trials: int, pause: float = 0.0) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", WORKER, url, name, str(n_trials), str(pause)]
    return subprocess.Popen(command, env=environment_of(repository), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def journal(path: Path) -> optuna.storages.JournalStorage:
    return optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(path)))


@pytest.mark.slow
def test_four_processes_share_a_journal(repository: Path, tmp_path: Path) -> None:
    path = tmp_path / "study.journal"
    study = optuna.create_study(storage=journal(path), study_name="s")
    workers = [start(repository, str(path), "s", 10) for _ in range(4)]
    errors = [worker.communicate(timeout=300)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0, 0], errors
    states = [t.state for t in study.trials]
    assert len(states) == 40
    assert set(states) <= {TrialState.COMPLETE, TrialState.PRUNED}
    assert states.count(TrialState.PRUNED) >= 10


@pytest.mark.slow
def test_two_processes_share_a_postgresql_study(repository: Path, postgresql_url: str) -> None:
    study = optuna.create_study(storage=postgresql_url, study_name="shared")
    workers = [start(repository, postgresql_url, "shared", 10) for _ in range(2)]
    errors = [worker.communicate(timeout=300)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], errors
    assert {t.state for t in study.trials} == {TrialState.COMPLETE, TrialState.PRUNED}
    study._storage._backend.engine.dispose()


@pytest.mark.timeout(240)  # a journal's lock that a killed process held is broken after half a minute
@pytest.mark.skipif(
    "grace_period" not in signature(JournalFileSymlinkLock).parameters,
    reason="this Optuna waits for ever for a journal's lock that a killed process held",
)
@pytest.mark.parametrize("kind", ["journal", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_a_killed_process_costs_its_trial_and_nothing_is_counted_twice(
    repository: Path, tmp_path: Path, kind: str, open_storage: Open, request: pytest.FixtureRequest
) -> None:
    study = optuna.create_study(storage=open_storage(kind), study_name="killed")
    address = {"journal": str(tmp_path / "study.journal"), "sqlite": f"sqlite:///{tmp_path / 'study.db'}"}.get(kind)
    address = address or request.getfixturevalue("postgresql_url")
    left = killed_in_a_trial(study, lambda: start(repository, address, "killed", 1000, pause=0.01))
    assert len(left) == 1
    again = start(repository, address, "killed", 6)
    assert again.communicate(timeout=240)[1] == ""
    assert again.returncode == 0
    trials = study.trials
    assert trials[left[0].number].intermediate_values == left[0].intermediate_values
    finished = [t for t in trials if t.state == TrialState.COMPLETE]
    study.pruner = CollapsePruner(total_steps=HORIZON)
    trial = study.ask()
    for step, value in finished[0].intermediate_values.items():
        trial.report(value, step)
        trial.should_prune()
        if step >= 20:
            break
    assert study.pruner.decision(trial.number).n_references == len(finished)


def killed_in_a_trial(study: optuna.Study, begin: Callable[[], subprocess.Popen[str]]) -> list[optuna.trial.FrozenTrial]:
    """Kill workers until one was in the middle of a trial; return the trials that are left running."""
    for _ in range(6):
        worker = begin()
        n_before = len(study.trials)
        wait_for(lambda n=n_before: len(study.trials) >= n + 8 and len(study.trials[-1].intermediate_values) >= 3, worker)  # type: ignore[misc]
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
        left = [t for t in study.trials if t.state == TrialState.RUNNING]
        if left:
            return left
    return []


def wait_for(condition: Callable[[], bool], worker: subprocess.Popen[str], timeout_s: float = 50.0) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert worker.poll() is None, worker.communicate()[1]
        assert time.monotonic() < end, "the worker did not get there"
        time.sleep(0.05)


def test_what_a_stopped_trial_says_it_was_stopped_with_counts_where_the_rule_would_let_it_go_on() -> None:
    spent = []
    for said in (
        {},
        {"reason": "cannot_win", "p_best": 0.02},
        {"reason": "diverging", "p_best": 0.02},
        {"reason": "cannot_win", "p_best": 7},
    ):
        study = optuna.create_study(pruner=CollapsePruner(total_steps=HORIZON))
        add_family(study)
        add(study, curve(3.0, steps()[:6]), state=TrialState.PRUNED, **said)
        first_stop(study, curve(3.2, steps()))
        spent.append(study.pruner.decision(len(study.trials) - 1, study).error_spent)
    assert spent == [0.0, 0.02, 0.0, 0.0]
