"""Forecasts of metrics that are no log losses: the same runs told otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from hpo.core.curve import Curve
from hpo.core.learning_rate import GRID
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel
from hpo.core.recipe import Recipe
from hpo.core.response_kernel import Kernel
from hpo.core.schedules import schedule

TRUE = Kernel(2.5, -0.1, -3.0, 0.45, 2.9, 0.45, -0.8, -0.2, 1e-3)
SCHEDULES = [schedule("wsd", cooldown_fraction=c) for c in (0.1, 0.2, 0.4)] + [schedule("cosine", final_ratio=0.1)]
LOSS = Metric(end="last")
NEGATED = Metric("score", "identity", "last", "max")
COPIES = {
    "negated": (lambda x: -x, NEGATED),
    "in percent": (lambda x: 5e3 - 1e3 * x, NEGATED),
    "perplexity": (np.exp, LOSS),
    "accuracy": (lambda x: np.exp(-x), Metric("accuracy", "log1m", "last", "max")),
}


def recipe(sched, lr=1e-3, n_steps=15_000):
    return Recipe(schedule=sched, lr=lr, n_params=1e8, batch_tokens=1e5, n_tokens=n_steps * 1e5, warmup_fraction=0.02)


def loss_of(made, t):
    return np.interp(t, GRID, TRUE.losses(made, None))


def run(made, told=lambda x: x, metric=LOSS, until=1.0):
    t = np.arange(1, int(150 * until) + 1) / 150
    noise = np.random.default_rng(made.n_steps + int(1e7 * made.lr)).standard_normal(150)[: t.size]
    values = told(loss_of(made, t) * (1.0 + 0.001 * noise))
    return Curve.from_points(t * made.n_steps, values, horizon=made.n_steps, recipe=made, run_id=str(made), metric=metric)


REFERENCES = [recipe(s, lr) for s in SCHEDULES for lr in (5e-4, 1e-3, 2e-3)]
TARGETS = [recipe(SCHEDULES[0], 1.5e-3, 25_000), recipe(schedule("linear"), 1e-3, 25_000)]


def forecasts(told, metric):
    model = CollapseModel.fit([run(made, told, metric) for made in REFERENCES])
    return model.forecast_many([run(made, told, metric, 0.3) for made in TARGETS], np.random.default_rng(0)).forecasts


@pytest.mark.parametrize("name", COPIES)
def test_runs_told_otherwise_are_forecast_as_well_also_along_schedules_never_seen(name):
    told, metric = COPIES[name]
    for found, made in zip(forecasts(told, metric), TARGETS, strict=True):
        low, high = (told(loss_of(made, 1.0) * share) for share in (0.993, 1.007))
        assert min(low, high) < found.final_loss < max(low, high)
        assert found.lower < told(loss_of(made, 1.0)) < found.upper


def test_values_without_a_log_have_no_unit():
    one, many = forecasts(lambda x: -x, NEGATED), forecasts(lambda x: 1e6 - 4e3 * x, NEGATED)
    for a, b in zip(one, many, strict=True):
        assert b.final_loss == pytest.approx(1e6 + 4e3 * a.final_loss, abs=4.0)
        assert b.sd == pytest.approx(4e3 * a.sd, rel=0.02)
