"""A sweep as its run folder tells it: running, killed, failed or finished, of this version or an older one.

Only files are read, and each is optional: a run folder without a progress log or a result still gives its trials and their
curves. What cannot be read is named in :attr:`SweepRecord.notes`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hpo.adapters.curve_files import RecordedRun, read_runs
from hpo.adapters.json_line import json_object
from hpo.adapters.model_files import read_model
from hpo.adapters.progress_log import Event, read_progress
from hpo.adapters.training_session import last_logged_step, read_log
from hpo.core.curve import Curve
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel
from hpo.reporting.decision_trail import TrailLine, trail_of
from hpo.reporting.sweep_state import RunState, SweepState

MAX_CURVES = 500
RESULT_KEYS = ("winner", "forecast", "actual_final_loss", "flops_full_sweep", "saved_fraction", "seconds", "trials")
"""What a ``result.json`` that tells costs has besides."""
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
    suspect : dict
        ``kind``, ``onset``, ``size_pct``, ``reason``, … where the monitor has called it; empty else.
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
    suspect: Mapping[str, Any] = field(default_factory=dict)

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
    """Return what the run folder ``folder`` tells; of very many candidates, the curves of the :data:`MAX_CURVES` best."""
    reader = _Reader(folder)
    config, result = reader.config(), reader.result()
    events = read_progress(folder / "logs" / "progress.jsonl")
    state = SweepState.of(events)
    trials = reader.trials(result, state, events)
    proxies = reader.proxies()
    return SweepRecord(folder, config, result, state, trials, proxies, reader.model(), tuple(events), tuple(reader.notes))


class _Reader:
    def __init__(self, folder: Path) -> None:
        self._folder, self.notes = folder, list[str]()

    def config(self) -> dict[str, Any]:
        try:
            data = yaml.safe_load((self._folder / "config.yaml").read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            self._note("config.yaml", error)
            return {}
        if not isinstance(data, dict):
            self._note("config.yaml", ValueError("it is no mapping"))
            return {}
        return data

    def result(self) -> dict[str, Any] | None:
        """Return ``result.json``, None where it is not whole: one of another version may lack something."""
        found = self.json("result.json")
        missing = [name for name in RESULT_KEYS if name not in found] if found is not None and found.get("flops_spent") else []
        if missing:
            self._note("result.json", ValueError(f"it lacks {', '.join(missing)}"))
        return None if missing else found

    def json(self, name: str) -> dict[str, Any] | None:
        path = self._folder / name
        if not path.exists():
            return None
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            self._note(name, error)
            return None
        if not isinstance(data, dict):
            self._note(name, ValueError("it is no object"))
            return None
        return data

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return the records of a JSONL file; a line that was cut short, or is none, is passed over."""
        try:
            text = (self._folder / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        found = (json_object(line) for line in text.splitlines())
        return [record for record in found if record is not None]

    def proxies(self) -> dict[str, RecordedRun]:
        """Return the proxies' curves by name."""
        names = (path.stem for path in sorted((self._folder / "curves").glob("proxy-*.parquet")))
        return {name: run for name in names if (run := self._saved(name)) is not None}

    def model(self) -> CollapseModel | None:
        path = self._folder / "model.json"
        if not path.exists():
            return None
        try:
            return read_model(path)
        except ValueError as error:
            self._note("model.json", error)
            return None

    def trials(self, result: Mapping[str, Any] | None, state: SweepState, events: list[Event]) -> tuple[TrialRecord, ...]:
        """Return the candidates, by number."""
        verdicts = _by_run(self.lines("decisions.jsonl"), "run", needs="trial")
        told = {trial["number"]: trial for trial in (result or {}).get("trials", []) if "number" in trial}
        of_rule = _by_run(self.lines("events.jsonl"), "id", "decision")
        happened = _by_run(events, "name", "started", "ended", "decided", "suspected")
        commands, answers = (
            _by_run(self.lines("commands.jsonl"), "trial"),
            {a.get("id"): a for a in self.lines("answers.jsonl")},
        )
        trials = []
        for name, number in self._names(state, verdicts).items():
            trail = trail_of(
                name,
                events=happened.get(name, []),
                decisions=verdicts.get(name, []),
                of_rule=of_rule.get(name, []),
                commands=[(command, answers.get(command.get("id"))) for command in commands.get(name, [])],
            )
            decision = verdicts[name][-1] if name in verdicts else None  # of several looks the last holds
            trials.append(replace(_trial(name, number, told.get(number), state, decision), trail=tuple(trail)))
        return self._with_curves(sorted(trials, key=lambda trial: trial.number), state)

    def _names(self, state: SweepState, verdicts: Mapping[str, list[Event]]) -> dict[str, int]:
        """Return the number of every candidate by its name; where nothing tells it, its place."""
        known = {run.name: run.number for run in state.candidates}
        known |= {name: int(lines[-1]["trial"]) for name, lines in verdicts.items()}
        saved = [path.stem for path in (self._folder / "curves").glob("trial-*.parquet")]
        names = {*known, *saved, *(folder.name for folder in (self._folder / "trials").glob("trial-*"))}
        numbers = ((name, place, known.get(name)) for place, name in enumerate(sorted(names)))
        return {name: place if number is None else number for name, place, number in numbers}

    def _with_curves(self, trials: list[TrialRecord], state: SweepState) -> tuple[TrialRecord, ...]:
        wanted = {trial.name for trial in sorted(trials, key=rank)[:MAX_CURVES]}
        if len(trials) > MAX_CURVES:
            self.notes.append(f"Only the curves of the {MAX_CURVES} best of {len(trials)} candidates were read.")
        return tuple(self._with_curve(trial, state) if trial.name in wanted else trial for trial in trials)

    def _with_curve(self, trial: TrialRecord, state: SweepState) -> TrialRecord:
        run = self._logged(trial.name, self._saved(trial.name), state)
        if run is None:
            return trial
        final = trial.final_loss if trial.final_loss is not None else run.curve().final_loss
        told = "unfinished" if trial.state == "waiting" and trial.name not in state.runs else trial.state
        return replace(trial, run=run, final_loss=final, settings=trial.settings or dict(run.settings), state=told)

    def _saved(self, name: str) -> RecordedRun | None:
        path = self._folder / "curves" / f"{name}.parquet"
        try:
            return read_runs(path)[0] if path.exists() else None
        except ValueError as error:
            self._note(f"curves/{path.name}", error)
            return None

    def _logged(self, name: str, saved: RecordedRun | None, state: SweepState) -> RecordedRun | None:
        """Return the longest log of a candidate: of a verification, of the run itself, or as it was saved."""
        known = state.runs.get(name)
        horizon = saved.horizon if saved is not None else None if known is None else float(known.n_steps)
        base = saved or RecordedRun(
            run_id=name, steps=np.empty(0), values=np.empty(0), metric=Metric("train_loss"), horizon=horizon
        )
        for folder in (f"{_VERIFY}{name}", name):
            path = self._folder / "trials" / folder
            try:
                if last_logged_step(path) <= (base.steps[-1] if base.steps.size else 0):
                    continue
                log = read_log(path)
            except (OSError, ValueError, UnicodeDecodeError) as error:
                self._note(f"trials/{folder}/log.csv", error)
                continue
            values = log.get(base.metric.name, log["loss"])  # of a training loss, the column is called loss
            kept = ~np.isnan(values) | ~np.isfinite(log["loss"])
            base = replace(base, steps=log["step"][kept], values=values[kept], tokens=None, learning_rates=None)
        return base if base.steps.size else None

    def _note(self, what: str, error: Exception) -> None:
        self.notes.append(f"{what} cannot be read: {' '.join(str(error).split())[:200]}")


def _by_run(events: list[Event], key: str, *kinds: str, needs: str | None = None) -> dict[str, list[Event]]:
    """Return records by the candidate they are about, each in order: those of some kinds of event, or all.

    A verification or a further seed of a candidate, or its life after a revival (``trial-03+1``), is about it too.
    """
    found: dict[str, list[Event]] = {}
    for event in events:
        if key in event and (needs is None or needs in event) and (not kinds or event.get("event") in kinds):
            name = _FURTHER.sub("", str(event[key])).split("+", 1)[0]
            found.setdefault(name, []).append(event)
    return found


def rank(trial: TrialRecord) -> tuple[bool, float, int]:
    """Return what candidates are ordered by: the winner first, then by forecast, those without one last."""
    forecast = trial.forecast.get("final_loss")
    return trial.state != "winner", math.inf if forecast is None else float(forecast), trial.number


def _suspect(live: RunState | None) -> dict[str, Any]:
    return {"kind": live.suspect, "onset": live.suspect_since} if live is not None and live.suspect else {}


def _trial(
    name: str, number: int, told: Mapping[str, Any] | None, state: SweepState, decision: Mapping[str, Any] | None
) -> TrialRecord:
    """Return a candidate without its curve: from the result, else from its decision, else from the log."""
    live, told, decision = state.runs.get(name), told or {}, decision or {}
    said: Mapping[str, Any] = told.get("forecast") or decision.get("forecast") or {}
    if said.get("final_loss") is None and live is not None and live.forecast is not None:
        said = {"final_loss": live.forecast, "lower": live.lower, "upper": live.upper, "p_best": live.p_best, "status": "ok"}
    known = "waiting" if live is None else live.state
    reason = told.get("reason") or decision.get("reason") or ("" if live is None else live.reason or live.message)
    return TrialRecord(
        name=name,
        number=number,
        settings=dict(told.get("settings") or ({} if live is None else live.settings)),
        state=str(told.get("state") or known).replace("_", " "),
        reason=str(reason),
        forecast=said,
        loss_at_stop=told["loss_at_stop"] if told.get("loss_at_stop") is not None else decision.get("current_loss"),
        final_loss=told.get("actual_final_loss"),
        is_tied=bool(decision.get("is_tied") or (live is not None and live.is_tied)),
        suspect=told.get("suspect") or _suspect(live),
    )
