"""Synthetic families of known truth, for tests: the papers' surrogate plus whatever the test adds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hpo.core.curve import Curve
from hpo.core.metric import Metric
from hpo.core.recipe import Recipe
from hpo.core.schedules import Schedule, schedule
from hpo.core.surrogate import Surrogate

TRUE = Surrogate(b_c=0.2, b_e=-0.31, q_c=0.55, q_e=0.17)
LINEAR = schedule("linear")


def recipe(
    *, tau: float = 0.2, tpp: float = 20.0, n_params: float = 1e6, sched: Schedule = LINEAR, n_steps: int = 1000
) -> Recipe:
    tokens = n_params * tpp
    made = Recipe(
        schedule=sched, n_params=n_params, n_tokens=tokens, batch_tokens=tokens / n_steps, lr=1e-2, warmup_fraction=0.1
    )
    return made.with_tau(tau)


def surrogate_curve(
    made: Recipe,
    final: float = 3.0,
    *,
    until: float = 1.0,
    noise: float = 0.0,
    bend: Callable[[np.ndarray], np.ndarray] | None = None,
    rng: np.random.Generator | None = None,
    run_id: str = "run",
    family: str = "family",
    metric: Metric | None = None,
) -> Curve:
    """Return a curve final·ℓ̂(t̂)·exp(bend(t̂))·(1 + noise) of the true surrogate, cut at ``until``."""
    horizon = made.n_steps or 1
    steps = np.arange(1, horizon + 1)
    t = steps / horizon
    warmup = made.warmup_fraction or 0.0
    values = final * TRUE.normalised(
        t, made.schedule(t, warmup), float(made.schedule(1.0, warmup)), made.tau or 1.0, made.tpp or 1.0
    )
    if bend is not None:
        values = values * np.exp(bend(t))
    if noise:
        assert rng is not None
        values = values * (1 + noise * rng.standard_normal(horizon))
    seen = t <= until + 1e-12
    return Curve.from_points(
        steps[seen],
        values[seen],
        horizon=horizon,
        recipe=made,
        metric=metric or Metric(end="last"),
        run_id=run_id,
        family=family,
    )
