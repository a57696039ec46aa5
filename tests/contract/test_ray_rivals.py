"""Running trials as rivals: under a model of proxies the scheduler compares trials before any of them has finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from optuna_studies import HORIZON, curve, steps
from ray_runs import METRIC, Driver, controller, scheduler, trial

from hpo import CollapseModel, Curve, Recipe
from hpo.adapters.ray_scheduler import CollapseScheduler
from hpo.core.schedules import schedule

SMALL, LARGE = (Recipe(schedule=schedule("linear"), n_params=n, n_tokens=20 * n, batch_tokens=n / 5) for n in (1e6, 4e6))


def made_with(model: CollapseModel | None, **settings: Any) -> CollapseScheduler:
    """Return a scheduler of trials whose recipe is known."""
    return scheduler(model=model, recipe=lambda _config: LARGE, **settings)


def proxies(n: int = 6, recipe: Recipe | None = SMALL) -> CollapseModel:
    """Return the model of cheaper runs of the same family."""
    logs = [curve(4.0 + 0.1 * i, range(1, HORIZON + 1), wiggle=0.003, seed=i) for i in range(n)]
    return CollapseModel.fit(
        [
            Curve.from_points(list(log), list(log.values()), horizon=HORIZON, run_id=f"p{i}", recipe=recipe)
            for i, log in enumerate(logs)
        ]
    )


def side_by_side(made: CollapseScheduler, finals: dict[str, float], until: int = 60) -> dict[str, int]:
    """Report trials in turn up to a step that none finishes at; return at which step each was stopped."""
    logs = {name: curve(final, steps()) for name, final in finals.items()}
    for name in finals:
        made.on_trial_add(controller(), trial(name))
    stops: dict[str, int] = {}
    for step in (s for s in steps() if s <= until):
        for name in (name for name in finals if name not in stops):
            result = {"training_iteration": step, METRIC: logs[name][step]}
            if made.on_trial_result(controller(), trial(name), result) == "STOP":
                stops[name] = step
                made.on_trial_complete(controller(), trial(name), result)
    return stops


def test_a_hopeless_trial_is_stopped_before_any_has_finished() -> None:
    made = made_with(proxies())
    stops = side_by_side(made, {"good": 3.0, "bad": 3.6, "close": 3.001})
    assert list(stops) == ["bad"]
    assert stops["bad"] <= 30
    assert made.decision("bad").reason == "cannot_win"
    assert made.decision("bad").incumbent is None
    assert made.decision("good").reason == "may_win"


def test_without_a_model_of_other_runs_or_known_controls_only_finished_trials_count() -> None:
    assert side_by_side(made_with(None), {"good": 3.0, "bad": 3.6}) == {}
    assert side_by_side(scheduler(model=proxies(recipe=None)), {"good": 3.0, "bad": 3.6}) == {}


@pytest.mark.parametrize("how", ["failed", "stopped"])
def test_a_rival_that_no_longer_runs_does_not_count(how: str) -> None:
    made = made_with(proxies())
    assert side_by_side(made, {"good": 3.0}) == {}
    if how == "failed":
        made.on_trial_error(controller(), trial("good"))
    else:
        made.on_trial_complete(controller(), trial("good"), {})  # by another stopper, long before its horizon
    assert side_by_side(made, {"bad": 3.6}) == {}


def test_a_failed_rival_that_runs_again_counts_again() -> None:
    made = made_with(proxies())
    assert side_by_side(made, {"good": 3.0}) == {}
    made.on_trial_error(controller(), trial("good"))
    made.on_trial_add(controller(), trial("good"))
    assert list(side_by_side(made, {"bad": 3.6})) == ["bad"]


def test_the_budget_holds_for_stops_by_running_rivals_and_outlives_a_restart(tmp_path: Path) -> None:
    finals = {f"t{i}": 3.0 + 0.02 * i for i in range(12)}
    model = proxies()
    calm = Driver(finals, lambda: made_with(model, log=tmp_path / "calm.jsonl"), width=12)
    made = calm.run()
    crashed = Driver(finals, lambda: made_with(model, log=tmp_path / "crashed.jsonl"), crash_at=300, width=12)
    again = crashed.run()
    early = [name for name, step in calm.stops.items() if step < HORIZON]
    assert len(early) >= 6
    assert "t0" not in calm.stops
    assert crashed.stops == calm.stops
    for one in (made, again):
        assert 0 < sum(one.decision(name).p_best for name in early) <= 0.05
    last = max(calm.stops, key=lambda name: (calm.stops[name], name))
    assert again.decision(last).error_spent == pytest.approx(made.decision(last).error_spent, rel=1e-6)
