from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from hpo.core import landscape
from hpo.core.landscape import fit_landscape, update
from hpo.core.landscape_point import Point, point_of
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule, unknown_schedule

LRS = np.geomspace(1e-4, 1e-2, 9)


def bowl(lr, best=1e-3):
    return 0.03 * np.log(lr / best) ** 2


def at(lr, **settings):
    return point_of(Recipe(schedule=schedule("linear"), lr=float(lr)), settings)


def test_a_learned_bowl_ranks_settings_never_tried():
    made = fit_landscape([at(lr) for lr in LRS], bowl(LRS))
    between = np.sqrt(LRS[:-1] * LRS[1:])
    mean, covariance = made.prior([at(lr) for lr in between])
    assert bowl(between)[np.argmin(mean)] == pytest.approx(bowl(between).min())  # two are equally near the bottom
    assert np.all(np.diag(covariance) > 0)


def test_far_from_the_rates_tried_it_says_little():
    made = fit_landscape([at(lr) for lr in LRS[3:6]] * 2, np.tile(bowl(LRS[3:6]), 2))
    _, covariance = made.prior([at(LRS[4]), at(1.0)])
    assert np.sqrt(covariance[1, 1]) > 5 * np.sqrt(covariance[0, 0])


def test_settings_without_structure_give_a_prior_of_their_own_spread():
    rng = np.random.default_rng(0)
    finals = 0.1 * rng.standard_normal(40)
    made = fit_landscape([at(lr) for lr in np.geomspace(1e-4, 1e-2, 40)], finals)
    assert made.noise > 0.05


def test_too_few_references_for_their_settings_give_none():
    points = [Point({"a": float(i), "b": float(i**2), "c": float(i**3)}, {}) for i in range(7)]
    assert fit_landscape(points, np.arange(7.0)) is None


def test_the_expected_final_is_added_back():
    points = [Point({"x": float(i)}, {}, expected=0.1 * i) for i in range(8)]
    made = fit_landscape(points, np.array([p.expected for p in points]) + 1e-3 * np.sin(np.arange(8)))
    mean, _ = made.prior([Point({"x": 3.0}, {}, expected=0.3), Point({"x": 3.0}, {}, expected=0.9)])
    assert mean[1] - mean[0] == pytest.approx(0.6)


def test_a_constant_added_to_the_prior_changes_nothing():
    rng = np.random.default_rng(0)
    level, prior = rng.standard_normal(4), rng.standard_normal(4)
    covariance, prior_covariance = np.diag([0.1, 0.2, 0.3, 0.4]), 0.01 * np.eye(4)
    a = update(level, covariance, prior, prior_covariance)
    b = update(level, covariance, prior + 5.0, prior_covariance)
    np.testing.assert_allclose(a[0], b[0], atol=1e-12)


def test_the_update_is_the_precision_weighted_mean_of_differences():
    level, prior = np.array([0.0, 0.02]), np.array([0.0, 0.06])
    made, _ = update(level, 1e-4 * np.eye(2), prior, 1e-4 * np.eye(2))
    assert made[1] - made[0] == pytest.approx(0.04, abs=1e-6)


def test_a_known_final_value_is_left_as_it_is():
    made, covariance = update(np.array([1.0, 1.1]), np.diag([0.0, 1e-2]), np.array([0.0, 0.05]), 1e-6 * np.eye(2))
    assert made[0] == pytest.approx(1.0)
    assert made[1] == pytest.approx(1.05, abs=2e-3)
    assert covariance[0, 0] == pytest.approx(0.0, abs=1e-15)


def test_the_gradient_of_the_posterior_is_right():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((10, 2))
    squared = np.stack([(x[:, None, d] - x[None, :, d]) ** 2 for d in range(2)])
    args = (np.sin(x[:, 0]), squared, 0.01 * np.outer(x[:, 0], x[:, 0]), np.zeros(4))
    theta = 0.3 * rng.standard_normal(4)
    numeric = approx_fprime(theta, lambda t: landscape._objective(t, *args)[0], 1e-6)
    np.testing.assert_allclose(landscape._objective(theta, *args)[1], numeric, rtol=1e-4, atol=1e-4)


def test_a_wild_step_of_the_search_overflows_nothing():
    squared, bowl, centre = np.ones((1, 4, 4)), np.zeros((4, 4)), np.zeros(3)
    value, gradient = landscape._objective(np.array([600.0, 0.0, 0.0]), np.arange(4.0), squared, bowl, centre)
    assert value == 1e10
    assert not gradient.any()


def test_booleans_and_strings_are_words_and_unknown_schedules_too():
    made = point_of(Recipe(schedule=unknown_schedule("mine")), {"tied": True, "optimizer": "adamw", "depth": 3, "none": None})
    assert made.words == {"schedule": "mine", "tied": "True", "optimizer": "adamw"}
    assert made.numbers == {"depth": pytest.approx(np.log(3))}


def test_it_bears_only_on_points_that_lie_where_references_do():
    """A point that lacks what the references vary in, or has what none of them has, would look like all of them at once."""
    points = [Point({"x": x, "fixed": 1.0}, {"opt": "adam"}) for x in np.linspace(0, 1, 8)]
    fitted = fit_landscape(points, 1 + 0.1 * np.linspace(0, 1, 8) ** 2)
    known = points[3]
    asked = {
        "alike": Point({"x": 0.4, "fixed": 1.0}, {"opt": "adam"}),
        "without x": Point({"fixed": 1.0}, {"opt": "adam"}),
        "another word": Point({"x": 0.4, "fixed": 1.0}, {"opt": "sgd"}),
        "another number": Point({"x": 0.4, "fixed": 2.0}, {"opt": "adam"}),
        "one more": Point({"x": 0.4, "fixed": 1.0, "z": 3.0}, {"opt": "adam"}),
    }
    found = {name: fitted.bears_on([point, known])[0] for name, point in asked.items()}
    assert found == {name: name == "alike" for name in asked}
    together = [Point({"x": x, "fixed": 2.0}, {"opt": "sgd"}) for x in (0.1, 0.9)]
    assert fitted.bears_on(together) == [True, True]  # what they have alike is a matter of their common level


def test_values_in_another_unit_have_the_landscape_of_losses_in_it():
    one, many = (fit_landscape([at(lr) for lr in LRS], unit * bowl(LRS), unit) for unit in (1.0, 50.0))
    for a, b, power in zip(one.prior([at(2e-3)]), many.prior([at(2e-3)]), (1, 2), strict=True):
        np.testing.assert_allclose(50.0**power * a, b, rtol=1e-3)
