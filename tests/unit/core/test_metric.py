from __future__ import annotations

import numpy as np
import pytest

from hpo.core.metric import Metric

SCALES = [Metric(), Metric("acc", "log1m", "last", "max"), Metric("reward", "identity", "last", "max"), Metric("x", "identity")]


@pytest.mark.parametrize("metric", SCALES, ids=lambda m: m.name)
def test_to_raw_undoes_to_model(metric):
    values = np.array([0.1, 0.5, 0.9])
    np.testing.assert_allclose(metric.to_raw(metric.to_model(values)), values, rtol=1e-12)


@pytest.mark.parametrize("metric", SCALES, ids=lambda m: m.name)
def test_a_better_value_is_smaller_on_the_model_scale(metric):
    better, worse = (0.9, 0.1) if metric.mode == "max" else (0.1, 0.9)
    assert metric.to_model(better) < metric.to_model(worse)


@pytest.mark.parametrize("metric", SCALES, ids=lambda m: m.name)
def test_slope_is_the_derivative_of_to_model(metric):
    x, h = 0.4, 1e-6
    numeric = abs(metric.to_model(x + h) - metric.to_model(x - h)) / (2 * h)
    assert metric.slope(x) == pytest.approx(numeric, rel=1e-6)


def test_values_outside_the_domain_are_nan_without_a_warning():
    assert np.isnan(Metric().to_model(-1.0))
    assert np.isnan(Metric("acc", "log1m", "last", "max").to_model(1.0))


@pytest.mark.parametrize(("transform", "mode"), [("log", "max"), ("log1m", "min"), ("sqrt", "min"), ("log", "down")])
def test_contradictory_metrics_are_refused(transform, mode):
    with pytest.raises(ValueError, match="metric"):
        Metric("m", transform, "last", mode)


def test_dict_round_trip():
    assert [Metric.from_dict(m.to_dict()) for m in SCALES] == SCALES
