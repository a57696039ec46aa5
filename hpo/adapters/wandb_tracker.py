"""A sweep in Weights & Biases: one W&B run a trial, grouped by sweep, with what was forecast and decided.

``WANDB_MODE=offline`` keeps everything on this machine (``wandb sync`` uploads it later); project, entity and the rest are
W&B's own environment variables. A resumed sweep goes on with the same W&B runs.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from pathlib import Path
from typing import Any

from hpo.adapters.progress_log import Event

_SECOND = 1.1


class WandbTracker:
    """Takes the events of a sweep's progress and logs them to W&B; its own files go under ``folder``.

    Parameters
    ----------
    folder : Path
        The run folder.
    sweep : str
        Name of the sweep: the group of its runs, and the project where ``WANDB_PROJECT`` names none.

    Raises
    ------
    ImportError
        wandb is not installed.
    ValueError
        W&B is to upload and nobody is logged in.
    """

    def __init__(self, folder: Path, sweep: str) -> None:
        import wandb

        if os.environ.get("WANDB_MODE", "online") == "online":
            _log_in(wandb)
        self._wandb, self._folder, self._sweep = wandb, folder, sweep
        self._about: dict[str, Event] = {}
        self._steps: dict[str, int] = {}
        self._open: dict[str, Any] = {}
        self._said: dict[str, dict[str, Any]] = {}
        self._opened_at: dict[str, float] = {}

    def close(self) -> None:
        """Tell what is left, and end the W&B runs."""
        for name in list(self._said):  # decided about after its training
            self._run(name)
        for name in list(self._open):
            self._open.pop(name).finish()

    def __call__(self, event: Event) -> None:
        """Take an event."""
        name, kind = str(event.get("name")), event["event"]
        if kind == "run":
            self._about[name], self._steps[name] = event, int(event["step"])
        elif name not in self._about:
            return
        elif kind == "reported":
            self._steps[name] = int(event["step"])
            if event["loss"] is not None:
                self._run(name).log({"loss": event["loss"]}, step=self._steps[name])
        elif kind == "decided":
            self._decided(name, event)
        elif kind == "ended":
            run = self._run(name)
            run.summary.update({"status": event["status"], "message": event["message"], "step": event["step"]})
            self._open.pop(name).finish()

    def _decided(self, name: str, event: Event) -> None:
        """Note a decision; that on a run which does not train now waits until it does, or for the end."""
        keys = ("action", "reason", "fraction", "forecast", "lower", "upper", "p_best")
        self._said[name] = {f"decision/{key}": event[key] for key in keys if event.get(key) is not None}
        if name in self._open:
            self._run(name)

    def _run(self, name: str) -> Any:
        if name not in self._open:
            about = self._about[name]
            self._wait_for_a_name_of_its_own(name)
            self._open[name] = self._wandb.init(
                project=os.environ.get("WANDB_PROJECT") or self._sweep,
                group=self._sweep,
                job_type=about["role"],
                name=name,
                id=hashlib.sha256(f"{self._folder}/{name}".encode()).hexdigest()[:16],
                config=about["settings"],
                dir=str(self._folder / "logs"),
                resume="allow",
                reinit="create_new",
                settings=self._wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True),
            )
        if name in self._said:
            self._open[name].summary.update(self._said.pop(name))
        return self._open[name]

    def _wait_for_a_name_of_its_own(self, name: str) -> None:
        """Wait where a run is opened again within a second: W&B names folders by the second."""
        since = time.monotonic() - self._opened_at.get(name, -math.inf)
        if since < _SECOND:
            time.sleep(_SECOND - since)
        self._opened_at[name] = time.monotonic()


def _log_in(wandb: Any) -> None:
    """Make sure that somebody is logged in, before a display takes the terminal: W&B asks for a key where there is none."""
    try:
        wandb.login()
    except wandb.errors.Error as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"expected wandb to be logged in (wandb login), or WANDB_MODE=offline; found: {reason}") from None
