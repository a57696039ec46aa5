from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpo.core.recipe import Recipe
from hpo.core.response import GRID, ResponseMean, drive_of, fit_response
from hpo.core.schedules import schedule

TRUE = ResponseMean(
    floor=2.5,
    log_progress=-0.1,
    log_offset=-3.0,
    exponent=0.45,
    log_excess=2.9,
    rate_exponent=0.45,
    log_memory=-0.8,
    peak_exponent=-0.2,
    peak_unit=1e-3,
    n_params=1e8,
    batch_tokens=1e5,
    longest=1e9,
    rms=0.0,
)
SCHEDULES = [schedule("wsd", cooldown_fraction=c) for c in (0.1, 0.2, 0.4)] + [schedule("cosine", final_ratio=0.1)]


def recipe(lr=1e-3, n_steps=15_000, sched=SCHEDULES[0], **options):
    return Recipe(
        schedule=sched, lr=lr, n_params=1e8, batch_tokens=1e5, n_tokens=n_steps * 1e5, warmup_fraction=0.02, **options
    )


def sample(made):
    return made, TRUE.log_shape(made, GRID) + TRUE.log_final(made)


REFERENCES = [sample(recipe(lr, sched=s)) for lr in (5e-4, 1e-3, 2e-3) for s in SCHEDULES]


def test_the_fit_reproduces_runs_of_its_own_kind():
    made = fit_response(REFERENCES)
    assert made.rms < 5e-4


@pytest.mark.parametrize(
    "unseen",
    [recipe(sched=schedule("linear")), recipe(n_steps=30_000), recipe(lr=1.5e-3, sched=schedule("wsd", cooldown_fraction=0.8))],
)
def test_unseen_schedules_horizons_and_rates_are_predicted(unseen):
    made = fit_response(REFERENCES)
    late = GRID >= 0.1
    np.testing.assert_allclose(made.log_shape(unseen, GRID)[late], TRUE.log_shape(unseen, GRID)[late], atol=0.004)


def test_levels_are_ranked_as_the_truth_ranks_them():
    made = fit_response(REFERENCES)
    grid = [recipe(lr, sched=schedule("wsd", cooldown_fraction=0.9)) for lr in (5e-4, 1e-3, 2e-3)]
    assert np.argsort([made.log_final(r) for r in grid]).tolist() == np.argsort([TRUE.log_final(r) for r in grid]).tolist()


def test_a_level_is_told_for_the_longest_reference_at_most():
    made = fit_response(REFERENCES)
    assert made.log_final(recipe(n_steps=60_000)) == pytest.approx(made.log_final(recipe(n_steps=15_000)), abs=2e-3)


def test_the_shape_is_zero_at_the_end():
    assert TRUE.log_shape(recipe(), np.array([1.0]))[0] == 0.0


def test_the_summed_rate_of_a_constant_schedule_is_rate_times_steps():
    made = drive_of(replace(recipe(sched=schedule("constant")), warmup_fraction=0.0))
    assert made.summed[-1] == pytest.approx(1e-3 * 15_000)


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
        REFERENCES[:4],
        [sample(recipe())] * 6,
        [*REFERENCES, (replace(recipe(), n_params=5e8), REFERENCES[0][1])],
    ],
    ids=["too few", "all alike", "two sizes"],
)
def test_runs_that_do_not_suit_it_give_none(runs):
    assert fit_response(runs) is None
