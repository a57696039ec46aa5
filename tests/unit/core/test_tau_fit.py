"""The best τ of a sweep, and the law through several."""

from __future__ import annotations

import numpy as np
import pytest

from hpo.core.tau_fit import fit_tau_law, tau_optimum

TAU = np.geomspace(0.02, 1.28, 7)


def loss(tau, best):
    return 3 + 0.05 * np.log(np.asarray(tau) / best) ** 2


def optimum(tpp, best, tau=TAU):
    return tau_optimum(tau, loss(tau, best), tpp=tpp, name=f"{tpp} tpp")


def test_the_vertex_of_a_parabola_is_found():
    found = optimum(20, 0.2)
    assert found.status == "interior"
    assert found.tau == pytest.approx(0.2, rel=1e-6)
    low, high = found.interval()
    assert low < 0.2 < high


@pytest.mark.parametrize(("best", "status"), [(0.001, "lowest"), (20.0, "highest")])
def test_a_best_run_at_the_edge_is_only_a_bound(best, status):
    found = optimum(20, best)
    assert (found.status, found.sd_log_tau, found.interval()) == (status, None, None)


def test_several_runs_at_one_tau_count_by_the_best_of_them():
    tau = np.repeat(TAU, 2)
    losses = loss(tau, 0.2) + np.tile([0.0, 0.7], TAU.size)
    found = tau_optimum(tau, losses, tpp=20)
    assert (found.n_runs, found.n_tau) == (14, 7)
    assert found.tau == pytest.approx(0.2, rel=1e-6)


def test_diverged_runs_are_left_out():
    losses = loss(TAU, 0.2)
    losses[-1] = np.nan
    assert tau_optimum(TAU, losses, tpp=20).tau == pytest.approx(0.2, rel=1e-6)


def test_order_of_runs_does_not_matter():
    order = np.random.default_rng(0).permutation(TAU.size)
    assert tau_optimum(TAU[order], loss(TAU, 0.2)[order], tpp=20).tau == optimum(20, 0.2).tau


def test_the_published_law_is_recovered_from_sweeps_that_obey_it():
    law = fit_tau_law([optimum(tpp, 1.084 * tpp**-0.527) for tpp in (20, 80, 320)])
    assert law.law.exponent == pytest.approx(-0.527, abs=0.01)
    assert law.law.coefficient == pytest.approx(1.084, rel=0.05)
    low, high = law.exponent_interval()
    assert low < -0.527 < high


def test_noisy_sweeps_have_wider_intervals_than_their_spacing_alone():
    rng = np.random.default_rng(1)
    noisy = tau_optimum(TAU, loss(TAU, 0.2) + 0.02 * rng.standard_normal(TAU.size), tpp=20)
    assert noisy.sd_log_tau >= optimum(20, 0.2).sd_log_tau


def test_one_tpp_fits_the_constant_under_a_given_exponent():
    law = fit_tau_law([optimum(20, 0.175)], exponent=-0.5).law
    assert law.at(20) == pytest.approx(0.175, rel=1e-6)


def test_one_tpp_alone_cannot_give_an_exponent():
    with pytest.raises(ValueError, match="needs sweeps at two tpp, or a given exponent; found tpp 20 only"):
        fit_tau_law([optimum(20, 0.2), optimum(20, 0.21)])


def test_bounds_alone_fit_nothing():
    with pytest.raises(ValueError, match="found 1 with the lowest tau best"):
        fit_tau_law([optimum(20, 0.001)])
