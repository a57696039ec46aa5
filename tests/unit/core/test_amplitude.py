"""How much runs differ in how far they fall is learned, and where they do a run's own fall tells what is to come."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpo.core.amplitude import BURN_IN, GRID, fit_amplitude, travelled
from hpo.core.curve import Curve
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel
from hpo.core.model_settings import ModelSettings
from hpo.core.shape import NODES, ShapeSettings

LATE = NODES >= 0.1
AGE = -np.log(NODES[LATE])
BROWNIAN = 1e-4 * np.minimum(AGE[:, None], AGE[None, :])
FALL = 0.6 * NODES[LATE] ** -0.3 - 0.6


def _errors(amplitude: float, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(BROWNIAN + 1e-12 * np.eye(len(BROWNIAN)))
    return amplitude * rng.standard_normal((n, 1)) * FALL + rng.standard_normal((n, len(FALL))) @ root.T


@pytest.mark.parametrize("amplitude", [0.0, 0.1, 0.4])
def test_the_spread_of_many_runs_is_found(amplitude):
    found = [fit_amplitude(_errors(amplitude, 30, seed), BROWNIAN, FALL, 30.0, 0.03) for seed in range(5)]
    assert np.mean(found) == pytest.approx(amplitude, rel=0.3, abs=0.02)


def test_one_run_tells_nothing_and_the_prior_is_small():
    assert fit_amplitude(np.zeros((1, len(FALL))), BROWNIAN, FALL, 0.0, 0.03) < 0.1


@given(st.floats(1e-4, 1.0), st.integers(1, 6), st.floats(0.0, 6.0), st.integers(0, 1000))
def test_it_stays_within_its_grid_and_zero_means_none(prior_sd, n, n_free, seed):
    errors = _errors(0.2, n, seed)
    assert 0.0 <= fit_amplitude(errors, BROWNIAN, FALL, n_free, prior_sd) <= GRID[-1]
    assert fit_amplitude(errors, BROWNIAN, FALL, n_free, 0.0) == 0.0


def test_the_curve_is_flat_before_burn_in_and_the_mean_after():
    rows = np.stack([NODES**-0.2 - 1.0, NODES**-0.4 - 1.0])
    found = travelled(rows, NODES)
    np.testing.assert_allclose(found[NODES >= BURN_IN], rows.mean(axis=0)[NODES >= BURN_IN])
    assert np.ptp(found[NODES < BURN_IN]) == 0.0
    assert np.all(np.diff(found) <= 0)


def _run(name: str, share: float, until: float = 1.0) -> Curve:
    """A run that falls ``share`` as far as the family, from where all start: t̂^-0.3, down to log loss 0."""
    steps = np.arange(1, 201)
    fall = (steps / 200) ** -0.3 - 1.0
    start = 0.0048**-0.3 - 1.0
    values = np.exp(start - share * (start - fall))
    seen = steps <= 200 * until
    return Curve.from_points(steps[seen], values[seen], horizon=200, run_id=name, metric=Metric("val_loss", end="last"))


def test_a_run_that_falls_half_as_far_is_forecast_from_its_own_fall():
    shares = (1.0, 0.8, 0.3, 1.2, 0.6)
    runs = [_run(f"r{i}", share) for i, share in enumerate(shares)]
    new = _run("new", 0.5, until=0.3)
    truth = float(np.log(_run("new", 0.5).final_loss))
    own = CollapseModel.fit(runs).forecast(new)
    without = ModelSettings(shape=replace(ShapeSettings(), amplitude_sd=0.0))
    common = CollapseModel.fit(runs, without).forecast(new)
    assert abs(own.level - truth) < 0.6 * abs(common.level - truth)
    assert abs(own.level - truth) < 2 * own.level_sd
