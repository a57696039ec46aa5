"""A training run's folder: every step in one log, the latest checkpoint beside it, safe to kill at any moment.

:class:`FolderSession` is what the engine hands to a training function. The log (``log.csv``) is append-only, a
checkpoint (``checkpoint-<step>/``) appears under its name only when it is complete, and :meth:`FolderSession.restore`
cuts the log back to the checkpoint it returns. So whatever was interrupted, no step is lost that the checkpoint
knows and none is logged twice.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from hpo.adapters.atomic import new_folder, write_text
from hpo.core.session import StopTraining

LOG_NAME = "log.csv"
_CHECKPOINT_PREFIX = "checkpoint-"
_FLUSH_EVERY_S = 0.5
_TAIL_BYTES = 4096
_ROOM_BYTES = 1 << 20
_ALWAYS_LOGGED = ("step", "tokens", "loss")

OnReport = Callable[[int, float, float | None], None]


class FolderSession:
    """One training run that lives in ``folder``; implements :class:`hpo.core.session.Session`.

    Parameters
    ----------
    folder : Path
        Made if missing. At most one session may use it at a time.
    stop_step : int, optional
        The run is asked to stop once it has reported this step; None lets the training function decide.
    checkpoint_every_s : float
        Seconds between two checkpoints. One is always due at ``stop_step``, none after a non-finite loss.
    on_report : callable, optional
        Called as ``on_report(step, loss, tokens)`` for every step that is new to the log.
    on_step : callable, optional
        Called at every report, also of a step that the log has already: the run is alive.
    wants_pause : callable, optional
        Asked about twice a second; from the first True on, the run is asked to stop, as by :meth:`pause`.

    Attributes
    ----------
    latest : dict
        What this session has reported, by name, each as of the last time.

    Raises
    ------
    ValueError
        ``stop_step`` below 1 or a ``checkpoint_every_s`` that is not above 0.
    """

    def __init__(
        self,
        folder: Path,
        *,
        stop_step: int | None = None,
        checkpoint_every_s: float = 30.0,
        on_report: OnReport | None = None,
        on_step: Callable[[], None] | None = None,
        wants_pause: Callable[[], bool] | None = None,
    ) -> None:
        if stop_step is not None and stop_step < 1:
            raise ValueError(f"stop_step must be at least 1; found {stop_step}")
        if not checkpoint_every_s > 0:
            raise ValueError(f"checkpoint_every_s must be above 0; found {checkpoint_every_s}")
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._stop_step = stop_step
        self._checkpoint_every_s = checkpoint_every_s
        self._on_report, self._on_step = on_report, on_step
        self._wants_pause = wants_pause
        self.latest: dict[str, float] = {}
        self._paused = self._diverged = self._stopped = False
        self._last_step = 0
        self._log: IO[str] | None = None
        self._columns: tuple[str, ...] = ()
        self._checkpoint_step = 0
        self._is_behind = False
        self._checkpointed_at = time.monotonic()
        self._open_log(upto=None)

    @property
    def last_step(self) -> int:
        """The last step in the log; 0 before the first."""
        return self._last_step

    @property
    def diverged(self) -> bool:
        """True once a non-finite loss has been reported."""
        return self._diverged

    @property
    def paused(self) -> bool:
        """True once the run was asked to pause before its stop step."""
        return self._paused

    def report(self, *, step: int, loss: float, tokens: float | None = None, **extra: float) -> None:
        """Log one step; a step that the log already has is ignored, so the first value counts.

        Raises
        ------
        StopTraining
            The run was to stop at an earlier report.
        ValueError
            ``step`` is no whole number from 1 on, or a value or the name of an extra one cannot be in the log.
        """
        step = _whole(step)
        if self._stopped:
            raise StopTraining(f"asked to stop at step {self._last_step}; reported step {step}")
        if step < 1:
            raise ValueError(f"step must be at least 1, the number of updates made; found {step}")
        if self._on_step is not None:
            self._on_step()
        self._is_behind = step < self._last_step
        if step <= self._last_step:
            self._flush_if_due()
            self._stopped = self._stopped or self._paused
            return
        loss = float(loss)
        self._write_row(step, loss, tokens, extra)
        self.latest.update(extra, loss=loss)
        self._note(step, loss)
        if self._on_report is not None:
            self._on_report(step, loss, tokens)

    def checkpoint(self, save: Callable[[Path], None]) -> bool:
        """Call ``save(folder)`` if a checkpoint is due and publish it atomically; return True if it did.

        None is due while the run repeats steps that the log has: it is not yet where the log ends.

        Raises
        ------
        OSError
            The disk is full, however the library that saved has put it.
        Exception
            Whatever else ``save`` raises; the checkpoint before stays.
        """
        if self._diverged or self._is_behind or self._last_step <= self._checkpoint_step or not self._checkpoint_is_due():
            return False
        with new_folder(checkpoint_of(self.folder, self._last_step)) as unpublished:
            try:
                save(unpublished)
            except Exception:
                _check_room(unpublished)
                raise
            self._sync_log()
        self._checkpoint_step, self._checkpointed_at = self._last_step, time.monotonic()
        remove_checkpoints(self.folder, keep_step=self._last_step)
        return True

    def restore(self) -> Path | None:
        """Return the latest complete checkpoint's folder, or None; the log is cut back to its step (or emptied)."""
        latest = latest_checkpoint(self.folder)
        self._checkpoint_step = 0 if latest is None else _step_of(latest)
        self._open_log(upto=self._checkpoint_step)
        return latest

    def should_stop(self) -> bool:
        """Return True from the report of ``stop_step``, a non-finite loss or a wish to pause on."""
        return self._stopped

    def pause(self) -> None:
        """Ask the run to stop where it is, with a checkpoint; may be called from ``on_report``."""
        self._paused = self._stopped = True

    def close(self) -> None:
        """Flush and close the log; the session cannot report afterwards."""
        if self._log is not None:
            self._log.close()
            self._log = None

    def __enter__(self) -> FolderSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _checkpoint_is_due(self) -> bool:
        return self._stopped or time.monotonic() - self._checkpointed_at >= self._checkpoint_every_s

    def _note(self, step: int, loss: float) -> None:
        self._last_step = step
        self._diverged = self._diverged or not math.isfinite(loss)
        self._stopped = self._diverged or self._paused or (self._stop_step is not None and step >= self._stop_step)

    def _open_log(self, upto: int | None) -> None:
        """Open the log for appending after dropping a torn last line and, with ``upto``, every later step."""
        self.close()
        path = self.folder / LOG_NAME
        lines = _whole_lines(path)
        self._columns = tuple(lines[0].rstrip("\n").split(",")) if lines else ()
        kept = lines[:1] + [line for line in lines[1:] if upto is None or int(line.split(",", 1)[0]) <= upto]
        write_text(path, "".join(kept))
        self._log = path.open("a", encoding="utf-8", newline="")
        self._flushed_at = time.monotonic()
        self._last_step, self._diverged, self._stopped = 0, False, False
        if len(kept) > 1:
            last = dict(zip(self._columns, kept[-1].rstrip("\n").split(","), strict=True))
            self._note(int(last["step"]), float(last["loss"]))

    def _write_row(self, step: int, loss: float, tokens: float | None, extra: dict[str, float]) -> None:
        if self._log is None:
            raise ValueError("report needs an open session; this one was closed")
        cells = {name: _cell(name, value) for name, value in {"step": step, "tokens": tokens, "loss": loss, **extra}.items()}
        if not self._columns or not extra.keys() <= set(self._columns):
            self._add_columns(extra)
        self._log.write(",".join(cells.get(name, "") for name in self._columns) + "\n")
        self._flush_if_due()

    def _flush_if_due(self) -> None:
        """About twice a second, let others read the log, and ask whether to pause."""
        if self._log is None or time.monotonic() - self._flushed_at < _FLUSH_EVERY_S:
            return
        self._log.flush()
        self._flushed_at = time.monotonic()
        self._paused = self._paused or (self._wants_pause is not None and self._wants_pause())

    def _add_columns(self, extra: dict[str, float]) -> None:
        """Start the log's header, or widen it when a quantity is reported for the first time."""
        for name in extra:
            if not name.strip() or not name.isprintable() or "," in name or '"' in name:
                raise ValueError(f"a reported value's name must be one printable line without commas or quotes; found {name!r}")
        self.close()
        path = self.folder / LOG_NAME
        new = [name for name in (*_ALWAYS_LOGGED, *extra) if name not in self._columns]
        rows = [line.rstrip("\n") + "," * len(new) + "\n" for line in _whole_lines(path)[1:]]
        self._columns = (*self._columns, *new)
        write_text(path, "".join([",".join(self._columns) + "\n", *rows]))
        self._log = path.open("a", encoding="utf-8", newline="")

    def _sync_log(self) -> None:
        if self._log is not None:
            self._log.flush()
            os.fsync(self._log.fileno())


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the run's latest complete checkpoint folder, or None."""
    return max(folder.glob(f"{_CHECKPOINT_PREFIX}*"), key=_step_of, default=None)


def checkpoint_of(folder: Path, step: int) -> Path:
    """Return where the run's checkpoint of a step is, or would be."""
    return folder / f"{_CHECKPOINT_PREFIX}{step}"


def remove_checkpoints(folder: Path, keep_step: int | None = None) -> None:
    """Delete the run's checkpoints, complete or torn, but the one of ``keep_step``."""
    found = [*folder.glob(f"{_CHECKPOINT_PREFIX}*"), *folder.glob(f".{_CHECKPOINT_PREFIX}*.tmp")]
    for checkpoint in found:
        if checkpoint.name != f"{_CHECKPOINT_PREFIX}{keep_step}":
            shutil.rmtree(checkpoint, ignore_errors=True)


def read_log(folder: Path) -> dict[str, NDArray[np.float64]]:
    """Return the columns of a run's log, each of shape (n_steps,), NaN where nothing was logged.

    Safe while the run is writing (a torn last line is left out). A run without a log has empty columns.
    """
    lines = _whole_lines(folder / LOG_NAME)
    names = lines[0].rstrip("\n").split(",") if lines else list(_ALWAYS_LOGGED)
    cells = [[float(cell) if cell else math.nan for cell in line.rstrip("\n").split(",")] for line in lines[1:]]
    table = np.asarray(cells, dtype=np.float64).reshape(len(cells), len(names))
    return {name: table[:, i] for i, name in enumerate(names)}


def last_logged_step(folder: Path) -> int:
    """Return the last step in a run's log, 0 without one."""
    return _last_step_of(_last_whole_line(folder / LOG_NAME))


def _last_step_of(line: str) -> int:
    first = line.split(",", 1)[0]
    return int(first) if first.isdecimal() else 0  # the header, where nothing was logged


def _last_whole_line(path: Path) -> str:
    """Return the last line that ends in a newline, "" without one; reads the end of the file only."""
    if not path.exists():
        return ""
    with path.open("rb") as log:
        left, tail = log.seek(0, os.SEEK_END), b""
        while left > 0 and tail.count(b"\n") < 2:
            start = max(left - _TAIL_BYTES, 0)
            log.seek(start)
            tail, left = log.read(left - start) + tail, start
    whole = tail[: tail.rfind(b"\n") + 1]
    return whole.splitlines()[-1].decode("utf-8") if whole else ""


def _whole_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return lines if not lines or lines[-1].endswith("\n") else lines[:-1]


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix(_CHECKPOINT_PREFIX))


def _check_room(folder: Path) -> None:
    """Raise the system's own error if a folder takes no more: torch says no more than that a write has failed."""
    with (folder / "room").open("wb") as probe:
        probe.write(bytes(_ROOM_BYTES))
        probe.flush()
        os.fsync(probe.fileno())


def _whole(step: float) -> int:
    """Return a step as the whole number that it is; libraries count in floats, arrays and tensors too."""
    whole = int(step)
    if whole != step:
        raise ValueError(f"step must be a whole number; found {step!r}")
    return whole


def _cell(name: str, value: float | None) -> str:
    if value is None:
        return ""
    try:
        return repr(value) if type(value) in (int, float) else repr(float(value))
    except ValueError:
        raise ValueError(f"{name} must be a number; found {value!r}") from None
