"""Sweeps logged to TensorBoard and Weights & Biases, read back by their own readers and by ours."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from child_processes import environment_of
from sweeps_here import config, sweep_here

from hpo.adapters.progress_log import Event
from hpo.adapters.tensorboard_tracker import TensorBoardTracker

FORECAST = {"forecast": 1.9, "lower": 1.8, "upper": 2.0, "p_best": 0.7, "fraction": 0.2}


def events(name: str = "trial-03") -> list[Event]:
    """Return the events of one candidate that reports, is selected, and ends."""
    about = {"role": "candidate", "number": 3, "of": name, "n_steps": 40, "stop_step": 20, "flops": 1.0, "step": 0}
    told: list[Event] = [{"event": "run", "name": name, "settings": {"lr": 0.01, "kind": "a", "sizes": [1, 2]}, **about}]
    told.append({"event": "started", "name": name, "until": 20})
    told += [{"event": "reported", "name": name, "step": step, "loss": 3.0 - step / 40} for step in (10, 20)]
    told.append({"event": "ended", "name": name, "status": "reached", "step": 20, "n_steps": 40, "message": ""})
    told.append({"event": "decided", "name": name, "action": "continue", "reason": "selected", **FORECAST})
    told.append({"event": "reported", "name": name, "step": 40, "loss": 2.0})
    told.append({"event": "reported", "name": name, "step": 40, "loss": None})
    told.append({"event": "ended", "name": name, "status": "reached", "step": 40, "n_steps": 40, "message": ""})
    told.append({"event": "reported", "name": "unknown", "step": 40, "loss": 2.0})
    return [{**event, "time": 1e9 + i} for i, event in enumerate(told)]


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="TensorBoard absent")
    read = accumulator.EventAccumulator(str(folder))
    read.Reload()
    return {tag: [(e.step, pytest.approx(e.value)) for e in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def test_tensorboard_has_every_report_and_decision_of_a_trial(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX absent: pip install 'collapse-hpo[sweep]'")
    with closing(TensorBoardTracker(tmp_path)) as tracker:
        for event in events():
            tracker(event)
    found = scalars(tmp_path / "trial-03")
    assert found["loss"] == [(10, 2.75), (20, 2.5), (40, 2.0)]
    assert found["forecast"] == [(20, 1.9)]
    assert (found["forecast_lower"], found["forecast_upper"], found["p_best"]) == ([(20, 1.8)], [(20, 2.0)], [(20, 0.7)])


def test_a_sweep_that_asks_for_tensorboard_logs_each_of_its_runs(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX absent: pip install 'collapse-hpo[sweep]'")
    small = {**config(), "log_to": ["tensorboard"]}
    small["search"] = {"space": {"parameters": {"lr": {"type": "float", "low": 1e-3, "high": 1e-2, "log": True, "points": 2}}}}
    small["proxies"] = {**small["proxies"], "settings": 2}
    run = sweep_here(tmp_path / "run", small)
    logged = {folder.name for folder in (run.path / "tensorboard").iterdir()}
    assert logged == {folder.name for folder in run.trials.iterdir()}
    winner = scalars(run.path / "tensorboard" / "trial-01")
    assert winner["loss"][-1][0] == 100
    assert {"forecast", "p_best"} <= set(winner)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_wandb_has_every_report_and_decision_of_a_trial_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="wandb absent: pip install wandb")
    from hpo import read_runs
    from hpo.adapters.wandb_tracker import WandbTracker

    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "logs").mkdir()
    with closing(WandbTracker(tmp_path, "mine")) as tracker:
        for event in events():
            tracker(event)
    files = sorted((tmp_path / "logs" / "wandb").glob("offline-run-*/*.wandb"))
    assert len({file.name for file in files}) == 1  # one W&B run, however often it was opened
    points: list[tuple[float, float]] = []
    settings: dict[str, Any] = {}
    for file in files:
        for run in read_runs(file):
            points += zip(run.steps.tolist(), run.values.tolist(), strict=True)
            settings |= run.settings
    assert sorted(points) == [(10, 2.75), (20, 2.5), (40, 2.0)]
    assert settings["lr"] == 0.01


@pytest.mark.slow
def test_wandb_without_a_login_is_one_line_before_anything_is_trained(tmp_path: Path, repository: Path) -> None:
    pytest.importorskip("wandb", reason="wandb absent: pip install wandb")
    code = "import sys; from pathlib import Path; from sweeps_here import *; "
    code += "sweep_here(Path(sys.argv[1]), {**config(), 'log_to': ['wandb']})"
    bare = {name: value for name, value in environment_of(repository).items() if not name.startswith("WANDB_")}
    environment = {**bare, "HOME": str(tmp_path), "NETRC": str(tmp_path / "netrc")}
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert "InputError: log_to: expected wandb to be logged in (wandb login), or WANDB_MODE=offline" in done.stderr
    assert not any((tmp_path / "run" / "trials").iterdir())
