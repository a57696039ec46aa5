"""What is told where Ray or the storage fails, not a trial."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

pytest.importorskip("ray")

from hpo.core.model import CollapseModel
from hpo.engine import ray_cluster
from hpo.engine.config import InputError
from hpo.engine.ray_cluster import _check_runtime_env, _checked_environment, _join, _start_private
from hpo.engine.ray_trials import _raise_behind
from hpo.engine.study_record import StudyRecord, open_study
from hpo.engine.trouble import OutsideError
from search_spaces import load_space

BUSY = "The current node timed out during startup. This could happen because some of the raylet failed to startup."


class BusyMachine:
    """Ray's module where a start fails so many times."""

    def __init__(self, n_failures: int) -> None:
        self.n_left, self.n_shutdowns = n_failures, 0

    def init(self, **options: object) -> None:
        self.n_left -= 1
        if self.n_left >= 0:
            raise Exception(BUSY)  # as Ray does

    def shutdown(self) -> None:
        self.n_shutdowns += 1


def test_a_ray_that_does_not_come_up_is_started_once_more():
    machine = BusyMachine(1)
    _start_private(machine, address="local")
    assert machine.n_shutdowns == 1


def test_a_ray_that_does_not_come_up_again_is_told_in_one_line():
    with pytest.raises(OutsideError) as found:
        _start_private(BusyMachine(2), address="local")
    assert str(found.value) == f"Ray does not start on this machine: Exception: {BUSY}"


def test_a_cluster_that_times_out_is_bad_input():
    with pytest.raises(
        InputError, match=r"ray.address: expected a Ray cluster that answers; found auto \(Exception: The current"
    ):
        _join(BusyMachine(1), address="auto")


def test_workers_that_take_too_long_to_import_are_told(monkeypatch):
    monkeypatch.setattr(ray_cluster, "_IMPORT_PATIENCE_S", 0.01)
    with pytest.raises(OutsideError, match=r"importing what they need took over 0\.01 s"), _checked_environment():
        pass


@pytest.mark.parametrize("environment", [{"pip": 3}, {"working_dir": "/no/such"}, {"env_vars": {"A": 1}}])
def test_a_runtime_environment_that_ray_would_refuse_is_bad_input(environment):
    with pytest.raises(InputError, match=r"ray.runtime_env: expected what Ray takes; found "):
        _check_runtime_env(environment)


def wrapped(error: Exception) -> Exception:
    """Return an error as Tune raises it: the text of the first one's traceback, from which it says nothing of its kind."""
    try:
        try:
            raise error
        except Exception as first:
            raise RuntimeError("Traceback (most recent call last):\n …") from first
    except RuntimeError as found:
        return found


def test_what_ray_raises_in_the_middle_is_told_by_its_first_cause():
    with pytest.raises(OutsideError, match=r"^Ray failed: ConnectionError: the head is gone$"):
        _raise_behind(wrapped(ConnectionError("the head is gone\nand more")))


def test_what_the_storage_raised_in_the_middle_stays_what_it_is():
    with pytest.raises(OutsideError, match=r"^the storage failed: lost$"):
        _raise_behind(wrapped(OutsideError("the storage failed: lost")))


def test_a_fault_of_our_own_is_left_to_be_shown_whole():
    try:
        CollapseModel.from_dict({"schema": None})
    except ValueError as error:
        own = wrapped(error)
    _raise_behind(own)


def test_a_storage_that_is_lost_is_trouble_outside(tmp_path: Path):
    space = load_space({"parameters": {"lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True}}})
    study = open_study("s", f"sqlite:///{tmp_path / 'study.db'}", tmp_path / "unused", resume=False)
    record = StudyRecord(study, space, [{"lr": 1e-2}])
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("drop table trial_intermediate_values")
    with pytest.raises(OutsideError, match=r"^the storage failed: "):
        record.report(0, 1, 2.0)
    study._storage.remove_session()
    study._storage._backend.engine.dispose()
