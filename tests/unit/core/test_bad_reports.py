"""One bad report at a reference's end teaches nothing; a true end, however steep, stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpo.core.bad_reports import without_bad_reports
from hpo.core.curve import Curve
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel

FACTORS = [0.5, 1.05, 3.0]
SEEDS = range(8)


def _values(n: int, final: float = 2.0, noise: float = 0.001, seed: int = 0) -> np.ndarray:
    steps = np.arange(1, n + 1) / n
    smooth = final * (1.0 + 0.3 * (steps**-0.3 - 1.0))
    return smooth * np.exp(noise * np.random.default_rng(seed).standard_normal(n))


def _curve(values: np.ndarray, name: str = "run", end: str = "last", until: int | None = None) -> Curve:
    steps = np.arange(1, values.size + 1)[:until]
    return Curve.from_points(steps, values[:until], horizon=values.size, run_id=name, metric=Metric("loss", end=end))


@pytest.mark.parametrize("n", [40, 200, 3000])
@pytest.mark.parametrize("factor", FACTORS)
def test_a_bad_last_report_is_replaced_by_what_those_before_it_say(n, factor):
    for seed in SEEDS:
        values = _values(n, seed=seed)
        clean = _curve(values)
        values[-1] *= factor
        assert without_bad_reports(_curve(values)).final_loss == pytest.approx(clean.final_loss, rel=0.008)


@pytest.mark.parametrize("n", [40, 90])
@pytest.mark.parametrize("factor", FACTORS)
def test_the_last_report_but_one_may_be_the_bad_one(n, factor):
    for seed in SEEDS:
        values = _values(n, seed=seed)
        clean = _curve(values)
        values[-2] *= factor
        found = without_bad_reports(_curve(values))
        np.testing.assert_allclose(found.means, clean.means, rtol=0.008)
        assert found.final_loss == clean.final_loss


@pytest.mark.parametrize("place", range(-5, 0))
@pytest.mark.parametrize("n", [50, 100])
def test_a_wild_report_in_the_end_window_does_not_move_its_mean(n, place):
    for seed in SEEDS:
        values = _values(n, noise=0.01, seed=seed)
        clean = _curve(values, end="window")
        values[place] *= 3.0
        assert without_bad_reports(_curve(values, end="window")).final_loss == pytest.approx(clean.final_loss, rel=0.015)


@pytest.mark.parametrize("end", ["last", "window"])
@pytest.mark.parametrize(
    "tail",
    [
        (1.02, 1.05),
        (1.2, 1.5),
        (1.01, 1.3),
        (0.97, 0.94, 0.91),
    ],
)
def test_a_change_of_several_reports_at_the_end_stays(tail, end):
    for seed in SEEDS:
        values = _values(100, seed=seed)
        values[-len(tail) :] *= tail
        curve = _curve(values, end=end)
        assert without_bad_reports(curve) is curve


@pytest.mark.parametrize("cooldown", [0.03, 0.05, 0.1, 0.2])
def test_a_steep_decay_at_the_end_stays(cooldown):
    t = np.arange(1, 101) / 100
    decay = np.clip((t - 1.0 + cooldown) / cooldown, 0.0, 1.0)
    for power in (0.5, 1.0, 2.0):
        for seed in SEEDS:
            curve = _curve(_values(100, seed=seed) * (1.0 - 0.06 * decay**power))
            assert without_bad_reports(curve) is curve


def test_a_clean_curve_is_the_same_object():
    for n in (5, 30, 2000):
        for end in ("last", "window"):
            curve = _curve(_values(n), end=end)
            assert without_bad_reports(curve) is curve


def test_a_final_value_of_its_own_stays():
    values = _values(100)
    values[-1] *= 3.0
    curve = replace(_curve(values), end_value=1.9)
    found = without_bad_reports(curve)
    assert found.final_loss == 1.9
    assert found.means[-1] == pytest.approx(2.0, rel=0.008)


@pytest.mark.parametrize("factor", FACTORS)
def test_the_bad_end_of_one_reference_changes_no_forecast(factor):
    finals = np.linspace(2.0, 2.4, 6)
    runs = [_values(100, final, seed=k) for k, final in enumerate(finals)]
    asked = _curve(_values(100, 2.25, seed=9), "new", until=30)
    clean = CollapseModel.fit([_curve(v, f"r{k}") for k, v in enumerate(runs)]).forecast(asked)
    runs[2][-1] *= factor
    found = CollapseModel.fit([_curve(v, f"r{k}") for k, v in enumerate(runs)]).forecast(asked)
    assert found.final_loss == pytest.approx(clean.final_loss, rel=0.001)
    assert found.level_sd == pytest.approx(clean.level_sd, rel=0.2)
