"""Laws of the core: what no input may break."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import recipe, surrogate_curve

from hpo.core.curve import Curve, CurveStream
from hpo.core.decision import StoppingSettings, SweepState, decide
from hpo.core.forecast import judged_forecast
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel

TAUS = (0.05, 0.1, 0.2, 0.4)
REFERENCES = [surrogate_curve(recipe(tau=t, n_params=n), 3 + t, run_id=f"{t}{n}") for t in TAUS for n in (1e5, 3e5)]
MODEL = CollapseModel.fit(REFERENCES)
SETTINGS = StoppingSettings()
points = st.lists(
    st.tuples(st.integers(0, 500), st.one_of(st.floats(0.1, 10), st.sampled_from([float("nan"), float("inf")]))),
    min_size=1,
    max_size=80,
)


def same(a: Curve, b: Curve) -> None:
    for name in ("fractions", "means", "variances", "counts"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-9, atol=1e-12, err_msg=name)
    for name in ("n_points", "last_step", "nonfinite_step", "diverging", "is_complete"):
        assert getattr(a, name) == getattr(b, name), name
    np.testing.assert_allclose(a.current_value, b.current_value, rtol=1e-9)


@given(points)
def test_a_stream_equals_the_batch(pairs):
    steps, values = zip(*pairs, strict=True)
    batch = Curve.from_points(steps, values, horizon=500)
    stream = CurveStream(horizon=500)
    first = dict(reversed(pairs))
    for step in sorted(first):
        stream.add(step, first[step])
    same(stream.snapshot(), batch)


@given(points, st.randoms(use_true_random=False))
def test_the_order_of_distinct_points_does_not_matter(pairs, random):
    distinct = list(dict(pairs).items())
    shuffled = random.sample(distinct, len(distinct))
    same(*(Curve.from_points(*zip(*p, strict=True), horizon=500) for p in (distinct, shuffled)))


@given(points, st.sampled_from([0.5, 2.0, 4.0, 1024.0]))
def test_rescaled_steps_give_the_same_curve(pairs, factor):
    steps, values = (np.array(x, dtype=float) for x in zip(*pairs, strict=True))
    a = Curve.from_points(steps, values, horizon=500)
    b = Curve.from_points(steps * factor, values, horizon=500 * factor)
    same(a, replace(b, horizon=a.horizon, last_step=a.last_step, nonfinite_step=a.nonfinite_step))


@settings(max_examples=20)
@given(st.floats(0.01, 100), st.floats(0.12, 0.8))
def test_scaling_all_losses_scales_the_forecast(factor, until):
    prefix = surrogate_curve(recipe(tau=0.15), 2.0, until=until)
    scaled = replace(prefix, means=prefix.means * factor, variances=prefix.variances * factor**2)
    a, b = MODEL.forecast(prefix), MODEL.forecast(scaled)
    assert b.final_loss == pytest.approx(factor * a.final_loss, rel=1e-6)
    assert b.sd == pytest.approx(factor * a.sd, rel=1e-4)


@settings(max_examples=10)
@given(st.permutations(REFERENCES))
def test_the_order_of_references_does_not_matter(order):
    prefix = surrogate_curve(recipe(tau=0.15), 2.0, until=0.2)
    assert CollapseModel.fit(order).forecast(prefix) == MODEL.forecast(prefix)


@given(st.floats(-2, 2), st.floats(0, 1), st.floats(1e-4, 0.2), st.floats(-2, 2), st.floats(0, 0.05))
def test_a_better_forecast_is_never_stopped_where_a_worse_one_continues(level, worse_by, sd, best, spent):
    curve = surrogate_curve(recipe(), until=0.2)
    state = SweepState(best, spent)
    better, worse = (
        decide(curve, judged_forecast(curve, at, sd, 10.0, n_references=5), state, SETTINGS) for at in (level, level + worse_by)
    )
    if better.action == "stop":
        assert worse.action == "stop"


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=40), st.integers(0, 2**32 - 1))
def test_a_sweep_never_spends_more_than_its_budget(levels, seed):
    rng = np.random.default_rng(seed)
    curve, state = surrogate_curve(recipe(), until=0.2), SweepState(0.0)
    for level in levels:
        made = decide(
            curve, judged_forecast(curve, level, float(rng.uniform(0.01, 0.5)), 10.0, n_references=5), state, SETTINGS
        )
        state = replace(state, error_spent=state.error_spent + made.error_spent)
    assert state.error_spent <= SETTINGS.alpha


@given(points)
def test_maximising_the_negative_is_minimising(pairs):
    steps, values = (np.array(x, dtype=float) for x in zip(*pairs, strict=True))
    low = Curve.from_points(steps, values, horizon=500, metric=Metric("x", "identity", "last"))
    high = Curve.from_points(steps, -values, horizon=500, metric=Metric("x", "identity", "last", "max"))
    np.testing.assert_allclose(low.metric.to_model(low.means), high.metric.to_model(high.means), rtol=1e-12)


def _bent(rng, name, tau, until=1.0):
    """A run with a misfit as the model has it: a Brownian motion in −log t̂ of sd .01."""
    steps = rng.standard_normal(recipe(tau=tau).n_steps)

    def bend(t):
        age = -np.log(t)[::-1]
        return 0.01 * np.cumsum(steps[: t.size] * np.sqrt(np.diff(age, prepend=0.0)))[::-1]

    return surrogate_curve(recipe(tau=tau), 3.0, until=until, bend=bend, run_id=name)


@pytest.mark.parametrize("n_references", [6, 12, 24])
def test_intervals_cover_about_nine_in_ten_when_the_model_is_true(n_references):
    """Over 30 families of 6 runs each; within one family errors are common, so one alone may miss with all of its runs."""
    hits = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        taus = np.geomspace(0.08, 0.25, n_references)
        model = CollapseModel.fit([_bent(rng, f"r{k}", float(tau)) for k, tau in enumerate(taus)])
        forecasts = [model.forecast(_bent(rng, str(k), 0.15, until=0.3)) for k in range(6)]
        hits += [f.lower <= 3.0 <= f.upper for f in forecasts]
    assert 0.75 <= np.mean(hits) <= 0.99
