"""How far healthy runs wander from a template, and how well its references know a run's noise."""

import numpy as np
import pytest

from hpo.core.common_noise import Points, fit_with_common_noise
from hpo.core.curve import Curve
from hpo.core.monitor import Monitor
from hpo.core.template import FULL_UNTIL, PointNoise, template_of_model, template_of_reference

STEPS = np.arange(5.0, 1001.0, 5.0)


NOISE = 0.02 * np.random.default_rng(0).standard_normal(STEPS.size)
VALUES = 3.0 * (1 + 0.5 * (1 - STEPS / 1000.0)) * np.exp(NOISE)
CURVE = Curve.from_points(STEPS, VALUES, horizon=1000.0)


def test_wandering_is_as_stated_early_and_fades_later() -> None:
    template = template_of_reference(CURVE)
    share = np.sqrt(np.diag(template.covariance) / np.diag(template.of_freed.covariance))
    early = template.nodes <= FULL_UNTIL
    assert share[early] == pytest.approx(1.0)
    assert share[~early] == pytest.approx(np.sqrt(FULL_UNTIL / template.nodes[~early]))


def test_what_is_left_of_common_noise_does_not_fade_however_the_monitor_is_told_of_it() -> None:
    model, common = fit_with_common_noise([Points(CURVE, STEPS, VALUES)])
    faded = template_of_model(model, CURVE.metric, None)
    assert faded is not None
    told = Monitor(model, total=1000.0, common=common).template
    assert told is not None
    assert told.covariance == pytest.approx(faded.of_freed.covariance)
    given = Monitor(faded.of_freed, total=1000.0, common=common).template
    assert given is not None
    assert given.covariance == pytest.approx(told.covariance)


def test_few_bins_that_happen_to_be_close_do_not_deny_what_references_say_of_noise() -> None:
    prior = PointNoise(1e-4, 30.0)
    for dof, believed in ((6.0, False), (60.0, True)):
        variance, _ = prior.with_seen(1e-6, dof)
        assert (variance == 1e-6) is believed
    assert prior.with_seen(1e-1, 6.0) == (1e-1, 6.0)
