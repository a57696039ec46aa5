"""The monitor on synthetic runs of one family: silence while healthy, alarms of each kind, and what it abstains from."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from hpo.core.curve import Curve
from hpo.core.lr_watch import LrWatch
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel
from hpo.core.monitor import KINDS, Monitor
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule
from hpo.core.template import template_of_model, template_of_reference

STEPS = 1000
NOISE = 0.01  # of a point; a 1 % window of ten points has 0.3 %
RECIPE = Recipe(
    schedule=schedule("linear"), n_params=1e6, n_tokens=2e7, batch_tokens=2e4, lr=1e-2, weight_decay=0.1, warmup_fraction=0.02
)
X = np.arange(1, STEPS + 1, dtype=float)
T = X / STEPS


def losses(final=3.0, seed=0, noise=NOISE, fault=0.0):
    shape = 1 + 0.25 * (1 - T) + 0.3 * np.exp(-12 * T)
    return final * shape * np.exp(noise * np.random.default_rng(seed).standard_normal(STEPS) + fault)


def a_curve(final, seed, noise=NOISE, **about):
    return Curve.from_points(X, losses(final, seed, noise), horizon=STEPS, recipe=RECIPE, run_id=f"r{seed}", **about)


@pytest.fixture(scope="module")
def model():
    return CollapseModel.fit([a_curve(4.0 - 0.2 * k, 100 + k) for k in range(5)])


def watch(model, fault=0.0, seed=1, until=1.0, **options):
    monitor = Monitor(model, RECIPE, judge_every=0.01, **options)
    for step, value, t in zip(X, losses(2.5, seed, fault=fault), T, strict=True):
        if t <= until:
            monitor.update(step, value)
    return monitor.judge()


def test_a_healthy_run_is_ok_and_its_final_loss_foretold(model):
    status = watch(model, until=0.6)
    assert (status.status, status.kind, status.onset, status.cost_pct) == ("ok", None, None, None)
    assert status.lower < 2.5 < status.upper
    assert status.final_loss == pytest.approx(2.5, rel=0.01)


def test_healthy_runs_hardly_ever_alarm(model):
    assert sum(watch(model, seed=k).status == "alarm" for k in range(12)) == 0


def test_a_step_is_called_with_onset_size_and_cost(model):
    status = watch(model, fault=np.where(T >= 0.6, 0.02, 0.0))
    assert (status.status, status.kind) == ("alarm", "step")
    assert status.onset == pytest.approx(0.6, abs=0.02)
    assert 0.6 <= status.detected_at <= 0.64
    assert status.size_pct == pytest.approx(2.0, abs=0.6)
    assert status.cost_pct == pytest.approx(2.0, abs=0.6)
    assert status.final_loss == pytest.approx(2.5 * 1.02, rel=0.01)


def test_a_drift_is_called_before_the_loss_rises(model):
    fault = 0.15 * np.maximum(T - 0.5, 0)
    status = watch(model, fault=fault)
    assert (status.status, status.kind) == ("alarm", "drift")
    smooth = np.convolve(losses(2.5, noise=0, fault=fault), np.ones(50) / 50, "valid")
    assert status.detected_at < 0.5 + T[int(np.argmin(smooth[500:]))]
    assert status.cost_pct > 2


def test_a_spike_is_called_and_costs_nothing(model):
    status = watch(model, fault=np.where((T > 0.5) & (T <= 0.51), 0.08, 0.0))
    assert (status.status, status.kind) == ("alarm", "spike")
    assert status.cost_pct == pytest.approx(0.0)
    assert status.final_loss == pytest.approx(2.5, rel=0.01)


def test_a_jump_that_comes_back_is_called_a_restart(model):
    status = watch(model, fault=np.where(T > 0.5, 0.12 * np.exp(-(T - 0.5) / 0.02), 0.0))
    assert (status.status, status.kind) == ("alarm", "restart")


def test_a_training_loss_sinking_below_its_curve_is_repeated_data(model):
    status = watch(model, fault=-0.15 * np.maximum(T - 0.6, 0))
    assert (status.status, status.kind) == ("alarm", "repeated_data")
    assert status.size_pct < 0 > status.cost_pct


def test_a_sudden_drop_is_a_learning_rate_fault(model):
    assert watch(model, fault=np.where(T >= 0.5, -0.02, 0.0)).kind == "wrong_lr"


def test_a_fault_inside_the_usual_alignment_window_is_found(model):
    status = watch(model, fault=np.where(T >= 0.3, 0.02, 0.0))
    assert status.status == "alarm"
    assert status.onset == pytest.approx(0.3, abs=0.03)


def test_rescaling_the_whole_run_is_no_alarm(model):
    assert watch(model, fault=np.full(STEPS, 0.05)).status == "ok"


def test_a_logged_learning_rate_off_schedule_is_called_at_once(model):
    monitor = Monitor(model, RECIPE, judge_every=0.01)
    for step, value, t in zip(X, losses(2.5, 3), T, strict=True):
        status = monitor.update(step, value, lr=0.7 * (1 - t) * (1.0 if t < 0.5 else 0.5))
        if t > 0.54:
            break
    assert (status.status, status.kind) == ("alarm", "wrong_lr")
    assert status.onset == pytest.approx(0.5, abs=0.01)
    assert "0.5 times" in status.reason


def test_a_learning_rate_on_schedule_is_silent_whatever_its_scale():
    watched = LrWatch(RECIPE)
    for t in T:
        watched.add(float(t), 123.0 * float(RECIPE.schedule(t, 0.02)))
    assert watched.off_since is None


@pytest.mark.parametrize("digits", [3, 4, 5])
@pytest.mark.parametrize("name", ["linear", "cosine", "constant"])
def test_a_learning_rate_that_is_logged_with_few_digits_is_silent(name, digits):
    recipe = replace(RECIPE, schedule=schedule(name))
    watched = LrWatch(recipe)
    for t in T.tolist():
        watched.add(t, round(3e-4 * float(recipe.schedule(t, 0.02)), digits))
    assert watched.off_since is None


def test_a_learning_rate_of_few_digits_that_is_twice_the_schedule_is_off():
    watched = LrWatch(RECIPE)
    for t in T.tolist():
        watched.add(t, round((3e-4 if t < 0.5 else 6e-4) * float(RECIPE.schedule(t, 0.02)), 4))
    assert watched.off_since == pytest.approx(0.5, abs=0.01)


def test_a_non_finite_loss_is_an_alarm(model):
    monitor = Monitor(model, RECIPE)
    for step in range(1, 300):
        monitor.update(step, 3.0)
    status = monitor.update(300, float("nan"))
    assert (status.status, status.kind, status.onset) == ("alarm", "non_finite", 0.3)


def test_an_alarm_stays_after_the_fault_has_gone(model):
    fault = np.where((T > 0.4) & (T <= 0.45), 0.05, 0.0)
    status = watch(model, fault=fault)
    assert status.status == "alarm"
    assert status.detected_at < 0.5


def test_it_abstains_without_a_horizon_a_family_or_enough_points(model):
    free = Recipe(schedule=schedule("linear"))
    unknown = Monitor(model, free)
    assert unknown.update(1, 3.0).status == "abstained"
    assert "--total" in unknown.status.reason
    assert watch(model, until=0.05).reason.startswith("too little seen")
    other = Monitor(model, RECIPE, metric=Metric("val_loss", end="last"))
    assert "no reference has this metric" in other.update(900, 3.0).reason
    past = Monitor(model, RECIPE, total=400)
    past.update(1, 3.0)
    assert past.update(900, 3.0).reason == "the run has gone past its stated total"


def test_it_abstains_where_the_references_are_not_one_family(model):
    def unlike(k):
        shape = 1 + (0.1 + 0.8 * k) * (1 - T) ** (0.3 + 0.6 * k) + 0.3 * np.exp(-(3 + 9 * k) * T)
        values = 3.0 * shape * np.exp(NOISE * np.random.default_rng(k).standard_normal(STEPS))
        return Curve.from_points(X, values, horizon=STEPS, recipe=RECIPE, run_id=f"u{k}")

    status = watch(CollapseModel.fit([unlike(k) for k in range(5)]))
    assert status.status == "abstained"
    assert status.reason.startswith("the references do not follow one curve")
    assert template_of_model(model, Metric(), RECIPE).is_one_curve


def test_the_noise_of_the_references_does_not_hide_a_step():
    """Two references of another length say what the run's slope is, with several times the noise of one."""
    noisy_ones = [a_curve(4.0 - 0.2 * k, 40 + k, noise=0.05) for k in range(2)]
    fault = np.where(T >= 0.6, 0.02, 0.0)
    status = watch(CollapseModel.fit(noisy_ones), fault=fault)
    assert (status.status, status.kind) == ("alarm", "step")
    assert status.onset == pytest.approx(0.6, abs=0.02)
    assert watch(CollapseModel.fit(noisy_ones)).status == "ok"


def test_a_single_reference_will_do():
    monitor = Monitor.against(a_curve(4.0, 7), RECIPE)
    for step, value in zip(X, losses(2.5, 8, fault=np.where(T >= 0.6, 0.03, 0.0)), strict=True):
        monitor.update(step, value)
    assert (monitor.status.status, monitor.status.kind) == ("alarm", "step")


def test_noise_shared_with_the_reference_cancels():
    reference = a_curve(4.0, 9, noise=0.05)
    monitor = Monitor.against(reference, RECIPE)
    for step, value in zip(X, losses(2.5, 9, noise=0.05, fault=np.where(T >= 0.6, 0.01, 0.0)), strict=True):
        monitor.update(step, value)
    status = monitor.judge()
    assert status.status == "alarm"
    assert status.onset == pytest.approx(0.6, abs=0.02)


def test_restarted_steps_are_not_counted_twice(model):
    once, twice = Monitor(model, RECIPE), Monitor(model, RECIPE)
    values = losses(2.5, 4)
    for k in range(600):
        once.update(X[k], values[k])
        twice.update(X[k], values[k])
        if k == 400:
            for back in range(350, 401):
                twice.update(X[back], 9.0)
    assert once.judge().final_loss == twice.judge().final_loss


def test_residuals_are_normalised_and_have_sds(model):
    t, value, sd = np.array(watch(model, fault=np.where(T >= 0.6, 0.05, 0.0)).residual).T
    assert np.mean(value[t > 0.65]) == pytest.approx(0.05 * 1.05, rel=0.2)
    assert np.all(sd > 0)
    assert abs(np.mean(value[t < 0.55])) < 0.005


def test_the_record_is_json_with_the_stated_keys(model):
    said = json.loads(json.dumps(watch(model, until=0.5).to_dict(), allow_nan=False))
    expected = "status kind onset detected_at size_pct residual final_loss lower upper cost_pct reason"
    assert set(said) == set(expected.split())
    assert set(KINDS) >= {"step", "drift", "spike", "restart", "wrong_lr", "overfitting", "repeated_data"}


def test_templates_vanish_at_the_end(model):
    for template in (template_of_model(model, Metric(), RECIPE), template_of_reference(a_curve(3.0, 5))):
        mean, covariance = template.at(np.array([0.5, 1.0]))
        assert mean[0] > 0.05
        assert mean[1] == 0 == covariance[1, 1]
        assert covariance[0, 0] > 0


def test_an_incomplete_reference_is_refused():
    half = Curve.from_points(X[:500], losses()[:500], horizon=STEPS)
    with pytest.raises(ValueError, match="a reference must be complete"):
        template_of_reference(half)


def test_a_twin_of_the_reference_differs_from_it_in_nothing():
    """Where bins hold two or three points their places differ; noise must cancel all the same."""
    keep = X % 7 == 0
    reference = Curve.from_points(X[keep], losses(noise=0.05)[keep], horizon=STEPS, recipe=RECIPE, run_id="twin")
    monitor = Monitor.against(reference, RECIPE)
    for step, value in zip(X[keep], losses(noise=0.05)[keep], strict=True):
        assert monitor.update(step, value).status != "alarm"
    assert max(abs(value) for _, value, _ in monitor.judge().residual) < 1e-9


def test_a_step_at_a_tenth_of_training_is_found_within_3_pct_of_it(model):
    status = watch(model, fault=np.where(T >= 0.1, 0.03, 0.0), until=0.13)
    assert (status.status, status.kind) == ("alarm", "step")
    assert status.onset == pytest.approx(0.1, abs=0.03)


def test_the_interval_holds_the_final_loss_as_it_is_measured(model):
    inside = 0
    for seed in range(10, 30):
        status = watch(model, seed=seed, until=0.8)
        inside += status.lower < a_curve(2.5, seed).final_loss < status.upper
    assert inside >= 16
