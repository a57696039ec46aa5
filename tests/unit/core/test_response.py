from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpo.core.learning_rate import GRID
from hpo.core.multi_power_law import MultiPowerLaw
from hpo.core.recipe import Recipe
from hpo.core.response import Blend, ResponseMean, fit_responses
from hpo.core.response_kernel import Kernel
from hpo.core.schedules import schedule

TRUE = ResponseMean(Kernel(2.5, -0.1, -3.0, 0.45, 2.9, 0.45, -0.8, -0.2, 1e-3), 1e8, 1e5, longest=1e9, rms=0.0)
SCHEDULES = [schedule("wsd", cooldown_fraction=c) for c in (0.1, 0.2, 0.4)] + [schedule("cosine", final_ratio=0.1)]


def recipe(lr=1e-3, n_steps=15_000, sched=SCHEDULES[0], **options):
    return Recipe(
        schedule=sched, lr=lr, n_params=1e8, batch_tokens=1e5, n_tokens=n_steps * 1e5, warmup_fraction=0.02, **options
    )


def sample(made):
    return made, TRUE.shape(made, GRID) + TRUE.final(made)


FOUR_A_RATE = [sample(recipe(lr, sched=s)) for lr in (5e-4, 1e-3, 2e-3) for s in SCHEDULES]
EIGHT_OF_ONE = [*FOUR_A_RATE, *(sample(recipe(1e-3, 20_000, sched=s)) for s in SCHEDULES)]


def test_several_rates_have_a_kernel_that_covers_all():
    (made,) = fit_responses(FOUR_A_RATE)
    assert isinstance(made.form, Kernel)
    assert made.rms < 5e-4
    assert made.covers(recipe(7e-3))


def test_a_rate_with_enough_runs_has_its_own_law_blended_in():
    blend, kernel = fit_responses(EIGHT_OF_ONE)
    assert isinstance(blend.form, Blend)
    assert blend.covers(recipe(1e-3))
    assert not blend.covers(recipe(2e-3))
    assert kernel.covers(recipe(2e-3))
    unseen = recipe(sched=schedule("linear"))
    law = blend.form.laws[0][1].log_losses(unseen, None)
    np.testing.assert_allclose(blend.form.log_losses(unseen, None), 0.5 * (law + kernel.form.log_losses(unseen, None)))


def test_runs_of_one_rate_have_the_multi_power_law_from_three_on():
    runs = [sample(recipe(sched=s)) for s in SCHEDULES[1:]]
    (made,) = fit_responses(runs)
    assert isinstance(made.form, MultiPowerLaw)
    assert made.covers(recipe(1.02e-3))
    assert not made.covers(recipe(2e-3))
    assert fit_responses(runs[:2]) == []


def test_few_runs_of_several_rates_have_a_kernel_between_these():
    (made,) = fit_responses([FOUR_A_RATE[0], *FOUR_A_RATE[5:7]])
    assert made.covers(recipe(7e-4, sched=SCHEDULES[3]))
    assert not made.covers(recipe(2e-3))
    assert not made.covers(recipe(1e-4))


def test_a_level_is_told_for_the_longest_reference_at_most():
    (made,) = fit_responses(FOUR_A_RATE)
    assert made.final(recipe(n_steps=60_000)) == pytest.approx(made.final(recipe(n_steps=15_000)), abs=2e-3)


def test_the_shape_is_zero_at_the_end():
    assert TRUE.shape(recipe(), np.array([1.0]))[0] == 0.0


@pytest.mark.parametrize(
    "other",
    [
        replace(recipe(), n_params=2e8),
        replace(recipe(), batch_tokens=2e5),
        replace(recipe(), lr=None),
        replace(recipe(), n_tokens=None),
    ],
)
def test_runs_of_another_size_or_batch_or_without_rate_or_steps_are_not_covered(other):
    assert not TRUE.covers(other)
    assert TRUE.covers(recipe())


@pytest.mark.parametrize(
    "runs",
    [
        FOUR_A_RATE[3:5],
        FOUR_A_RATE[::4],
        [sample(recipe())] * 6,
        [*FOUR_A_RATE, (replace(recipe(), n_params=5e8), FOUR_A_RATE[0][1])],
        [],
    ],
    ids=["too few", "too few of one schedule", "all alike", "two sizes", "none"],
)
def test_runs_that_do_not_suit_it_give_none(runs):
    assert fit_responses(runs) == []


@pytest.mark.parametrize("unit", [1e-3, 3.0])
def test_values_in_a_unit_of_their_own_have_the_mean_of_losses_in_it(unit):
    (loss,), (made,) = fit_responses(FOUR_A_RATE), fit_responses([(r, 7.0 + unit * y) for r, y in FOUR_A_RATE], unit)
    unseen = recipe(1.5e-3, 30_000, schedule("linear"))
    np.testing.assert_allclose(made.shape(unseen, GRID), unit * loss.shape(unseen, GRID), atol=1e-4 * unit)
    level = made.final(unseen) - made.final(recipe())
    assert level == pytest.approx(unit * (loss.final(unseen) - loss.final(recipe())), abs=1e-4 * unit)
    assert made.rms == pytest.approx(loss.rms, abs=1e-5)


def test_runs_of_one_schedule_and_length_need_no_mean():
    assert fit_responses([sample(recipe(lr)) for lr in np.geomspace(1e-4, 1e-2, 8)]) == []


def test_what_remains_of_a_loss_above_a_constant_has_a_floor_below_zero():
    def above(made, constant):
        return np.log(np.exp(TRUE.shape(made, GRID) + TRUE.final(made)) - constant)

    constant = 0.97 * float(np.exp(min(y[-1] for _, y in FOUR_A_RATE)))
    (made,) = fit_responses([(r, above(r, constant)) for r, _ in FOUR_A_RATE], 6.0)
    assert made.form.floor < 0
    assert (made.scale, made.unit) == (1.0, 6.0)
    unseen = recipe(1.5e-3, 18_000, schedule("linear"))
    truth = above(unseen, constant)
    np.testing.assert_allclose(made.shape(unseen, GRID[GRID > 0.1]), (truth - truth[-1])[GRID > 0.1], atol=0.06)
    (square,) = fit_responses([(r, 6.0 * y) for r, y in FOUR_A_RATE], 6.0)
    assert square.scale == square.unit == 6.0
