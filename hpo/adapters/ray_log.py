"""The scheduler's memory outside its process: a JSONL file of everything it was told and everything it decided.

One event a line, in the order in which the driver saw them. Ray restores trials but no scheduler; a scheduler that reads its
events back knows what the old one knew. A line that a crash cut short is skipped. Events:

``start`` (a new experiment begins; what is before it belongs to another) · ``add`` (``id``, ``about``) · ``report`` (``id``,
``step``, ``value``; ``learned`` where nobody judged it then) · ``decision`` (``id``, fields of
:class:`~hpo.adapters.optuna_record.TrialDecision`) · ``end`` (``id``, ``how``).
"""

from __future__ import annotations

import errno
import json
import os
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO

from hpo.adapters.json_line import json_object
from hpo.adapters.optuna_record import TrialDecision
from hpo.adapters.optuna_scale import jsonable

Event = dict[str, Any]
MOST_UNWRITTEN = 20_000
"""Events that are kept while the log cannot be written."""
_NUMBERS = ("fraction", "forecast", "lower", "upper", "incumbent", "p_best", "allowed", "misfit", "error_spent")


class EventLog:
    """Appends events to a file, each at once, and reads them back; the file stays open while the log is in use.

    A log never stops an experiment. What cannot be written (a full disk, a file server that is away) is kept, with one warning,
    and tried again at the next event; after :data:`MOST_UNWRITTEN` of them the log is given up.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file: RawIOBase | None = None
        self._unwritten: deque[bytes] = deque()

    def write(self, event: Event) -> None:
        """Append one event."""
        if self.path is None:
            return
        line = json.dumps({key: jsonable(value) for key, value in event.items()}) + "\n"
        self._unwritten.append(line.encode("utf-8"))
        try:
            self._write_all(self.path)
        except OSError as error:
            self._close()
            if len(self._unwritten) == 1:
                warnings.warn(f"events cannot be logged, and are kept until they can: {error}", RuntimeWarning, stacklevel=2)
            elif len(self._unwritten) > MOST_UNWRITTEN:
                warnings.warn(f"events are no longer logged: {error}", RuntimeWarning, stacklevel=2)
                self.path, self._unwritten = None, deque()

    def read(self) -> Iterator[Event]:
        """Yield the events of the latest experiment in the file one by one: there may be millions."""
        if self.path is None or not self.path.is_file():
            return
        with self.path.open("rb") as file:
            file.seek(_after_last_start(file))
            yield from (event for line in file if (event := _parsed(line)) is not None)

    def _write_all(self, path: Path) -> None:
        if self._file is None:
            self._mend(path)
            self._file = path.open("ab", buffering=0)
        while self._unwritten:
            line = self._unwritten[0]
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            self._unwritten.popleft()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()

    def _mend(self, path: Path) -> None:
        """Before the first line: make the folder, and end a line that a crash cut short."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and path.stat().st_size > 0:
            with path.open("rb+") as file:
                file.seek(-1, 2)
                if file.read(1) != b"\n":
                    file.write(b"\n")

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_file": None, "_unwritten": deque()}

    def __del__(self) -> None:
        if self._file is not None:
            try:  # noqa: SIM105 - at the interpreter's end there is no contextlib any more
                self._file.close()
            except OSError:
                pass


def decision_event(trial_id: str, decision: TrialDecision) -> Event:
    """Return the event of a decision."""
    return {"event": "decision", "id": trial_id, **decision.to_dict()}


def decision_from(event: Event, number: int) -> TrialDecision:
    """Return the decision of an event, as one about trial ``number``; the inverse of :func:`decision_event`."""
    fields = {key: value for key, value in event.items() if key not in ("event", "id")}
    fields |= {name: float(fields[name]) for name in _NUMBERS if fields.get(name) is not None}
    return TrialDecision(**{**fields, "trial": number})


def _after_last_start(file: BinaryIO) -> int:
    place = found = 0
    for line in file:
        place += len(line)
        if b'"start"' in line and (_parsed(line) or {}).get("event") == "start":
            found = place
    return found


def _parsed(line: bytes) -> Event | None:
    event = json_object(line.decode("utf-8", errors="replace"))
    return event if event is not None and "event" in event else None
