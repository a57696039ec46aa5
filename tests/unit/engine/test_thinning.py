"""Thinned reports: which steps pass, and that their means lose nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hpo.engine.thinning import thinned


def _losses(n: int) -> list[float]:
    return [float(x) for x in 3 + np.random.default_rng(0).normal(size=n)]


def test_about_so_many_reports_pass_and_the_last_step_always():
    reports = thinned(range(1, 998), _losses(997), 1000, 997, 100, 0)
    assert [r.step for r in reports] == [*range(10, 991, 10), 997]


def test_the_means_weighted_by_their_steps_are_the_mean_of_all_losses():
    losses = _losses(1000)
    reports = thinned(range(1, 1001), losses, 1000, 1000, 100, 5)
    sizes = np.diff([0, *(r.step for r in reports)])
    assert np.average([r.mean_loss for r in reports], weights=sizes) == pytest.approx(np.mean(losses))
    assert np.average([r.mean_step for r in reports], weights=sizes) == pytest.approx(500.5)


def test_the_last_per_cent_is_told_in_parts_whose_mean_is_the_final_loss():
    losses = _losses(1000)
    reports = thinned(range(1, 1001), losses, 1000, 1000, 100, 5)
    assert [r.step for r in reports[-5:]] == [992, 994, 996, 998, 1000]
    assert np.mean([r.mean_loss for r in reports[-5:]]) == pytest.approx(np.mean(losses[-10:]))


def test_a_non_finite_loss_passes_at_its_step_and_is_not_carried_on():
    losses = [1.0] * 20
    losses[13] = math.nan
    reports = thinned(range(1, 21), losses, 200, 20, 20, 0)
    assert [r.step for r in reports] == [10, 14, 20]
    assert math.isnan(reports[1].mean_loss)
    assert reports[2].mean_loss == 1.0


def test_a_run_of_few_steps_passes_every_one():
    assert [r.step for r in thinned(range(1, 8), [1.0] * 7, 7, 7, 100, 5)] == list(range(1, 8))


@pytest.mark.parametrize("every", [5, 7, 10])
def test_a_run_that_reports_every_few_steps_is_told_of_as_often(every):
    """Steps 5, 15, 25, … have no multiple of 6 among them, which a stride of a run of 600 steps is."""
    steps = range(5, 601, every)
    reports = thinned(steps, [1.0] * len(steps), 600, 600, 100, 0)
    passed = [r.step for r in reports]
    assert len(passed) >= len(steps) * min(1.0, every / 6) - 2
    assert np.max(np.diff([0, *passed])) <= max(every, 6) + every
