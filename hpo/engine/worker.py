"""One training run inside a worker process: call the training function, leave an outcome in the run's folder.

The folder is all that a run leaves behind: its log, its latest checkpoint and ``outcome.json``. So a run can be killed
anywhere and started again, and a finished one is known to be finished without asking anybody. A driver that wants the run to
end early leaves a mark in the folder (:mod:`hpo.engine.stop_marks`).
"""

from __future__ import annotations

import gc
import importlib
import json
import math
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from hpo.adapters.atomic import write_json, write_text
from hpo.adapters.training_session import FolderSession
from hpo.core.session import Session, StopTraining
from hpo.engine.config_blocks import TrialResources
from hpo.engine.hang_watch import HangWatch, hang_watch
from hpo.engine.run_folder import exclusive_file
from hpo.engine.stop_marks import is_marked, why_stopped
from hpo.engine.thinning import Report, Thinner
from hpo.engine.trouble import in_a_line, printable, text_of

Status = Literal["reached", "stopped", "diverged", "out_of_memory", "failed"]
Train = Callable[[Mapping[str, Any], Session], None]
Forward = Callable[[Report], None]

OUTCOME_NAME = "outcome.json"
_LOCK_PATIENCE_S = 20.0


class TrainingFailed(RuntimeError):  # noqa: N818 - the words that people read
    """A training function raised an error, told in one line: the error itself may not survive the way to another process."""


@dataclass(frozen=True)
class Job:
    """One run, or the part of it up to ``stop_step``.

    Attributes
    ----------
    name : str
        Names the run's folder and its curve.
    settings : dict
        JSON-ready settings for the training function.
    folder : Path
        Where its log and checkpoints live.
    stop_step, n_steps : int
        Where to stop now, and where the whole run would end.
    trainable : str
        ``package.module:function``.
    checkpoint_every_s : float
        Seconds between checkpoints.
    pause_file : Path, optional
        While it exists, the run saves a checkpoint and leaves, or does not begin.
    n_reports, n_end_reports : int
        About so many reports of a whole run, and of its last per cent besides, leave its worker.
    metric : str
        Which of the reported values the sweep judges by.
    hang_s : float, optional
        The process ends when the run makes no step for so long.
    function : callable, optional
        The training function itself, where it cannot be imported in another process.
    share : TrialResources
        What it takes, and how many processes train it.
    """

    name: str
    settings: dict[str, Any]
    folder: Path
    stop_step: int
    n_steps: int
    trainable: str
    checkpoint_every_s: float = 30.0
    pause_file: Path | None = None
    n_reports: int = 200
    n_end_reports: int = 0
    metric: str = "loss"
    hang_s: float | None = None
    function: Train | None = None
    share: TrialResources = field(default_factory=TrialResources)

    @property
    def outcome(self) -> Outcome | None:
        """How the job ended, None if it has not reached its stop step or another end."""
        return read_outcome(self.folder, self.stop_step)

    def is_paused(self) -> bool:
        """Return True while the run is asked to pause."""
        return self.pause_file is not None and self.pause_file.exists()


@dataclass(frozen=True)
class Outcome:
    """How a run, or the part of it that was asked for, ended.

    ``stopped`` means on the driver's wish, before ``stop_step``; ``message`` then is the reason's code.
    """

    status: Status
    step: int
    seconds: float
    message: str = ""


def run_job(job: Job, forward: Forward) -> Outcome | None:
    """Train ``job`` from its latest checkpoint to its stop step and return (and write) how it ended, None if it paused.

    ``forward(report)`` is called for a thinned subset of the new reports. Running out of memory is an outcome, as repeating it
    would not help. Any other exception of the training function is logged with its traceback and becomes a
    :class:`TrainingFailed`; ``sys.exit()`` counts as a return.
    """
    if job.is_paused():
        return None
    if job.outcome is not None:  # ended already, as far as the driver is concerned
        return job.outcome
    with _sole_use(job.folder):
        before_s = _seconds_so_far(job.folder)
        started = time.monotonic()
        with hang_watch(job.folder, job.hang_s) as watch:
            status, message, last_step = _run(job, forward, watch)
        if status is None:
            return None
        outcome = Outcome(status, last_step, before_s + time.monotonic() - started, message)
        write_outcome(job.folder, outcome)
        if status == "stopped" and not is_marked(job.folder):  # the mark was taken away since it was read: it goes on
            forget_outcome(job.folder)
            return None
    return outcome


def import_function(path: str) -> Callable[..., Any]:
    """Return the function at ``package.module:function``.

    Raises
    ------
    ValueError
        There is no such module, or nothing callable of that name in it.
    """
    module_name, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise ValueError(f"expected an importable module; found no module {error.name}") from None
    if not callable(found):
        raise ValueError(
            f"expected a function {name} in {module_name}; found {'nothing' if found is None else type(found).__name__}"
        )
    return found  # type: ignore[no-any-return]


def read_outcome(folder: Path, stop_step: int = 1) -> Outcome | None:
    """Return how the run in ``folder`` ended, or None if it has not: never run, killed, or not run as far as ``stop_step``."""
    path = folder / OUTCOME_NAME
    if not path.exists():
        return None
    outcome = Outcome(**json.loads(path.read_text(encoding="utf-8")))
    return None if outcome.status == "reached" and outcome.step < stop_step else outcome


def write_outcome(folder: Path, outcome: Outcome) -> None:
    """Leave ``outcome`` in a run's folder."""
    write_json(folder / OUTCOME_NAME, asdict(outcome))


def forget_outcome(folder: Path) -> None:
    """Delete the outcome in a run's folder: it has not ended after all."""
    (folder / OUTCOME_NAME).unlink(missing_ok=True)


def _run(job: Job, forward: Forward, watch: HangWatch) -> tuple[Status | None, str, int]:
    """Return how the training ended (None: it paused), a message, and the last step."""

    def is_interrupted() -> bool:
        return job.is_paused() or is_marked(job.folder)

    def pass_on(report: Report) -> None:
        with watch.resting():
            forward(report)
        if is_interrupted():  # the driver has decided on this report
            session.pause()

    thinner = Thinner(job.n_steps, job.stop_step, job.n_reports, job.n_end_reports, pass_on)

    def on_report(step: int, loss: float, _tokens: float | None) -> None:
        thinner.take(step, loss, session.latest.get(job.metric, math.nan))

    session = FolderSession(
        job.folder,
        stop_step=job.stop_step,
        checkpoint_every_s=job.checkpoint_every_s,
        on_report=on_report,
        on_step=watch.step,
        wants_pause=is_interrupted,
    )
    with session:
        if (why := why_stopped(job.folder)) is not None:
            return "stopped", why, session.last_step
        status, message = _train(job, session)
    if status == "failed" and session.paused:
        why = why_stopped(job.folder)
        return (None, "", session.last_step) if why is None else ("stopped", why, session.last_step)
    return status, message, session.last_step


def _train(job: Job, session: FolderSession) -> tuple[Status, str]:
    try:
        call_training(job, session)
    except MemoryError as error:
        return "out_of_memory", str(error)
    finally:
        _free_device_memory()
    if session.diverged:
        return "diverged", f"loss was not finite at step {session.last_step}"
    if session.last_step < job.stop_step:
        return "failed", f"the training function ended at step {session.last_step}, before step {job.stop_step}"
    return "reached", ""


def call_training(job: Job, session: Session, rank: int = 0) -> None:
    """Call the job's training function until it ends or stops.

    Raises
    ------
    MemoryError
        Memory ran out, of whatever kind; the text is the error's own first line.
    TrainingFailed
        It raised anything else. The traceback is in the run's folder, in ``error.txt`` or that of its ``rank``.
    """
    try:
        train = job.function or import_function(job.trainable)
        train(job.settings, session)
    except StopTraining:
        pass
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises is told
        if isinstance(error, SystemExit) and not error.code:
            return
        write_text(job.folder / ("error.txt" if rank == 0 else f"error-rank-{rank}.txt"), printable(traceback.format_exc()))
        if is_out_of_memory(error):
            raise MemoryError(text_of(error).partition("\n")[0] or type(error).__name__) from None
        raise TrainingFailed(in_a_line(error)) from None


def is_out_of_memory(error: BaseException) -> bool:
    """Return True for Python's, torch's and Ray's ways of saying that memory ran out."""
    if isinstance(error, MemoryError) or any(cls.__name__ == "OutOfMemoryError" for cls in type(error).__mro__):
        return True
    said = text_of(error)
    return "DefaultCPUAllocator: can't allocate memory" in said or "not enough memory" in said


def _free_device_memory() -> None:
    """The process is used again for the next run, so it must not keep this one's memory."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


@contextmanager
def _sole_use(folder: Path) -> Iterator[None]:
    """Hold ``folder``, waiting until no other process trains in it, e.g. the orphan of a driver that was just killed."""
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError:  # a machine that joined the cluster later, which nobody has looked at
        machine = socket.gethostname()
        raise RuntimeError(f"{folder.parent} is not there on {machine}: all machines must share the run folder") from None
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        with exclusive_file(folder / ".lock") as holder:
            if holder is None:
                yield
                return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{folder} is in use by process {holder}")
        time.sleep(0.2)


def _seconds_so_far(folder: Path) -> float:
    before = read_outcome(folder)
    return 0.0 if before is None else before.seconds
