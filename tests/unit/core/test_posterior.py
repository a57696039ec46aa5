from __future__ import annotations

import numpy as np
import pytest

from hpo.core.posterior import Alignment, Law, align_jointly, mixed_dof, probability_best
from hpo.core.standing import Prefix, own_scale, tempered

NODES = np.array([0.1, 0.2, 0.3, 0.5])
K = 0.02**2 * np.minimum(*np.meshgrid(-np.log(NODES), -np.log(NODES)))


def prefix(offset, loadings=(1.0,), noise=1e-6, own=1.0):
    n = len(offset)
    return Prefix(np.array(offset), np.eye(n, NODES.size), np.array(loadings), own, np.full(n, noise))


def brute_force(prefixes, covariance):
    """The same joint law by one dense system over all bins of all trials, θ under a flat prior."""
    sizes = [p.offset.size for p in prefixes]
    starts = np.cumsum([0, *sizes])
    big = np.zeros((starts[-1], starts[-1]))
    for i, a in enumerate(prefixes):
        for j, b in enumerate(prefixes):
            shared = float(a.loadings @ b.loadings) + (i == j) * a.own
            block = shared * a.weights @ covariance @ b.weights.T + (np.diag(a.noise) if i == j else 0)
            big[starts[i] : starts[i + 1], starts[j] : starts[j + 1]] = block
    design = np.zeros((starts[-1], len(prefixes)))
    for i in range(len(prefixes)):
        design[starts[i] : starts[i + 1], i] = 1
    inverse = np.linalg.inv(big)
    cov = np.linalg.inv(design.T @ inverse @ design)
    return cov @ design.T @ inverse @ np.concatenate([p.offset for p in prefixes]), cov


def test_the_joint_law_equals_the_dense_solution():
    rng = np.random.default_rng(0)
    prefixes = [
        prefix(1 + 0.02 * rng.standard_normal(n), loadings=rng.standard_normal(2) * 0.5, noise=noise, own=1.3)
        for n, noise in ((2, 1e-5), (3, 1e-6), (4, 1e-4))
    ]
    made = align_jointly(prefixes, K)
    level, cov = brute_force(prefixes, K)
    np.testing.assert_allclose(made.level, level, rtol=1e-9)
    np.testing.assert_allclose(made.covariance, cov, rtol=1e-7, atol=1e-14)


def test_without_misfit_the_generalised_mean_weighs_by_the_noise_alone():
    d, noise = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 4.0])
    made = align_jointly([prefix(d, noise=noise)], 0.0 * K)
    level, variance = made.level[0], made.covariance[0, 0]
    assert level == pytest.approx(np.average(d, weights=1 / noise))
    assert variance == pytest.approx(1 / np.sum(1 / noise))


def test_later_bins_weigh_more_under_a_misfit_pinned_at_the_end():
    alone = [align_jointly([prefix(bin_, loadings=(0.0,), noise=1e-5)], K) for bin_ in np.eye(4)]
    weights = [made.level[0] for made in alone]  # a level is linear in the bins
    assert np.all(np.diff(weights) > 0)


def test_a_spike_loses_its_weight_and_a_clean_prefix_keeps_all():
    clean = prefix([1.0, 1.001, 0.999, 1.0])
    spiked = prefix([1.0, 4.0, 0.999, 1.0])
    np.testing.assert_array_equal(tempered(clean, K, 4.0).noise, clean.noise)
    assert tempered(spiked, K, 4.0).noise[1] > 1.0


def test_two_seeds_of_draws_agree_with_the_normal_probability():
    law = Law([0, 1], np.array([0.0, 0.01]), np.eye(2) * 0.01**2, (np.inf, np.inf))
    draws = law.draw(np.random.default_rng(0), 100_000)
    assert probability_best(draws)[0] == pytest.approx(0.7602, abs=0.005)  # Φ(1/√2)


def test_ties_share_the_probability_of_being_best():
    np.testing.assert_allclose(probability_best(np.zeros((10, 4))), 0.25)


def own_scale_of(offset, dof=1.0, covariance=K, **options):
    return own_scale(tempered(prefix(offset, **options), covariance, np.inf), dof)


def test_a_run_that_strays_slowly_has_a_wider_law_and_one_that_follows_a_narrower_one():
    assert own_scale_of([1.0, 1.0, 1.0, 1.0]) < 0.6 < 1.5 < own_scale_of([1.2, 1.15, 1.1, 1.05])
    assert own_scale_of([1.2, 1.15, 1.1, 1.05], np.inf) == own_scale_of([1.0]) == 1.0


def test_noise_alone_does_not_widen_a_law():
    draw = np.random.default_rng(0)
    assert own_scale_of(1.0 + 0.3 * draw.standard_normal(4), noise=0.09, covariance=1e-4 * K) == 1.0


def test_drawn_from_its_own_law_the_scale_is_one_in_the_mean():
    draw, root = np.random.default_rng(0), np.linalg.cholesky(K + 1e-6 * np.eye(4))
    squares = [own_scale_of(row, 4.0, loadings=(0.0,)) ** 2 for row in (root @ draw.standard_normal((4, 2000))).T]
    assert np.mean(squares) == pytest.approx(1.0, abs=0.04)


def test_noise_of_reports_makes_tails_lighter_than_misfit_does():
    assert mixed_dof(4.0, 0.0) == pytest.approx(4.0)
    assert mixed_dof(4.0, 1.0) == pytest.approx(20.0)
    assert 4.0 < mixed_dof(4.0, 0.5) < 20.0
    assert np.isinf(mixed_dof(np.inf, 0.3))


def test_the_share_of_noise_is_what_the_level_would_lose_without_it():
    noisy, clean = (align_jointly([prefix([1.0, 1.01, 0.99, 1.0], noise=x)], K) for x in (1e-4, 1e-12))
    assert clean.noise_share[0] < 1e-3
    assert 0.1 < noisy.noise_share[0] < 1.0


def test_a_trial_by_itself_and_among_others_that_share_nothing_with_it_agree():
    """The closed form of one trial, against the system of many: no shared deviation."""
    made = [prefix([1.0, 1.01, 0.99], loadings=(0.0,), noise=1e-5), prefix([2.0, 2.01, 1.98, 2.0], loadings=(0.0,), noise=1e-4)]
    alone, together = align_jointly(made[:1], K), align_jointly(made, K)
    assert together.level[0] == pytest.approx(alone.level[0], rel=1e-9)
    assert together.covariance[0, 0] == pytest.approx(alone.covariance[0, 0], rel=1e-9)
    assert together.misfit[0] == pytest.approx(alone.misfit[0], rel=1e-9)


def test_mirrored_draws_have_the_mean_and_the_spread_of_the_law():
    law = Law([0, 1], np.array([1.0, 2.0]), np.array([[0.04, 0.01], [0.01, 0.09]]), (np.inf, np.inf))
    draws = law.draw(np.random.default_rng(0), 8001)
    assert draws.shape == (8001, 2)
    np.testing.assert_allclose(draws.mean(axis=0), law.level, atol=1e-4)
    np.testing.assert_allclose(np.cov(draws, rowvar=False), law.covariance, atol=0.005)


@pytest.mark.parametrize("n_draws", [8_000])
def test_eight_thousand_draws_tell_small_probabilities_well_enough(n_draws):
    law = Law([0, 1], np.array([0.0, 0.03]), np.eye(2) * 0.01**2, (np.inf, np.inf))
    truth = 0.016947  # Φ(−3/√2)
    found = [probability_best(law.draw(np.random.default_rng(seed), n_draws))[1] for seed in range(20)]
    assert np.mean(found) == pytest.approx(truth, abs=0.001)
    assert np.std(found) < 0.002


def test_what_trials_share_cancels_in_their_difference_however_they_stray():
    shared, own = 0.04, np.array([0.01, 0.02, 0.03])
    scale, calibration = np.array([0.5, 1.0, 3.0]), np.array([1.0, 0.8, 1.2])
    made = Alignment(np.zeros(3), shared + np.diag(own), np.ones(3), own, scale, np.zeros(3)).scaled(calibration)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        apart = made[i, i] + made[j, j] - 2 * made[i, j]
        assert apart == pytest.approx(sum(own[k] * (scale[k] * calibration[k]) ** 2 for k in (i, j)))
    assert made[0, 1] == pytest.approx(shared * np.median((scale * calibration) ** 2))


@pytest.mark.parametrize("covariance", [1e-4 * np.ones((4, 4)), 0.0 * K], ids=["of one direction", "zero"])
def test_a_singular_misfit_is_shared_too(covariance):
    rng = np.random.default_rng(0)
    made = [prefix(1.0 + 0.1 * rng.standard_normal(4), loadings=rng.standard_normal(2), noise=0.01) for _ in range(3)]
    found, (level, expected) = align_jointly(made, covariance), brute_force(made, covariance)
    np.testing.assert_allclose(found.covariance, expected, rtol=1e-8)
    np.testing.assert_allclose(found.level, level)
