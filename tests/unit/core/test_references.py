from __future__ import annotations

import numpy as np
import pytest

from hpo.core.curve import Curve
from hpo.core.learning_rate import GRID
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel
from hpo.core.multi_power_law import MultiPowerLaw
from hpo.core.recipe import Recipe
from hpo.core.references import why_not_reference
from hpo.core.response import ResponseMean
from hpo.core.schedules import schedule
from hpo.core.shape import NODES

LAW = MultiPowerLaw(2.6, -0.6, 0.5, 5.0, -2.4, 0.7, 5.0, 0.6, 0.7, sum_unit=12.0)
SCHEDULES = [schedule("constant"), schedule("cosine"), schedule("wsd", cooldown_fraction=0.2), schedule("linear")]


def recipe(sched, n_steps=15_000, warmup=0.02, n_params=1e8, lr=1e-3):
    return Recipe(schedule=sched, lr=lr, n_params=n_params, batch_tokens=1e5, n_tokens=n_steps * 1e5, warmup_fraction=warmup)


def run(made, n_points=200, until=1.0, early=0.0):
    """Return the law's curve under a recipe, ``early`` too high before a tenth of training."""
    t = np.arange(1, n_points + 1) / n_points
    t = t[t <= until]
    y = np.interp(t, GRID, LAW.log_losses(made, None)) + early * (t < 0.1)
    steps = made.n_tokens / made.batch_tokens
    name = f"{made.schedule}{made.n_params}{made.lr}{steps}"
    return Curve.from_points(t * steps, np.exp(y), horizon=steps, recipe=made, run_id=name, metric=Metric(end="last"))


@pytest.fixture(scope="module")
def two_sizes():
    return CollapseModel.fit([run(recipe(s, n_params=n)) for s in SCHEDULES for n in (1e8, 3e8)])


def test_each_size_has_a_response_mean_of_its_own(two_sizes):
    joined = [f for f in two_sizes.families if f.response is not None]
    assert sorted(f.response.n_params for f in joined) == [1e8, 3e8]
    assert all(len(f.references) == len(SCHEDULES) for f in joined)


def test_a_schedule_never_seen_is_forecast_along_it(two_sizes):
    made = recipe(schedule("wsd", cooldown_fraction=0.5))
    found = two_sizes.forecast(run(made, until=0.3))
    assert found.status == "ok"
    assert found.final_loss == pytest.approx(float(np.exp(LAW.log_losses(made, None)[-1])), rel=0.004)
    assert found.lower < found.final_loss < found.upper


def test_few_points_bend_no_reference_that_follows_the_mean():
    model = CollapseModel.fit([run(recipe(s), n_points=12) for s in SCHEDULES])
    (joined,) = [f for f in model.families if f.response is not None]
    exact = ResponseMean(LAW, 1e8, 1e5, longest=15_000, rms=0.0, rates=(1e-3,))
    family = type(joined)(joined.references, joined.settings, exact)
    late = NODES >= 0.1
    for reference in family.references:
        between = family._mean_between_points(reference)
        np.testing.assert_allclose(reference.residuals[late], between[late], atol=1e-4)
        assert np.max(np.abs(reference.residuals - exact.shape(reference.recipe, NODES))[late]) > 2e-3  # a line is no curve


def test_burn_in_is_left_out_under_one_rate():
    slow = [recipe(s, warmup=0.08) for s in SCHEDULES]
    quiet, odd = (CollapseModel.fit([run(r, early=early) for r in slow]) for early in (0.0, 0.3))
    target = run(recipe(schedule("constant"), n_steps=45_000, warmup=0.08 / 3), until=0.3)
    found = [model.forecast(target).final_loss for model in (quiet, odd)]
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_a_rate_with_enough_runs_bends_curves_but_levels_come_from_all_rates():
    known = [recipe(s, lr=lr) for s in [*SCHEDULES, schedule("wsd", cooldown_fraction=0.5)] for lr in (1e-3, 2e-3)]
    model = CollapseModel.fit([run(r) for r in known])
    home = model.family_of(run(recipe(schedule("wsd", cooldown_fraction=0.8)), until=0.3))
    assert sorted(home.response.rates) == pytest.approx([1e-3, 2e-3])
    landscape, response = model.landscape_of(known, "", Metric(end="last"))
    assert landscape is not None
    assert response.rates is None


def test_sparse_logs_that_end_a_report_early_teach_but_no_run_counts_as_ended_for_that():
    def sparse(final, until=1.0):
        steps = np.arange(0, int(15_000 * until), 600)
        values = final * (1.0 + 0.3 * (np.maximum(steps / 15_000, 0.01) ** -0.3 - 1.0))
        return Curve.from_points(steps, values, horizon=15_000, metric=Metric("val_loss", end="last"), run_id=f"r{final}")

    references = [sparse(final) for final in (2.0, 2.1, 2.2, 2.3)]
    assert [why_not_reference(one) for one in references] == [None] * 4
    model = CollapseModel.fit(references)
    assert len(model.references) == 4
    running = model.forecast(sparse(2.4))
    assert running.status == "ok"
    assert running.level_sd > 0
    assert running.final_loss == pytest.approx(sparse(2.4).current_value, rel=0.01)


def test_a_timescale_may_be_known_where_the_size_is_not():
    def of(rate, until=1.0):
        made = Recipe(schedule=schedule("linear"), batch_tokens=5e4, n_tokens=5e7, lr=rate, weight_decay=0.1)
        steps = np.arange(1, 1 + int(1000 * until))
        return Curve.from_points(steps, 3.0 * (steps / 1000) ** -0.1, horizon=1000, recipe=made, run_id=f"{rate:g}")

    model = CollapseModel.fit([of(rate) for rate in (1e-3, 2e-3, 3e-3)])
    found = model.forecast(of(1.5e-3, until=0.3))
    assert found.final_loss == pytest.approx(3.0, rel=0.01)
    assert found.controls == ("log_tau",)
