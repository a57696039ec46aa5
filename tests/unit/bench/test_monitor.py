"""The evaluation's own parts: faults, rivals, rates."""

from __future__ import annotations

import numpy as np
import pytest

from bench import monitor_oracle as oracle
from bench.monitor import Case, Outcome, _fair, _found, _rate, _zscore_hits, fault, rise
from bench.monitor_power import drifts, look, steps
from bench.monitor_runs import Healthy, _blocks
from hpo.adapters.curve_files import RecordedRun
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule
from hpo.core.template import template_of_reference

T = np.linspace(0.001, 1, 1000)


@pytest.mark.parametrize("form", ["step", "drift", "spike", "transient"])
def test_a_fault_is_nothing_before_its_onset_and_its_size_at_most(form):
    values = fault(form, T, 0.5, 0.1)
    assert np.all(values[T < 0.5] == 0)
    assert values.max() == pytest.approx(0.1, rel=0.06)


def test_zscore_calls_an_outlier_and_not_a_flat_line():
    v = np.random.default_rng(0).standard_normal(200)
    v[150] = 12.0
    assert _zscore_hits(v, 30, 5.0)[150]
    assert not _zscore_hits(v, 30, 9.5)[:150].any()


def test_rates_have_exact_intervals():
    none, some = _rate(0, 300), _rate(3, 300)
    assert none["interval90"][0] == 0
    assert none["interval90"][1] == pytest.approx(0.01, abs=0.0005)
    assert some["interval90"][0] < 0.01 < some["interval90"][1]


def test_alarms_before_the_onset_are_counted_apart():
    case = Case(0, "step", onset=0.5, sigmas=4.0)
    rows = [(case, Outcome({"monitor": at}, {"monitor": 0.5}), None) for at in (0.2, 0.52, 0.6, None)]
    scores = _found(rows, "monitor")
    assert (scores["early"], scores["n"]) == (1, 3)
    assert scores["found"] == pytest.approx(2 / 3)
    assert scores["within_3pct"] == pytest.approx(1 / 3)


def test_noise_is_drawn_from_nearby_and_keeps_its_length():
    noise = np.concatenate((np.full(500, 1.0), np.full(500, 9.0)))
    drawn = _blocks(noise, 8, np.random.default_rng(0))
    assert drawn.size == noise.size
    assert set(drawn[:390]) == {1.0}
    assert set(drawn[620:]) == {9.0}


def test_what_a_monitor_says_of_the_healthy_run_before_the_onset_counts_as_early():
    after = Outcome({"monitor": 0.55, "smoothed rise": 0.1}, {"monitor": 0.5})
    early = _fair(after, Outcome({"monitor": 0.3, "smoothed rise": 0.1}, {"monitor": 0.2}), 0.5)
    assert early.alarms == {"monitor": 0.3, "smoothed rise": 0.1}
    assert _fair(after, Outcome({"monitor": 0.6}, {"monitor": 0.6}), 0.5) == after


def test_an_alarm_must_come_before_the_smoothed_loss_has_clearly_risen():
    case = Case(0, "drift", onset=0.5, sigmas=8.0)
    alarms = ((0.6, 0.7), (0.8, 0.7), (0.6, None), (None, None))
    rows = [(case, Outcome({"monitor": a, "rise at 1 %": b}, {"monitor": 0.5}), None) for a, b in alarms]
    assert _found(rows, "monitor")["before_clear_rise"] == pytest.approx(0.5)


def test_a_rise_is_over_the_lowest_so_far():
    v = np.exp(np.concatenate((np.linspace(1, 0, 50), np.linspace(0, 0.2, 50))))
    assert rise(v, 1)[:50].max() == 0
    assert rise(v, 1)[-1] == pytest.approx(0.2)


def made(seed: int) -> RecordedRun:
    noise = 0.01 * np.random.default_rng(seed).standard_normal(T.size)
    values = 3.0 * (1 + 0.3 * (1 - T) + 0.3 * np.exp(-12 * T)) * np.exp(noise)
    recipe = Recipe(schedule=schedule("linear"), n_params=1e6, n_tokens=2e7, batch_tokens=2e4, lr=1e-2, weight_decay=0.1)
    return RecordedRun(run_id=f"made{seed}", steps=1000 * T, values=values, horizon=1000.0, recipe=recipe)


def test_a_run_cut_at_a_look_shows_its_step_and_a_drift_is_timed() -> None:
    run = made(3)
    one = Healthy("made train", "test", run, template_of_reference(made(4).curve()), 0.0075)
    step = run.values * np.exp(fault("step", T, 0.5, 0.03))
    for values, upto in ((step, 0.5), (run.values, 1.0)):
        change = look(one, values, upto)
        assert change is not None
        assert not change.is_alarm
    found = look(one, step, 0.53)
    assert found is not None
    assert (found.is_alarm, found.form) == (True, "step")
    assert found.began == pytest.approx(0.5, abs=0.015)
    assert steps([one])["0.5"] == 1.0
    steepest = drifts([one], 1.0)["32"]
    assert (steepest["n"], steepest["found"], steepest["onset_at_end"]) == (4, 1.0, 1.0)


def test_an_oracle_finds_what_the_noise_leaves_and_the_onsets_that_it_leaves() -> None:
    run = made(3)
    one = Healthy("made train", "test", run, template_of_reference(made(4).curve()), 0.0075)
    line = oracle.healthy_line(100, np.random.default_rng(0))
    assert 3.7 < line < 4.6
    found = oracle.steps([one], line)
    assert 0.9 < found["0.5"] <= 1.0  # 4 σ over three bins is 6.7 sd, less what the level takes
    assert found["0.05"] < found["0.5"]
    assert oracle.steps([one], 20.0)["0.5"] < 1e-6
    told = oracle.drifts([one], np.random.default_rng(1))
    assert told["4"]["onset_at_end"] < 0.7 < 0.8 < told["32"]["onset_at_end"]
    assert told["4"]["median_delay"] > told["32"]["median_delay"]
