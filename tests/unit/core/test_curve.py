from __future__ import annotations

import numpy as np
import pytest

from hpo.core.curve import N_BINS, Curve, CurveStream
from hpo.core.metric import Metric


def test_final_loss_of_a_train_loss_is_the_mean_of_the_last_hundredth():
    steps = np.arange(1, 10_001)
    values = np.linspace(4, 3, 10_000)
    assert Curve.from_points(steps, values, horizon=10_000).final_loss == pytest.approx(values[-100:].mean(), rel=1e-12)


def test_final_loss_of_a_sparse_train_loss_takes_five_points():
    values = np.linspace(4, 3, 100)
    assert Curve.from_points(np.arange(1, 101), values, horizon=100).final_loss == pytest.approx(values[-5:].mean())


def test_final_loss_of_an_evaluated_metric_is_its_last_value():
    made = Curve.from_points([10, 50, 100], [4.0, 3.0, 2.5], horizon=100, metric=Metric("val_loss", end="last"))
    assert made.final_loss == 2.5


def test_a_named_end_value_is_the_final_loss_once_complete():
    made = Curve.from_points([50, 100], [3.0, 2.5], horizon=100, metric=Metric("val_loss", end="full"), end_value=2.4)
    assert made.final_loss == 2.4


def test_an_incomplete_run_has_no_final_loss():
    assert Curve.from_points(np.arange(1, 51), np.ones(50), horizon=100).final_loss is None


def test_a_log_that_stops_one_report_before_the_horizon_is_complete():
    assert Curve.from_points(np.arange(0, 15_000, 200), np.ones(75), horizon=15_000).is_complete


def test_nine_epochs_of_ten_are_not_complete():
    assert not Curve.from_points(np.arange(1, 10), np.ones(9), horizon=10).is_complete


IRREGULAR = np.array([100, 800, 2500, 2700, 4800, 6000, 7900, 8000, 8400, 8900, 9100, 9640])


@pytest.mark.parametrize("steps", [np.arange(0, 10_000, 400), np.arange(0, 9800, 485), IRREGULAR])
def test_a_sparse_log_that_lacks_less_than_a_report_is_complete_only_once_its_run_has_ended(steps):
    running = Curve.from_points(steps, np.linspace(3, 2, steps.size), horizon=10_000, metric=Metric(end="last"))
    assert not running.is_complete
    assert running.final_loss is None
    assert running.ended().is_complete
    assert running.ended().final_loss == 2.0


@pytest.mark.parametrize("steps", [np.arange(0, 9700, 100), np.arange(0, 9700, 10), np.arange(0, 9500, 470), [0, 5000, 9400]])
def test_a_log_that_lacks_more_is_not_complete_though_its_run_has_ended(steps):
    assert not Curve.from_points(steps, np.ones(len(steps)), horizon=10_000).ended().is_complete


def test_the_first_value_of_a_step_counts():
    made = Curve.from_points([1, 2, 2, 3], [4.0, 3.0, 99.0, 2.0], horizon=3, metric=Metric(end="last"))
    assert made.means.max() == 4.0
    assert made.n_points == 3


def test_a_stream_ignores_repeated_and_earlier_steps():
    stream = CurveStream(horizon=10)
    assert stream.add(1, 4.0)
    assert stream.add(2, 3.0)
    assert not stream.add(2, 99.0)
    assert not stream.add(1, 99.0)
    assert stream.snapshot().means.max() == 4.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_the_first_non_finite_step_is_marked_and_enters_no_bin(bad):
    made = Curve.from_points([1, 2, 3, 4], [4.0, bad, bad, 2.0], horizon=4)
    assert made.nonfinite_step == 2
    assert np.all(np.isfinite(made.means))
    assert made.n_points == 2
    assert not made.is_complete


def test_memory_does_not_grow_with_the_log():
    long = CurveStream(horizon=1e6)
    long.extend(np.arange(1.0, 1e6 + 1), np.ones(1_000_000))
    made = long.snapshot()
    assert made.counts.sum() == 1_000_000
    assert made.fractions.size <= N_BINS
    assert len(long._window) <= 33


def test_without_a_horizon_values_are_kept_but_no_fraction_is_known():
    made = Curve.from_points([1, 2], [2.0, 1.0], horizon=None, metric=Metric(end="last"))
    assert made.fraction_seen is None
    assert made.current_value == 1.0
    assert made.final_loss is None


@pytest.mark.parametrize("horizon", [0, -1, np.nan, np.inf])
def test_an_impossible_horizon_is_refused(horizon):
    with pytest.raises(ValueError, match="horizon"):
        Curve.from_points([1], [1.0], horizon=horizon)


def test_steps_and_values_of_different_length_are_refused():
    with pytest.raises(ValueError, match="one length; found 2 and 1"):
        Curve.from_points([1, 2], [1.0], horizon=2)


def test_inputs_are_not_modified():
    steps, values = np.array([3.0, 1.0, 2.0]), np.array([1.0, 3.0, 2.0])
    Curve.from_points(steps, values, horizon=3)
    np.testing.assert_array_equal(steps, [3, 1, 2])
    np.testing.assert_array_equal(values, [1, 3, 2])


def test_a_step_far_beyond_the_horizon_is_taken_like_any_other() -> None:
    made = Curve.from_points([5319778203220227.0], [0.0], horizon=40.0)
    assert (made.n_points, made.current_value) == (1, 0.0)
