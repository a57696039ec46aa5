"""Wishes about candidates: what is heeded, what is refused, and that a new driver knows what holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpo.engine.commands_file import CommandsFile
from hpo.engine.config import SweepConfig
from hpo.engine.hand import Hand
from hpo.engine.plan import plan_sweep
from hpo.engine.run_folder import new_run_folder
from hpo.engine.runs_on_disk import RunsOnDisk
from hpo.engine.stop_marks import is_marked, mark_stopped, why_stopped
from hpo.engine.worker import Outcome, write_outcome

NAME = "trial-02"


@pytest.fixture
def runs(tiny, tmp_path: Path) -> RunsOnDisk:
    config = SweepConfig.model_validate(tiny)
    made = RunsOnDisk(plan_sweep(config), new_run_folder(tmp_path / "run", config))
    for run in made.plan.candidates:
        made.folder.trial(run.name).mkdir()
    return made


@pytest.fixture
def ask(runs):
    """Ask a new driver for something; returns its answer and its hand."""

    def asked(action: str, until: float | None = None):
        file = CommandsFile(runs.folder.path)
        command = file.ask(action, NAME, until)
        hand = Hand(runs, file)
        enqueued = []
        hand.enqueue = lambda run: enqueued.append(run.name)
        hand.look()
        return file.answers()[command.id], hand, enqueued

    return asked


def _ends(runs, status: str, step: int = 5) -> None:
    write_outcome(runs.folder.trial(NAME), Outcome(status, step, 1.0, "why"))


def test_a_stopped_run_is_marked_with_the_reason(runs, ask):
    answer, _, _ = ask("stop")
    assert answer.ok
    assert why_stopped(runs.folder.trial(NAME)) == "stopped_by_hand"


def test_keep_is_known_to_the_next_driver_and_taken_back_by_stop(runs, ask):
    _, hand, _ = ask("keep")
    assert hand.kept == {NAME}
    assert Hand(runs, CommandsFile(runs.folder.path)).kept == {NAME}
    _, hand, _ = ask("stop")
    assert hand.kept == set()


def test_revive_takes_mark_and_outcome_away_and_puts_the_run_back(runs, ask):
    mark_stopped(runs.folder.trial(NAME), "cannot_win")
    _ends(runs, "stopped")
    answer, _, enqueued = ask("revive")
    assert (answer.ok, answer.revived, enqueued) == (True, True, [NAME])
    assert not is_marked(runs.folder.trial(NAME))
    assert runs.outcome(runs.plan.candidates[2]) is None
    assert Hand(runs, CommandsFile(runs.folder.path)).n_revived[NAME] == 1


def test_one_kept_while_it_is_ending_is_started_again(runs, ask):
    mark_stopped(runs.folder.trial(NAME), "cannot_win")
    answer, hand, enqueued = ask("keep")
    assert (answer.ok, answer.revived, enqueued) == (True, True, [NAME])
    assert hand.kept == {NAME}
    assert not is_marked(runs.folder.trial(NAME))


def test_to_extend_to_the_end_is_to_keep(ask):
    assert ask("extend", 1.0)[1].kept == {NAME}


def test_what_goes_on_by_hand_although_not_selected_is_told(ask):
    assert ask("keep")[1].wish(NAME, 0.2) == f"{NAME} goes on all the same: kept by hand"
    _, hand, _ = ask("stop")
    assert hand.wish(NAME, 0.2) == ""
    _, hand, _ = ask("extend", 0.5)
    assert hand.wish(NAME, 0.2) == f"{NAME} goes on all the same: extended by hand to 50%"
    assert (hand.wish(NAME, 0.5), hand.wish("trial-00", 0.2)) == ("", "")


@pytest.mark.parametrize("status", ["failed", "out_of_memory"])
def test_a_failed_run_can_be_revived(runs, ask, status):
    _ends(runs, status)
    assert ask("revive")[0].ok


@pytest.mark.parametrize("action", ["keep", "stop", "revive", "extend"])
def test_a_diverged_or_complete_run_is_left_alone(runs, ask, action):
    _ends(runs, "diverged")
    assert (ask(action)[0].ok, ask(action)[0].text) == (False, f"{NAME} has diverged")
    _ends(runs, "reached", runs.plan.candidates[2].n_steps)
    assert (ask(action)[0].ok, ask(action)[0].text) == (False, f"{NAME} is complete")


def test_what_was_not_stopped_cannot_be_revived_and_what_has_ended_not_stopped(runs, ask):
    assert not ask("revive")[0].ok
    _ends(runs, "stopped")
    assert not ask("stop")[0].ok
    assert not ask("keep")[0].ok


def test_extend_needs_a_fraction_beyond_what_was_done(runs, ask):
    (runs.folder.trial(NAME) / "log.csv").write_text("step,tokens,loss\n" + f"{runs.plan.candidates[2].n_steps // 2},1,3.0\n")
    assert not ask("extend", 0.3)[0].ok
    assert ask("extend", 0.7)[1].until == {NAME: 0.7}
    assert ask("extend")[1].until[NAME] == pytest.approx(0.6, abs=0.01)


def test_every_command_is_answered_once(runs, ask):
    ask("keep")
    ask("keep")
    file = CommandsFile(runs.folder.path)
    assert len(file.answers_path.read_text().splitlines()) == 2


def test_an_unknown_candidate_is_refused(runs):
    file = CommandsFile(runs.folder.path)
    command = file.ask("keep", "trial-99")
    Hand(runs, file).look()
    assert file.answers()[command.id].text == "there is no candidate trial-99"


def test_a_refusal_is_said_as_whoever_wished_may_be_gone(runs):
    _ends(runs, "stopped")
    file = CommandsFile(runs.folder.path)
    file.ask("keep", NAME)
    hand, said = Hand(runs, file), []
    hand.say = said.append
    hand.look()
    assert said == [f"keep {NAME} is refused: {NAME} has ended; revive starts it again"]
