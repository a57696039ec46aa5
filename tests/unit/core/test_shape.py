from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic import recipe, surrogate_curve

from hpo.core.coordinates import Coordinates, coordinates_of, size_coordinate
from hpo.core.noise import CurveNoise
from hpo.core.schedules import schedule
from hpo.core.shape import NODES, ShapeSettings, common_controls, residuals_at_nodes, run_kernel
from hpo.core.shape_fit import fit_shape

SETTINGS = ShapeSettings(mean="none")
RECIPES = [recipe(tau=tau, n_params=n) for tau in (0.05, 0.1, 0.2, 0.4) for n in (1e5, 3e5)]
RUNS = [coordinates_of(r) for r in RECIPES]
ROWS = np.stack([residuals_at_nodes(surrogate_curve(r)) for r in RECIPES])
CONTROLS = common_controls(RUNS, SETTINGS)


def test_a_run_of_known_controls_is_predicted_between_its_neighbours():
    shape = fit_shape(ROWS, RUNS, CONTROLS, SETTINGS)
    made = recipe(tau=0.14, n_params=2e5)
    mean, _, _ = shape.predict([coordinates_of(made)])
    truth = residuals_at_nodes(surrogate_curve(made))
    late = shape.nodes >= 0.1
    np.testing.assert_allclose(mean[0][late], truth[NODES >= 0.1], atol=2e-3)


def test_the_misfit_is_pinned_at_the_end_and_grows_backwards():
    sd = np.sqrt(np.diag(fit_shape(ROWS, RUNS, CONTROLS, SETTINGS).covariance))
    assert sd[-1] < 0.2 * sd[20]


def test_more_references_leave_less_uncertainty_about_the_shape():
    loads = [
        np.sum(fit_shape(ROWS[:n], RUNS[:n], CONTROLS, SETTINGS).predict([coordinates_of(recipe(tau=0.14))])[1] ** 2)
        for n in (3, 8)
    ]
    assert loads[1] < loads[0]


def test_shared_and_own_parts_add_up_to_the_whole_variance():
    shape = fit_shape(
        ROWS, RUNS, CONTROLS, replace(SETTINGS, template_sd=10.0)
    )  # of the usual 1000, this way of summing loses digits
    many = [coordinates_of(recipe(tau=t, n_params=n)) for t in np.geomspace(0.03, 1, 5) for n in (1e6, 1e7, 1e8)]
    _, loadings, own = shape.predict(many)
    template = 10.0**2
    cross = template + run_kernel(many, shape.runs, CONTROLS, shape.centre, SETTINGS)
    across = template + run_kernel(many, many, CONTROLS, shape.centre, SETTINGS) - cross @ shape.inverse @ cross.T
    np.testing.assert_allclose(np.sum(loadings**2, axis=1) + own, np.diag(across) + 1, rtol=1e-5)


def test_a_large_template_costs_no_digits():
    many = [coordinates_of(recipe(tau=t, n_params=n)) for t in np.geomspace(0.03, 1, 5) for n in (1e6, 1e7, 1e8)]
    usual, huge = (fit_shape(ROWS, RUNS, CONTROLS, replace(SETTINGS, template_sd=sd)).predict(many) for sd in (1e3, 1e5))
    for part, of_huge in zip(usual, huge, strict=True):
        np.testing.assert_allclose(part, of_huge, rtol=1e-4, atol=1e-6)


def test_another_schedule_is_believed_less():
    shape = fit_shape(ROWS, RUNS, CONTROLS, SETTINGS)
    same, other = (coordinates_of(recipe(sched=s)) for s in (schedule("linear"), schedule("constant")))
    _, loadings, own = shape.predict([same])
    _, loadings2, own2 = shape.predict([other])
    assert np.sum(loadings2**2) + own2 > np.sum(loadings**2) + own + 5


def test_controls_that_a_run_lacks_are_not_used():
    assert common_controls([*RUNS, Coordinates({"log_n": 1.0})], SETTINGS) == ("log_n",)


def test_interpolation_is_exact_at_nodes_and_zero_at_the_end():
    shape = fit_shape(ROWS, RUNS, CONTROLS, SETTINGS)
    values = np.arange(shape.nodes.size, dtype=float)
    np.testing.assert_allclose(shape.interpolation(shape.nodes) @ values, values, atol=1e-9)
    assert shape.interpolation(np.array([1.0])) @ values == pytest.approx(0.0)


@pytest.mark.parametrize(("name", "value"), [("brownian_sd", -1.0), ("covariance_weight", float("nan")), ("mean", "median")])
def test_impossible_settings_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        ShapeSettings(**{name: value})


@pytest.mark.parametrize("groups", [False, True])
def test_leave_out_errors_are_those_of_a_fit_without_them(groups):
    """The closed form behind the calibration, against fits that really leave the runs out."""
    shape = fit_shape(ROWS, RUNS, CONTROLS, SETTINGS)
    part = [1, 3, 5, 7] if groups else [3]
    rest = [i for i in range(len(RUNS)) if i not in part]
    closed = (np.linalg.inv(shape.inverse[np.ix_(part, part)]) @ shape.solved[part])[:, -50]
    kernel = SETTINGS.template_sd**2 + run_kernel(RUNS, RUNS, CONTROLS, shape.centre, SETTINGS)
    weights = kernel[np.ix_(part, rest)] @ np.linalg.inv(kernel[np.ix_(rest, rest)] + np.eye(len(rest)))
    column = np.flatnonzero(shape.nodes[-50] == NODES)[0]
    np.testing.assert_allclose(closed, ROWS[part, column] - weights @ ROWS[rest, column], rtol=1e-5, atol=1e-9)


def test_forecasts_are_widened_where_the_references_would_have_been_missed():
    rng = np.random.default_rng(0)
    age = -np.log(NODES)
    wild = ROWS + 0.2 * rng.standard_normal((len(ROWS), 1)) * age * (np.arange(len(ROWS)) % 2)[:, None]
    calm, missed = (fit_shape(rows, RUNS, CONTROLS, SETTINGS).calibration(0.2) for rows in (ROWS, wild))
    assert calm < 1.0
    assert missed > calm


def test_sizes_are_apart_by_their_logs_once_a_family_collapses_and_by_more_below():
    small, large = (size_coordinate(1.1 * n) - size_coordinate(n) for n in (1e5, 1e9))
    assert large == pytest.approx(np.log(1.1), rel=0.06)
    assert 4 < small / large < 8


def test_tau_is_not_used_where_a_schedule_is_unknown():
    unknown = [Coordinates(run.controls) for run in RUNS]
    assert "log_tau" in common_controls(RUNS, SETTINGS)
    assert "log_tau" not in common_controls([*RUNS, unknown[0]], SETTINGS)


def test_two_runs_that_scatter_widely_are_not_explained_by_tau():
    """Half a unit of log loss apart at τ twofold apart: a run at τ sixteenfold must not be forecast eight times as far off."""
    rows = np.stack([scale * -np.log(NODES) for scale in (0.1, 0.6)])
    runs = [coordinates_of(recipe(tau=tau)) for tau in (0.1, 0.2)]
    shape = fit_shape(rows, runs, ("log_tau",), SETTINGS)
    mean, _, _ = shape.predict([coordinates_of(recipe(tau=1.6))])
    assert np.max(np.abs(mean[0])) < 2 * np.max(np.abs(rows))
    assert dict(shape.settings.effect_sd)["log_tau"] < 0.2 * dict(SETTINGS.effect_sd)["log_tau"]


@pytest.mark.parametrize(
    ("name", "found"),
    [("brownian_sd", -1.0), ("schedule_sd", np.inf), ("schedule_length", 0.0), ("scale_dof", 0.0), ("scale_weight", np.nan)],
)
def test_settings_outside_their_range_are_named(name, found):
    with pytest.raises(ValueError, match=rf"{name} must be .*; found {found!r}"):
        ShapeSettings(**{name: found})


def test_one_reference_that_begins_late_costs_the_others_nothing():
    late = ROWS.copy()
    late[3, NODES < 0.15] = np.nan
    whole, found = (fit_shape(rows, RUNS, CONTROLS, SETTINGS) for rows in (ROWS, late))
    np.testing.assert_array_equal(found.nodes, whole.nodes)
    new = [coordinates_of(recipe(tau=0.14, n_params=2e5))]
    np.testing.assert_allclose(found.predict(new)[0], whole.predict(new)[0], atol=0.05)
    early = found.nodes >= 0.15
    np.testing.assert_allclose(found.predict(new)[0][0][early], whole.predict(new)[0][0][early], atol=2e-3)


def test_a_gap_in_a_reference_leaves_no_gap_in_the_shape():
    """As in a model file that somebody has edited."""
    gaps = ROWS.copy()
    gaps[:, NODES < 0.1] = np.nan
    gaps[2, NODES.size - 20] = np.nan
    gaps[5, NODES.size - 1] = np.nan
    shape = fit_shape(gaps, RUNS, CONTROLS, SETTINGS)
    assert shape.nodes.size > 80
    assert np.all(np.isfinite(shape.solved))


def test_references_that_all_begin_late_leave_no_early_nodes():
    late = ROWS.copy()
    late[:4, NODES < 0.15] = np.nan
    assert fit_shape(late, RUNS, CONTROLS, SETTINGS).nodes[0] >= 0.15


def _noisy(sd: float, shared: float = 0.0, seed: int = 0) -> tuple[np.ndarray, list[CurveNoise]]:
    """Rows whose final values are off by ``sd`` each and by ``shared`` together, and that noise as it is told."""
    rng = np.random.default_rng(seed)
    off = sd * rng.standard_normal((len(ROWS), 1)) + shared * rng.standard_normal()
    point = sd**2 + shared**2
    noise = CurveNoise(point, point, NODES, np.full(NODES.size, point / 100))
    return ROWS - off, [noise] * len(ROWS)


def test_noise_of_final_values_is_not_taken_for_effects():
    new = [coordinates_of(recipe(tau=0.7, n_params=2e5))]
    truth = fit_shape(ROWS, RUNS, CONTROLS, SETTINGS).predict(new)[0][0]
    made = [_noisy(0.02, seed=seed) for seed in range(12)]
    told, hidden = ([fit_shape(rows, RUNS, CONTROLS, SETTINGS, noises=n if t else ()) for rows, n in made] for t in (1, 0))
    errors = [np.std([(fit.predict(new)[0][0] - truth)[fit.nodes >= 0.1] for fit in fits]) for fits in (told, hidden)]
    assert errors[0] < 0.95 * errors[1]


def test_noise_that_all_references_share_leaves_effects_as_they_are():
    rows, noises = _noisy(0.0, 0.02)
    shape = fit_shape(rows, RUNS, CONTROLS, SETTINGS, noises=noises)
    assert shape.inflation == pytest.approx(1.0, abs=0.3)
