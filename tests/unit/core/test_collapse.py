from __future__ import annotations

import numpy as np
import pytest
from synthetic import recipe, surrogate_curve

from hpo.core.collapse import collapse_spread, noise_floor, normalised

GRID = np.linspace(0.2, 1.0, 17)


def test_runs_that_differ_by_a_factor_collapse_exactly():
    runs = [surrogate_curve(recipe(n_params=n), final=f) for n, f in ((1e5, 4.0), (1e6, 3.0))]
    np.testing.assert_allclose(collapse_spread(runs, GRID), 0, atol=1e-12)


def test_runs_of_other_timescales_do_not_collapse():
    runs = [surrogate_curve(recipe(tau=tau)) for tau in (0.05, 0.8)]
    assert collapse_spread(runs, GRID).max() > 0.02


def test_the_spread_is_zero_at_the_end_by_construction():
    runs = [surrogate_curve(recipe(tau=tau)) for tau in (0.05, 0.8)]
    assert collapse_spread(runs, [1.0])[0] == pytest.approx(0, abs=1e-12)


def test_the_noise_floor_of_seeds_is_their_relative_deviation():
    rng = np.random.default_rng(0)
    seeds = [surrogate_curve(recipe(), noise=0.02, rng=rng) for _ in range(40)]
    assert noise_floor(seeds, GRID[:-1] + 0.0055).mean() == pytest.approx(0.02 / np.sqrt(10), rel=0.1)


def test_a_spread_needs_two_runs_and_normalising_a_complete_one():
    with pytest.raises(ValueError, match="at least two seeds; found 1"):
        noise_floor([surrogate_curve(recipe())], GRID)
    with pytest.raises(ValueError, match="complete run"):
        normalised(surrogate_curve(recipe(), until=0.5), GRID)
