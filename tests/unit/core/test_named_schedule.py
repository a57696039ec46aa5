"""A run whose schedule has a name that nobody can read follows what finished runs of that name recorded."""

from __future__ import annotations

import numpy as np
import pytest

from hpo.core.curve import Curve
from hpo.core.learning_rate import GRID
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel
from hpo.core.named_schedule import with_named_schedule
from hpo.core.recipe import Recipe
from hpo.core.response import fit_responses
from hpo.core.schedules import Schedule, recorded_schedule, schedule, schedule_from_dict, schedules_match, unknown_schedule
from tests.unit.core.test_references import LAW, SCHEDULES

T = np.arange(1, 101) / 100


def _recorded(made: Schedule, label: str = "", warmup: float = 0.02) -> Schedule:
    return recorded_schedule(T, 1e-3 * made(T, warmup), label=label)


def _recipe(made: Schedule, lr: float = 1e-3, n_steps: float = 15_000) -> Recipe:
    return Recipe(
        schedule=made, lr=lr, n_params=1e8, batch_tokens=1e5, n_tokens=1e5 * n_steps, weight_decay=0.1, warmup_fraction=0.02
    )


def test_a_recorded_schedule_keeps_its_name_and_is_read_back():
    made = _recorded(schedule("linear"), "mine")
    assert str(made) == "mine"
    assert schedule_from_dict(made.to_dict()) == made


def test_a_log_that_begins_within_warm_up_begins_at_nothing():
    made = recorded_schedule([0.01, 0.02, 0.04, 0.5, 1.0], [0.25, 0.5, 1.0, 1.0, 0.0])
    assert made(0.0) == pytest.approx(0.0)
    assert made(0.005) == pytest.approx(0.125)
    late = recorded_schedule([0.1, 0.2, 1.0], [1.0, 1.0, 0.0])
    assert late(0.0) == 1.0


def test_a_name_matches_what_was_recorded_under_it_and_nothing_else():
    made = _recorded(schedule("linear"), "mine")
    assert schedules_match(made, unknown_schedule("mine"))
    assert not schedules_match(made, unknown_schedule("other"))
    assert not schedules_match(made, unknown_schedule(""))
    assert not schedules_match(_recorded(schedule("linear")), unknown_schedule(""))
    assert not schedules_match(made, _recorded(schedule("constant"), "mine"))


def test_a_running_run_takes_what_references_of_its_name_recorded():
    linear, constant = _recorded(schedule("linear"), "mine"), _recorded(schedule("constant"), "other")
    running = Curve.from_points([1, 2], [3.0, 2.9], horizon=10, recipe=_recipe(unknown_schedule("mine")))
    told = with_named_schedule(running, [None, _recipe(linear), _recipe(constant), _recipe(linear, n_steps=25_000)])
    assert told.recipe == _recipe(linear)
    assert with_named_schedule(running, [_recipe(constant)]) is running
    assert with_named_schedule(running, [_recipe(linear), _recipe(_recorded(schedule("constant"), "mine"))]) is running
    assert with_named_schedule(told, [_recipe(linear)]) is told


def test_recorded_schedules_of_one_rate_have_a_law_as_named_ones_have():
    def forms(schedules: list[Schedule]) -> list[str]:
        recipes = [_recipe(made) for made in schedules]
        return [type(mean.form).__name__ for mean in fit_responses([(r, LAW.log_losses(r, None)) for r in recipes])]

    assert len(GRID) == LAW.log_losses(_recipe(SCHEDULES[0]), None).size
    assert forms(SCHEDULES) == ["MultiPowerLaw"]
    assert forms([_recorded(made) for made in SCHEDULES]) == ["MultiPowerLaw"]
    assert forms([_recorded(SCHEDULES[0])] * 4) == []


def test_a_running_run_of_a_name_that_references_recorded_is_forecast():
    def run(final: float, made: Schedule, until: float = 1.0) -> Curve:
        values = final * (1.0 + 0.3 * (T**-0.3 - 1.0))
        seen = until >= T
        recipe = _recipe(made, lr=1e-3 * final)
        return Curve.from_points(
            15_000 * T[seen], values[seen], horizon=15_000, recipe=recipe, metric=Metric(end="last"), run_id=f"r{final}"
        )

    references = [run(final, _recorded(schedule("linear"), "mine")) for final in (2.0, 2.1, 2.2)]
    model = CollapseModel.fit(references)
    running = run(2.3, unknown_schedule("mine"), until=0.3)
    told = with_named_schedule(running, [r.recipe for r in model.references])
    for one in (running, told):
        assert model.forecast(one).status == "ok"
        assert "log_tau" in model.forecast(one).controls
