"""``hpo watch``: a sweep as its own terminal shows it, from another one, while it runs or afterwards."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpo.commands.output import fail, print_json

if TYPE_CHECKING:
    from hpo.reporting.live_view import SweepView
    from hpo.reporting.sweep_state import SweepState

EPILOG = "Example: hpo watch runs/demo"
POLL_S = 0.25
SILENT_S = 60.0
"""A driver that gives no sign of life for so long is said to be silent."""
GIVEN_UP_S = 3600.0
"""Nobody drives the sweep and nothing happened for so long: watching ends."""


def watch(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a sweep: running, interrupted or finished.")],
    once: Annotated[bool, typer.Option("--once", help="Show where it stands now, and leave.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --once: print one JSON document on stdout.")] = False,
) -> None:
    """Follow a sweep from another terminal. It only reads the run's log: it disturbs nothing and may come and go."""
    from rich.console import Console

    from hpo.adapters.progress_log import ProgressTail
    from hpo.reporting.live_view import sweep_view

    log = run / "logs" / "progress.jsonl"
    if not (run / "config.yaml").is_file():
        fail(f"RUN: expected the folder of a sweep, with its config.yaml; found {run}", 2)
    if (run / "result.json").is_file() and not log.is_file():
        fail(f"RUN: expected a sweep with logs/progress.jsonl; found one of an older version ({run}): see hpo report", 2)
    if as_json and not once:
        fail("--json: expected --once with it; found none", 2)
    follower = _Follower(ProgressTail(log), run)
    if once:
        _show_once(follower, as_json=as_json)
        return
    with sweep_view(Console(), follower.trouble) as view:
        error = follower.follow(view)
    if error is not None:
        fail(error, 1)
    typer.echo(f"{run}: finished")


class _Follower:
    """Reads the log as it grows and knows whether a driver still writes it."""

    def __init__(self, tail: Any, run: Path) -> None:
        from hpo.reporting.sweep_state import SweepState

        self._tail, self._run, self._state = tail, run, SweepState()
        self._stamp, self._alive_at = 0, time.monotonic()

    def state(self) -> SweepState:
        """Return where the sweep stands by now."""
        for event in self._tail.new():
            self._state.take(event)
        return self._state

    def follow(self, view: SweepView) -> str | None:
        """Show everything up to the sweep's end; return why it failed, None if it did not."""
        for event in self._tail.new():  # what is past is shown as a state, not line by line
            view.state.take(event)
        self._state = view.state
        while self._state.finished is None:
            for event in self._tail.new():
                view(event)
            if self.trouble() and time.monotonic() - self._alive_at > GIVEN_UP_S:
                return f"{self._run}: {self.trouble()}"
            time.sleep(POLL_S)
        error = self._state.finished.get("error")
        return None if error is None else str(error)

    def trouble(self) -> str:
        """Return a line where nobody seems to work on the sweep, else ""."""
        silent = self._silent_s()
        if self._state.finished is not None:
            return ""
        resume = f"go on with: hpo sweep --resume {self._run}"
        if _is_gone(self._state.driver):
            return f"its driver is gone; {resume}"
        if silent < SILENT_S:
            return ""
        return f"no sign of its driver for {silent:.0f} s; if it has died, {resume}"

    def _silent_s(self) -> float:
        try:
            stamp = self._tail.path.stat()
        except OSError:
            return time.monotonic() - self._alive_at
        if stamp.st_mtime_ns != self._stamp:
            first = self._stamp == 0
            self._stamp = stamp.st_mtime_ns
            self._alive_at = time.monotonic() - (max(0.0, time.time() - stamp.st_mtime) if first else 0.0)
        return time.monotonic() - self._alive_at


def _is_gone(driver: dict[str, Any] | None) -> bool:
    """Return True if the last driver ran on this machine and its process is no more."""
    if driver is None or driver.get("host") != socket.gethostname() or not isinstance(driver.get("pid"), int):
        return False
    try:
        os.kill(driver["pid"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _show_once(follower: _Follower, *, as_json: bool) -> None:
    from hpo.reporting.live_view import summary

    state, now = follower.state(), time.time()
    if as_json:
        print_json(_document(state, now, follower.trouble()))
        return
    lines = [*summary(state, now), *_trial_lines(state)]
    typer.echo("\n".join(line for line in [*lines, follower.trouble()] if line))


def _document(state: SweepState, now: float, trouble: str) -> dict[str, Any]:
    keys = (
        *("name", "role", "number", "settings", "step", "n_steps", "state"),
        *("loss", "forecast", "lower", "upper", "p_best", "suspect", "suspect_since"),
    )
    runs = [{**{key: getattr(run, key) for key in keys}, "reason": run.reason or run.message} for run in state.ranked()]
    finished = state.finished is not None
    return {
        "name": state.name,
        "metric": state.metric,
        "finished": finished,
        "error": state.finished.get("error") if state.finished is not None else None,
        "trouble": trouble or None,
        "done_fraction": state.fraction,
        "saved_fraction": state.saved_fraction,
        "seconds_left": None if finished else state.seconds_left(now),
        "runs": runs,
    }


def _trial_lines(state: SweepState) -> Iterator[str]:
    for run in state.ranked():
        loss = "" if run.loss is None else f", {state.metric} {run.loss:.4f}"
        forecast = "" if run.forecast is None else f", forecast {run.forecast:.4f}"
        reason = f" ({run.reason})" if run.reason else ""
        suspect = f", suspect: {run.suspect}" if run.suspect else ""
        yield f"{run.name}: {run.state}{reason}, {run.fraction:.0%}{loss}{forecast}{suspect}"
