"""Where a sweep stands, folded from the events of its progress log one by one.

The same fold serves the display of a running sweep, ``hpo watch`` in another terminal, and the report of a sweep that never
came to its end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hpo.adapters.progress_log import Event

RUNNING, WAITING, JUDGED, GOES_ON, STOPPED, COMPLETE = "running", "waiting", "at its stop", "goes on", "stopped", "complete"
ENDED_BADLY = ("failed", "out_of_memory", "diverged")
TELLING_SHARE = 0.01
"""Of a sweep: what a driver has done of it before it says how long the rest will take (workers that start are slow)."""
_ORDER = {RUNNING: 0, GOES_ON: 1, JUDGED: 2, COMPLETE: 3, STOPPED: 4, WAITING: 6}
_DONE_PROXY = 7


@dataclass
class RunState:
    """One run as far as the log tells.

    Attributes
    ----------
    of : str
        The candidate it is a further run of (``verify-…``, ``seed-…``), or its own name.
    until : int
        The step it trains to now.
    state : str
        ``running``, ``waiting``, ``at its stop``, ``goes on``, ``stopped``, ``complete``, ``diverged``, ``failed`` or
        ``out_of_memory``.
    forecast, lower, upper, p_best, reason, is_tied
        Of the last decision; None and "" before.
    suspect, suspect_since
        The kind of fault with which it has left the proxies' curve, "" if it has not, and t̂ where that began.
    """

    name: str
    role: str
    number: int | None
    settings: dict[str, Any]
    n_steps: int
    stop_step: int
    flops: float
    of: str
    step: int = 0
    until: int = 0
    loss: float | None = None
    state: str = WAITING
    reason: str = ""
    message: str = ""
    forecast: float | None = None
    lower: float | None = None
    upper: float | None = None
    p_best: float | None = None
    is_tied: bool = False
    suspect: str = ""
    suspect_since: float | None = None

    @property
    def fraction(self) -> float:
        """Share of the whole run that is done."""
        return self.step / self.n_steps

    @property
    def is_extra(self) -> bool:
        """True for a run beside the sweep: a verification, or a further seed."""
        return self.of != self.name

    def flops_at(self, step: float) -> float:
        """Training FLOPs of the first ``step`` steps."""
        return self.flops * step / self.n_steps


@dataclass
class SweepState:
    """A sweep as far as its log tells; :meth:`take` every event in order."""

    name: str = ""
    rule: str = ""
    at: float | None = None
    metric: str = "loss"
    runs: dict[str, RunState] = field(default_factory=dict)
    total_flops: float = 0.0
    done_flops: float = 0.0
    begun: float | None = None
    driver: Event | None = None
    finished: Event | None = None
    _first_start: float | None = None
    _done_before: float = 0.0

    @classmethod
    def of(cls, events: Iterable[Event]) -> SweepState:
        """Return the state after all of ``events``."""
        state = cls()
        for event in events:
            state.take(event)
        return state

    def take(self, event: Event) -> None:
        """Take the next event; one of an unknown kind or form, or about a run that is not known, changes nothing."""
        with suppress(KeyError, TypeError, ValueError, ArithmeticError):  # of another version, or another hand
            self._take(event)

    def _take(self, event: Event) -> None:
        if event["event"] == "run":
            self._add(event)
        elif event["event"] == "driver":
            self._driver(event)
        elif event["event"] == "expect":
            self.total_flops = float(event["flops"])
        elif event["event"] == "finished":
            self.finished = event
        elif event.get("name") in self.runs:
            run = self.runs[event["name"]]
            takers = {
                "started": self._started,
                "reported": self._reported,
                "decided": self._decided,
                "suspected": self._suspected,
                "ended": self._ended,
            }
            takers.get(event["event"], lambda _run, _event: None)(run, event)

    @property
    def candidates(self) -> list[RunState]:
        """The candidates, in order."""
        return [run for run in self.runs.values() if run.role == "candidate" and not run.is_extra]

    @property
    def proxies(self) -> list[RunState]:
        """The proxies."""
        return [run for run in self.runs.values() if run.role == "proxy"]

    @property
    def counts(self) -> Counter[str]:
        """How many runs there are in each state."""
        return Counter(run.state for run in self.runs.values())

    @property
    def fraction(self) -> float:
        """Share of the expected FLOPs that is done."""
        return min(1.0, self.done_flops / self.total_flops) if self.total_flops > 0 else 0.0

    @property
    def saved_fraction(self) -> float | None:
        """What is saved so far of the full sweep's FLOPs, the proxies' cost taken off; None before there are candidates.

        A run that ended by itself saves nothing: a full sweep would have spent no more on it.
        """
        candidates = self.candidates
        full = sum(run.flops_at(run.step) if run.state in ENDED_BADLY else run.flops for run in candidates)
        if full <= 0:
            return None
        spared = sum(run.flops - run.flops_at(run.step) for run in candidates if run.state == STOPPED)
        return (spared - sum(run.flops_at(run.step) for run in self.proxies)) / full

    def seconds_left(self, now: float) -> float | None:
        """Return the time left at this driver's speed so far, ``now`` in seconds since 1970; None while too little tells it."""
        here = self.done_flops - self._done_before
        too_early = here <= TELLING_SHARE * self.total_flops
        if self._first_start is None or too_early or self.total_flops <= self.done_flops:
            return None
        return (now - self._first_start) * (self.total_flops - self.done_flops) / here

    def ranked(self) -> list[RunState]:
        """Return the runs, those first that matter most now: running, then likeliest winners or lowest losses, waiting last."""

        def place(run: RunState) -> tuple[int, bool, float, float]:
            loss = math.inf if run.loss is None else run.loss
            is_proxy = run.role == "proxy"  # proxies begin first, and matter least once they are done
            order = _DONE_PROXY if is_proxy and run.state == COMPLETE else _ORDER.get(run.state, 5)
            return order, is_proxy != (run.state == WAITING), -(run.p_best or 0.0), loss

        return sorted(self.runs.values(), key=place)

    def _driver(self, event: Event) -> None:
        self.driver, self.finished = event, None
        self.name, self.rule, self.at = str(event.get("name", "")), str(event.get("rule", "")), event.get("at")
        self.metric = str(event.get("metric", "loss"))
        self.total_flops = float(event.get("total_flops") or 0.0)
        self.begun = self.begun if self.begun is not None else float(event["time"])
        self._first_start, self._done_before = None, self.done_flops
        for run in self.runs.values():  # whatever ran has lost its driver
            run.state = WAITING if run.state == RUNNING else run.state

    def _add(self, event: Event) -> None:
        known = self.runs.get(event["name"])
        if known is not None:
            self._move(known, int(event["step"]))
            return
        fields = ("name", "role", "number", "settings", "n_steps", "stop_step", "flops", "of")
        run = RunState(**{key: event[key] for key in fields}, step=int(event["step"]), until=int(event["stop_step"]))
        run.number = None if run.number is None else int(run.number)
        run.settings, run.n_steps, run.flops = dict(run.settings), int(run.n_steps), float(run.flops)
        self.runs[run.name] = run
        if event.get("counted", True):
            self.done_flops += run.flops_at(run.step)
            self._done_before += run.flops_at(run.step)

    def _started(self, run: RunState, event: Event) -> None:
        self._first_start = self._first_start or float(event["time"])
        run.state, run.until = RUNNING, int(event["until"])

    def _reported(self, run: RunState, event: Event) -> None:
        if self.metric == "loss":
            run.loss = event["loss"]
        elif event.get("judged") is not None:  # evaluated now and then only
            run.loss = float(event["judged"])
        self._move(run, int(event["step"]))

    def _decided(self, run: RunState, event: Event) -> None:
        if event["reason"] == "complete":  # that "forecast" is its measured end
            return
        run.reason = str(event["reason"])
        run.is_tied = bool(event.get("is_tied"))
        if event.get("forecast") is not None:
            run.forecast, run.lower, run.upper = event["forecast"], event.get("lower"), event.get("upper")
        if event.get("p_best") is not None:
            run.p_best = event["p_best"]
        if run.state in (JUDGED, STOPPED, GOES_ON, WAITING):
            run.state = STOPPED if event["action"] == "stop" else GOES_ON

    def _suspected(self, run: RunState, event: Event) -> None:
        run.suspect, run.suspect_since = str(event["kind"]), event.get("onset")

    def _ended(self, run: RunState, event: Event) -> None:
        self._move(run, int(event["step"]))
        run.message, status = str(event.get("message") or ""), str(event["status"])
        run.state = status if status != "reached" else COMPLETE if run.step >= run.n_steps else JUDGED
        if status == STOPPED and run.message:
            run.reason = run.message

    def _move(self, run: RunState, step: int) -> None:
        if step > run.step:
            self.done_flops += run.flops_at(step) - run.flops_at(run.step)
            run.step = step
