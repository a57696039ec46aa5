"""Whole sweeps through the command line, in processes of their own: a training function, its sweep, and who starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def pace(settings, t):
    """Return how long a step takes: a time of its own in the target's last part, before it none once there is a hurry."""
    part = "late_" if settings["n_params"] == 4000 and t > 0.2 and "late_sleep_s" in settings else ""
    in_a_hurry = part == "" and os.path.exists(settings.get("hurry", "/no/such/file"))
    return 0 if in_a_hurry else settings.get(part + "sleep_s", 0)


def train(settings, session):
    checkpoint = session.restore()
    first = int((checkpoint / "step").read_text()) if checkpoint else 0
    off = math.log(settings["lr"] / 0.01)
    final, n = 2 + 20 / math.sqrt(settings["n_params"]) + 0.05 * off * off, settings["n_steps"]
    is_troubled = settings["lr"] == settings.get("trouble_lr") and settings["n_params"] >= settings.get("trouble_from", 0)
    for step in range(first + 1, n + 1):
        t = step / n
        time.sleep(pace(settings, t))
        loss = final * (1 + 0.3 * (1 - t) ** 2 + 0.1 * math.exp(-30 * t)) + 0.002 * math.sin(7.1 * step)
        if is_troubled and t > settings.get("trouble_at", 0.1):
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
                Path(settings["flag"] + "-back" if t > 0.6 else settings["flag"]).touch()
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
