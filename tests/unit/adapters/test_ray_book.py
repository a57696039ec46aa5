from __future__ import annotations

import pytest
from optuna.trial import TrialState

from hpo.adapters.ray_book import BookPruner, Ending, TrialBook

ABOUT = {"settings": {}, "recipe": None, "family": "", "horizon": 100.0}


def reported(book: TrialBook, steps: range, trial_id: str = "a") -> None:
    book.add(trial_id, ABOUT)
    for step in steps:
        book.report(trial_id, float(step), 3.0 - step / 100)


@pytest.mark.parametrize(("last", "teaches"), [(100, True), (99, True), (95, False), (30, False)])
def test_only_a_trial_that_came_to_its_horizon_is_complete(last: int, teaches: bool) -> None:
    book = TrialBook()
    reported(book, range(1, last + 1))
    book.end("a", "finished")
    assert [t.state for t in book.get_trials()] == ([TrialState.COMPLETE] if teaches else [])


def test_a_failed_trial_goes_on_with_the_reports_that_it_had() -> None:
    book = TrialBook()
    reported(book, range(1, 51))
    book.end("a", "failed")
    assert book.get_trials() == []
    book.add("a", ABOUT)
    assert not book.report("a", 50.0, 9.0)
    reported(book, range(51, 101))
    book.end("a", "finished")
    assert len(book.get_trials()[0].intermediate_values) == 100
    book.end("a", "failed")
    assert book.trials["a"].status == "finished"


def test_trials_finish_in_the_order_in_which_they_ended() -> None:
    book = TrialBook()
    for name in "abc":
        reported(book, range(1, 101), name)
    for name in "cab":
        book.end(name, "finished")
    assert [t.number for t in sorted(book.get_trials(), key=lambda t: t.datetime_complete)] == [2, 0, 1]


def test_fractional_steps_are_kept_apart() -> None:
    book = TrialBook()
    book.add("a", ABOUT)
    assert all(book.report("a", step, 1.0) for step in (0.25, 0.5, 1.0))
    assert list(book.trials["a"].frozen.intermediate_values) == [0.25, 0.5, 1]


@pytest.mark.parametrize("last", [30, 100])
def test_a_trial_that_others_are_not_judged_by_keeps_no_reports(last: int) -> None:
    book = TrialBook()
    reported(book, range(1, last + 1))
    book.trials["a"].failed = None if last == 30 else "total failed"
    book.end("a", "finished")
    assert len(book.trials["a"].frozen.intermediate_values) == 0
    assert not book.report("a", last + 1.0, 1.0)


@pytest.mark.parametrize(("how", "last"), [("failed", 20), ("finished", 20), ("stopped", 20), ("finished", 100)])
def test_nothing_follows_a_trial_that_has_ended_until_it_runs_again(how: Ending, last: int) -> None:
    book = TrialBook()
    pruner = BookPruner(book, None)
    reported(book, range(1, last + 1))
    pruner.judge(book.trials["a"])
    book.end("a", how)
    pruner.let_go(book.trials["a"])
    assert not pruner.view_of(book).followers
    if how == "failed":
        reported(book, range(last + 1, last + 2))
        assert pruner.judge(book.trials["a"]).step == last + 1


def test_all_but_one_may_be_stopped_until_one_is_whole() -> None:
    book = TrialBook()
    for name in "abc":
        book.add(name, {"horizon": 10.0})
    assert book.n_open(5) == 4  # three run, two are to come, one must be left
    for name, last in (("a", 4), ("b", 10)):
        for step in range(1, last + 1):
            book.report(name, float(step), 1.0)
    book.end("a", "stopped")
    assert book.n_open(5) == 3
    book.end("b", "finished")
    assert book.n_open(5) == 3
    assert book.n_open(1) == 1  # more trials than were said: those that run
