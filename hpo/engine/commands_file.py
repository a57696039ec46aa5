"""What people ask of a running sweep, and what it answers: two append-only files in the run folder.

``commands.jsonl`` is written by ``hpo sweep-control``, ``answers.jsonl`` by the driver alone. A line is appended in one write
under a lock, and counts only with its line end, so either side may die at any moment. A driver heeds every command without
an answer; what it heeded before is in the answers, from which a resumed one knows what holds.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hpo.adapters.json_line import json_object
from hpo.core.quantities import is_real

Action = Literal["keep", "stop", "revive", "extend"]
_POLL_S = 0.1


@dataclass(frozen=True)
class Command:
    """One wish about one candidate.

    Attributes
    ----------
    id, time : str
        Of the command; the time in UTC.
    action : {"keep", "stop", "revive", "extend"}
        What is wished.
    trial : str
        Name of the run.
    until : float, optional
        Of ``extend``: the fraction of training up to which no forecast stops it; None: a tenth more than it has done.
    """

    id: str
    time: str
    action: Action
    trial: str
    until: float | None = None


@dataclass(frozen=True)
class Answer:
    """What became of a command: done or refused, in words.

    ``revived``: a run that had ended, or was about to, was started again. ``until``: the fraction to which ``extend`` extends.
    """

    id: str
    ok: bool
    text: str
    revived: bool = False
    until: float | None = None


class CommandsFile:
    """The commands and answers of one run folder."""

    def __init__(self, folder: Path) -> None:
        self.commands_path, self.answers_path = folder / "commands.jsonl", folder / "answers.jsonl"
        self._read_bytes = -1
        self._commands: list[Command] = []

    def ask(self, action: Action, trial: str, until: float | None = None) -> Command:
        """Append a command and return it."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        command = Command(secrets.token_hex(6), now, action, trial, until)
        _append(self.commands_path, asdict(command))
        return command

    def answer(self, answer: Answer) -> None:
        """Append an answer."""
        _append(self.answers_path, asdict(answer))

    def commands(self) -> list[Command]:
        """Return all commands so far, in order; costs one look at the file's size where nothing is new."""
        size = self.commands_path.stat().st_size if self.commands_path.exists() else 0
        if size != self._read_bytes:
            self._read_bytes = size
            self._commands = [Command(**line) for line in _lines(self.commands_path, Command)]
        return self._commands

    def answers(self) -> dict[str, Answer]:
        """Return all answers so far, by the command's id."""
        return {line["id"]: Answer(**line) for line in _lines(self.answers_path, Answer)}

    def wait_for(self, command: Command, seconds: float) -> Answer | None:
        """Return the answer to a command, None if there is none within so many seconds."""
        deadline = time.monotonic() + seconds
        while (answer := self.answers().get(command.id)) is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return answer


def _append(path: Path, record: Mapping[str, Any]) -> None:
    line = json.dumps(record).encode() + b"\n"
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        end = file.seek(0, os.SEEK_END)
        if end > 0:
            file.seek(end - 1)
            line = line if file.read(1) == b"\n" else b"\n" + line  # a writer died within its line
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def _lines(path: Path, kind: type[Command] | type[Answer]) -> list[dict[str, Any]]:
    """Return the whole lines of a file that are records of ``kind``; others were cut short, or are not ours."""
    if not path.exists():
        return []
    whole, _, _ = path.read_text(encoding="utf-8", errors="replace").rpartition("\n")
    found = [json_object(line) for line in whole.splitlines()]
    names = {field.name for field in fields(kind)}
    needed = names - {"until", "revived"}
    return [line for line in found if line is not None and needed <= set(line) <= names and _is_sound(line)]


def _is_sound(line: Mapping[str, Any]) -> bool:
    until, texts = line.get("until"), [line[key] for key in ("id", "action", "trial", "text") if key in line]
    return all(isinstance(one, str) for one in texts) and (until is None or (is_real(until) and 0 < until <= 1))
