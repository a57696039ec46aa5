from __future__ import annotations

import numpy as np
import pytest

from hpo.core.learning_rate import GRID
from hpo.core.multi_power_law import _CONSTANTS, MultiPowerLaw, _Drives, drive_of, fit_multi_power_law
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule

TRUE = MultiPowerLaw(
    floor=2.6,
    log_progress=-0.6,
    exponent=0.5,
    log_burn_in=5.0,
    log_excess=-2.4,
    fall_exponent=0.7,
    log_memory=5.0,
    memory_rate=0.6,
    memory_exponent=0.7,
    sum_unit=12.0,
)


def recipe(sched, n_steps=15_000, warmup=0.02):
    return Recipe(schedule=sched, lr=1e-3, n_params=1e8, batch_tokens=1e5, n_tokens=n_steps * 1e5, warmup_fraction=warmup)


KNOWN = [recipe(schedule("constant")), recipe(schedule("cosine")), recipe(schedule("wsd", cooldown_fraction=0.2))]


def fitted(recipes=KNOWN, early=0.0):
    """Return the fit to the true law's curves, ``early`` too high in their first tenth."""
    return fit_multi_power_law(recipes, np.stack([TRUE.log_losses(r, None) + early * (GRID < 0.1) for r in recipes]))


def test_three_runs_of_one_rate_tell_it():
    assert fitted()[1] < 1e-3


@pytest.mark.parametrize(
    "unseen",
    [
        recipe(schedule("linear")),
        recipe(schedule("wsd", cooldown_fraction=0.6)),
        recipe(schedule("constant"), n_steps=45_000),
        recipe(schedule("cosine", final_ratio=0.1), n_steps=45_000),
    ],
    ids=["linear", "long cooldown", "three times longer", "cosine, three times longer"],
)
def test_unseen_schedules_and_horizons_are_predicted(unseen):
    made, true = fitted()[0].log_losses(unseen, None), TRUE.log_losses(unseen, None)
    late = GRID >= 0.1
    np.testing.assert_allclose((made - made[-1])[late], (true - true[-1])[late], atol=0.006)


def test_what_comes_before_the_end_of_burn_in_does_not_matter():
    slow = [recipe(r.schedule, warmup=0.08) for r in KNOWN]
    quiet, odd = fitted(slow)[0], fitted(slow, early=0.3)[0]
    for unseen in (recipe(schedule("linear")), recipe(schedule("constant"), n_steps=45_000)):
        np.testing.assert_allclose(quiet.log_losses(unseen, None), odd.log_losses(unseen, None), atol=1e-6)
    assert quiet.begins(slow[0]) == pytest.approx(0.12)


def test_a_constant_rate_has_no_falls_and_warm_up_is_none():
    assert drive_of(recipe(schedule("constant"))).before.size == 0


def test_a_sudden_fall_is_one_fall():
    made = drive_of(recipe(schedule("step", milestones=(0.5,), factor=0.1)))
    assert 1 <= made.before.size <= 2
    assert made.before[0] == pytest.approx(1.0)
    assert made.after[-1] == pytest.approx(0.1)


def test_falls_add_up_to_the_whole_fall():
    made = drive_of(recipe(schedule("cosine", final_ratio=0.1)))
    assert float(np.sum(made.before - made.after)) == pytest.approx(0.9, abs=1e-6)
    assert np.all(np.diff(made.since, axis=0) >= 0)


def test_the_gradient_is_that_of_the_losses():
    drives = _Drives.of([drive_of(r) for r in KNOWN], 12.0)
    theta = np.array([getattr(TRUE, name) for name in _CONSTANTS])
    made = drives.gradient(theta)
    for k in range(theta.size):
        step = 1e-6 * np.eye(theta.size)[k]
        by_steps = (drives.losses(theta + step) - drives.losses(theta - step)) / 2e-6
        np.testing.assert_allclose(made[:, :, k], by_steps, atol=1e-7)
