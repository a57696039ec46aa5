from __future__ import annotations

import numpy as np
import pytest
from synthetic import LINEAR, TRUE, recipe, surrogate_curve

from hpo.core.curve import Curve
from hpo.core.schedules import schedule
from hpo.core.surrogate import early_align, fit_surrogate

GRID = [(tau, tpp) for tpp in (10.0, 20.0, 80.0, 200.0) for tau in (0.03, 0.1, 0.3, 0.8)]


def test_the_fit_recovers_known_constants():
    fit = fit_surrogate([surrogate_curve(recipe(tau=tau, tpp=tpp)) for tau, tpp in GRID])
    assert fit.status == "converged"
    for name in ("b_c", "b_e", "q_c", "q_e"):
        assert getattr(fit.surrogate, name) == pytest.approx(getattr(TRUE, name), rel=2e-3), name
    assert fit.mae < 1e-5


def test_the_fit_is_robust_to_noise_of_two_percent():
    rng = np.random.default_rng(1)
    curves = [surrogate_curve(recipe(tau=tau, tpp=tpp), noise=0.02, rng=rng) for tau, tpp in GRID]
    found = fit_surrogate(curves).surrogate
    t = np.linspace(0.2, 1, 81)
    for tau, tpp in GRID:
        truth = TRUE.normalised(t, LINEAR(t, 0.1), 0.0, tau, tpp)
        assert np.abs(found.normalised(t, LINEAR(t, 0.1), 0.0, tau, tpp) / truth - 1).mean() < 0.012


def test_the_shape_is_one_at_the_end_and_equation_four_elsewhere():
    t = np.array([0.2, 1.0])
    ell = TRUE(t, [0.9, 0.0], tau=0.2, tpp=20)
    b, q = 0.2 * 0.2**-0.31, 0.55 * 20**0.17
    g = [(1.001 / (x + 0.001)) ** 0.05 + b * (eta + 0.1) ** q for x, eta in zip(t, (0.9, 0.0), strict=True)]
    np.testing.assert_allclose(ell, [g[0] / g[1], 1.0], rtol=1e-14)


def test_a_larger_timescale_drops_more_early_and_less_late_under_decay_to_zero():
    t = np.array([0.2, 0.6, 1.0])
    small, large = (TRUE(t, LINEAR(t, 0.1), tau=tau, tpp=20) for tau in (0.05, 0.8))
    assert small[1] / small[2] > large[1] / large[2]


def test_curves_without_timescale_or_schedule_are_left_out():
    bare = Curve.from_points(np.arange(1, 101), np.linspace(4, 3, 100), horizon=100)
    fit = fit_surrogate([bare])
    assert fit.status == "no_data"
    assert fit.surrogate is None


def test_one_setting_fixes_no_exponents_but_fits_its_curve():
    fit = fit_surrogate([surrogate_curve(recipe())])
    assert (fit.surrogate.b_e, fit.surrogate.q_e) == (0.0, 0.0)
    assert fit.mae < 1e-4


def test_fitting_twice_gives_the_same_constants():
    curves = [surrogate_curve(recipe(tau=tau, tpp=tpp)) for tau, tpp in GRID[:6]]
    assert fit_surrogate(curves) == fit_surrogate(curves)


def test_early_align_is_the_mean_log_ratio():
    y, shape = np.log([4.0, 3.5]), np.log([1.3, 1.2])
    assert early_align(y, shape) == pytest.approx(np.mean(y - shape), abs=1e-15)


def test_early_align_returns_the_final_loss_of_a_noiseless_prefix():
    made = recipe(sched=schedule("linear"))
    prefix = surrogate_curve(made, final=2.7, until=0.3)
    t = prefix.fractions
    shape = np.log(TRUE.normalised(t, LINEAR(t, 0.1), 0.0, made.tau, made.tpp))
    keep = t >= 0.1
    assert np.exp(early_align(np.log(prefix.means[keep]), shape[keep])) == pytest.approx(2.7, rel=1e-4)
