"""The Optuna study: one trial a candidate, each thing told once."""

from __future__ import annotations

import math
from pathlib import Path
from uuid import uuid4

import optuna
import pytest
from sqlalchemy import create_engine, text

from hpo.adapters import storage_patience
from hpo.engine.config import InputError
from hpo.engine.study_record import StudyRecord, open_study
from hpo.engine.trouble import OutsideError
from search_spaces import load_space

SPACE = load_space("lr_tau")
POINTS = SPACE.candidates("grid")[:4]


@pytest.fixture(params=["journal", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def reopen(request, tmp_path):
    """Return a function that opens the same study again, as a new driver would."""
    urls = {"journal": lambda: None, "sqlite": lambda: f"sqlite:///{tmp_path}/study.db"}
    storage, name = urls.get(request.param, lambda: request.getfixturevalue("postgresql_url"))(), f"s-{uuid4().hex}"
    opened = []

    def open_again():
        study = open_study(name, storage, tmp_path / "study.journal", resume=bool(opened))
        opened.append(study)
        return study, StudyRecord(study, SPACE, POINTS)

    yield open_again
    for study in opened:
        getattr(study._storage, "remove_session", lambda: None)()
        backend = getattr(study._storage, "_backend", None)
        if backend is not None and hasattr(backend, "engine"):
            backend.engine.dispose()


def _trials(study):
    return [(t.number, t.state.name, t.value, t.params, t.intermediate_values) for t in study.trials]


def test_every_candidate_has_a_running_trial_with_its_values(reopen):
    study, record = reopen()
    assert [t.params for t in study.trials] == POINTS
    assert {t.state.name for t in study.trials} == {"RUNNING"}
    assert [record.number(i) for i in range(4)] == [0, 1, 2, 3]


def test_a_stopped_trial_is_pruned_with_its_forecast(reopen):
    study, record = reopen()
    record.report(0, 10, 3.0)
    record.annotate(0, {"predicted_final": 2.5, "reason": "not_selected", "nothing": None})
    record.close(0, "PRUNED")
    trial = study.trials[0]
    assert (trial.state.name, trial.value) == ("PRUNED", 3.0)
    assert trial.user_attrs["predicted_final"] == 2.5
    assert "nothing" not in trial.user_attrs


def test_the_winner_is_complete(reopen):
    study, record = reopen()
    record.close(1, "COMPLETE", 2.0)
    assert study.best_trial.number == 1
    assert study.best_value == 2.0


def test_nothing_is_told_twice(reopen):
    study, record = reopen()
    record.report(0, 10, 3.0)
    record.report(0, 10, 99.0)
    record.close(0, "PRUNED")
    record.close(0, "COMPLETE", 1.0)
    before = _trials(study)
    study, record = reopen()
    record.report(0, 20, 1.0)
    record.close(0, "FAIL")
    assert _trials(study) == before


def test_a_new_driver_goes_on_where_the_last_one_was(reopen):
    _, record = reopen()
    record.report(2, 10, 3.0)
    study, record = reopen()
    record.report(2, 10, 99.0)
    record.report(2, 20, 2.0)
    assert study.trials[2].intermediate_values == {10: 3.0, 20: 2.0}
    assert len(study.trials) == 4


def test_a_candidate_left_waiting_by_a_killed_driver_is_taken_up(reopen):
    study, _ = reopen()
    assert len(study.trials) == 4
    more = [*POINTS, {"lr": 0.01, "tau": 0.3}]
    study.enqueue_trial(more[4], user_attrs={"candidate": 4})
    record = StudyRecord(study, SPACE, more)
    assert record.number(4) == 4
    assert len(study.trials) == 5


def test_a_non_finite_report_prunes_cleanly(reopen):
    study, record = reopen()
    record.report(0, 10, math.nan)
    record.close(0, "PRUNED")
    assert study.trials[0].state.name == "PRUNED"
    assert study.trials[0].value is None


def test_a_study_of_that_name_is_not_taken_over(tmp_path):
    storage = f"sqlite:///{tmp_path}/study.db"
    study = open_study("s", storage, tmp_path / "j", resume=False)
    with pytest.raises(InputError, match="name: expected a name that is new"):
        open_study("s", storage, tmp_path / "j", resume=False)
    study._storage.remove_session()
    study._storage._backend.engine.dispose()


def test_a_journal_whose_last_line_was_cut_short_is_mended(tmp_path):
    journal = tmp_path / "study.journal"
    open_study("s", None, journal, resume=False).add_trial(optuna.trial.create_trial(value=1.0))
    whole = journal.read_bytes()
    for cut in (3, len(whole.splitlines()[-1])):
        journal.write_bytes(whole[:-cut])
        assert open_study("s", None, journal, resume=True).study_name == "s"
        assert journal.read_bytes().endswith(b"\n")
        assert whole.startswith(journal.read_bytes())


def test_a_storage_that_cannot_be_opened_is_bad_input(tmp_path):
    with pytest.raises(InputError, match="storage: expected an Optuna storage URL") as caught:
        open_study("s", "nodatabase://x", tmp_path / "j", resume=False)
    assert "\n" not in str(caught.value)


@pytest.fixture
def server(postgresql_url):
    """Return a function that opens one study on a server again, and one that drops all connections there are to it."""
    name, opened = f"s-{uuid4().hex}", []

    def open_again():
        opened.append(open_study(name, postgresql_url, Path("unused"), resume=bool(opened)))
        return opened[-1]

    def drop():
        engine = create_engine(postgresql_url)
        others = "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and usename = 'tester'"
        with engine.connect() as connection:
            connection.execute(text(others))
        engine.dispose()

    yield open_again, drop
    for study in opened:
        study._storage.remove_session()
        study._storage._backend.engine.dispose()


@pytest.mark.slow
def test_a_server_that_drops_its_connections_for_a_moment_is_written_to_again(server):
    open_again, drop = server
    study = open_again()
    record = StudyRecord(study, SPACE, POINTS)
    record.report(0, 10, 3.0)
    drop()
    record.report(0, 20, 2.9)
    drop()
    record.annotate(0, {"reason": "cannot_win"})
    drop()
    record.close(0, "PRUNED")
    assert study.trials[0].intermediate_values == {10: 3.0, 20: 2.9}
    assert (study.trials[0].state.name, study.trials[0].user_attrs["reason"]) == ("PRUNED", "cannot_win")


@pytest.mark.slow
def test_a_server_that_stays_away_is_trouble_outside_and_a_new_driver_goes_on(server, monkeypatch):
    open_again, drop = server
    record = StudyRecord(open_again(), SPACE, POINTS)
    record.report(0, 10, 3.0)
    monkeypatch.setattr(storage_patience, "PAUSES_S", ())
    drop()
    with pytest.raises(OutsideError, match=r"^the storage failed: "):
        record.report(0, 20, 2.9)
    again = open_again()
    StudyRecord(again, SPACE, POINTS).report(0, 20, 2.9)
    assert again.trials[0].intermediate_values == {10: 3.0, 20: 2.9}
