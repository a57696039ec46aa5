"""How far a sweep has come, on stderr: live bars on a terminal, one line an event elsewhere.

The unit of the bar for the whole sweep is FLOPs, so that its time left weighs small and large models rightly.
"""

from __future__ import annotations

import math
import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hpo.engine.plan import Run
from hpo.engine.thinning import Report
from hpo.engine.worker import Job

PLAIN_EVERY_S = 15.0
"""Where there is no terminal, no longer silence than this while trials report."""


class SweepProgress:
    """Shows trials as they run, told of them as a :class:`hpo.engine.trial_events.TrialEvents` is.

    Parameters
    ----------
    total_flops : float
        Expected cost of the whole sweep; see :meth:`expect`.
    console : Console, optional
        Where to show; stderr by default.
    """

    def __init__(self, total_flops: float, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._runs: dict[str, Run] = {}
        self._steps: dict[str, int] = {}
        self._bars: dict[str, TaskID] = {}
        self._done_flops = self._done_before = 0.0
        self._total_flops = total_flops
        self._started: float | None = None
        self._said_at = time.monotonic()
        self._live = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._whole = self._live.add_task("sweep", total=total_flops, note="")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        """Show one line that stays."""
        self._said_at = time.monotonic()
        self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def expect(self, total_flops: float) -> None:
        """Correct the expected cost of the whole sweep."""
        self._total_flops = total_flops
        self._live.update(self._whole, total=total_flops)

    def expect_more(self, flops: float) -> None:
        """Add to the expected cost of the whole sweep."""
        self.expect(self._total_flops + flops)

    def add(self, name: str, run: Run, done_step: int, *, is_new: bool = True) -> None:
        """Make a run known, of which ``done_step`` steps are there already (and counted already, unless it is new)."""
        self._runs[name], self._steps[name] = run, done_step
        if is_new:
            self._done_before += run.flops_at(done_step)
            self._add(run.flops_at(done_step))

    def started(self, job: Job) -> None:
        """Open the job's bar."""
        self._started = self._started or time.monotonic()
        done = self._steps.get(job.name, 0)
        if job.name in self._bars:
            self.say(f"{job.name} starts again")
            self._live.remove_task(self._bars[job.name])
        self._bars[job.name] = self._live.add_task(job.name, total=job.stop_step, completed=done, note="")

    def reported(self, job: Job, report: Report) -> None:
        """Move the job's bar and the sweep's."""
        self._moved(job, report.step, report.loss)

    def _moved(self, job: Job, step: int, loss: float) -> None:
        before = self._steps.get(job.name, 0)
        if step > before:
            self._steps[job.name] = step
            self._add(self._runs[job.name].flops_at(step) - self._runs[job.name].flops_at(before))
        if job.name in self._bars:
            self._live.update(self._bars[job.name], completed=step, note=f"loss {loss:.4f}")
        if not self._console.is_terminal and time.monotonic() - self._said_at >= PLAIN_EVERY_S and math.isfinite(loss):
            self.say(f"{job.name}: step {step} of {job.stop_step}, loss {loss:.4f}{self._left()}")

    def ended(self, job: Job) -> None:
        """Close the job's bar."""
        if job.name in self._bars:
            self._live.remove_task(self._bars.pop(job.name))
        outcome = job.outcome
        if outcome is None:
            return
        self._moved(job, outcome.step, math.nan)
        how = "done" if outcome.status == "reached" else f"{outcome.status} ({outcome.message}) with {self._settings(job)}"
        if outcome.status != "reached" or not self._console.is_terminal:
            self.say(f"{job.name}: step {outcome.step} of {job.n_steps}, {how}{self._left()}")

    def _settings(self, job: Job) -> str:
        return ", ".join(
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in self._runs[job.name].searched.items()
        )

    def _add(self, flops: float) -> None:
        self._done_flops += flops
        self._live.update(self._whole, completed=self._done_flops)

    def _left(self) -> str:
        """Return the time left in words, once there is something to tell it from."""
        here = self._done_flops - self._done_before
        if self._started is None or here <= 0 or self._total_flops <= self._done_flops:
            return ""
        left_s = (time.monotonic() - self._started) * (self._total_flops - self._done_flops) / here
        minutes, seconds = divmod(round(left_s), 60)
        return f"; sweep {self._done_flops / self._total_flops:.0%}, about {minutes}:{seconds:02d} left"
