from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpo.core.recipe import Recipe, recipe_from_dict
from hpo.core.schedules import schedule

LINEAR = schedule("linear")
positive = st.floats(1e-3, 1e3)


@given(tau=st.floats(0.01, 10), lr=st.floats(1e-4, 1e-1), steps=st.floats(1e3, 1e6))
def test_with_tau_solves_the_weight_decay(tau, lr, steps):
    made = Recipe(schedule=LINEAR, n_tokens=steps * 1000, batch_tokens=1000, lr=lr).with_tau(tau)
    assert made.tau == pytest.approx(tau, rel=1e-12)
    assert made.weight_decay == pytest.approx(1 / (lr * tau * steps), rel=1e-12)


def test_timescale_is_set_by_the_product_of_rate_decay_and_steps():
    a = Recipe(schedule=LINEAR, n_tokens=1e6, batch_tokens=1e3, lr=1e-2, weight_decay=0.1)
    b = Recipe(schedule=LINEAR, n_tokens=1e6, batch_tokens=2e3, lr=1e-2, weight_decay=0.2)
    assert a.tau == pytest.approx(b.tau)


def test_unknown_quantities_leave_the_derived_ones_unknown():
    made = Recipe(schedule=LINEAR, n_params=1e6)
    assert (made.tpp, made.tau, made.n_steps, made.flops) == (None, None, None, None)


def test_without_decay_there_is_no_timescale():
    assert Recipe(schedule=LINEAR, n_tokens=1e6, batch_tokens=1e3, lr=1e-2, weight_decay=0.0).tau is None


def test_exact_flops_are_preferred_to_six_n_d():
    assert Recipe(schedule=LINEAR, n_params=10, n_tokens=100).flops == 6000
    assert Recipe(schedule=LINEAR, n_params=10, n_tokens=100, flops_exact=7000).flops == 7000


def test_dict_round_trip_gives_an_equal_recipe():
    made = Recipe(schedule=LINEAR, n_params=1e6, n_tokens=2e7, lr=0.01, warmup_fraction=0.1)
    assert recipe_from_dict(made.to_dict()) == made


@pytest.mark.parametrize(
    ("field", "value"),
    [("n_params", 0), ("n_tokens", -1), ("lr", float("nan")), ("weight_decay", -0.1), ("warmup_fraction", 1.0), ("lr", "1e-3")],
)
def test_impossible_quantities_are_refused_naming_field_and_value(field, value):
    with pytest.raises(ValueError, match=field):
        Recipe(schedule=LINEAR, **{field: value})


def test_a_timescale_that_needs_decay_above_one_over_the_rate_is_refused():
    with pytest.raises(ValueError, match="above 1/lr"):
        Recipe(schedule=LINEAR, n_tokens=1e4, batch_tokens=1e3, lr=0.01).with_tau(0.05)


def test_a_dict_with_unknown_fields_is_refused():
    with pytest.raises(ValueError, match="unknown here: depth"):
        recipe_from_dict({"schedule": LINEAR.to_dict(), "depth": 3})
