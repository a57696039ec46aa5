"""Studies over every kind of storage; PostgreSQL, started here as an unprivileged user, in the slow tier only."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import optuna
import pytest
import sqlalchemy

STORAGES = ["memory", "journal", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def _quiet(quiet_optuna: None) -> None:
    """Every test here is quiet."""


@pytest.fixture(autouse=True, scope="session")
def _no_wait_for_the_disk() -> Iterator[None]:
    """SQLite does not wait for each commit to reach the disk: two thirds of these tests' time otherwise."""

    def hurry(connection: Any, record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    sqlalchemy.event.listen(sqlalchemy.Engine, "connect", hurry)
    yield
    sqlalchemy.event.remove(sqlalchemy.Engine, "connect", hurry)


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> str | optuna.storages.BaseStorage:
    """A fresh storage of each kind."""
    return request.getfixturevalue("open_storage")(request.param)


@pytest.fixture
def open_storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], optuna.storages.BaseStorage]]:
    """Open the storage of a kind; opening the same kind again gives a second connection to the same data."""
    opened: list[optuna.storages.BaseStorage] = []
    memory = optuna.storages.InMemoryStorage()

    def open_kind(kind: str) -> optuna.storages.BaseStorage:
        if kind == "memory":
            return memory
        if kind == "journal":
            made: optuna.storages.BaseStorage = optuna.storages.JournalStorage(
                optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.journal"))
            )
        else:
            url = f"sqlite:///{tmp_path / 'study.db'}" if kind == "sqlite" else request.getfixturevalue("postgresql_url")
            made = optuna.storages.get_storage(url)
        opened.append(made)
        return made

    yield open_kind
    for one in opened:
        one.remove_session()
        backend = getattr(one, "_backend", None)
        if hasattr(backend, "engine"):
            backend.engine.dispose()


@pytest.fixture
def study(storage: optuna.storages.BaseStorage) -> optuna.Study:
    """A study that minimises, without trials."""
    return optuna.create_study(storage=storage, study_name=f"s{uuid4().hex[:8]}", sampler=optuna.samplers.RandomSampler(seed=0))
