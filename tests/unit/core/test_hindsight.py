"""Forecasts of the references as if they were running, and what is learned from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import recipe, surrogate_curve

from hpo.core.coordinates import coordinates_of, kind_of
from hpo.core.curve import Curve
from hpo.core.hindsight import FEWEST, MOST, Correction, Hindsight, correction_of, hindsight_of, stage_of
from hpo.core.model import CollapseModel


def hindsight(final, level, sd=0.05, noise_sd=0.0):
    final, level = np.asarray(final, dtype=float), np.asarray(level, dtype=float)
    return Hindsight((), final, np.full(final.size, noise_sd**2), level, np.full(final.size, sd**2))


@pytest.mark.parametrize(("fraction", "stage"), [(0.0, 0.02), (0.02, 0.02), (0.19, 0.15), (1.0, 0.8)])
def test_the_last_stage_reached_holds(fraction, stage):
    assert stage_of(fraction) == stage


def test_few_references_correct_nothing():
    assert correction_of(hindsight(np.ones(FEWEST - 1), np.zeros(FEWEST - 1))) == Correction()


def test_forecasts_that_are_off_alike_are_shifted():
    rng = np.random.default_rng(0)
    final = rng.normal(size=12)
    found = correction_of(hindsight(final, final - 0.3 + 0.01 * rng.normal(size=12)))
    assert found.slope == pytest.approx(1.0, abs=0.1)
    assert found.of(np.array([0.0])) == pytest.approx(0.3, abs=0.03)


def test_the_few_that_are_off_otherwise_do_not_count():
    """Most learn nothing and were forecast .3 too low; one was forecast right."""
    final = np.concatenate([np.zeros(11), [-1.0]])
    level = np.concatenate([np.full(11, -0.3), [-1.0]])
    assert correction_of(hindsight(final, level)).of(np.array([-0.3])) == pytest.approx(0.0, abs=0.02)


def test_early_differences_that_turn_round_are_turned_round():
    rng = np.random.default_rng(1)
    final = rng.normal(size=25)
    found = correction_of(hindsight(final, -0.7 * final + 0.1 * rng.normal(size=25), sd=0.5))
    assert found.slope < 0


def test_forecasts_that_order_the_references_the_wrong_way_mislead():
    """Those that start fast end worse; with few references a slope cannot be told, but that the order is wrong can."""
    rng = np.random.default_rng(2)
    final = rng.normal(size=10)
    early = 0.1 * final + 0.02 * rng.normal(size=10)
    assert correction_of(hindsight(final, -early, sd=0.1)).misleads
    assert not correction_of(hindsight(final, early, sd=0.1)).misleads


def test_one_run_that_is_out_of_order_misleads_nobody():
    final = np.arange(10.0)
    assert not correction_of(hindsight(final, np.append(final[:-1], -5.0), sd=0.3)).misleads


def test_the_order_of_ends_that_differ_by_their_noise_alone_is_chance():
    rng = np.random.default_rng(3)
    final = np.concatenate([0.001 * rng.normal(size=16), -1.0 - rng.uniform(size=4)])
    level = final + np.concatenate([-3.0 * final[:16], 0.1 * rng.normal(size=4)])
    assert correction_of(hindsight(final, level, sd=0.001)).misleads
    assert not correction_of(hindsight(final, level, sd=0.001, noise_sd=0.001)).misleads


def test_forecasts_that_lie_twice_too_far_apart_are_drawn_together():
    """Their order is right, and says nothing of it."""
    final = np.array([0.031, 0.034, 0.13, 0.158, 0.168, 0.174, 0.177, 0.2])
    level = np.array([-0.042, -0.023, 0.128, 0.199, 0.22, 0.036, 0.253, 0.301])
    found = correction_of(hindsight(final, level, sd=0.04))
    assert 0.3 < found.slope < 0.7
    assert np.abs(found.of(level) - final).mean() < 0.5 * np.abs(level - final).mean()


def test_forecasts_that_differ_by_their_errors_alone_are_left_as_they_are():
    rng = np.random.default_rng(4)
    final = 0.001 * rng.normal(size=12)
    assert correction_of(hindsight(final, final + 0.05 * rng.normal(size=12), sd=0.05)).slope == 1.0


def test_one_run_turns_nothing_round():
    final = np.array([-0.381, -0.367, -0.367, -0.367, -0.367, -0.362, -0.36, -0.357])
    level = np.array([-0.194, -0.392, -0.392, -0.393, -0.395, -0.388, -0.385, -0.387])
    assert correction_of(hindsight(final, level)).slope == 1.0


@given(st.integers(0, 2**32 - 1), st.floats(-3, 3), st.integers(FEWEST, 30))
def test_corrections_move_with_the_scale_of_the_values(seed, shift, n):
    rng = np.random.default_rng(seed)
    final = rng.normal(size=n)
    level = final + rng.normal(size=n)
    one, moved = correction_of(hindsight(final, level)), correction_of(hindsight(final + shift, level + shift))
    assert moved.of(np.array([0.2 + shift])) == pytest.approx(one.of(np.array([0.2])) + shift, abs=1e-6)


def _runs(rng, n, until=1.0, **about):
    return [surrogate_curve(recipe(tau=float(t), **about), rng=rng, until=until) for t in np.geomspace(0.05, 0.8, n)]


def test_references_are_forecast_as_models_without_them_would():
    references, early = (
        [
            surrogate_curve(recipe(tau=float(t)), rng=np.random.default_rng(k), until=until, run_id=f"r{k}")
            for k, t in enumerate(np.geomspace(0.05, 0.8, 12))
        ]
        for until in (1.0, 0.2)
    )
    model = CollapseModel.fit(references)
    family = model.families[0]
    shape = family.shape_for([coordinates_of(references[0].recipe)])
    found = hindsight_of([(shape, family.references)], kind_of(references[0].recipe), 0.2)
    whole = {curve.run_id: curve for curve in early}
    for run, level, variance in zip(found.runs, found.level, found.variance, strict=True):
        alone = model.without(run.run_id).forecast(whole[run.run_id])
        assert abs(level - alone.level) < 0.5 * np.sqrt(variance)


def test_references_of_another_size_say_nothing():
    rng = np.random.default_rng(3)
    model = CollapseModel.fit(_runs(rng, 8, n_params=1e6))
    family = model.families[0]
    assert hindsight_of([(family.shape_for([]), family.references)], kind_of(recipe(n_params=4e6)), 0.2).final.size == 0


def test_no_more_references_are_asked_than_needed():
    rng = np.random.default_rng(4)
    model = CollapseModel.fit(_runs(rng, 100))
    family = model.families[0]
    found = hindsight_of([(family.shape_for([]), family.references)], kind_of(family.references[0].recipe), 0.2)
    assert MOST / 2 <= found.final.size <= MOST


def test_a_study_of_runs_that_mostly_learn_nothing_is_forecast_to_learn_nothing():
    rng = np.random.default_rng(5)
    steps = np.arange(1, 201)

    def run(i, until=1.0):
        fall = (i % 5 == 0) * (0.5 + 0.5 * rng.uniform())
        values = 0.7 * np.exp(-fall * np.clip((steps - 50) / 150, 0, 1) + 0.001 * rng.normal(size=steps.size))
        seen = steps <= until * 200
        return Curve.from_points(steps[seen], values[seen], horizon=200, run_id=f"{until}-{i}")

    model = CollapseModel.fit([run(i) for i in range(20)])
    forecast = model.forecast(run(1, until=0.3))
    assert forecast.final_loss == pytest.approx(0.7, rel=0.02)


def _crossing(rng, n, until=1.0):
    """Runs that end the worse the faster they start."""
    t, made = np.arange(1, 201) / 200, []
    for i in range(n):
        z = rng.uniform(-1, 1)
        values = (
            0.8 + 0.3 * np.tanh(z) + 1.5 * np.exp(-6.0 * t * np.exp(0.9 * z)) + 0.08 * t**-0.25 + 0.01 * rng.normal(size=t.size)
        )
        about = {"horizon": 200, "settings": {"log_speed": float(z)}, "run_id": f"{until}-{i}"}
        made.append(Curve.from_points(np.arange(1, 201)[t <= until], values[t <= until], **about))
    return made


def test_nobody_is_judged_where_curves_mislead():
    rng = np.random.default_rng(6)
    model = CollapseModel.fit(_crossing(rng, 9))
    early, late = _crossing(rng, 6, until=0.1), _crossing(rng, 6, until=0.9)
    assert model.forecast(early[0]).status == "misleading"
    assert {f.status for f in model.forecast_many(early, rng).forecasts} == {"misleading"}
    assert {f.status for f in model.forecast_many(late, rng).forecasts} == {"ok"}


def test_what_settings_say_mends_curves_that_mislead():
    rng = np.random.default_rng(11)
    model, early = CollapseModel.fit(_crossing(rng, 18)), _crossing(rng, 12, until=0.1)
    made = model.forecast_many(early, rng)
    assert model.forecast(early[0]).status == "misleading"
    assert {f.status for f in made.forecasts} == {"ok"}
    assert np.corrcoef([f.level for f in made.forecasts], [run.settings["log_speed"] for run in early])[0, 1] > 0.8
