"""A sweep as its run folder tells it: running, killed, failed or finished, of this version or an older one.

Only files are read, and each is optional: a run folder without a progress log or a result still gives its trials and their
curves. What cannot be read is named in :attr:`SweepRecord.notes`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hpo.adapters.curve_files import RecordedRun, read_runs
from hpo.adapters.model_files import read_model
from hpo.adapters.progress_log import Event, read_progress
from hpo.adapters.training_session import read_log
from hpo.core.curve import Curve
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel
from hpo.reporting.decision_trail import TrailLine, trail_of
from hpo.reporting.sweep_state import SweepState

_VERIFY = "verify-"
_FURTHER = re.compile(r"^(verify|seed-\d+)-")


@dataclass(frozen=True)
class TrialRecord:
    """One candidate.

    Attributes
    ----------
    state, reason : str
        As in ``result.json``; while there is none, as the log tells.
    forecast : dict
        ``final_loss``, ``lower``, ``upper``, ``p_best`` and ``status``, None where unknown: what was decided on.
    loss_at_stop, final_loss : float or None
        Loss so far where it was judged; measured final loss (of a verification too).
    run : RecordedRun or None
        All that was logged of it, by a verification too.
    trail : tuple of TrailLine
        What happened to it and why.
    """

    name: str
    number: int
    settings: dict[str, Any]
    state: str
    reason: str
    forecast: Mapping[str, Any]
    loss_at_stop: float | None
    final_loss: float | None
    is_tied: bool
    run: RecordedRun | None = field(default=None, repr=False)
    trail: tuple[TrailLine, ...] = field(default=(), repr=False)

    @cached_property
    def curve(self) -> Curve | None:
        """The curve of all that was logged."""
        return None if self.run is None or not self.run.steps.size else self.run.curve()

    @property
    def fraction(self) -> float | None:
        """Share of the whole run that is logged."""
        return None if self.curve is None else self.curve.fraction_seen


@dataclass(frozen=True)
class SweepRecord:
    """A sweep: its configuration as read from YAML, its result if it has one, its trials by number, its proxies by name."""

    folder: Path
    config: dict[str, Any]
    result: dict[str, Any] | None
    state: SweepState
    trials: tuple[TrialRecord, ...]
    proxies: dict[str, RecordedRun]
    model: CollapseModel | None
    events: tuple[Event, ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The sweep's name."""
        return str(self.config.get("name") or self.folder.name)

    @property
    def stopping(self) -> Mapping[str, Any]:
        """The block ``stopping`` of its configuration."""
        block = self.config.get("stopping")
        return block if isinstance(block, dict) else {}

    @property
    def at(self) -> float:
        """The stopping fraction."""
        return float(self.stopping.get("at", 0.2))

    @property
    def winner(self) -> TrialRecord | None:
        """The winner, once there is one."""
        return next((trial for trial in self.trials if trial.state == "winner"), None)

    @property
    def environment(self) -> Mapping[str, str]:
        """Machine and versions of its first driver."""
        first = next((event for event in self.events if event["event"] == "driver"), {})
        known = first.get("environment")
        return known if isinstance(known, dict) else {}

    @property
    def n_interruptions(self) -> int:
        """How often a driver took over from one that had not finished."""
        kinds = [event["event"] for event in self.events if event["event"] in ("driver", "finished")]
        return sum(a == b == "driver" for a, b in pairwise(kinds))


def read_sweep(folder: Path) -> SweepRecord:
    """Return what the run folder ``folder`` tells."""
    reader = _Reader(folder)
    config, result = reader.config(), reader.json("result.json")
    events = read_progress(folder / "logs" / "progress.jsonl")
    runs = reader.runs()
    model = reader.model()
    state = SweepState.of(events)
    trials = reader.trials(result, state, runs, events)
    proxies = {name: run for name, run in runs.items() if run.group == "proxy"}
    return SweepRecord(folder, config, result, state, trials, proxies, model, tuple(events), tuple(reader.notes))


class _Reader:
    def __init__(self, folder: Path) -> None:
        self._folder, self.notes = folder, list[str]()

    def config(self) -> dict[str, Any]:
        try:
            data = yaml.safe_load((self._folder / "config.yaml").read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            self._note("config.yaml", error)
            return {}
        return data if isinstance(data, dict) else {}

    def json(self, name: str) -> dict[str, Any] | None:
        path = self._folder / name
        if not path.exists():
            return None
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            self._note(name, error)
            return None
        return data if isinstance(data, dict) else None

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return the records of a JSONL file; a line that was cut short, or is none, is passed over."""
        try:
            text = (self._folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        found = (_parsed(line) for line in text.splitlines())
        return [record for record in found if record is not None]

    def runs(self) -> dict[str, RecordedRun]:
        """Return the recorded curves by the run's name."""
        found: dict[str, RecordedRun] = {}
        for path in sorted((self._folder / "curves").glob("*.parquet")):
            try:
                found[path.stem] = read_runs(path)[0]
            except ValueError as error:
                self._note(f"curves/{path.name}", error)
        return found

    def model(self) -> CollapseModel | None:
        path = self._folder / "model.json"
        if not path.exists():
            return None
        try:
            return read_model(path)
        except ValueError as error:
            self._note("model.json", error)
            return None

    def trials(
        self, result: Mapping[str, Any] | None, state: SweepState, runs: Mapping[str, RecordedRun], events: list[Event]
    ) -> tuple[TrialRecord, ...]:
        """Return the candidates, by number."""
        verdicts = [line for line in self.lines("decisions.jsonl") if "run" in line and "trial" in line]
        decisions = {str(line["run"]): line for line in verdicts}  # of several looks the last holds
        told = {trial["number"]: trial for trial in (result or {}).get("trials", []) if "number" in trial}
        names = _names(state, decisions, runs, [folder.name for folder in (self._folder / "trials").glob("trial-*")])
        commands, answers = self.lines("commands.jsonl"), {a["id"]: a for a in self.lines("answers.jsonl") if "id" in a}
        of_rule = _by_run(self.lines("events.jsonl"), lambda e: str(e.get("id", "")).split("+", 1)[0], "decision")
        happened = _by_run(events, lambda e: _FURTHER.sub("", str(e.get("name", ""))), "started", "ended", "decided")
        trials = []
        for name, number in names.items():
            decision = decisions.get(name)
            trail = trail_of(
                name,
                events=happened.get(name, []),
                decisions=[line for line in verdicts if line["run"] == name],
                of_rule=of_rule.get(name, []),
                commands=[(c, answers.get(c.get("id"))) for c in commands if c.get("trial") == name],
            )
            logged = self._logged(name, runs.get(name), state)
            record = _trial(name, number, told.get(number), state, decision, logged)
            trials.append(replace(record, trail=tuple(trail)))
        return tuple(sorted(trials, key=lambda trial: trial.number))

    def _logged(self, name: str, saved: RecordedRun | None, state: SweepState) -> RecordedRun | None:
        """Return the longest log of a candidate: of a verification, of the run itself, or as it was saved."""
        known = state.runs.get(name)
        horizon = saved.horizon if saved is not None else None if known is None else float(known.n_steps)
        base = saved or RecordedRun(
            run_id=name, steps=np.empty(0), values=np.empty(0), metric=Metric("train_loss"), horizon=horizon
        )
        for folder in (f"{_VERIFY}{name}", name):
            try:
                log = read_log(self._folder / "trials" / folder)
            except (OSError, ValueError, UnicodeDecodeError) as error:
                self._note(f"trials/{folder}/log.csv", error)
                continue
            if log["step"].size > base.steps.size:
                base = replace(base, steps=log["step"], values=log["loss"], tokens=None, learning_rates=None)
        return base if base.steps.size else None

    def _note(self, what: str, error: Exception) -> None:
        self.notes.append(f"{what} cannot be read: {' '.join(str(error).split())[:200]}")


def _by_run(events: list[Event], run_of: Callable[[Event], str], *kinds: str) -> dict[str, list[Event]]:
    """Return the events of some kinds by the run they are about, each in order."""
    found: dict[str, list[Event]] = {}
    for event in events:
        if event.get("event") in kinds:
            found.setdefault(run_of(event), []).append(event)
    return found


def _names(
    state: SweepState, decisions: Mapping[str, Mapping[str, Any]], runs: Mapping[str, RecordedRun], folders: list[str]
) -> dict[str, int]:
    """Return the number of every candidate by its name; where nothing tells it, its place."""
    known = {run.name: run.number for run in state.candidates}
    known |= {name: int(line["trial"]) for name, line in decisions.items()}
    names = {*known, *(name for name, run in runs.items() if run.group == "candidate"), *folders}
    found = {}
    for place, name in enumerate(sorted(names)):
        number = known.get(name)
        found[name] = place if number is None else number
    return found


def _trial(
    name: str,
    number: int,
    told: Mapping[str, Any] | None,
    state: SweepState,
    decision: Mapping[str, Any] | None,
    run: RecordedRun | None,
) -> TrialRecord:
    live = state.runs.get(name)
    settings = (told or {}).get("settings") or (live.settings if live is not None else run.settings if run is not None else {})
    curve = None if run is None else run.curve()
    final = (told or {}).get("actual_final_loss")
    if final is None and curve is not None:
        final = curve.final_loss
    said: Mapping[str, Any] = (told or {}).get("forecast") or (decision or {}).get("forecast") or {}
    if said.get("final_loss") is None and live is not None and live.forecast is not None:
        said = {"final_loss": live.forecast, "lower": live.lower, "upper": live.upper, "p_best": live.p_best, "status": "ok"}
    unknown = "waiting" if run is None else "unfinished"
    return TrialRecord(
        name=name,
        number=number,
        settings=dict(settings),
        state=str((told or {}).get("state") or (live.state if live is not None else unknown)).replace("_", " "),
        reason=str(
            (told or {}).get("reason") or (decision or {}).get("reason") or (live.reason or live.message if live else "")
        ),
        forecast=said,
        loss_at_stop=(told or {}).get("loss_at_stop") or (decision or {}).get("current_loss"),
        final_loss=final,
        is_tied=bool((decision or {}).get("is_tied") or (live is not None and live.is_tied)),
        run=run,
    )


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
