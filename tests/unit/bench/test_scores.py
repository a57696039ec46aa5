from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from bench.calibration import Pairs, bootstrap_interval, pair_calibration, pairs_of
from bench.methods.view import Prediction
from bench.scores import pick_weights, rank_correlation, selection_scores, student_crps, value_scores, with_fallback
from bench.summary import paired_differences, summarise
from hpo.core.metric import Metric

TRUTH = np.array([3.0, 3.0009, 3.3])


def scored(score, truth=TRUTH, mode="min", noise=0.0004):
    score = np.asarray(score, dtype=float)
    return selection_scores(pick_weights(score), score, truth, mode, noise)


def test_regret_is_raw_and_a_hit_allows_for_seed_noise():
    found = scored([2.0, 1.0, 3.0])
    assert found["regret_pct"] == pytest.approx(0.03)
    assert found["hit"] == 1.0


def test_equal_scores_share_the_pick():
    found = scored([1.0, 1.0, 1.0])
    assert found["hit"] == pytest.approx(2 / 3)
    assert found["regret_pct"] == pytest.approx((0 + 0.03 + 10) / 3)
    assert found["rho"] == 0.0


def test_a_maximised_metric_turns_the_order_around():
    found = scored([0.0, 1.0, 2.0], truth=np.array([0.9, 0.8, 0.7]), mode="max")
    assert (found["hit"], found["rho"]) == (1.0, pytest.approx(1.0))
    assert scored([1.0, 0.0, 2.0], truth=np.array([0.9, 0.8, 0.7]), mode="max")["regret_pct"] == pytest.approx(100 / 9)


def test_a_diverged_pick_is_no_hit_and_costs_the_worst_finite_regret():
    found = scored([1.0, 2.0, 0.0], truth=np.array([3.0, 3.3, np.inf]), noise=0.5)
    assert (found["hit"], found["regret_pct"], found["regret_capped_pct"]) == (0.0, pytest.approx(10.0), pytest.approx(10.0))


def test_too_few_or_equal_truths_have_no_rank_correlation():
    assert rank_correlation(np.array([1.0, 2.0]), np.array([1.0, 2.0])) is None
    assert rank_correlation(np.arange(3.0), np.ones(3)) is None


def test_what_is_not_judged_is_ranked_by_its_current_value():
    current = np.array([3.5, 3.4, 3.6])
    np.testing.assert_array_equal(with_fallback(np.full(3, np.nan), current), current)
    mixed = with_fallback(np.array([3.0, np.nan, 3.2]), current)
    assert mixed[1] == pytest.approx(3.4 - 0.45)
    assert with_fallback(np.array([np.nan, 1.0]), np.array([np.nan, 2.0]))[0] == np.inf


@pytest.mark.parametrize("dof", [2.5, 7.0, np.inf])
def test_the_closed_form_of_the_crps_is_its_integral(dof):
    law = stats.t(dof) if np.isfinite(dof) else stats.norm()
    for off in (-1.3, 0.0, 2.1):
        below, _ = integrate.quad(lambda x: law.cdf(x) ** 2, -np.inf, off)
        above, _ = integrate.quad(lambda x: law.sf(x) ** 2, off, np.inf)
        found = student_crps(np.array([2 * off]), np.array([2.0]), np.array([dof]))[0]
        assert found == pytest.approx(2 * (below + above), rel=1e-3)


def test_the_crps_of_a_point_forecast_is_its_error():
    assert student_crps(np.array([0.3]), np.array([0.0]), np.array([np.inf]))[0] == pytest.approx(0.3)


def test_values_are_judged_on_the_raw_scale_in_percent():
    made = Prediction.gaussian(np.log([3.03, np.nan, 2.94]), 0.02)
    found = value_scores(made, np.array([3.0, 3.0, 3.0]), Metric("val_loss", end="last"))
    assert found["mae_pct"] == pytest.approx(1.5)
    assert found["bias_pct"] == pytest.approx(-0.5)
    assert found["coverage90"] == 1.0


def test_nothing_forecast_gives_no_value_scores():
    made = Prediction.ranking(np.zeros(2))
    assert set(value_scores(made, np.ones(2), Metric()).values()) == {None}


def test_a_forecast_without_an_interval_has_an_error_only():
    found = value_scores(Prediction.gaussian(np.zeros(1), np.nan), np.ones(1), Metric())
    assert (found["mae_pct"], found["coverage90"], found["crps"]) == (0.0, None, None)


def test_means_over_tasks_come_with_standard_errors():
    found = summarise([{"rho": 1.0, "hit": None}, {"rho": 0.0, "hit": None}])
    assert (found["rho"], found["rho_se"], found["hit"], found["n_tasks"]) == (0.5, 0.5, None, 2)


def test_paired_differences_are_task_by_task():
    ours, theirs = [{"regret_pct": 1.0}, {"regret_pct": 2.0}], [{"regret_pct": 2.0}, {"regret_pct": 3.0}]
    found = paired_differences(ours, theirs)["regret_pct"]
    assert (found["mean"], found["se"], found["interval"], found["n"]) == (-1.0, 0.0, (-1.0, -1.0), 2)


def test_right_probabilities_have_slope_one_and_overconfident_ones_less():
    rng = np.random.default_rng(0)
    odds = rng.normal(0, 1.5, 20_000)
    p = 1 / (1 + np.exp(-odds))
    won = (rng.random(odds.size) < p).astype(float)
    assert pair_calibration([Pairs(p, won)])["slope"] == pytest.approx(1.0, abs=0.05)
    sure = 1 / (1 + np.exp(-3 * odds))
    assert pair_calibration([Pairs(sure, won)])["slope"] == pytest.approx(1 / 3, abs=0.03)


def test_pairs_need_two_intervals_and_two_truths_that_differ():
    made = Prediction.gaussian(np.array([0.0, 1.0, np.nan, 2.0]), 1.0)
    found = pairs_of(made, np.array([1.0, 2.0, 3.0, np.inf]))
    assert found.outcome.tolist() == [1.0]
    assert found.probability[0] == pytest.approx(stats.norm.cdf(1 / np.sqrt(2)))
    assert pairs_of(made, np.ones(4)).outcome.size == 0


def test_joint_draws_give_the_probability_of_a_difference():
    common = np.random.default_rng(0).normal(size=(500, 1))
    draws = common + np.array([0.0, 0.01])
    made = Prediction(np.zeros(2), np.zeros(2), np.ones(2), np.full(2, np.inf), draws)
    assert pairs_of(made, np.array([0.0, 1.0])).probability.tolist() == [1.0]


def test_the_bootstrap_interval_is_the_same_for_the_same_tasks():
    values = [0.0, 1.0, 1.0, 1.0]
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval([1.0]) is None
