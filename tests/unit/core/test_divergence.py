from __future__ import annotations

import numpy as np
import pytest

from hpo.core.curve import Curve
from hpo.core.divergence import DivergenceWatch, has_risen
from hpo.core.metric import Metric


def curve(values, horizon=100):
    return Curve.from_points(np.arange(1, len(values) + 1), values, horizon=horizon)


def test_sustained_divergence_is_seen_within_five_reports():
    healthy = list(4 - 0.02 * np.arange(20))
    growing = [healthy[-1] * 1.2**k for k in range(1, 6)]
    assert curve(healthy + growing).diverging


def test_a_lucky_early_value_does_not_hide_divergence():
    healthy = list(4 - 0.02 * np.arange(20))
    healthy[5] = 0.5
    growing = [healthy[-1] * 1.5**k for k in range(1, 6)]
    assert curve(healthy + growing).diverging


def test_a_lucky_early_value_does_not_make_a_healthy_run_diverge():
    healthy = 4 - 0.02 * np.arange(60)
    healthy[5] = 0.5
    assert not curve(healthy).diverging


@pytest.mark.parametrize("at", [5, 15, 29])
def test_one_spike_of_twenty_times_is_not_divergence(at):
    values = 4 - 0.02 * np.arange(30)
    values[at] *= 20
    assert not curve(values).diverging


def test_a_run_that_came_back_is_not_diverging():
    values = np.concatenate([np.linspace(4, 3, 30), [9, 9, 9, 9, 9], np.linspace(3, 2.9, 10)])
    assert not curve(values).diverging


def test_noise_alone_is_not_divergence():
    rng = np.random.default_rng(0)
    for _ in range(200):
        assert not curve(3 * (1 + 0.04 * rng.standard_normal(100))).diverging


def test_a_short_hump_in_a_log_of_every_step_is_not_sustained():
    values = np.linspace(4, 3, 2000)
    values[1980:] *= 2  # 20 of 10,000 steps
    assert not curve(values, horizon=10_000).diverging


def test_a_rising_accuracy_is_no_divergence_and_a_collapsing_one_is() -> None:
    rising = np.linspace(0.1, 0.9, 50)
    metric = Metric("accuracy", transform="log1m", mode="max", end="last")
    assert not Curve.from_points(np.arange(1, 51), rising, horizon=50, metric=metric).diverging
    collapsed = np.where(np.arange(50) < 40, rising, 0.1)
    assert Curve.from_points(np.arange(1, 51), collapsed, horizon=50, metric=metric).diverging


def test_a_steep_early_descent_does_not_hide_a_rise() -> None:
    steps = np.arange(1, 101)
    values = 3.0 * (1 + 0.3 * ((steps / 100) ** -0.4 - 1))
    values[10:] *= 1.8
    watch = DivergenceWatch(100.0)
    at = None
    for step, value in zip(steps.tolist(), values.tolist(), strict=True):
        watch.add(step, value)
        at = step if watch.diverging and at is None else at
    assert at is not None
    assert at <= 15


@pytest.mark.parametrize(("rise", "over"), [(0.8, 2), (0.5, 3)])
def test_a_rise_is_seen_within_five_reports_through_noise_and_after_a_lucky_value(rise: float, over: int) -> None:
    steps = np.arange(1, 16)
    clean = 3.0 * (1 + 0.25 * ((steps / 100) ** -0.35 - 1)) * (1 + rise * np.clip((steps - 10) / over, 0, 1))
    clean[4] *= 0.7
    seen = 0
    for seed in range(100):
        noise = 0.02 * np.random.default_rng(seed).standard_normal(steps.size)
        seen += curve(clean * np.exp(noise)).diverging
    assert seen >= 98


@pytest.mark.parametrize("n_reports", [100, 500, 2000])
@pytest.mark.parametrize(("rise", "over", "delay"), [(0.8, 0.02, 0.03), (1.7, 0.12, 0.05), (0.6, 0.1, 0.09)])
@pytest.mark.parametrize("onset", [0.3, 0.6])
def test_a_rise_is_seen_however_dense_the_log_is(n_reports: int, rise: float, over: float, delay: float, onset: float) -> None:
    t = np.arange(1, n_reports + 1) / n_reports
    clean = 3.0 * (1 + 0.3 * (t**-0.3 - 1)) * (1 + rise * np.clip((t - onset) / over, 0, 1))
    seen = first_seen(clean * np.exp(0.01 * np.random.default_rng(0).standard_normal(n_reports)))
    assert seen is not None
    assert 0 < seen / n_reports - onset <= delay + 1e-9


@pytest.mark.parametrize("n_reports", [500, 2000])
def test_lasting_noise_in_a_dense_log_is_not_divergence(n_reports: int) -> None:
    false_alarms = 0
    for seed in range(10):
        noise = np.random.default_rng(seed).standard_normal(n_reports)
        for i in range(1, n_reports):
            noise[i] = 0.9 * noise[i - 1] + np.sqrt(1 - 0.9**2) * noise[i]
        t = np.arange(1, n_reports + 1) / n_reports
        false_alarms += first_seen((1 + 0.3 * (t**-0.3 - 1)) * np.exp(0.1 * noise)) is not None
    assert false_alarms <= 1


@pytest.mark.parametrize(("noise", "likeness"), [(0.05, 0.0), (0.1, 0.0), (0.05, 0.5), (0.1, 0.5)])
def test_noise_that_lasts_over_reports_is_not_divergence(noise: float, likeness: float) -> None:
    false_alarms = 0
    for seed in range(100):
        steps = np.random.default_rng(seed).standard_normal(100)
        for i in range(1, 100):
            steps[i] = likeness * steps[i - 1] + np.sqrt(1 - likeness**2) * steps[i]
        values = (1 + 0.3 * ((np.arange(1, 101) / 100) ** -0.3 - 1)) * np.exp(noise * steps)
        watch = DivergenceWatch(100.0)
        false_alarms += any(_add(watch, step, value) for step, value in enumerate(values.tolist(), start=1))
    assert false_alarms <= 3


def first_seen(values) -> int | None:
    """Return the report, counted from 1, at which a run of as many steps is first seen to diverge; None if it never is."""
    watch = DivergenceWatch(float(len(values)))
    steps = enumerate(np.asarray(values).tolist(), start=1)
    return next((step for step, value in steps if _add(watch, step, value)), None)


def _add(watch: DivergenceWatch, step: int, value: float) -> bool:
    watch.add(step, value)
    return watch.diverging


def test_near_zero_a_rise_is_held_against_what_the_run_has_gained() -> None:
    t = np.linspace(0.01, 1, 100)
    valley = 0.3 * np.exp(-t / 0.05) - 0.02 * np.exp(-(((t - 0.35) / 0.1) ** 2)) + 0.02
    for level in (-1.0, -0.1, -0.02, 0.0, 0.1, 1.0):
        assert not has_risen(t, valley + level)
    assert has_risen(t, np.where(t > 0.5, 0.4, valley))
    assert has_risen(t, np.where(t > 0.5, 0.4, valley - 0.02))


def test_a_reward_that_dips_before_it_climbs_is_no_divergence_and_one_lost_after_it_was_gained_is() -> None:
    t = np.linspace(0.01, 1, 100)
    climbing = -(0.01 + np.maximum(t - 0.2, 0) - 0.05 * np.exp(-(((t - 0.1) / 0.05) ** 2)))
    assert not has_risen(t, climbing)
    assert has_risen(t, np.where(t > 0.7, 0.3, climbing))
