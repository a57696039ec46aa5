"""What a stranger installs: an sdist, the wheel built from it, and that wheel beside what it declares to need and nothing else.

The environment is a fresh one that sees the wheel and the closure of what the wheel's metadata asks for, linked from the
environment of the tests; neither torch, Ray nor Plotly is there, and no address can be reached.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from email.parser import Parser
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SHIPPED = ("hpo", "proxies", "search_spaces", "bench")
TEXTS = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md")
NO_NETWORK = """
import socket

def _refuse(self, address, *rest):
    if self.family != getattr(socket, "AF_UNIX", None):
        raise OSError(f"a test must not reach {address}")

socket.socket.connect = socket.socket.connect_ex = _refuse
"""
PRUNER = """
import hpo, optuna
from importlib.util import find_spec
assert "no_network" in __import__("sys").modules
assert not [name for name in ("torch", "ray", "plotly", "tensorboard") if find_spec(name)], "not a core environment"
optuna.logging.set_verbosity(optuna.logging.WARNING)

def objective(trial):
    end = 3 + trial.suggest_float("x", 0, 1)
    for step in range(1, 41):
        hpo.report(trial, step, end * (1 + 0.3 * ((step / 40) ** -0.4 - 1)))
    return end

study = optuna.create_study(pruner=hpo.CollapsePruner(total_steps=40), sampler=optuna.samplers.RandomSampler(seed=0))
study.optimize(objective, n_trials=12)
print(sum(t.state == optuna.trial.TrialState.PRUNED for t in study.trials))
"""


@pytest.fixture(scope="module")
def sdist(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, built from a copy of the tree, so that the build leaves nothing in the checkout."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in (*SHIPPED, "tests", "docs"):
        shutil.copytree(repository / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in TEXTS:
        shutil.copy(repository / name, copy)
    return built("build_sdist", copy, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the unpacked sdist: what is missing there is missing here."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return built("build_wheel", next(folder.iterdir()), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of the core environment."""
    folder = tmp_path_factory.mktemp("core") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    executable = folder / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(executable), *install], check=True, env=clean_environment())
    (site,) = folder.glob("lib/python*/site-packages")
    for name in closure(wheel):
        for top in {file.parts[0] for file in distribution(name).files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    (site / "no_network.py").write_text(NO_NETWORK)
    (site / "no_network.pth").write_text("import no_network\n")
    return executable


@pytest.fixture
def run(python: Path, tmp_path: Path) -> Callable[..., str]:
    """Run a program of the environment in an empty folder, without this process's Python settings; return its stdout."""

    def runner(program: str, *arguments: str, code: int = 0, **variables: str) -> str:
        done = subprocess.run(
            [str(python.parent / program), *arguments],
            cwd=tmp_path,
            env={**clean_environment(), **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stderr if code else done.stdout

    return runner


@pytest.fixture
def data(python: Path) -> Path:
    """The curves that come with the package."""
    (folder,) = python.parent.parent.glob("lib/python*/site-packages/bench/data")
    return folder


def clean_environment() -> dict[str, str]:
    """Return this process's environment without what would let a child see the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HPO_", "VIRTUAL_ENV"))}


def built(step: str, source: Path, into: Path) -> Path:
    """Return the file that the build back end makes of ``source``."""
    code = f"import sys, setuptools.build_meta as backend; backend.{step}(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(into)], cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = into.iterdir()
    return made


def closure(wheel: Path) -> set[str]:
    """Return the names of the distributions that the wheel needs without extras, and those need in turn."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA")]
        asked = Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist", [])
    waiting, found = [Requirement(text) for text in asked], set[str]()
    while waiting:
        one = waiting.pop()
        if one.marker is not None and not any(one.marker.evaluate({"extra": extra}) for extra in ("", *one.extras)):
            continue
        name = canonicalize_name(one.name)
        if name not in found:
            found.add(name)
            waiting += [Requirement(text) for text in distribution(name).requires or ()]
    return found


def test_the_sdist_holds_the_packages_and_no_tests(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    tops = {name.partition("/")[0] for name in names}
    assert tops == {*SHIPPED, "collapse_hpo.egg-info", "pyproject.toml", "README.md", "LICENSE", "PKG-INFO", "setup.cfg"}
    assert {f"{folder}/py.typed" for folder in SHIPPED} <= names
    assert {"bench/demo.yaml", "bench/protocols/own_sweep_val.yaml", "bench/data/own_sweep.parquet"} <= names
    endings = {Path(name).suffix for name in names if name.partition("/")[0] in SHIPPED}
    assert endings == {".py", ".yaml", ".parquet", ".typed", ".css", ".j2", ".js"}


def test_the_wheel_holds_what_the_sdist_does(sdist: Path, wheel: Path) -> None:
    with tarfile.open(sdist) as archive:
        there = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    with zipfile.ZipFile(wheel) as archive:
        here = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert here == {name for name in there if name.partition("/")[0] in SHIPPED}


def test_the_wheels_extras_are_those_the_documentation_names(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA")]
        extras = Parser().parsestr(archive.read(name).decode()).get_all("Provides-Extra", [])
    assert {"sweep", "plots", "logs", "docs", "dev"} <= set(extras)


def test_its_version_is_told_three_ways(run: Callable[..., str], wheel: Path) -> None:
    version = wheel.name.split("-")[1]
    assert run("hpo", "--version") == f"hpo {version}\n"
    assert run("python", "-m", "hpo", "--version") == f"hpo {version}\n"
    assert run("python", "-c", "import hpo; print(hpo.__version__)") == f"{version}\n"


def test_a_shell_completes_commands_and_options(run: Callable[..., str]) -> None:
    asked = {"_HPO_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    assert run("hpo", COMP_WORDS="hpo fo", **asked) == "forecast\n"
    assert run("hpo", COMP_WORDS="hpo fit --ou", **{**asked, "COMP_CWORD": "2"}) == "--output\n"


def test_the_pruner_works(run: Callable[..., str]) -> None:
    assert int(run("python", "-c", PRUNER)) >= 4


def test_curves_are_fitted_forecast_checked_and_monitored(run: Callable[..., str], data: Path) -> None:
    run("hpo", "fit", str(data / "own_ladder.parquet"), "-o", "model.json")
    one = (str(data / "own_ladder.parquet"), "--run", "ladder-w76-seed0", "--json")
    forecast = json.loads(run("hpo", "forecast", *one, "--model", "model.json", "--at", "0.3"))
    assert abs(forecast["error_pct"]) < 2
    run("hpo", "check", str(data / "own_ladder.parquet"), code=1)  # it holds runs at other τ and TPP on purpose
    assert json.loads(run("hpo", "monitor", *one, "--model", "model.json"))["status"] == "ok"


def test_a_family_is_planned(run: Callable[..., str]) -> None:
    assert json.loads(run("hpo", "plan", "--family", "celerity", "--tpp", "20", "--json"))["recipes"]


def test_recorded_runs_are_replayed(run: Callable[..., str]) -> None:
    few = ("--protocol", "own_sweep_val", "--methods", "current_best,transfer,hpo", "--json")
    found = json.loads(run("hpo", "bench", "replay", "--curves", ".", *few))
    assert len(found["tasks"]) >= 2
    assert set(found["summary"]) == {"current_best", "transfer", "hpo"}


def test_a_sweep_says_in_one_line_what_it_lacks(run: Callable[..., str], data: Path) -> None:
    said = run("hpo", "sweep", str(data.parent / "demo.yaml"), "--out", "run", code=2)
    assert said == "hpo: hpo sweep needs ray and torch: pip install 'collapse-hpo[sweep]'\n"
