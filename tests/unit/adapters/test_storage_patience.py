"""A storage that is away for a moment."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from sqlalchemy.exc import OperationalError

from hpo.adapters.storage_patience import PAUSES_S, is_of_storage, persistently

AWAY = [
    OperationalError("update", {}, Exception("server closed the connection")),
    StorageInternalError("commit"),
    sqlite3.OperationalError("locked"),
]


def failing(times: int, error: Exception) -> tuple[Callable[[], None], list[int]]:
    """Return a function that raises so many times, and the list of its calls."""
    calls: list[int] = []

    def write() -> None:
        calls.append(len(calls))
        if len(calls) <= times:
            raise error

    return write, calls


@pytest.mark.parametrize("error", AWAY)
def test_what_comes_back_is_written(error: Exception) -> None:
    write, calls = failing(2, error)
    persistently(write, (0.0, 0.0, 0.0))
    assert len(calls) == 3


@pytest.mark.parametrize("error", AWAY)
def test_what_stays_away_is_raised_after_the_last_try(error: Exception) -> None:
    write, calls = failing(9, error)
    with pytest.raises(type(error)):
        persistently(write, (0.0, 0.0))
    assert len(calls) == 3
    assert is_of_storage(error)


@pytest.mark.parametrize("error", [UpdateFinishedTrialError("told"), ValueError("ours"), OSError(28, "no room")])
def test_what_no_patience_mends_is_raised_at_once(error: Exception) -> None:
    write, calls = failing(9, error)
    with pytest.raises(type(error)):
        persistently(write)
    assert len(calls) == 1


def test_a_restart_of_a_database_has_time() -> None:
    assert 30 <= sum(PAUSES_S) <= 120
