"""Whole sweeps through the command line, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]

OWN_TRAINING = '''
"""A training function of a user's own: a known final loss, and trouble on request."""
import math, os, resource, shutil, signal, time
from pathlib import Path


def fill(disk):
    """Write until the disk is full; where it is a large one, let the kernel end what this process may write."""
    if shutil.disk_usage(disk).total > 2**26:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    try:
        with open(os.path.join(disk, "ballast"), "ab", buffering=0) as file:
            while file.write(bytes(2**12)):
                pass
    except OSError:
        pass


def train(settings, session):
    checkpoint = session.restore()
    first = int((checkpoint / "step").read_text()) if checkpoint else 0
    off = math.log(settings["lr"] / 0.01)
    final, n = 2 + 20 / math.sqrt(settings["n_params"]) + 0.05 * off * off, settings["n_steps"]
    is_troubled = settings["lr"] == settings.get("trouble_lr")
    for step in range(first + 1, n + 1):
        time.sleep(settings.get("sleep_s", 0))
        t = step / n
        loss = final * (1 + 0.3 * (1 - t) ** 2 + 0.1 * math.exp(-30 * t)) + 0.002 * math.sin(7.1 * step)
        if is_troubled and t > 0.1:
            trouble = settings["trouble"]
            if trouble == "nan":
                loss = math.nan
            elif trouble == "memory":
                raise MemoryError("asked for 3 GB")
            elif trouble == "die" and not os.path.exists(settings["flag"]):
                Path(settings["flag"]).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            elif trouble == "error":
                raise RuntimeError("no such luck")
            elif trouble == "hang":
                time.sleep(3600)
            elif trouble == "jump" and t > 0.6:
                loss *= 1.004
            elif trouble == "clock":
                Path(settings["flag"]).touch()
            elif trouble == "full disk" and not os.path.exists(settings["flag"]):
                fill(settings["disk"])
        session.report(step=step, loss=loss, tokens=step * settings["batch_tokens"])
        session.checkpoint(lambda folder, step=step: (folder / "step").write_text(str(step)))
        if session.should_stop():
            return
'''

OWN_SWEEP: dict[str, Any] = {
    "name": "own",
    "trainable": "own_training:train",
    "target": {"n_steps": 600, "n_params": 4000, "batch_tokens": 100, "schedule": {"name": "linear"}, "warmup_fraction": 0.1},
    "search": {"space": {"parameters": {"lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 5}}}},
    "proxies": {"sizes": [{"n_params": 1000, "n_steps": 300}, {"n_params": 2000, "n_steps": 400}], "settings": 3},
    "stopping": {"at": 0.2, "keep_max": 1},
    "checkpoint_every_s": 0.5,
}


class CommandLine:
    """Starts ``hpo`` in a folder that holds ``own_training.py`` and ``sweep.yaml``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "run"
        (folder / "own_training.py").write_text(OWN_TRAINING)
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}

    def write(self, config: dict[str, Any]) -> Path:
        """Write ``sweep.yaml``."""
        path = self.folder / "sweep.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        """Start ``hpo`` and return its process."""
        return subprocess.Popen(
            [sys.executable, "-m", "hpo", *map(str, arguments)],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        """Run ``hpo`` to its end; returns exit code, stdout, stderr."""
        with self.start(*arguments) as process:
            out, err = process.communicate()
        return process.returncode, out, err


@pytest.fixture
def hpo(tmp_path: Path) -> CommandLine:
    """The command line in a folder of its own."""
    return CommandLine(tmp_path)


@pytest.fixture
def own_sweep() -> Callable[..., dict[str, Any]]:
    """Return a maker of sweeps of the user's own function, with more settings for its target."""

    def make(**target: Any) -> dict[str, Any]:
        return {**OWN_SWEEP, "target": {**OWN_SWEEP["target"], **target}}

    return make


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommandLine, int, str, str]:
    """One verified sweep of tiny real models, shared by the tests of a module: the command line and what it said."""
    hpo = CommandLine(tmp_path_factory.mktemp("sweep"))
    tiny = {
        "name": "tiny",
        "model": {"width": 16, "depth": 1, "head_dim": 8, "ffn_ratio": 2.0},
        "data": {"seq_len": 32},
        "training": {"tokens": 60_000, "batch_sequences": 8},
        "search": {
            "space": {
                "parameters": {
                    "lr": {"type": "float", "low": 3e-3, "high": 4.8e-2, "log": True, "points": 3},
                    "tau": {"type": "float", "low": 0.1, "high": 0.8, "log": True, "points": 2},
                }
            }
        },
        "proxies": {"sizes": [{"width": 8}], "settings": 4},
        "stopping": {"at": 0.2, "keep_max": 1},
    }
    code, out, err = hpo("sweep", hpo.write(tiny), "--out", hpo.run, "--verify", "--json")
    return hpo, code, out, err
