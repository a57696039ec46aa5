"""Runs on the same batches: what they share is found, taken off, and never invented."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpo.core.common_noise import CommonNoise, FreedTemplate, Points, fit_with_common_noise, shares_trunk
from hpo.core.curve import Curve
from hpo.core.data_order import DataOrder
from hpo.core.model import CollapseModel
from hpo.core.monitor import Monitor
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule
from hpo.core.template import template_of_model

EVERY = 10.0
BATCHES = 0.04 * np.random.default_rng(0).standard_normal(200)
"""Noise of each batch; run r of length T_r sees the first T_r / 10 of them."""


def recipe(horizon):
    return Recipe(
        schedule=schedule("linear"), n_params=1e6, n_tokens=2e4 * horizon, batch_tokens=2e4, lr=1e-2, weight_decay=0.1
    )


def points(horizon, final=3.0, seed=1, shared=1.0, fault=None, own=0.004):
    steps = np.arange(EVERY, horizon + 1, EVERY)
    t = steps / horizon
    noise = shared * BATCHES[: steps.size] + own * np.random.default_rng(seed).standard_normal(steps.size)
    values = final * (1 + 0.25 * (1 - t) + 0.3 * np.exp(-12 * t)) * np.exp(noise + (0.0 if fault is None else fault(t)))
    curve = Curve.from_points(steps, values, horizon=horizon, recipe=recipe(horizon), run_id=f"r{horizon}")
    return Points(curve, steps, values)


@pytest.fixture(scope="module")
def fitted():
    return fit_with_common_noise([points(h, 3.5 - 0.1 * k, 10 + k) for k, h in enumerate((1200, 1400, 1600, 2000))])


def watch(fitted, run, *, told=True):
    model, common = fitted
    template = template_of_model(model, run.curve.metric, run.curve.recipe)
    monitor = Monitor(template, run.curve.recipe, total=run.curve.horizon, judge_every=0.01, common=common if told else None)
    for step, value in zip(run.steps.tolist(), run.values.tolist(), strict=True):
        monitor.update(step, value)
    return monitor.judge()


@pytest.fixture(scope="module")
def unfreed():
    model = CollapseModel.fit([points(h, 3.5 - 0.1 * k, 10 + k).curve for k, h in enumerate((1200, 1400, 1600, 2000))])
    curve = points(1000).curve
    return template_of_model(model, curve.metric, curve.recipe)


def recognised(fitted, unfreed, run):
    """Return the status of a run that is not known to have seen the references' batches, and how it was taken."""
    model, common = fitted
    freed = FreedTemplate(template_of_model(model, run.curve.metric, run.curve.recipe).wandering_as(unfreed), common)
    monitor = Monitor(unfreed, run.curve.recipe, total=run.curve.horizon, judge_every=0.01, if_same_data=freed)
    plain = Monitor(unfreed, run.curve.recipe, total=run.curve.horizon, judge_every=0.01)
    for step, value in zip(run.steps.tolist(), run.values.tolist(), strict=True):
        monitor.update(step, value)
        plain.update(step, value)
    return monitor.judge(), plain.judge()


def a_step(t):
    return np.where(t >= 0.6, 0.12, 0.0)  # three times the noise of a bin


def test_the_noise_of_the_batches_is_found(fitted):
    _, common = fitted
    steps = [step for step in common.steps.tolist() if 200 < step <= 1600]
    true = BATCHES[[round(step / EVERY) - 1 for step in steps]]
    assert np.corrcoef([common.at(step) for step in steps], true)[0, 1] > 0.95
    assert common.at(common.steps[0] + 1) is None
    assert 0.004**2 < common.own_variance < 0.1 * common.variance


def test_a_step_is_found_sooner_once_the_data_order_is_known(fitted):
    run = points(1000, 2.5, 5, fault=lambda t: 0.75 * a_step(t))
    status = watch(fitted, run)
    assert (watch(fitted, run, told=False).detected_at or 1.0) > status.detected_at
    assert (status.status, status.kind) == ("alarm", "step")
    assert status.onset == pytest.approx(0.6, abs=0.02)
    assert status.detected_at <= 0.63


def test_the_data_order_shows_itself(fitted, unfreed):
    run = points(1000, 2.5, 5, fault=lambda t: 0.75 * a_step(t))
    seen, plain = recognised(fitted, unfreed, run)
    assert (seen.kind, seen.detected_at) == ("step", pytest.approx(watch(fitted, run).detected_at, abs=0.01))
    assert seen.detected_at < (plain.detected_at or 1.0)
    assert "on whose batches it was trained" in recognised(fitted, unfreed, points(1000, 2.5, 6))[0].reason
    other, plain = recognised(fitted, unfreed, points(1000, 2.5, 7, shared=0.0, own=0.04))
    assert other == plain


@pytest.mark.parametrize(("shared", "expected"), [(1.0, True), (0.0, False), (-1.0, False)])
def test_only_a_run_that_jumps_as_its_references_do_is_taken_to_share_their_batches(fitted, shared, expected):
    run, order = points(1000, 2.5, 5, shared=shared, own=0.004 if shared > 0 else 0.04), DataOrder(fitted[1])
    seen = []
    for step, value in zip(run.steps.tolist(), run.values.tolist(), strict=True):
        order.add(step, value * (5.0 if step == 300 else 1.0))  # a spike
        order.add(step + 1, value)  # where no reference reported
        seen.append(order.is_shared)
    assert seen[-1] == expected
    assert not any(seen[:10])
    order.add(1010, math.nan)
    assert order.is_shared == expected


def test_a_healthy_run_stays_silent(fitted):
    assert watch(fitted, points(1000, 2.5, 6)).status == "ok"


def test_a_run_that_saw_other_batches_is_left_as_it_is(fitted):
    status, untold = (watch(fitted, points(1000, 2.5, 7, shared=0.0, own=0.02), told=told) for told in (True, False))
    assert status == untold


def test_one_reference_will_do():
    pair = fit_with_common_noise([points(1400, 3.4, 11)])
    assert pair[1].own_variance is None
    assert watch(pair, points(1000, 2.5, 8, fault=a_step)).status == "alarm"


def test_a_resumed_run_is_told_from_one_on_the_same_batches():
    a, b = points(1000, seed=1), points(1000, seed=2)
    assert shares_trunk(a, a.steps[:40], a.values[:40])
    assert not shares_trunk(a, b.steps, b.values)


def test_runs_without_common_steps_or_a_positive_loss_are_refused():
    apart = points(1000, 3.0, 3)
    moved = Points(
        Curve.from_points(apart.steps - 5, apart.values, horizon=1000, recipe=recipe(1000)), apart.steps - 5, apart.values
    )
    with pytest.raises(ValueError, match="log the same steps; found fewer than 20 in common"):
        fit_with_common_noise([apart, moved])
    strangers = [points(h, 3.0, k, shared=0.0, own=0.02) for k, h in enumerate((1200, 1400, 1600))]
    with pytest.raises(ValueError, match="share most of their noise"):
        fit_with_common_noise(strangers)
    with pytest.raises(ValueError, match="found none"):
        fit_with_common_noise([])


def test_common_noise_is_known_at_its_own_steps_only():
    common = CommonNoise(np.array([1.0, 3.0]), np.array([0.1, 0.2]), 0.02)
    assert [common.at(step) for step in (0, 1, 2, 3, 4)] == [None, 0.1, None, 0.2, None]
