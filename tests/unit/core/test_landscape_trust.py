"""How far a landscape is believed against a run's own curve."""

from dataclasses import replace

import numpy as np
import pytest
from synthetic import recipe, surrogate_curve

from hpo.core.coordinates import are_of_one_kind, kind_of
from hpo.core.curve import Curve
from hpo.core.hindsight import FEWEST, stage_of
from hpo.core.landscape_trust import FACTORS, LeftOut, Trust, trust_of
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel
from hpo.core.model_settings import ModelSettings


def left_out(rng, n=24, curve_sd=0.05, landscape_sd=0.05, stated=0.05):
    final = rng.normal(size=n)
    own, of_settings = final + curve_sd * rng.normal(size=n), final + landscape_sd * rng.normal(size=n)
    return LeftOut(final, np.zeros(n), own, np.full(n, curve_sd**2), of_settings, np.full(n, stated**2))


def test_a_landscape_that_orders_well_is_believed():
    factors = [trust_of(left_out(np.random.default_rng(k), curve_sd=1.0)).factor for k in range(10)]
    assert np.median(factors) == 1.0


def test_a_landscape_that_is_wrong_by_more_than_it_says_is_not():
    factors = [trust_of(left_out(np.random.default_rng(k), landscape_sd=2.0)).factor for k in range(10)]
    assert np.median(factors) == FACTORS[-1]


def test_few_references_cannot_tell():
    assert trust_of(left_out(np.random.default_rng(0), n=FEWEST - 1, landscape_sd=5.0)) == Trust()


def test_equal_ends_say_nothing_of_orders():
    runs = left_out(np.random.default_rng(0))
    found = trust_of(replace(runs, final=np.zeros_like(runs.final)))
    assert found.factor in FACTORS
    assert not found.misleads


@pytest.mark.parametrize(("fraction", "stage"), [(0.0, 0.02), (0.02, 0.02), (0.19, 0.15), (1.0, 0.8)])
def test_stages(fraction, stage):
    assert stage_of(fraction) == stage


def test_runs_of_one_size_and_length_are_of_one_kind():
    one, alike, other = (kind_of(recipe(n_params=n)) for n in (1e6, 1.01e6, 2e6))
    assert are_of_one_kind(one, alike)
    assert not are_of_one_kind(one, other)
    assert are_of_one_kind(kind_of(None), kind_of(None))
    assert not are_of_one_kind(one, kind_of(None))


def _study(rng, n, until=1.0):
    """Most runs learn nothing, whatever their settings; one in five learns, by chance."""
    steps, made = np.arange(1, 201), []
    for i in range(n):
        fall = (i % 5 == 0) * (0.5 + 0.5 * rng.uniform())
        values = 0.7 * np.exp(-fall * np.clip((steps - 20) / 180, 0, 1) + 0.002 * rng.normal(size=steps.size))
        seen = steps <= until * 200
        settings = {"lr": float(10 ** rng.uniform(-4, -1)), "decay": float(10 ** rng.uniform(-6, -2))}
        made.append(Curve.from_points(steps[seen], values[seen], horizon=200, settings=settings, run_id=f"{until}-{i}"))
    return made


def test_settings_do_not_drag_down_a_run_that_learns():
    rng = np.random.default_rng(0)
    references, targets = _study(rng, 40), _study(rng, 10, until=0.5)
    alone = CollapseModel.fit(references, ModelSettings(landscape=False)).forecast_many(targets, rng)
    whole = CollapseModel.fit(references).forecast_many(targets, rng)
    apart = [
        abs(np.log(a.final_loss / b.final_loss)) / a.level_sd for a, b in zip(alone.forecasts, whole.forecasts, strict=True)
    ]
    assert max(apart) < 0.5


def test_longer_runs_than_the_references_keep_their_landscape():
    """How well references' curves are forecast says little of a longer run's."""
    rng = np.random.default_rng(1)
    references = [
        surrogate_curve(recipe(tau=tau, n_params=n), rng=rng) for tau in np.geomspace(0.05, 0.8, 5) for n in (1e6, 2e6)
    ]
    target = surrogate_curve(recipe(tau=0.2, n_params=8e6), until=0.2)
    model = CollapseModel.fit(references)
    model.forecast_many([target, surrogate_curve(recipe(tau=0.4, n_params=8e6), until=0.2)], rng)
    assert set(model._back._trusts._known.values()) <= {Trust()}


def test_the_noise_of_an_end_counts_once_where_curves_and_landscape_meet():
    """Studies whose only error is white noise: intervals of the measured ends hold as often as those of the curves alone."""
    steps, held = np.arange(1, 101), []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        rates = 10 ** rng.uniform(-4, -2, size=36)
        means = 0.5 + 0.05 * np.log10(rates / 1e-3)[:, None] ** 2 + 0.25 * (steps / 100) ** -0.4
        values = means * np.exp(0.03 * rng.normal(size=means.shape))

        def curve(i, until, values=values, rates=rates):
            seen = steps <= until
            about = {"horizon": 100, "settings": {"lr": float(rates[i])}, "metric": Metric(end="last"), "run_id": f"r{i}"}
            return Curve.from_points(steps[seen], values[i][seen], **about)

        model = CollapseModel.fit([curve(i, 100) for i in range(12)])
        made = model.forecast_many([curve(i, 40) for i in range(12, 36)], rng)
        held += [f.lower <= values[i, -1] <= f.upper for i, f in enumerate(made.forecasts, start=12)]
    assert 0.85 <= np.mean(held) <= 0.97
