"""Where one sweep lives on disk, and the lock that lets only one driver work on it.

::

    RUN/config.yaml      the resolved configuration        RUN/decisions.jsonl  what was decided, and on which numbers
    RUN/study.journal    the Optuna study                  RUN/result.json      the summary
    RUN/curves/          one Parquet file a run            RUN/logs/            Ray's own logs and tracebacks
    RUN/model.json       the model fitted on the proxies   RUN/trials/<name>/   a run's log, outcome and checkpoint
    RUN/events.jsonl     what the rule prune saw and said  RUN/commands.jsonl   what people asked for (answers.jsonl: got)
    RUN/winner.yaml      the winner, to be run again       RUN/next-size.yaml   the start of a larger sweep
    RUN/report.html      all of it to look at              RUN/logs/progress.jsonl  what the drivers saw happen
    RUN/library.json     what the proxy library had        RUN/drift.json       whether that still fits
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

from hpo.adapters.atomic import write_text
from hpo.engine.config import InputError, SweepConfig, dump_config, parse_config, read_yaml

_LOCK_PATIENCE_S = 1.0


@dataclass(frozen=True)
class RunFolder:
    """The paths of one sweep's folder."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def journal(self) -> Path:
        """The default storage of the Optuna study."""
        return self.path / "study.journal"

    @property
    def curves(self) -> Path:
        """The folder of learning curves."""
        return self.path / "curves"

    @property
    def model(self) -> Path:
        """The model fitted on the proxies."""
        return self.path / "model.json"

    @property
    def decisions(self) -> Path:
        """The log of decisions."""
        return self.path / "decisions.jsonl"

    @property
    def events(self) -> Path:
        """Everything that the rule ``prune`` was told and decided."""
        return self.path / "events.jsonl"

    @property
    def winner(self) -> Path:
        """The winner's settings as a configuration that runs as it is."""
        return self.path / "winner.yaml"

    @property
    def next_size(self) -> Path:
        """The start of a sweep at the next size."""
        return self.path / "next-size.yaml"

    @property
    def settled(self) -> Path:
        """What more seeds said of a tie."""
        return self.path / "settled.json"

    @property
    def library(self) -> Path:
        """The entry of the proxy library that was found, or that there was none."""
        return self.path / "library.json"

    @property
    def drift(self) -> Path:
        """What the test of that entry found."""
        return self.path / "drift.json"

    @property
    def kept(self) -> Path:
        """The name under which the library keeps what the proxies taught."""
        return self.path / "logs" / "library.json"

    @property
    def result(self) -> Path:
        """The summary."""
        return self.path / "result.json"

    @property
    def logs(self) -> Path:
        """The folder of logs."""
        return self.path / "logs"

    @property
    def ray(self) -> Path:
        """Where Ray Tune keeps its own state."""
        return self.path / "logs" / "tune"

    @property
    def pause(self) -> Path:
        """While this file exists, trials save a checkpoint and leave."""
        return self.path / "logs" / "pause"

    @property
    def seconds(self) -> Path:
        """Wall-clock that the drivers of this run have spent on it."""
        return self.path / "logs" / "seconds.json"

    @property
    def progress(self) -> Path:
        """What the drivers saw happen; see :mod:`hpo.adapters.progress_log`."""
        return self.path / "logs" / "progress.jsonl"

    @property
    def trials(self) -> Path:
        """The folder of the runs' folders."""
        return self.path / "trials"

    def trial(self, name: str) -> Path:
        """Return the folder of the run ``name``."""
        return self.trials / name

    @property
    def resume_command(self) -> str:
        """The command that goes on with this run, as a shell takes it."""
        return f"hpo sweep --resume {shlex.quote(str(self.path))}"

    def read_config(self) -> SweepConfig:
        """Return the resolved configuration of this run."""
        return parse_config(read_yaml(self.config))

    def write_decisions(self, decisions: Sequence[Mapping[str, Any]]) -> None:
        """Write the log of decisions, one a line, in one step: a resume finds all of them or none."""
        write_text(self.decisions, "".join(json.dumps(dict(one), allow_nan=False) + "\n" for one in decisions))

    def read_decisions(self) -> list[dict[str, Any]]:
        """Return what was decided, in order; nothing if the sweep has not come so far."""
        if not self.decisions.exists():
            return []
        return [json.loads(line) for line in self.decisions.read_text(encoding="utf-8").splitlines()]


def new_run_folder(out: Path | None, config: SweepConfig) -> RunFolder:
    """Return the folder for a new run, made with its ``config.yaml``; the default is ``runs/<name>-<timestamp>``.

    Raises
    ------
    InputError
        The folder cannot be written, or already holds something.
    """
    run = RunFolder((out or _new_name(config.name)).absolute())
    if run.config.exists():
        raise InputError(f"--out: expected a new folder; found a run in {run.path} (go on with: {run.resume_command})")
    if run.path.exists() and not (run.path.is_dir() and not any(run.path.iterdir())):
        raise InputError.at("--out", "a new or empty folder", f"{run.path}, which is not empty")
    try:
        for folder in (run.path, run.curves, run.logs, run.trials):
            folder.mkdir(parents=True, exist_ok=True)
        write_text(run.config, dump_config(config))
    except OSError as error:
        raise InputError.at("--out", f"a folder that can be written: {run.path}", error.strerror) from None
    return run


def _new_name(name: str) -> Path:
    """Return a folder in ``runs/`` that is not there: by the time, and a number where several begin in one second."""
    first = Path("runs") / f"{name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    others = (first.with_name(f"{first.name}-{k}") for k in count(2))
    return next(path for path in chain([first], others) if not path.exists())


def discard(run: RunFolder) -> None:
    """Delete what :func:`new_run_folder` made: the run could not begin. The folder itself stays where others are in it."""
    for part in (run.curves, run.logs, run.trials):
        shutil.rmtree(part, ignore_errors=True)
    for file in (run.config, run.journal, run.library, run.path / ".lock"):
        file.unlink(missing_ok=True)
    with suppress(OSError):
        run.path.rmdir()
        run.path.parent.rmdir()


def existing_run_folder(path: Path) -> RunFolder:
    """Return the folder of a run to resume; :class:`InputError` if there is none."""
    run = RunFolder(path.absolute())
    if not run.config.is_file():
        raise InputError.at("--resume", "the folder of a run, with its config.yaml", str(path))
    return run


@contextmanager
def locked(run: RunFolder) -> Iterator[None]:
    """Hold the run for this process; the lock ends with the process, however it ends.

    One who only looks whether somebody holds it does so for an instant, so it is asked for more than once.

    Raises
    ------
    InputError
        Another driver holds the run, or the folder cannot be written.
    """
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        with exclusive_file(run.path / ".lock") as holder:
            if holder is None:
                yield
                return
        if time.monotonic() > deadline:
            raise InputError(f"{run.path}: expected a run that nobody works on; found it in use by process {holder}")
        time.sleep(0.05)


@contextmanager
def exclusive_file(path: Path) -> Iterator[str | None]:
    """Yield None while this process holds ``path``, or, without holding it, who does (a process id)."""
    try:
        file = path.open("a+", encoding="ascii")
    except OSError as error:
        raise InputError.at(str(path.parent), "a folder that can be written", error.strerror) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            yield file.read().strip() or "unknown"
            return
        file.truncate(0)
        file.write(f"{os.getpid()}")
        file.flush()
        yield None
