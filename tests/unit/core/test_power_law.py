"""Power laws and their fits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpo.core.power_law import PowerLaw, fit_power_law, law_from_dict

X = np.geomspace(1, 100, 8)


def test_an_exact_power_law_is_recovered():
    fit = fit_power_law(X, 3 * X**-0.5)
    assert (fit.law.coefficient, fit.law.exponent) == pytest.approx((3, -0.5))
    assert (fit.law.low, fit.law.high) == pytest.approx((1, 100))


def test_intervals_cover_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(0)
    n, inside, inside_x = 400, 0, 0
    for _ in range(n):
        fit = fit_power_law(X, 3 * X**-0.5 * np.exp(0.05 * rng.standard_normal(X.size)))
        low, high = fit.exponent_interval(0.9)
        inside += low <= -0.5 <= high
        left, right = fit.inverse_interval(3 * 30**-0.5, 0.9)
        inside_x += left <= 30 <= right
    assert inside / n == pytest.approx(0.9, abs=0.04)
    assert inside_x / n == pytest.approx(0.9, abs=0.04)


def test_a_new_point_is_less_certain_than_the_law():
    fit = fit_power_law(X, 3 * X**-0.5 * np.exp([0.1, -0.1] * 4))
    law, point = fit.interval(10), fit.interval(10, of_a_new_point=True)
    assert point[0] < law[0] < law[1] < point[1]


def test_known_errors_are_a_floor_and_scatter_widens_them():
    exact = fit_power_law(X, X, sd_log_y=np.full(8, 0.1))
    assert math.sqrt(exact.var_level) == pytest.approx(0.1 / math.sqrt(8))
    scattered = fit_power_law(X, X * np.exp([0.5, -0.5] * 4), sd_log_y=np.full(8, 0.1))
    assert scattered.var_level > 10 * exact.var_level


def test_a_given_exponent_needs_one_value_of_x():
    fit = fit_power_law([20, 20], [0.2, 0.25], exponent=-0.5)
    assert fit.law.exponent == -0.5
    assert not fit.exponent_is_fitted
    assert fit.exponent_interval() == (-0.5, -0.5)


def test_one_value_of_x_cannot_give_an_exponent():
    with pytest.raises(ValueError, match="at 2 values of tpp; found 3 at 1"):
        fit_power_law([20, 20, 20], [1, 2, 3], x_name="tpp")


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_values_must_be_positive(bad):
    with pytest.raises(ValueError, match="must be finite and above 0"):
        fit_power_law([1, 2, 3], [1, bad, 3])


def test_inverse_undoes_the_law_within_its_range():
    law = PowerLaw(coefficient=2, exponent=-0.3, low=1, high=10, source="here")
    assert law.inverse(law.at(5)) == pytest.approx(5)
    with pytest.raises(ValueError, match=r"must be reached at x in \[1, 10\]"):
        law.inverse(law.at(20, extrapolate=True))


def test_laws_survive_a_dict():
    fit = fit_power_law(X, 3 * X**-0.5 * np.exp([0.1, -0.1] * 4), x_name="tpp", y_name="tau")
    assert law_from_dict(fit.to_dict()) == fit.law
    with pytest.raises(ValueError, match="needs a number as exponent"):
        law_from_dict({"coefficient": 1.0})


def test_a_flat_fit_bounds_x_on_neither_side():
    fit = fit_power_law(X, np.exp([0.1, -0.1, -0.1, 0.1] * 2))
    assert None in fit.inverse_interval(fit.law.at(10))
