"""What may begin within a time budget, at the speed measured so far."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from hpo.engine.config import InputError, SweepConfig, parse_config
from hpo.engine.plan import plan_sweep
from hpo.engine.run_folder import new_run_folder
from hpo.engine.runs_on_disk import RunsOnDisk
from hpo.engine.time_budget import Stopwatch, TimeBudget
from hpo.engine.worker import Outcome, write_outcome


@pytest.fixture
def runs(tiny, tmp_path: Path) -> RunsOnDisk:
    config = SweepConfig.model_validate(tiny)
    return RunsOnDisk(plan_sweep(config), new_run_folder(tmp_path / "run", config))


def _ended(runs: RunsOnDisk, seconds: float) -> None:
    """One candidate has come to its stopping point, a fifth of its training, in so many seconds."""
    run = runs.plan.candidates[0]
    write_outcome(runs.folder.trial(run.name), Outcome("reached", run.stop_step, seconds))


@pytest.mark.parametrize(("elapsed_s", "may"), [(0.0, True), (399.0, True), (501.0, False)])
def test_exploring_leaves_the_time_to_finish_one_candidate(runs, elapsed_s, may):
    _ended(runs, 100.0)  # so a whole run takes 500 s: 100 to the stopping point and 400 to finish
    budget = TimeBudget(1000.0, SimpleNamespace(seconds=elapsed_s), runs)
    assert budget.may_explore(runs.plan.candidates[1]) == may
    assert not budget.is_over


def test_before_anything_was_measured_and_without_a_budget_all_may_begin(runs):
    assert TimeBudget(10.0, SimpleNamespace(seconds=9.0), runs).may_explore(runs.plan.candidates[0])
    _ended(runs, 100.0)
    assert TimeBudget(None, SimpleNamespace(seconds=1e9), runs).may_explore(runs.plan.candidates[0])


def test_what_a_killed_driver_has_spent_is_known_to_the_next(runs, monkeypatch):
    clock = iter(range(100, 10_000))
    monkeypatch.setattr("hpo.engine.time_budget.time.monotonic", lambda: next(clock))
    killed = Stopwatch(runs.folder)
    while killed.seconds < 45.0:
        killed.tick()
    assert 29.0 <= Stopwatch(runs.folder).seconds <= killed.seconds


def test_the_time_is_up_at_the_budget(runs):
    assert TimeBudget(10.0, SimpleNamespace(seconds=10.0), runs).is_over


@pytest.mark.parametrize(
    ("given", "seconds"), [("90m", 5400.0), ("2.5h", 9000.0), ("3d", 259200.0), ("45 s", 45.0), (60, 60.0)]
)
def test_budgets_are_seconds_or_have_a_unit(tiny, given, seconds):
    assert parse_config({**tiny, "time_budget": given}).time_budget == seconds


def test_other_units_are_refused(tiny):
    with pytest.raises(InputError, match=r"time_budget: expected seconds, or a time such as 90m, 12h or 3d; found 2 weeks"):
        parse_config({**tiny, "time_budget": "2 weeks"})
