"""The commands where nothing is as at home: no home folder, LANG=C, spaces and umlauts in every path, a read-only install.

Where the tests run as root, the children lose the right to write to read-only folders first, so that they are ordinary users in
this respect.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SHIPPED = ("hpo", "proxies", "search_spaces", "bench")
AS_ORDINARY_USER = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner"]
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def install(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The packages in a folder that nobody may write to."""
    folder = tmp_path_factory.mktemp("install") / "Programme (alle), größer"
    for name in SHIPPED:
        shutil.copytree(repository / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    everything = [folder, *folder.rglob("*")]
    for path in everything:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    for path in everything:
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert sorted(everything) == sorted([folder, *folder.rglob("*")]), "something was written to the install"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The folder in which commands run."""
    folder = tmp_path / "Läufe & neue Kurven"
    folder.mkdir()
    return folder


@pytest.fixture
def run(install: Path, work: Path) -> Run:
    """Run ``hpo`` there; return exit code, stdout and stderr."""
    user = AS_ORDINARY_USER if os.geteuid() == 0 and shutil.which("setpriv") else []
    bare = {name: os.environ[name] for name in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ}
    bare |= {"LANG": "C", "LC_ALL": "C", "HOME": "/no/such/home", "PYTHONPATH": str(install), "OMP_NUM_THREADS": "1"}

    def runner(*arguments: str, **variables: str) -> tuple[int, str, str]:
        command = [*user, sys.executable, "-m", "hpo", *arguments]
        done = subprocess.run(command, cwd=work, env={**bare, **variables}, capture_output=True, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return runner


def test_recorded_runs_are_fitted_forecast_checked_watched_and_replayed(run: Run, install: Path, work: Path) -> None:
    shutil.copy(install / "bench" / "data" / "own_ladder.parquet", work / "Läufe é.parquet")
    code, out, err = run("fit", "Läufe é.parquet", "-o", "Modell τ.json")
    assert (code, err) == (0, "")
    assert "17 references" in out
    one = ("Läufe é.parquet", "--run", "ladder-w76-seed0", "--model", "Modell τ.json", "--json")
    code, out, _ = run("forecast", *one, "--at", "0.3")
    assert (code, json.loads(out)["status"]) == (0, "ok")
    assert run("monitor", *one)[0] == 0
    assert run("check", "Läufe é.parquet")[0] == 1
    code, out, err = run(
        "bench", "replay", "--curves", ".", "--protocol", "own_sweep_val", "--methods", "current_best", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["summary"]["current_best"]


def test_a_terminal_that_knows_ascii_only_is_spoken_to(run: Run) -> None:
    ascii_only = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    code, out, err = run("plan", "--family", "celerity", "--tpp", "20", **ascii_only)
    assert (code, err) == (0, "")
    assert "300M" in out
    code, out, _ = run("plan", "--family", "celerity", "--tpp", "20", "--json", **ascii_only)
    assert code == 0
    assert out.isascii()
    assert json.loads(out)["recipes"]


def test_a_sweep_runs_and_leaves_everything_in_its_folder(
    run: Run, work: Path, hpo: Any, own_sweep: Callable[..., dict[str, Any]]
) -> None:
    shutil.copy(hpo.folder / "own_training.py", work)
    (work / "Plan ä.yaml").write_text(yaml.safe_dump(own_sweep()), encoding="utf-8")
    assert run("sweep", "Plan ä.yaml", "--dry-run")[0] == 0
    code, out, err = run("sweep", "Plan ä.yaml", "--out", "Lauf 1", "--json")
    assert code == 0, err
    assert [trial["state"] for trial in json.loads(out)["trials"]].count("winner") == 1
    assert {path.name for path in work.iterdir()} <= {"Plan ä.yaml", "Lauf 1", "own_training.py", "__pycache__"}


def test_an_output_that_cannot_be_written_is_one_line(run: Run, install: Path) -> None:
    code, out, err = run("fit", str(install / "bench" / "data" / "own_ladder.parquet"), "-o", str(install / "model.json"))
    assert (code, out) == (2, "")
    assert err.startswith("hpo: --output: expected a file that can be written; found ")
    assert err.count("\n") == 1
