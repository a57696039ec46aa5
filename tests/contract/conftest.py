"""Studies over every kind of storage; PostgreSQL, started here as an unprivileged user, in the slow tier only."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import optuna
import pytest
import sqlalchemy
from child_processes import free_port

STORAGES = ["memory", "journal", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]
_SERVER_USER = "postgres"


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


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """URL of a PostgreSQL server of this test session, on a free local port, its data in a temporary folder."""
    binaries = _postgresql_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL absent: install Debian's package postgresql (initdb and postgres are looked for)")
    pytest.importorskip("psycopg", reason="PostgreSQL driver absent: pip install psycopg[binary]")
    folder = Path(tempfile.mkdtemp(prefix="hpo-pg-"))
    port = free_port()
    try:
        _start_postgresql(binaries, folder, port)
        yield f"postgresql+psycopg://tester@127.0.0.1:{port}/postgres"
    finally:
        _as_server_user([str(binaries / "pg_ctl"), "-D", str(folder / "data"), "-m", "immediate", "stop"])
        shutil.rmtree(folder, ignore_errors=True)


def _postgresql_binaries() -> Path | None:
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if versions:
        return versions[-1].parent
    found = shutil.which("initdb")
    return None if found is None else Path(found).resolve().parent


def _start_postgresql(binaries: Path, folder: Path, port: int) -> None:
    if os.geteuid() == 0:
        shutil.chown(folder, _SERVER_USER)
    data = str(folder / "data")
    _as_server_user([str(binaries / "initdb"), "-D", data, "-U", "tester", "-A", "trust", "--no-sync"], check=True)
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
    start = [str(binaries / "pg_ctl"), "-D", data, "-o", options, "-l", str(folder / "log"), "-w", "-t", "60", "start"]
    _as_server_user(start, check=True)


def _as_server_user(command: list[str], check: bool = False) -> None:
    """Run as an unprivileged user: PostgreSQL refuses to run as root."""
    user = _SERVER_USER if os.geteuid() == 0 else None
    result = subprocess.run(command, user=user, capture_output=True, text=True, cwd="/", timeout=120, check=False)
    if check and result.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {result.stderr or result.stdout}")
