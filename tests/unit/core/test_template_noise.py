"""Noise of the references in a template: told from its shape, known to the test, and left where it is shared."""

from __future__ import annotations

import numpy as np
import pytest

from hpo.core.curve import Curve
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule
from hpo.core.template import PointNoise, Template, template_of_model
from hpo.core.template_noise import NoisyTemplate, noisy, shown

NODES = np.linspace(0.05, 0.99, 95)
SHAPE = 0.3 * (1 - NODES) + 0.3 * np.exp(-12 * NODES)
SD = 0.03


def template(noise: float, seed: int = 0) -> Template:
    rough = noise * np.random.default_rng(seed).standard_normal(NODES.size)
    return Template(NODES, SHAPE + rough, 1e-6 * np.eye(NODES.size))


def split(seed: int = 0) -> NoisyTemplate:
    found = noisy(template(SD, seed))
    assert found is not None
    return found


def test_the_smooth_part_is_nearer_to_the_shape_and_says_how_near():
    errors = np.array([split(seed).smooth.mean - SHAPE for seed in range(40)])
    inner = slice(15, -15)
    assert np.std(errors[:, inner]) < 0.5 * SD
    stated = np.sqrt(np.mean([np.diag(split(seed).covariance) for seed in range(40)], axis=0))
    assert stated[inner] == pytest.approx(np.std(errors[:, inner], axis=0), rel=0.5)


def test_a_template_that_is_hardly_noisy_or_has_a_kink_or_few_nodes_is_left_as_it_is():
    assert noisy(template(1e-4)) is None
    kinked = Template(NODES, SHAPE - 3.0 * np.maximum(NODES - 0.8, 0.0), 1e-6 * np.eye(NODES.size))
    assert noisy(kinked) is None
    assert noisy(Template(NODES[:20], SHAPE[:20], np.eye(20))) is None


def test_a_run_on_other_batches_shows_nothing_of_it_and_a_twin_all():
    found, counts = split(), np.ones(NODES.size)
    own = 0.01 * np.random.default_rng(5).standard_normal(NODES.size)
    assert shown(found.rough, own, counts) < 0.15
    assert shown(found.rough, own + found.rough, counts) == pytest.approx(1.0, abs=0.15)
    assert shown(found.rough, found.rough, counts) == pytest.approx(1.0)


def test_a_twin_is_held_against_the_template_itself_and_others_against_its_smooth_part():
    raw, found, counts = template(SD), split(), np.ones(NODES.size)
    mean, covariance = found.seen_by(raw.mean, counts, NODES)
    assert mean == pytest.approx(raw.mean)
    assert np.abs(covariance).max() == pytest.approx(0.0, abs=1e-12)
    mean, covariance = found.seen_by(SHAPE + 0.01 * np.random.default_rng(6).standard_normal(NODES.size), counts, NODES)
    assert np.abs(mean - found.smooth.mean).max() < 0.3 * SD
    assert np.all(np.linalg.eigvalsh(covariance) > -1e-12)


def test_an_outlier_hardly_changes_what_is_shown():
    found, counts = split(), np.ones(NODES.size)
    twin = found.rough + 0.01 * np.random.default_rng(7).standard_normal(NODES.size)
    twin[40] += 1.0
    assert shown(found.rough, twin, counts) == pytest.approx(1.0, abs=0.2)


def test_the_references_noise_counts_as_much_as_they_agree():
    agreeing, apart = PointNoise.of([1.0, 1.1, 0.9, 1.0, 1.05]), PointNoise.of([1.0, 9.0, 0.1, 3.0, 0.3])
    assert agreeing.variance == pytest.approx(1.0, rel=0.05)
    assert agreeing.dof > 15 > 3 > apart.dof
    assert PointNoise.of([0.0, 0.0]) is None


def test_a_run_is_as_noisy_as_its_references_unless_it_denies_it():
    told = PointNoise(1.0, 20.0)
    variance, dof = told.with_seen(0.4, 5.0)
    assert variance == pytest.approx((5 * 0.4 + 20 * 1.0) / 25)
    assert dof == 25
    assert told.with_seen(0.01, 40.0) == (0.01, 40.0)  # a run that shares the template's batches
    assert told.with_seen(30.0, 40.0) == (30.0, 40.0)


@pytest.mark.parametrize(("metric", "noisier"), [(Metric(), 4.0), (Metric("val_loss", end="last"), 1.0)])
def test_the_noise_of_a_training_loss_goes_by_the_batch(metric, noisier):
    steps = np.arange(1.0, 501.0)

    def recipe(batch):
        return Recipe(schedule=schedule("linear"), n_params=1e6, n_tokens=500 * batch, batch_tokens=batch)

    def a_run(seed):
        noise = 0.02 * np.random.default_rng(seed).standard_normal(500)
        values = 3.0 * (1 + 0.3 * (1 - steps / 500)) * np.exp(noise)
        return Curve.from_points(steps, values, horizon=500, recipe=recipe(1e4), metric=metric, run_id=str(seed))

    model = CollapseModel.fit([a_run(seed) for seed in range(4)])
    same, larger = (template_of_model(model, metric, recipe(batch)).noise.variance for batch in (1e4, 4e4))
    assert same == pytest.approx(0.02**2, rel=0.3)
    assert same / larger == pytest.approx(noisier)
