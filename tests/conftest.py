"""What all tests share: quiet, single-threaded, offline libraries, Hypothesis profiles, and the folder of recorded curves."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Before NumPy, torch or Ray is imported: one thread a process (tests run side by side), no usage statistics, no update of
# CUDA_VISIBLE_DEVICES by Ray (which warns that it will stop doing so, and warnings are errors here).
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

import pytest
from child_processes import free_port
from hypothesis import HealthCheck, settings
from postgresql import as_server_user, server_binaries, start_server

ROOT = Path(__file__).resolve().parent.parent

# No deadline: the machine may be busy with another test process, and pytest-timeout catches what hangs.
settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile(
    "ci", deadline=None, max_examples=50, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked `gpu` where there is none; torch is imported only then."""
    if item.get_closest_marker("gpu") is not None:
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("needs a GPU: torch sees no CUDA device")


@pytest.fixture
def quiet_optuna() -> Iterator[None]:
    """Optuna logs warnings only."""
    import optuna

    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(level)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's root."""
    return ROOT


@pytest.fixture(scope="session")
def curves_folder() -> Path:
    """The folder of recorded loss curves: $HPO_CURVES, or ../shared/curves beside the checkout; skips where it is absent."""
    folder = Path(os.environ.get("HPO_CURVES") or ROOT.parent / "shared" / "curves")
    if not folder.is_dir():
        pytest.skip(f"recorded curves absent: set HPO_CURVES to their folder (looked in {folder})")
    return folder


@pytest.fixture(scope="session")
def postgresql_url() -> Iterator[str]:
    """URL of a PostgreSQL server of this test session, on a free local port, its data in a temporary folder."""
    binaries = server_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL absent: install Debian's package postgresql (initdb and postgres are looked for)")
    pytest.importorskip("psycopg", reason="PostgreSQL driver absent: pip install psycopg[binary]")
    folder = Path(tempfile.mkdtemp(prefix="hpo-pg-"))
    port = free_port()
    try:
        start_server(binaries, folder, port)
        yield f"postgresql+psycopg://tester@127.0.0.1:{port}/postgres"
    finally:
        as_server_user([str(binaries / "pg_ctl"), "-D", str(folder / "data"), "-m", "immediate", "stop"])
        shutil.rmtree(folder, ignore_errors=True)
