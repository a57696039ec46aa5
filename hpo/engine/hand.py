"""The human hand on a sweep: which candidates people keep, stop, revive or extend, and how the driver answers.

``keep``: it goes to its end whatever its forecast. ``stop``: it ends at its next report. ``revive``: what was stopped (or
failed) goes on from its latest checkpoint, and is kept. ``extend``: no forecast stops it before a further fraction of its
training; there it is judged (in ``select``: judged again); if it was stopped, it goes on from its checkpoint up to there. Only
a non-finite loss ends a kept run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from hpo.adapters.training_session import latest_checkpoint
from hpo.engine.commands_file import Answer, Command, CommandsFile
from hpo.engine.plan import Run
from hpo.engine.runs_on_disk import REVIVABLE, RunsOnDisk
from hpo.engine.stop_marks import BY_HAND, is_marked, mark_stopped

LOOK_EVERY_S = 0.5
EXTEND_BY = 0.1


class Hand:
    """What people wish, as far as the driver has taken it up.

    Parameters
    ----------
    runs : RunsOnDisk
        The sweep's runs.
    file : CommandsFile
        Where wishes come from; those answered already are taken up at once.

    Attributes
    ----------
    kept : set of str
        Names of the candidates that go to their end whatever their forecast.
    until : dict
        Fraction of training up to which no forecast stops a candidate, by name.
    n_revived : Counter
        How often each was revived.
    enqueue : callable
        Called with a run that is to go on; set by whoever runs the trials.
    is_out : callable
        Says of a run that ended at the stopping point whether it was not selected; set by the sweep.
    say : callable
        Called with a line about each wish that is refused, as whoever wished may be gone; set by the sweep.
    """

    def __init__(self, runs: RunsOnDisk, file: CommandsFile) -> None:
        self._runs, self._file = runs, file
        self._by_name = {run.name: run for run in runs.plan.candidates}
        self._looked_at = float("-inf")
        self.kept: set[str] = set()
        self.until: dict[str, float] = {}
        self.n_revived: Counter[str] = Counter()
        self.enqueue: Callable[[Run], None] = lambda _run: None
        self.is_out: Callable[[Run], bool] = lambda _run: False
        self.say: Callable[[str], None] = lambda _text: None
        self._answered = file.answers()
        for command in file.commands():
            answer = self._answered.get(command.id)
            if answer is not None and answer.ok:
                self._note(command, answer)

    def look(self, *, at_once: bool = False) -> None:
        """Heed and answer what is new; at most twice a second, unless ``at_once``: before something is decided."""
        if not at_once and time.monotonic() - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = time.monotonic()
        for command in self._file.commands():
            if command.id not in self._answered:
                answer = self._heed(command)
                if answer.ok:
                    self._note(command, answer)
                else:
                    self.say(f"{command.action} {command.trial} is refused: {answer.text}")
                if answer.revived:
                    self._start_again(self._by_name[command.trial])
                self._file.answer(answer)
                self._answered[command.id] = answer

    def wish(self, name: str, fraction: float | None) -> str:
        """Return in words why a candidate that is not selected at ``fraction`` of its training goes on; "" if it does not."""
        until = self.until.get(name, 0.0)
        if name in self.kept:
            return f"{name} goes on all the same: kept by hand"
        if fraction is not None and until > fraction + 1e-6:
            return f"{name} goes on all the same: extended by hand to {until:.0%}"
        return ""

    def _note(self, command: Command, answer: Answer) -> None:
        name = command.trial
        if command.action in ("keep", "revive"):
            self.kept.add(name)
        elif command.action == "extend":
            self.until[name] = answer.until or 0.0
            if self.until[name] >= 1:
                self.kept.add(name)
        else:
            self.kept.discard(name)
            self.until.pop(name, None)
        self.n_revived[name] += answer.revived

    def _heed(self, command: Command) -> Answer:
        run = self._by_name.get(command.trial)
        if run is None:
            return Answer(command.id, False, f"there is no candidate {command.trial}")
        if self._runs.is_complete(run):
            return Answer(command.id, False, f"{run.name} is complete")
        if self._runs.has_status(run, "diverged"):
            return Answer(command.id, False, f"{run.name} has diverged")
        ended = self._runs.has_status(run, *REVIVABLE) or self.is_out(run)
        if command.action == "stop":
            return self._stop(command, run, ended)
        if command.action == "extend":
            return self._extend(command, run, ended)
        if command.action == "revive":
            return self._revive(command, run, ended)
        if ended:
            return Answer(command.id, False, f"{run.name} has ended; revive starts it again")
        is_ending = is_marked(self._runs.folder.trial(run.name))  # its worker may have seen the mark already
        return Answer(command.id, True, f"{run.name} goes to its end whatever its forecast", revived=is_ending)

    def _stop(self, command: Command, run: Run, ended: bool) -> Answer:
        if ended:
            return Answer(command.id, False, f"{run.name} has ended already")
        mark_stopped(self._runs.folder.trial(run.name), BY_HAND)
        return Answer(command.id, True, f"{run.name} stops at its next report")

    def _revive(self, command: Command, run: Run, ended: bool) -> Answer:
        if not (ended or is_marked(self._runs.folder.trial(run.name))):
            why = "goes to its end already" if run.name in self.kept else "was not stopped; keep saves it from being stopped"
            return Answer(command.id, False, f"{run.name} {why}")
        saved = latest_checkpoint(self._runs.folder.trial(run.name))
        where = "the beginning (it has no checkpoint)" if saved is None else saved.name.replace("-", " at step ")
        return Answer(command.id, True, f"{run.name} goes on from {where} to its end", revived=True)

    def _extend(self, command: Command, run: Run, ended: bool) -> Answer:
        done = self._runs.steps(run) / run.n_steps
        until = min(1.0, round(done + EXTEND_BY, 3)) if command.until is None else command.until
        if not done < until <= 1:
            return Answer(command.id, False, f"{run.name} has done {done:.0%}; expected a fraction above it, up to 1")
        revived = ended or is_marked(self._runs.folder.trial(run.name))
        return Answer(command.id, True, f"no forecast stops {run.name} before {until:.0%} of its training", revived, until)

    def _start_again(self, run: Run) -> None:
        self._runs.forget_ending(run)
        self.enqueue(run)
