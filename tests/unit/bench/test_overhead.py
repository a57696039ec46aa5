"""What a sweep costs besides training is measured on a real one."""

from __future__ import annotations

import pytest

pytest.importorskip("ray")

from bench.overhead import measure


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_short_sweep_is_measured_against_the_same_training_alone():
    found = measure(trial_s=1.0, n_trials=2, n_repeats=1)
    (repeat,) = found["repeats"]
    assert repeat["alone"]["cpu_s"] > 0
    assert found["medians"]["wall_ratio"] == pytest.approx(repeat["sweep"]["wall_s"] / repeat["alone"]["wall_s"])
    assert found["medians"]["cpu_ratio"] == pytest.approx(1.0, abs=0.5)
    assert len(found["next_start_s"]) == 1
    assert repeat["alone"]["gaps_s"][0] < found["next_start_s"][0] < found["first_start_s"][0]
