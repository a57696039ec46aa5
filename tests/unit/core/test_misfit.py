from __future__ import annotations

import numpy as np
import pytest

from hpo.core.misfit import MisfitPrior, fit_misfit

NODES = np.linspace(0.02, 0.98, 60)
PRIOR = MisfitPrior(brownian_sd=0.01, scale_weight=1.0, covariance_weight=6.0, tail_dof=4.0)


def brownian(n_runs: int, sd: float, seed: int = 0) -> np.ndarray:
    """Brownian motions in −log t̂ of the given sd, shape (n_runs, n_nodes), zero at t̂ = 1."""
    age = -np.log(NODES)
    steps = np.diff(age[::-1], prepend=0.0)
    drawn = np.random.default_rng(seed).normal(size=(n_runs, NODES.size)) * np.sqrt(steps)
    return sd * np.cumsum(drawn, axis=1)[:, ::-1]


@pytest.mark.parametrize("sd", [0.003, 0.03, 0.3])
def test_the_scale_of_many_runs_is_found_whatever_the_prior(sd):
    found = fit_misfit(brownian(60, sd), 60.0, NODES, PRIOR)
    assert found.scale == pytest.approx(sd, rel=0.25)
    assert np.sqrt(found.covariance[5, 5] / -np.log(NODES[5])) == pytest.approx(sd, rel=0.35)


def test_no_run_leaves_the_prior():
    found = fit_misfit(np.zeros((1, NODES.size)), 0.0, NODES, PRIOR)
    assert found.scale == pytest.approx(0.01)
    assert found.dof == pytest.approx(1.0)


def test_one_wild_run_hardly_moves_the_rest():
    calm = brownian(12, 0.01)
    wild = np.vstack([calm, 50 * brownian(1, 0.01, seed=1)])
    alone, together = (fit_misfit(rows, float(len(rows)), NODES, PRIOR) for rows in (calm, wild))
    alike = fit_misfit(wild, 13.0, NODES, MisfitPrior(0.01, 1.0, 6.0, tail_dof=float("inf")))
    assert together.scale < 1.5 * alone.scale
    assert alike.scale > 5 * alone.scale


def test_few_runs_give_heavy_tails_and_many_never_lighter_than_the_runs_own():
    few, many = (fit_misfit(brownian(n, 0.01), float(n), NODES, PRIOR) for n in (2, 60))
    assert few.dof == pytest.approx(3.0)
    assert many.dof == pytest.approx(7.0)


def test_infinite_weights_take_the_prior_as_given():
    given = MisfitPrior(0.02, float("inf"), float("inf"), float("inf"))
    found = fit_misfit(brownian(8, 0.3), 8.0, NODES, given)
    np.testing.assert_allclose(np.diag(found.covariance), 0.02**2 * -np.log(NODES))
