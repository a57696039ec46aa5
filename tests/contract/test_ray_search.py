"""What the search promises about the study, beside the scheduler and without a cluster."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from optuna_studies import curve, steps
from ray.tune.search import ConcurrencyLimiter, SearchGenerator
from ray.tune.search.optuna import OptunaSearch
from ray_runs import METRIC, controller, run, scheduler, teach, trial

from hpo import CollapsePruner
from hpo.adapters.ray_search import CollapseSearch

NAN, INF = float("nan"), float("inf")


def space() -> dict[str, Any]:
    return {"lr": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True)}


def made_search(**settings: Any) -> CollapseSearch:
    return CollapseSearch(
        space(), **{"metric": METRIC, "mode": "min", "sampler": optuna.samplers.RandomSampler(seed=0), **settings}
    )


def study_of(search: CollapseSearch) -> optuna.Study:
    study = search._ot_study
    assert isinstance(study, optuna.Study)
    return study


def started(search: CollapseSearch, name: str) -> None:
    assert 1e-4 <= search.suggest(name)["lr"] <= 1


def ran(name: str, reports: dict[int, Any], search: CollapseSearch, made: Any = None) -> optuna.trial.FrozenTrial:
    started(search, name)
    run(made or scheduler(), trial(name), reports, search)
    return study_of(search).trials[-1]


def test_it_is_built_like_rays_own() -> None:
    assert inspect.signature(CollapseSearch) == inspect.signature(OptunaSearch)


def test_a_stopped_trial_is_pruned_with_its_last_report_its_forecast_and_the_reason() -> None:
    search, made = made_search(), scheduler()
    teach(made, search=search)
    found = ran("bad", curve(3.6, steps()), search, made)
    decision = made.decision("bad")
    assert found.state == TrialState.PRUNED
    assert max(found.intermediate_values) == decision.step == found.user_attrs["stopped_at"]
    assert found.user_attrs["predicted_final"] == decision.forecast == pytest.approx(3.6, rel=0.02)
    assert found.user_attrs["reason"] == "cannot_win"
    assert [t.state for t in study_of(search).trials[:-1]] == [TrialState.COMPLETE] * 6
    assert study_of(search).best_value == pytest.approx(3.0)


def test_what_was_searched_tells_of_trials_as_it_does_in_an_optuna_study() -> None:
    """Final losses follow a parameter that no recipe has; the last trial is judged half-way, where only it tells."""
    values = [0.05 * i for i in range(1, 17)]
    dropout = {"dropout": optuna.distributions.FloatDistribution(0.0, 1.0)}
    first = [{"dropout": value} for value in values]
    search, made = CollapseSearch(dropout, metric=METRIC, mode="min", points_to_evaluate=first), scheduler()
    unsearched = scheduler()
    study = optuna.create_study(pruner=CollapsePruner(total_steps=100))
    judged = []
    for i, value in enumerate(values):
        reports = curve(3.0 + 0.8 * (value - 0.4) ** 2, steps(), wiggle=0.004, seed=i)
        config = search.suggest(f"t{i}")
        assert config == {"dropout": value}
        study.enqueue_trial(config)
        asked = study.ask(dropout)
        for step, loss in reports.items():
            asked.report(loss, step)
            if asked.should_prune():
                break
        study.tell(asked, state=TrialState.PRUNED) if step < 100 else study.tell(asked, loss)
        here = run(made, trial(f"t{i}", **config), reports, search)
        run(unsearched, SimpleNamespace(trial_id=f"t{i}", config={}), reports)
        pruner = study.pruner
        assert isinstance(pruner, CollapsePruner)
        judged.append((made.decision(f"t{i}"), pruner.decision(asked.number), unsearched.decision(f"t{i}")))
        assert here == (step if step < 100 else 0)
    chances = [[decision.p_best for decision in of_one] for of_one in judged if None not in [d.p_best for d in of_one]]
    assert [one[0] for one in chances] == pytest.approx([one[1] for one in chances], rel=1e-6)
    assert any(one[0] != pytest.approx(one[2], rel=0.1) for one in chances)


def test_the_scheduler_finds_the_search_behind_rays_wrappers() -> None:
    search, made = made_search(), scheduler()
    wrapped = SearchGenerator(ConcurrencyLimiter(search, max_concurrent=2))
    started(search, "one")
    made.on_trial_add(controller(wrapped), trial("one"))
    made.on_trial_result(controller(wrapped), trial("one"), {"training_iteration": 1, METRIC: NAN})
    search.on_trial_complete("one", {"training_iteration": 1, METRIC: NAN})
    assert study_of(search).trials[0].user_attrs["reason"] == "non_finite"


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_non_finite_trial_is_pruned_where_the_scheduler_stops_it_and_failed_where_none_does(bad: float) -> None:
    search = made_search()
    assert ran("acted", {5: 3.0, 10: bad}, search).state == TrialState.PRUNED
    assert ran("watched", {5: 3.0, 10: bad}, search, scheduler(stopping="shadow")).state == TrialState.FAIL


def test_results_without_the_metric_neither_raise_nor_leave_a_trial_running() -> None:
    search = made_search()
    assert ran("none", {1: None, 2: None}, search).state == TrialState.FAIL
    assert ran("late", {1: 3.0, 2: None}, search).state == TrialState.PRUNED
    started(search, "never")
    search.on_trial_complete("never")
    started(search, "broken")
    search.on_trial_result("broken", {"training_iteration": 1, METRIC: 2.0})
    search.on_trial_complete("broken", {"training_iteration": 1, METRIC: 2.0}, error=True)
    search.on_trial_complete("broken", {"training_iteration": 2, METRIC: 2.0})
    search.on_trial_complete("unknown", {METRIC: 1.0})
    assert [t.state for t in study_of(search).trials[2:]] == [TrialState.FAIL] * 2


def test_repeated_steps_count_once_and_without_a_warning() -> None:
    search = made_search()
    started(search, "again")
    for step, value in ((1, 3.0), (2, 2.9), (1, 9.0), (2, 9.0), (3, 2.8)):
        search.on_trial_result("again", {"training_iteration": step, METRIC: value})
    search.on_trial_complete("again", {"training_iteration": 3, METRIC: 2.8, "done": True})
    assert study_of(search).trials[0].intermediate_values == {1: 3.0, 2: 2.9, 3: 2.8}


def test_several_objectives_are_told_at_the_end() -> None:
    search = CollapseSearch(space(), metric=["loss", "cost"], mode=["min", "min"])
    started(search, "one")
    search.on_trial_result("one", {"training_iteration": 1, "loss": 1.0, "cost": 2.0})
    search.on_trial_complete("one", {"training_iteration": 1, "loss": 1.0, "cost": 2.0})
    started(search, "two")
    search.on_trial_complete("two", {"training_iteration": 1, "loss": NAN, "cost": 2.0})
    assert [t.state for t in study_of(search).trials] == [TrialState.COMPLETE, TrialState.FAIL]
    assert study_of(search).trials[0].values == [1.0, 2.0]


def test_a_scheduler_without_a_log_is_rebuilt_from_the_study(tmp_path: Path) -> None:
    search, made = made_search(), scheduler()
    teach(made, search=search)
    ran("bad", curve(3.6, steps()), search, made)
    search.save(str(tmp_path / "search"))
    search = made_search()
    search.restore(str(tmp_path / "search"))
    again = scheduler()
    again.on_trial_add(controller(search, resumed=True), trial("taught5"))
    assert again.decision("bad").reason == "cannot_win"
    assert again.decision("bad").forecast == made.decision("bad").forecast
    reports = curve(3.25, steps())
    assert run(again, trial("next"), reports) == run(made, trial("next"), reports) > 0
    assert again.decision("next").p_best == pytest.approx(made.decision("next").p_best, rel=1e-6)
    assert again.decision("next").error_spent == pytest.approx(made.decision("next").error_spent, rel=1e-6)


def test_after_a_restore_the_study_holds_no_trial_running_that_nobody_knows(tmp_path: Path) -> None:
    storage = optuna.storages.get_storage(f"sqlite:///{tmp_path / 'study.db'}")
    search = made_search(storage=storage, study_name="s")
    started(search, "known")
    started(search, "finished")
    search.save(str(tmp_path / "search"))
    ran_on = {"training_iteration": 9, METRIC: 3.0}
    search.on_trial_result("known", ran_on)
    search.on_trial_complete("finished", ran_on)
    started(search, "lost")
    again = made_search(storage=storage, study_name="s")
    again.restore(str(tmp_path / "search"))
    again.on_trial_result("known", {"training_iteration": 9, METRIC: 99.0})
    again.on_trial_result("finished", {"training_iteration": 10, METRIC: 99.0})
    again.on_trial_complete("finished", {"training_iteration": 10, METRIC: 99.0})
    trials = study_of(again).trials
    assert [t.state for t in trials] == [TrialState.RUNNING, TrialState.COMPLETE, TrialState.FAIL]
    assert trials[0].intermediate_values == {9: 3.0}
    assert trials[1].value == 3.0
    for one in (storage, again._storage):
        one.remove_session()
        one._backend.engine.dispose()


def test_two_drivers_share_one_study_and_a_restore_of_one_leaves_the_others_trials_alone(tmp_path: Path) -> None:
    def driver() -> CollapseSearch:
        backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.journal"))
        return made_search(storage=optuna.storages.JournalStorage(backend), study_name="shared")

    one, two = driver(), driver()
    started(one, "a")
    one.save(str(tmp_path / "one"))
    started(two, "b")
    assert run(scheduler(), trial("a"), curve(3.0, steps()), one) == 0
    started(one, "lost")  # after what was saved of it
    restored = driver()
    restored.restore(str(tmp_path / "one"))
    started(restored, "c")
    assert run(scheduler(), trial("b"), curve(3.2, steps()), two) == 0
    assert run(scheduler(), trial("c"), curve(3.1, steps()), restored) == 0
    trials = study_of(driver()).trials
    ended = [t.value for t in trials if t.state == TrialState.COMPLETE]
    assert ended == [pytest.approx(final, rel=1e-3) for final in (3.0, 3.2, 3.1)]
    assert sorted(t.state.name for t in trials) == ["COMPLETE"] * 3 + ["FAIL"]
