from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpo.core.coordinates import coordinates_of
from hpo.core.curve import Curve
from hpo.core.family_controls import WIDEST_SWEEP, Teaching
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule, unknown_schedule
from hpo.core.shape import ShapeSettings

NAMED = unknown_schedule("ours")
KNOWN = Recipe(schedule=schedule("linear"), n_params=1e8, n_tokens=2e9, batch_tokens=1e5, lr=1e-3, weight_decay=0.1)
BARE = Recipe(schedule=NAMED, lr=1e-3, total_steps=1000.0)
RATES = (5e-4, 1e-3, 2e-3)


def controls(recipes, *others):
    teaching = Teaching(tuple(coordinates_of(r) for r in recipes))
    return teaching.controls_for([coordinates_of(r) for r in others], ShapeSettings())


def rated(made, rates=RATES):
    return [replace(made, lr=lr) for lr in rates]


def test_known_schedules_have_the_timescale_and_named_ones_of_one_length_the_decay_rate():
    named = rated(replace(KNOWN, schedule=NAMED))
    longer = replace(named[0], n_tokens=4e9)
    assert controls(rated(KNOWN), longer) == ("log_tau", "log_tpp", "log_n")
    assert controls(named, longer) == ("log_rate", "log_tpp")
    assert controls([*named, longer], longer) == ("log_tau", "log_tpp")


def test_of_a_name_alone_the_learning_rate_and_the_length_count_where_they_tell_runs_apart():
    assert controls(rated(BARE), replace(BARE, total_steps=2000.0)) == ("log_lr", "log_length")
    assert controls(rated(BARE), BARE) == ("log_lr",)
    assert controls(rated(BARE)[:2], BARE) == ()
    assert controls(rated(BARE, (1e-4, 1e-3, 1.1e-4 * np.exp(WIDEST_SWEEP))), BARE) == ()
    for other in (schedule("linear"), unknown_schedule("")):
        assert controls(rated(replace(BARE, schedule=other)), replace(BARE, schedule=other)) == ()


@pytest.mark.parametrize("decay", [None, 0.1])
def test_rates_under_a_name_are_told_apart(decay):
    def run(lr, n_steps, until=1.0):
        made = Recipe(schedule=NAMED, lr=lr, weight_decay=decay, n_tokens=n_steps * 1e5, batch_tokens=1e5, n_params=1e8)
        t = np.arange(1, int(200 * until) + 1) / 200
        values = 3.0 * np.exp(0.06 * (1.0 - t) * np.log(lr / 1e-3)) * t**-0.08
        return Curve.from_points(t * n_steps, values, horizon=n_steps, recipe=made, run_id=f"{lr}", metric=Metric(end="last"))

    model = CollapseModel.fit([run(lr, 1000) for lr in RATES])
    for lr in (*RATES, 1.4e-3):
        found = model.forecast(run(lr, 1600, until=0.3))
        assert found.final_loss == pytest.approx(3.0, rel=0.003)
        assert found.lower < 3.0 < found.upper


def test_names_borrow_from_each_other_what_rates_do_and_a_new_name_is_told_its_own_way():
    bends = {"a": -0.06, "b": -0.08, "c": -0.1, "new": -0.09}

    def run(name, lr, until=1.0):
        made = Recipe(schedule=unknown_schedule(name), lr=lr, total_steps=1000.0)
        t = np.arange(1, int(200 * until) + 1) / 200
        values = 3.0 * np.exp(0.06 * (1.0 - t) * np.log(lr / 1e-3)) * t ** bends[name]
        return Curve.from_points(t * 1000, values, horizon=1000, recipe=made, run_id=f"{name}{lr}", metric=Metric(end="last"))

    model = CollapseModel.fit([run(name, lr) for name in "abc" for lr in RATES])
    own, new = (model.forecast(run(name, 1.4e-3, until=0.3)) for name in ("b", "new"))
    assert own.final_loss == pytest.approx(3.0, rel=0.002)
    assert new.lower < 3.0 < new.upper
    assert new.level_sd > 3 * own.level_sd
    for lr in RATES:
        assert model.forecast(run("new", lr, until=0.3)).final_loss == pytest.approx(3.0, rel=0.025)
