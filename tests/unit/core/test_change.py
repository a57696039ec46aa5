"""The sequential test: rates while healthy, power against steps, forms told apart, sizes and levels."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import polygamma

from hpo.core.bin_noise import noise_dof, noise_per_point
from hpo.core.change import (
    BINS_AFTER,
    change_of,
    likeliest_change,
    tail_corrected,
)
from hpo.core.whitened import Whitened, form_values

N = 80
T = np.linspace(0.2, 0.99, N)
SIGMA = 0.002
QUIET, NOISE = np.zeros((N, N)), np.full(N, SIGMA**2)


def noise(seed: int) -> np.ndarray:
    return SIGMA * np.random.default_rng(seed).standard_normal(N)


def test_white_noise_hardly_ever_alarms():
    alarms = sum(likeliest_change(noise(k), QUIET, NOISE, T).is_alarm for k in range(300))
    assert alarms <= 3


def test_a_step_is_found_with_its_onset_size_and_level():
    found = likeliest_change(1.1 + noise(1) + np.where(np.arange(N) >= 50, 6 * SIGMA, 0.0), QUIET, NOISE, T)
    assert found.is_alarm
    assert found.form == "step"
    assert abs(found.onset - 50) <= 1
    assert found.size == pytest.approx(6 * SIGMA, abs=4 * found.size_sd)
    assert found.level == pytest.approx(1.1, abs=5 * found.level_sd)


def test_a_drop_has_a_negative_size():
    found = likeliest_change(noise(2) - np.where(np.arange(N) >= 30, 6 * SIGMA, 0.0), QUIET, NOISE, T)
    assert found.is_alarm
    assert found.z < 0 > found.size


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("spike", np.where(np.arange(N) == 40, 15 * SIGMA, 0.0)),
        ("drift", np.maximum(T - 0.6, 0) * 60 * SIGMA),
        ("transient", np.where(T[40] <= T, 15 * SIGMA * np.exp(-(T - T[40]) / 0.02), 0.0)),
    ],
)
def test_forms_are_told_apart(form, values):
    assert likeliest_change(noise(3) + values, QUIET, NOISE, T).form == form


def test_most_steps_of_four_sigma_are_found_within_three_bins():
    """At the line for one false alarm in a hundred healthy runs; a few bins later nearly all are."""
    found = 0
    for k in range(100):
        d = noise(k)[:63]
        d[60:] += 4 * SIGMA
        found += likeliest_change(d, QUIET[:63, :63], NOISE[:63], T[:63]).is_alarm
    assert found >= 60


def test_the_level_does_not_matter():
    d = noise(5) + np.where(np.arange(N) >= 50, 3 * SIGMA, 0.0)
    one, other = (likeliest_change(d + shift, QUIET, NOISE, T) for shift in (0.0, 2.5))
    assert one.z == pytest.approx(other.z, rel=1e-6)
    assert other.level - one.level == pytest.approx(2.5)


def test_what_healthy_wandering_explains_is_no_alarm():
    drift = np.maximum(T - 0.5, 0) * 30 * SIGMA
    assert likeliest_change(noise(6) + drift, QUIET, NOISE, T).is_alarm
    wandering = np.exp(-0.5 * ((T[:, None] - T[None, :]) / 0.2) ** 2) * (15 * SIGMA) ** 2
    assert not likeliest_change(noise(6) + drift, wandering, NOISE, T).is_alarm


def test_noise_is_measured_under_a_trend_a_step_and_a_spike():
    rng = np.random.default_rng(7)
    d = 0.3 * rng.standard_normal(400) + np.linspace(0, 20, 400)
    d[200:] += 5
    d[100] += 50
    assert np.sqrt(noise_per_point(d, np.ones(400))) == pytest.approx(0.3, rel=0.1)
    many = rng.standard_normal(400) / np.sqrt(25)
    assert np.sqrt(noise_per_point(many, np.full(400, 25.0))) == pytest.approx(1.0, rel=0.1)


def test_few_bins_need_more():
    assert tail_corrected(np.array(6.0), 15) < tail_corrected(np.array(6.0), 75) < 6
    assert likeliest_change(np.zeros(4), np.eye(4), np.ones(4), np.linspace(0.1, 0.2, 4)) is None


HUMP = np.concatenate((np.zeros(40), [4, 9, 12, 12, 9, 10, 7, 4, 3, 1], np.zeros(N - 50))) * 5 * SIGMA
"""Up and back, in a shape that no form has."""


@pytest.mark.parametrize(("stays", "lasts"), [(4 * SIGMA, True), (0.0, False)])
def test_what_stays_of_a_jump_is_told_from_what_passes(stays, lasts):
    d = 1.1 + noise(4) + HUMP + np.where(np.arange(N) >= 40, stays, 0.0)
    found = likeliest_change(d, QUIET, NOISE, T)
    assert found.is_alarm
    assert found.onset == pytest.approx(40, abs=1)
    assert found.lasts == lasts
    assert found.level == pytest.approx(1.1, abs=SIGMA)
    if lasts:
        assert found.size == pytest.approx(stays, abs=1.5 * SIGMA)


BINS = np.arange(N)
STEP_LATE = np.where(BINS >= 55, 8 * SIGMA, 0.0)


@pytest.mark.parametrize("height", [1.8, -1.8])
@pytest.mark.parametrize("bins", [(40,), (30, 40, 60), (60, 61)])
def test_a_change_is_told_beside_single_reports_far_off(height, bins):
    spikes = np.where(np.isin(BINS, bins), height, 0.0)
    beside, alone = (likeliest_change(noise(3) + x, QUIET, NOISE, T) for x in (spikes + STEP_LATE, spikes))
    assert (beside.form, beside.onset, beside.is_alarm) == ("step", 55, True)
    assert beside.size == pytest.approx(8 * SIGMA, abs=2 * SIGMA)
    assert alone.is_alarm == (height > 0)
    assert alone.form in (("spike", "pulse") if height > 0 else BINS_AFTER)
    assert alone.level == pytest.approx(0.0, abs=SIGMA)


def test_the_last_report_far_below_is_waited_for():
    assert not likeliest_change(noise(3) - np.where(BINS == N - 1, 1.8, 0.0), QUIET, NOISE, T).is_alarm


def test_a_bin_of_a_form_before_its_onset_is_zero():
    for form in BINS_AFTER:
        x = form_values(form, T, np.array([20]))
        assert np.all(x[:20] == 0)
        assert x.max() == pytest.approx(1)


def test_size_and_level_agree_with_generalised_least_squares():
    rng = np.random.default_rng(8)
    a = rng.standard_normal((N, N))
    covariance = a @ a.T / N + np.eye(N)
    d = rng.standard_normal(N)
    found = change_of(Whitened.of(d, covariance), T, "step", 40, 1e9)
    design = np.column_stack((np.ones(N), form_values("step", T, np.array([40]))[:, 0]))
    inverse = np.linalg.inv(covariance)
    spread = np.linalg.inv(design.T @ inverse @ design)
    level, size = spread @ design.T @ inverse @ d
    assert (found.level, found.size) == pytest.approx((level, size))
    assert (found.level_sd, found.size_sd) == pytest.approx(tuple(np.sqrt(np.diag(spread))))


def test_a_loss_below_its_curve_is_asked_more_and_one_that_comes_back_nothing():
    up = likeliest_change(noise(9) + np.where(np.arange(N) >= 50, 1.6 * SIGMA, 0.0), QUIET, NOISE, T)
    down = likeliest_change(-noise(9) - np.where(np.arange(N) >= 50, 1.6 * SIGMA, 0.0), QUIET, NOISE, T)
    assert up.is_alarm
    assert not down.is_alarm
    assert not likeliest_change(noise(9) - np.where(np.arange(N) == 40, 20 * SIGMA, 0.0), QUIET, NOISE, T).is_alarm


def test_two_bins_up_are_a_pulse():
    pulse = np.where((np.arange(N) == 40) | (np.arange(N) == 41), 12 * SIGMA, 0.0)
    found = likeliest_change(noise(3) + pulse, QUIET, NOISE, T)
    assert (found.form, found.onset, found.is_alarm) == ("pulse", 40, True)


def test_a_run_that_wandered_little_is_judged_strictly():
    """What is stated of healthy runs is an upper limit: under it alone the step would be lost in the wandering."""
    stated = (8 * SIGMA) ** 2 * np.exp(-0.5 * ((T[:, None] - T[None, :]) / 0.05) ** 2)
    step = np.where(np.arange(N) >= 60, 6 * SIGMA, 0.0)
    found = likeliest_change(noise(10) + step, stated, NOISE, T)
    alone = change_of(Whitened.of(noise(10) + step, stated + np.diag(NOISE)), T, "step", 60, 1e9)
    assert found.is_alarm
    assert (found.form, found.wandering < 1.0) == ("step", True)
    assert alone.z < 4


def test_a_bend_of_the_curve_is_not_taken_for_noise():
    bent = 0.3 * np.random.default_rng(11).standard_normal(400) + 40 * np.cos(np.linspace(0, 6 * np.pi, 400))
    assert np.sqrt(noise_per_point(bent, np.ones(400))) == pytest.approx(0.3, rel=0.15)


def test_noise_may_be_given_as_a_covariance():
    d = noise(3) + np.where(T >= 0.6, 4 * SIGMA, 0.0)
    slow = (0.5 * SIGMA) ** 2 * np.exp(-np.abs(T[:, None] - T[None, :]) / 0.3)
    a, b = likeliest_change(d, slow, NOISE, T), likeliest_change(d, slow, np.diag(NOISE), T)
    assert (a.form, a.onset) == (b.form, b.onset)
    assert (a.z, a.size, a.level) == pytest.approx((b.z, b.size, b.level))


def test_what_correlated_noise_explains_is_no_alarm():
    rng = np.random.default_rng(0)
    smooth = (2 * SIGMA) ** 2 * np.exp(-(((T[:, None] - T[None, :]) / 0.1) ** 2))
    covariance = smooth + np.diag(NOISE)
    draws = rng.multivariate_normal(np.zeros(N), covariance, size=60)
    assert sum(likeliest_change(d, QUIET, covariance, T).is_alarm for d in draws) <= 1
    assert sum(likeliest_change(d, QUIET, NOISE, T).is_alarm for d in draws) > 30


def test_a_drift_is_told_from_where_it_leaves_the_curve():
    drift = likeliest_change(0.2 * noise(1) + 20 * SIGMA * np.maximum(T - 0.6, 0.0), QUIET, 0.04 * NOISE, T)
    assert drift.form == "drift"
    assert drift.began == pytest.approx(0.6, abs=0.02)
    step = likeliest_change(0.2 * noise(1) + np.where(T >= 0.6, 4 * SIGMA, 0.0), QUIET, 0.04 * NOISE, T)
    assert step.began == pytest.approx(0.6, abs=0.01)


def test_a_jump_that_has_not_come_back_is_a_step_and_one_that_has_is_a_spike():
    jumped = noise(2)
    jumped[60] += 12 * SIGMA
    now = likeliest_change(jumped[:61], QUIET[:61, :61], NOISE[:61], T[:61])
    assert (now.form, now.onset, now.is_alarm) == ("step", 60, True)
    assert now.began == pytest.approx((T[59] + T[60]) / 2)
    assert likeliest_change(jumped[:66], QUIET[:66, :66], NOISE[:66], T[:66]).form == "spike"


@pytest.mark.parametrize("n", [7, 12, 20, 60])
def test_the_degrees_of_freedom_are_what_the_variance_is_known_to(n):
    logs = np.log([noise_per_point(row, np.ones(n)) for row in np.random.default_rng(n).standard_normal((2000, n))])
    assert polygamma(1, noise_dof(n) / 2.0) == pytest.approx(logs.var(), rel=0.3)  # the variance of log χ²


def test_a_step_in_the_last_bins_hides_little_of_itself_in_the_noise():
    d = np.random.default_rng(5).standard_normal(40)
    raised = d + np.where(np.arange(40) >= 37, 4.0, 0.0)
    assert noise_per_point(raised, np.ones(40)) < 1.1 * noise_per_point(d, np.ones(40))


def test_only_steps_are_looked_for_after_three_bins():
    d = np.where(np.arange(7) >= 3, 40 * SIGMA, 0.0) + noise(6)[:7]
    found = likeliest_change(d, np.zeros((7, 7)), NOISE[:7], T[:7], dof=50)
    assert (found.form, found.onset) == ("step", 3)
    assert found.is_alarm
