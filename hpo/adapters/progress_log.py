"""The progress of a sweep as a JSONL file: what its driver saw happen, one event a line, in order.

Everything that shows a sweep from outside (``hpo watch``, the report) reads this file and nothing that the driver holds in
memory, so it shows running, killed and finished sweeps alike. Every event has ``event`` and ``time`` (seconds since 1970):

``driver`` (a driver begins: ``name``, ``rule``, ``at``, ``pid``, ``environment``, ``total_flops``) · ``run`` (a run becomes
known: ``name``, ``role``, ``number``, ``settings``, ``n_steps``, ``stop_step``, ``flops``, ``step``; ``counted``: its cost so
far is part of the sweep's) · ``expect`` (``flops`` of the whole sweep) · ``started`` (``name``, ``step``, ``until``) ·
``reported`` (``name``, ``step``, ``loss``) · ``decided`` (``name``, ``action``, ``reason``, ``fraction``, ``forecast``,
``lower``, ``upper``, ``p_best``) · ``suspected`` (it has left its family's curve: ``name``, ``kind``, ``onset``,
``detected_at``, ``size_pct``, ``cost_pct``, ``reason``) · ``ended`` (``name``, ``status``, ``step``, ``message``) ·
``said`` (``text``) · ``finished`` (``error``, None where all went well; ``winner``, its name).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpo.adapters.json_line import json_object

Event = dict[str, Any]


class ProgressTail:
    """Reads a growing log piece by piece: :meth:`new` returns the events that have come since the last call.

    A last line without its end waits until it has one; a line that a crash cut short, or that is no event, is passed over. A
    log that has become shorter is read again from its beginning.

    Parameters
    ----------
    path : Path
        Need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_bytes = 0

    def new(self) -> list[Event]:
        """Return the events of the lines that are new and whole, in order."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < self._read_bytes:
                    self._read_bytes = 0
                file.seek(self._read_bytes)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        found = (_event(line) for line in whole.decode("utf-8", errors="replace").splitlines())
        return [event for event in found if event is not None]


def read_progress(path: Path) -> list[Event]:
    """Return all events of a log; none where there is no such file."""
    return ProgressTail(path).new()


def _event(line: str) -> Event | None:
    event = json_object(line)
    is_event = event is not None and isinstance(event.get("event"), str) and isinstance(event.get("time"), int | float)
    return event if is_event else None
