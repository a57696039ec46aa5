"""A sweep in TensorBoard: one TensorBoard run a trial, so that their losses overlay, with what was forecast and decided.

    tensorboard --logdir RUN/tensorboard

Scalars of a run: ``loss`` at every report, ``forecast``, ``forecast_lower``, ``forecast_upper`` and ``p_best`` at the steps of
decisions. Its settings are there as text and, once it has ended, as hyperparameters.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpo.adapters.progress_log import Event

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter


class TensorBoardTracker:
    """Takes the events of a sweep's progress and writes them under ``folder``.

    Raises
    ------
    ImportError
        tensorboardX, which comes with Ray Tune, is not installed.
    """

    def __init__(self, folder: Path) -> None:
        from tensorboardX import SummaryWriter

        self._folder, self._make, self._n_opened = folder, SummaryWriter, 0
        self._runs: dict[str, Event] = {}
        self._steps: dict[str, int] = {}
        self._losses: dict[str, float] = {}
        self._writers: dict[str, SummaryWriter] = {}

    def close(self) -> None:
        """Write what is left."""
        for name in list(self._writers):
            self._close(name)

    def __call__(self, event: Event) -> None:
        """Take an event."""
        name, kind = str(event.get("name")), event["event"]
        if kind == "run":
            self._runs[name], self._steps[name] = event, int(event["step"])
        elif name not in self._runs:
            return
        elif kind == "reported":
            self._steps[name] = int(event["step"])
            if event["loss"] is not None:
                self._losses[name] = float(event["loss"])
                self._writer(name).add_scalar("loss", event["loss"], self._steps[name], event["time"])
        elif kind == "decided":
            self._decided(name, event)
        elif kind == "ended":
            self._ended(name, event)

    def _decided(self, name: str, event: Event) -> None:
        writer = self._writer(name)
        tags = {"forecast": "forecast", "lower": "forecast_lower", "upper": "forecast_upper", "p_best": "p_best"}
        for key, tag in tags.items():
            if event.get(key) is not None:
                writer.add_scalar(tag, event[key], self._steps[name], event["time"])
        writer.add_text("decision", f"{event['action']}: {event['reason']}", self._steps[name], event["time"])

    def _ended(self, name: str, event: Event) -> None:
        writer = self._writer(name)
        writer.add_text("ended", f"{event['status']} {event['message']}".strip(), int(event["step"]), event["time"])
        about = self._runs[name]
        if event["step"] >= about["n_steps"] and name in self._losses:
            writer.add_hparams(_plain(about["settings"]), {"final/last_loss": self._losses[name]}, name=".")
        self._close(name)

    def _writer(self, name: str) -> SummaryWriter:
        if name not in self._writers:
            self._n_opened += 1  # a file's own name tells only the second in which it was opened
            suffix = f".{os.getpid()}.{self._n_opened}"
            self._writers[name] = self._make(str(self._folder / name), flush_secs=10, filename_suffix=suffix)
            settings = ", ".join(f"{key} = {value}" for key, value in self._runs[name]["settings"].items())
            self._writers[name].add_text("settings", settings, 0)
        return self._writers[name]

    def _close(self, name: str) -> None:
        self._writers.pop(name).close()


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with values that TensorBoard takes as hyperparameters; others as text."""
    return {key: value if isinstance(value, bool | int | float | str) else str(value) for key, value in settings.items()}
