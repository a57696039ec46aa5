from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpo.core.learning_rate import GRID
from hpo.core.recipe import Recipe
from hpo.core.response_kernel import Kernel, drive_of, fit_kernel
from hpo.core.schedules import schedule

TRUE = Kernel(
    floor=2.5,
    log_progress=-0.1,
    log_offset=-3.0,
    exponent=0.45,
    log_excess=2.9,
    rate_exponent=0.45,
    log_memory=-0.8,
    peak_exponent=-0.2,
    peak_unit=1e-3,
)
SCHEDULES = [schedule("wsd", cooldown_fraction=c) for c in (0.1, 0.2, 0.4)] + [schedule("cosine", final_ratio=0.1)]


def recipe(lr=1e-3, n_steps=15_000, sched=SCHEDULES[0], **options):
    return Recipe(
        schedule=sched, lr=lr, n_params=1e8, batch_tokens=1e5, n_tokens=n_steps * 1e5, warmup_fraction=0.02, **options
    )


REFERENCES = [recipe(lr, sched=s) for lr in (5e-4, 1e-3, 2e-3) for s in SCHEDULES]


def fitted():
    return fit_kernel(REFERENCES, np.stack([TRUE.log_losses(r, None) for r in REFERENCES]))


def test_the_fit_reproduces_runs_of_its_own_kind():
    assert fitted()[1] < 5e-4


@pytest.mark.parametrize(
    "unseen",
    [recipe(sched=schedule("linear")), recipe(n_steps=30_000), recipe(lr=1.5e-3, sched=schedule("wsd", cooldown_fraction=0.8))],
)
def test_unseen_schedules_horizons_and_rates_are_predicted(unseen):
    made, true = fitted()[0].log_losses(unseen, None), TRUE.log_losses(unseen, None)
    late = GRID >= 0.1
    np.testing.assert_allclose((made - made[-1])[late], (true - true[-1])[late], atol=0.004)


def test_levels_are_ranked_as_the_truth_ranks_them():
    made, _ = fitted()
    grid = [recipe(lr, sched=schedule("wsd", cooldown_fraction=0.9)) for lr in (5e-4, 1e-3, 2e-3)]
    ends = [[form.log_losses(r, 15_000.0)[-1] for r in grid] for form in (made, TRUE)]
    assert np.argsort(ends[0]).tolist() == np.argsort(ends[1]).tolist()


def test_the_summed_rate_of_a_constant_schedule_is_rate_times_steps():
    made = drive_of(replace(recipe(sched=schedule("constant")), warmup_fraction=0.0))
    assert made.summed[-1] == pytest.approx(1e-3 * 15_000)
