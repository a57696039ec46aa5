"""Single values far off their neighbours are left out of what references teach; everything else stays as it is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hpo.core.curve import Curve
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel
from hpo.core.shape import NODES
from hpo.core.spikes import LEAST, NEARBY, without_spikes

WHERE = np.log(NODES)
SMOOTH = 0.5 * NODES**-0.4
places = st.lists(st.integers(4, NODES.size - 5), min_size=1, max_size=6, unique=True)


@given(st.floats(0.05, 2.0), st.floats(0.05, 0.8))
def test_a_smooth_curve_stays(height, power):
    values = height * NODES**-power
    np.testing.assert_array_equal(without_spikes(values, WHERE), values)


@given(places, st.sampled_from([-1.0, 1.0]), st.floats(0.5, 3.0))
def test_spikes_apart_from_each_other_are_put_back_on_the_curve(where, sign, height):
    assume(all(abs(a - b) > NEARBY for a in where for b in where if a != b))
    spiked = SMOOTH.copy()
    spiked[where] += sign * height
    np.testing.assert_allclose(without_spikes(spiked, WHERE), SMOOTH, rtol=0.01)


def test_a_step_is_not_a_spike():
    values = SMOOTH + np.where(NODES > 0.5, 0.3, 0.0)
    np.testing.assert_array_equal(without_spikes(values, WHERE), values)


@pytest.mark.parametrize("sd", [LEAST / 100, 0.01, 0.3])
def test_noise_is_left_alone(sd):
    rng = np.random.default_rng(0)
    values = SMOOTH + sd * rng.standard_normal((200, NODES.size))
    changed = sum(int(np.sum(without_spikes(row, WHERE) != row)) for row in values)
    assert changed <= 0.001 * values.size


def test_a_short_curve_stays():
    short = np.array([1.0, 9.0, 0.8])
    np.testing.assert_array_equal(without_spikes(short, np.arange(3.0)), short)


def _run(name: str, final: float, spikes: tuple[int, ...] = (), until: int = 200) -> Curve:
    steps = np.arange(1, 201)
    values = final * (1.0 + 0.3 * ((steps / 200) ** -0.3 - 1.0))
    values[list(spikes)] *= 1.5
    return Curve.from_points(steps[:until], values[:until], horizon=200, run_id=name, metric=Metric("val_loss", end="last"))


def test_spikes_of_references_and_of_a_run_change_no_forecast():
    clean = [_run(f"r{i}", 2.0 + 0.1 * i) for i in range(5)]
    spiked = [_run(f"r{i}", 2.0 + 0.1 * i, (20 + 7 * i, 77 + 5 * i, 140 + 3 * i)) for i in range(5)]
    truth = CollapseModel.fit(clean).forecast(_run("new", 2.25, until=80))
    found = CollapseModel.fit(spiked).forecast(_run("new", 2.25, (31, 60), until=80))
    assert found.status == "ok"
    assert found.final_loss == pytest.approx(2.25, rel=0.004)
    assert found.level_sd < 3 * truth.level_sd + 0.002


@given(st.integers(12, NODES.size - 8), st.sampled_from([-1.0, 1.0]), st.floats(0.5, 3.0), st.floats(0.8, 1.0))
def test_two_bad_values_in_a_row_are_put_back_on_the_curve(place, sign, height, second):
    """Not among the first twelve, where this curve bends as steeply itself."""
    spiked = SMOOTH.copy()
    spiked[[place, place + 1]] += sign * height * np.array([1.0, second])
    np.testing.assert_allclose(without_spikes(spiked, WHERE), SMOOTH, rtol=0.02)


@pytest.mark.parametrize("width", [3, 6, 20])
def test_a_longer_excursion_stays(width):
    values = SMOOTH + np.where((np.arange(NODES.size) >= 60) & (np.arange(NODES.size) < 60 + width), 0.3, 0.0)
    np.testing.assert_array_equal(without_spikes(values, WHERE), values)
