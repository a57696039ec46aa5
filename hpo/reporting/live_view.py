"""A running sweep on a terminal: overall progress, what is saved, and the trials that matter now; plain lines elsewhere.

Both displays take the events of :mod:`hpo.adapters.progress_log`, so the driver and ``hpo watch`` show the same. The table
takes as many lines as the terminal has and counts the runs it leaves out; it adapts when the terminal's size changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol, Self

from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hpo.adapters.progress_log import Event
from hpo.reporting.sweep_state import ENDED_BADLY, RUNNING, RunState, SweepState
from hpo.reporting.sweep_words import about_left, settings_text

PLAIN_EVERY_S = 15.0
"""Where there is no terminal, no longer silence than this while trials report."""
ROOMY = 110
"""Columns from which a trial's settings are shown."""
NARROW = 76
"""Columns below which the interval and the reason are left out."""
_COLUMNS = ("trial", "settings", "done", "loss", "forecast", "±", "P(best)", "state", "reason")
_NUMERIC = ("done", "loss", "forecast", "±", "P(best)")
_FOR_WIDE = {"±", "reason"}
_REASON, _METRIC = 20, 14
_LEAST = {"done": 4, "loss": 7, "forecast": 8, "±": 6, "P(best)": 7, "state": 11}
"""Widths that a long setting or reason must leave to the other columns."""
_STYLES = {"running": "green", "complete": "bold", "stopped": "dim", "waiting": "dim", **dict.fromkeys(ENDED_BADLY, "red")}
_HEAD_LINES = 8
"""Lines above and below the rows of the table: four or five of the head, the table's own head, its caption, the cursor's."""


class SweepView(Protocol):
    """Shows a sweep: a context manager that is called with every event."""

    state: SweepState

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(self, *_: object) -> None:
        """Leave the screen as it was."""

    def __call__(self, event: Event) -> None:
        """Take an event."""


def sweep_view(console: Console, note: Callable[[], str] = lambda: "") -> SweepView:
    """Return a live table where ``console`` is a terminal, else plain lines; ``note`` returns a line to show with it."""
    return LiveView(console, note) if console.is_terminal else PlainLines(console)


class LiveView:
    """A table on a terminal, renewed four times a second."""

    def __init__(self, console: Console, note: Callable[[], str] = lambda: "") -> None:
        self.state, self._console, self._note = SweepState(), console, note
        self._live = Live(self, console=console, refresh_per_second=4, transient=True, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Take an event; what people should not miss stays on the screen as a line."""
        line = _starts_again(self.state, event)
        self.state.take(event)
        if event["event"] == "said":
            line = str(event["text"])
        elif event["event"] == "suspected":
            line = suspect_line(event)
        elif event["event"] == "ended" and event["status"] in ENDED_BADLY:
            line = _ended_line(self.state, event)
        if line:
            self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render as much as there is room for."""
        yield Group(*_head(self.state, options.max_width, time.time(), self._note()))
        yield _table(self.state, max(3, console.size.height - _HEAD_LINES), options.max_width)


class PlainLines:
    """One line an event that matters, and one now and then while trials report."""

    def __init__(self, console: Console) -> None:
        self.state, self._console, self._said_at = SweepState(), console, 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, event: Event) -> None:
        """Take an event, and say it if it matters."""
        again = _starts_again(self.state, event)
        self.state.take(event)
        line = again or self._line(event)
        if event["event"] == "driver":
            self._said_at = float(event["time"])
        if line:
            self._said_at = float(event["time"])
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _line(self, event: Event) -> str:
        kind, now = event["event"], float(event["time"])
        if kind == "said":
            return str(event["text"])
        run = self.state.runs.get(str(event.get("name")))
        if run is None:
            return ""
        if kind == "suspected":
            return suspect_line(event)
        if kind == "reported" and now - self._said_at >= PLAIN_EVERY_S and event["loss"] is not None:
            loss = "" if run.loss is None else f", {self.state.metric} {run.loss:.4f}"
            return f"{run.name}: step {run.step} of {run.until}{loss}{_left(self.state, now)}"
        is_news = run.state not in ENDED_BADLY and (event.get("action") == "stop" or event.get("reason") == "selected")
        if kind == "decided" and is_news:
            return _decided_line(run)
        return f"{_ended_line(self.state, event)}{_left(self.state, now)}" if kind == "ended" else ""


def summary(state: SweepState, now: float) -> list[str]:
    """Return where a sweep stands: how far and how long, what is saved, and how many runs are in which state."""
    counts = state.counts
    order = ("running", "goes on", "at its stop", "complete", "stopped", *ENDED_BADLY, "waiting")
    kinds = [f"{counts[kind]} {kind.replace('_', ' ')}" for kind in order if counts[kind]]
    suspects = sum(bool(run.suspect) for run in state.runs.values())
    kinds += [f"{suspects} suspect"] if suspects else []
    return [line for line in (_progress_words(state, now), _saved_words(state.saved_fraction), " · ".join(kinds)) if line]


def _progress_words(state: SweepState, now: float) -> str:
    if state.finished is not None:
        return "finished" if state.finished.get("error") is None else f"ended: {state.finished['error']}"
    left = state.seconds_left(now)
    return f"{state.fraction:.0%} done" + ("" if left is None else f", about {about_left(left)} left")


def _saved_words(saved: float | None) -> str:
    if saved is None:
        return ""
    if saved < 0:
        return f"saved so far: nothing; the proxies have cost {-saved:.0%} of a full sweep"
    return f"saved so far: {saved:.0%} of a full sweep, proxies counted"


def _head(state: SweepState, width: int, now: float, note: str) -> list[Any]:
    judged = "" if state.at is None else f", judged {'from' if state.rule == 'prune' else 'at'} {state.at:.0%}"
    runs = f"{len(state.candidates)} candidates, {len(state.proxies)} proxies{judged}" if state.runs else "beginning"
    title = f"{state.name}: {runs}"
    end, words = (now, "since it began") if state.finished is None else (state.finished["time"], "in all")
    since = "" if state.begun is None else f" · {about_left(max(0.0, end - state.begun))} {words}"
    first, *others = summary(state, now)
    bar = Table.grid(padding=(0, 2))
    bar.add_row(ProgressBar(total=1.0, completed=state.fraction, width=max(10, min(50, width - 30))), _line(first))
    head = [_line(title + since, "bold"), bar, *map(_line, others)]
    return [*head, _line(note, "yellow")] if note else head


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _table(state: SweepState, n_lines: int, width: int) -> Table:
    """Return the table of the first ``n_lines`` runs; its caption counts the others."""
    ranked = state.ranked()
    shown = ranked[:n_lines]
    left_out = {"settings"} if width < ROOMY else set()
    columns = [name for name in _COLUMNS if name not in left_out | (_FOR_WIDE if width < NARROW else set())]
    table = Table(box=None, pad_edge=False, header_style="bold", caption_justify="left", caption_style="dim")
    names = max((len(run.name) for run in shown), default=0)
    least = {"trial": names, **_LEAST}
    room = width - sum(least.get(name, _REASON) + 2 for name in columns if name != "settings")
    for name in columns:
        justify: JustifyMethod = "right" if name in _NUMERIC else "left"
        most = {"settings": max(8, room), "reason": _REASON, "loss": _METRIC}.get(name)
        title = state.metric if name == "loss" else name
        table.add_column(title, justify=justify, no_wrap=True, overflow="ellipsis", min_width=least.get(name), max_width=most)
    for run in shown:
        cells = _cells(run)
        table.add_row(*(Text(cells[name]) for name in columns), style="yellow" if run.suspect else _STYLES.get(run.state))
    hidden = SweepState(runs={run.name: run for run in ranked[n_lines:]}).counts
    if hidden:
        table.caption = "and " + ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in hidden.most_common())
    return table


def _cells(run: RunState) -> dict[str, str]:
    half = None if run.lower is None or run.upper is None else (run.upper - run.lower) / 2
    return {
        "trial": run.name,
        "settings": settings_text(run.settings),
        "done": f"{run.fraction:.0%}",
        "loss": "" if run.loss is None else f"{run.loss:.4f}",
        "forecast": "" if run.forecast is None else f"{run.forecast:.4f}",
        "±": "" if half is None else f"{half:.4f}",
        "P(best)": "" if run.p_best is None else f"{run.p_best:.3f}",
        "state": run.state.replace("_", " ") + (" !" if run.suspect else ""),
        "reason": f"suspect: {run.suspect}".replace("_", " ") if run.suspect else _reason(run),
    }


def _reason(run: RunState) -> str:
    return (run.message if run.state in ENDED_BADLY else run.reason).replace("_", " ")


def suspect_line(event: Event) -> str:
    """Return which run has left the proxies' curve, since when and with what fault."""
    since = "" if event.get("onset") is None else f" from {event['onset']:.0%} of its training on"
    size = "" if event.get("size_pct") is None else f" by {event['size_pct']:+.2g} %"
    return f"{event['name']} is suspect: it left the proxies' curve{since}{size}; {event.get('reason', '')}"


def _decided_line(run: RunState) -> str:
    head = f"{run.name}: {'stops' if run.state != 'goes on' and run.reason != 'selected' else 'goes on'}, {_reason(run)}"
    if run.forecast is None or run.lower is None or run.upper is None:
        return head
    p_best = "" if run.p_best is None else f", P(best) {run.p_best:.3f}"
    return f"{head}; forecast {run.forecast:.4f} ({run.lower:.4f} to {run.upper:.4f}){p_best}"


def _starts_again(state: SweepState, event: Event) -> str:
    """Return a line where an event gives a worker to a run that has one: its last has died."""
    run = state.runs.get(str(event.get("name"))) if event["event"] == "started" else None
    return f"{run.name} starts again" if run is not None and run.state == RUNNING else ""


def _ended_line(state: SweepState, event: Event) -> str:
    run = state.runs.get(event["name"])
    how = "done"
    if event["status"] != "reached":
        settings = "" if run is None else f" with {settings_text(run.settings)}"
        how = f"{event['status']} ({event['message']}){settings}"
    return f"{event['name']}: step {event['step']} of {event['n_steps']}, {how}"


def _left(state: SweepState, now: float) -> str:
    left = state.seconds_left(now)
    if left is None and not 0 <= state.done_flops < state.total_flops:
        return ""
    return f"; sweep {state.fraction:.0%}" + ("" if left is None else f", about {about_left(left)} left")
