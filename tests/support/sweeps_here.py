"""Whole sweeps in this process: all of the engine but Ray, whose place a loop takes that runs one job after the other."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpo.commands.sweep_display import displayed
from hpo.engine import context
from hpo.engine.config import parse_config
from hpo.engine.plan import plan_sweep
from hpo.engine.ray_trials import note_failure
from hpo.engine.run_folder import RunFolder, existing_run_folder, locked, new_run_folder
from hpo.engine.sweep import run_sweep
from hpo.engine.worker import run_job

SCRIPT = '<script>alert("x")</script>'
"""A setting's value that a page must not run."""
TARGET = {"n_steps": 100, "n_params": 4000, "batch_tokens": 100, "nan_above": 0.09}


class Killed(BaseException):
    """Stands for the end of a driver that was killed: nothing of the engine catches it."""


def train(settings: Mapping[str, Any], session: Any) -> None:
    """Train nothing: losses of a family whose final loss is a bowl in ``lr``; NaN, or another curve, on request."""
    folder = session.restore()
    first = int((folder / "step").read_text()) if folder else 0
    off, n = math.log(settings["lr"] / 0.01), settings["n_steps"]
    worse = 0.0 if settings.get("kind", "plain") == "plain" else 0.05
    final = 2 + 20 / math.sqrt(settings["n_params"]) + 0.05 * off * off + worse
    noise = random.Random(f"{settings['lr']} {settings['n_params']}")
    for step in range(first + 1, n + 1):
        t = step / n
        bend = 0.3 + 0.02 * off + float(os.environ.get("SWEEPS_HERE_BEND", "0"))
        loss = final * (1 + bend * (1 - t) ** 2 + 0.1 * math.exp(-30 * t)) + 0.002 * noise.gauss(0, 1)
        if settings.get("nan_above") and settings["lr"] > settings["nan_above"] and t > 0.15:
            loss = math.nan
        held_out = {"val_loss": loss + 1.0} if settings.get("val_every") and step % settings["val_every"] == 0 else {}
        session.report(step=step, loss=loss, tokens=float(step * settings["batch_tokens"]), **held_out)
        session.checkpoint(lambda to, step=step: (to / "step").write_text(str(step)))
        if session.should_stop():
            return


def config(**changes: Any) -> dict[str, Any]:
    """Return a sweep of ten candidates over a learning rate and a word, one value of which is :data:`SCRIPT`."""
    space = {
        "lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 5},
        "kind": {"type": "categorical", "choices": ["plain", SCRIPT]},
    }
    return {
        "name": "here",
        "trainable": "sweeps_here:train",
        "target": {**TARGET, "schedule": {"name": "linear"}, "warmup_fraction": 0.1},
        "search": {"space": {"parameters": space}},
        "proxies": {"sizes": [{"n_params": 1000, "n_steps": 60}, {"n_params": 2000, "n_steps": 80}], "settings": 6},
        "stopping": {"at": 0.2},
        "price_per_hour": 36.0,
        "checkpoint_every_s": 600,
        **changes,
    }


def run_here(
    queue: Any, templates: Mapping[str, Any], *, events: Any, before: Callable[[str], None] = lambda _name: None, **_: Any
) -> None:
    """Run the jobs of a queue one after the other, telling ``events`` as Ray's relay would; ``before`` sees each name."""
    while (job := queue.take()) is not None:
        before(job.name)
        events.tick()
        events.started(job)
        try:
            run_job(replace(templates[job.name], stop_step=job.stop_step), lambda report, job=job: events.reported(job, report))
        except Exception as error:  # noqa: BLE001 - as Ray does
            note_failure(job, str(error), is_last=True)
        queue.ended(job.name)
        events.ended(job)


def sweep_here(
    folder: Path, settings: Mapping[str, Any] | None = None, *, before: Callable[[str], None] = lambda _name: None, **how: Any
) -> RunFolder:
    """Run a sweep in ``folder``, or with ``settings=None`` go on with the one there; return the run folder.

    ``before`` is called with each job's name before it runs and may raise :class:`Killed`. ``how``: as of ``run_sweep``.
    """
    resume = settings is None
    found = existing_run_folder(folder) if settings is None else new_run_folder(folder, parse_config(settings))
    plan = plan_sweep(found.read_config())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "run_jobs", lambda queue, templates, **about: run_here(queue, templates, before=before, **about))
        patch.setattr(context, "ray_for", lambda *_: nullcontext())
        patch.setattr("hpo.engine.worker._free_device_memory", lambda: None)  # nothing is there, and looking takes long
        with locked(found), displayed(plan, found) as progress:
            run_sweep(plan, found, progress, resume=resume, **how)
    return found
