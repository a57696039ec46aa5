"""A study pruned by forecasts, opened in the real optuna-dashboard: what its JSON API serves is what its pages show."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import optuna
import pytest
from child_processes import free_port
from optuna.trial import TrialState
from optuna_studies import HORIZON, add_family, curve, steps
from sweeps_here import config, sweep_here

from hpo import CollapsePruner, plot_forecasts, report

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def fetched(url: str) -> Any:
    with urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())


@pytest.fixture
def pruned_study(tmp_path: Path) -> Iterator[tuple[optuna.Study, str]]:
    """A study on SQLite with one trial stopped by forecast, and its storage's URL."""
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = optuna.create_study(storage=url, study_name="pruned", pruner=CollapsePruner(total_steps=HORIZON))
    add_family(study)

    def objective(trial: optuna.Trial) -> float:
        for step, value in curve(3.6, steps()).items():
            report(trial, step, value)
        return value

    study.optimize(objective, n_trials=1)
    yield study, url
    study._storage.remove_session()
    study._storage._backend.engine.dispose()  # type: ignore[attr-defined]


@contextmanager
def served(storage: str, log: Path) -> Iterator[str]:
    """Yield the URL of a dashboard on a storage, on a free local port."""
    program = shutil.which("optuna-dashboard", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if program is None:
        pytest.skip("optuna-dashboard absent: pip install optuna-dashboard")
    port = free_port()
    with log.open("w") as file:
        command = [program, storage, "--host", "127.0.0.1", "--port", str(port)]
        server = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            yield answering(f"http://127.0.0.1:{port}", server, log)
        finally:
            server.terminate()
            server.wait(20)


@pytest.fixture
def dashboard(pruned_study: tuple[optuna.Study, str], tmp_path: Path) -> Iterator[str]:
    """URL of a dashboard on that storage."""
    with served(pruned_study[1], tmp_path / "dashboard.log") as url:
        yield url


def answering(url: str, server: subprocess.Popen[bytes], log: Path) -> str:
    """Return the URL once the server answers there."""
    until = time.monotonic() + 60
    while time.monotonic() < until and server.poll() is None:
        try:
            fetched(f"{url}/api/studies")
        except URLError:
            time.sleep(0.2)
        else:
            return url
    raise RuntimeError(f"optuna-dashboard did not answer: {log.read_text()}")


def test_a_stopped_trials_attributes_are_shown(pruned_study: tuple[optuna.Study, str], dashboard: str) -> None:
    study, _ = pruned_study
    (summary,) = fetched(f"{dashboard}/api/studies")["study_summaries"]
    assert summary["study_name"] == "pruned"
    detail = fetched(f"{dashboard}/api/studies/{summary['study_id']}?after=0")
    shown = detail["trials"][-1]
    attributes = {a["key"]: a["value"] for a in shown["user_attrs"]}
    said = study.trials[-1].user_attrs
    assert shown["state"] == "Pruned"
    assert study.trials[-1].state == TrialState.PRUNED
    assert attributes == {key: value if isinstance(value, str) else json.dumps(value) for key, value in said.items()}
    assert {"predicted_final", "stopped_at", "reason", "reason_text"} <= set(attributes)
    assert len(shown["intermediate_values"]) == len(study.trials[-1].intermediate_values)
    assert "collapse_pruner" in {a["key"] for a in summary["user_attrs"] or detail["user_attrs"]}


def test_the_figure_of_the_forecasts_can_be_shown_there(pruned_study: tuple[optuna.Study, str], dashboard: str) -> None:
    save = pytest.importorskip("optuna_dashboard").save_plotly_graph_object
    pytest.importorskip("plotly", reason="Plotly absent: pip install plotly")
    study, _ = pruned_study
    save(study, plot_forecasts(study), graph_object_id="forecasts")
    detail = fetched(f"{dashboard}/api/studies/{study._study_id}?after=0")
    (kept,) = detail["plotly_graph_objects"]
    figure = json.loads(kept["graph_object"])
    assert kept["id"] == "forecasts"
    assert "stopped by forecast (1)" in {trace.get("name") for trace in figure["data"]}


def test_the_study_of_a_sweep_opens_there_with_states_reports_and_reasons(tmp_path: Path) -> None:
    run = sweep_here(tmp_path / "run", config())
    result = json.loads(run.result.read_text())
    with served(str(run.journal), tmp_path / "dashboard.log") as url:
        (summary,) = fetched(f"{url}/api/studies")["study_summaries"]
        assert summary["study_name"] == "here"
        trials = fetched(f"{url}/api/studies/{summary['study_id']}?after=0")["trials"]
    shown = {trial["number"]: trial for trial in trials}
    states = {"winner": "Complete", "complete": "Complete", "stopped": "Pruned", "diverged": "Pruned"}
    assert {number: trial["state"] for number, trial in shown.items()} == {
        trial["number"]: states[trial["state"]] for trial in result["trials"]
    }
    for trial in result["trials"]:
        attributes = {a["key"]: a["value"] for a in shown[trial["number"]]["user_attrs"]}
        assert shown[trial["number"]]["intermediate_values"]
        if trial["state"] == "stopped":
            assert attributes["reason"] == trial["reason"]
            assert float(attributes["predicted_final"]) == pytest.approx(trial["forecast"]["final_loss"])
