from __future__ import annotations

import numpy as np
import pytest

from hpo.core.leave_out import WEIGHT, LeaveOut

N_NODES, N_RUNS = 12, 6


@pytest.fixture
def parts() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    age = np.linspace(1.0, 0.05, N_NODES)
    taken = 0.1 * rng.standard_normal((N_RUNS, N_NODES)) * age
    shares = np.full(N_RUNS, 0.05)
    prior = 0.02 * np.minimum(age[:, None], age[None, :]) + 0.001 * np.eye(N_NODES)
    covariance = prior + (shares[:, None] * taken).T @ taken
    inverse = np.linalg.inv(np.eye(N_RUNS) + 0.5 * np.ones((N_RUNS, N_RUNS)))
    return {"covariance": covariance, "inverse": inverse, "shares": shares, "taken": taken, "errors": taken + 0.01}


@pytest.mark.parametrize("n_seen", [1, 5, N_NODES])
@pytest.mark.parametrize("ways", [[[i] for i in range(N_RUNS)], [[0, 1], [2, 3, 4], [5]]])
def test_the_closed_form_equals_fits_that_really_leave_the_runs_out(parts, n_seen, ways):
    squares = []
    k, end = parts["covariance"][:n_seen, :n_seen], 0.003
    ridge = 1e-6 * np.mean(np.diag(parts["covariance"])) * np.eye(n_seen)
    for part in ways:
        own = parts["taken"][part][:, :n_seen]
        weights = np.linalg.solve(k + ridge - (parts["shares"][part][:, None] * own).T @ own, np.ones(n_seen))
        block = np.linalg.inv(parts["inverse"][np.ix_(part, part)])
        missed = block @ parts["errors"][part][:, :n_seen] @ weights / weights.sum()
        variance = np.diag(block) * (1.0 / np.linalg.solve(k + ridge, np.ones(n_seen)).sum() + end)
        squares.append(np.mean(missed**2 / variance))
    found = LeaveOut.of(**parts, end=end).scales([ways], n_seen)
    assert found == [pytest.approx((WEIGHT + sum(squares)) / (WEIGHT + len(squares)), rel=1e-9)]
