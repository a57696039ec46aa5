from __future__ import annotations

import numpy as np
import pytest

from hpo.core.curve import Curve
from hpo.core.finals import settled_levels
from hpo.core.metric import Metric
from hpo.core.noise import measurement_noise
from hpo.core.references import Family, Reference
from hpo.core.shape import ShapeSettings

STEPS = np.arange(1, 101)


def curves(finals, noise: float, seed: int = 0, end: str = "last") -> list[Curve]:
    rng = np.random.default_rng(seed)
    shape = 1 + 0.3 * ((STEPS / 100) ** -0.4 - 1)
    rows = np.outer(finals, shape) * np.exp(noise * rng.standard_normal((len(finals), 100)))
    return [Curve.from_points(STEPS, row, horizon=100, metric=Metric(end=end), run_id=str(i)) for i, row in enumerate(rows)]


def settled(runs: list[Curve]) -> np.ndarray:
    family = Family(tuple(Reference.of(c) for c in runs), ShapeSettings(mean="none"))
    return settled_levels(family, np.array([measurement_noise(c) for c in runs]))


def measured(runs: list[Curve]) -> np.ndarray:
    return np.log([c.final_loss for c in runs])


def test_the_noise_of_a_report_is_measured() -> None:
    found = [np.sqrt(measurement_noise(c)) for c in curves(np.full(40, 3.0), 0.02)]
    assert np.median(found) == pytest.approx(0.02, rel=0.15)


def test_the_noise_of_a_window_is_that_of_its_mean() -> None:
    found = [np.sqrt(measurement_noise(c)) for c in curves(np.full(40, 3.0), 0.02, end="window")]
    assert np.median(found) == pytest.approx(0.02 / np.sqrt(5), rel=0.25)


def test_a_smooth_bend_is_no_noise() -> None:
    assert all(measurement_noise(c) == 0 for c in curves([3.0, 3.1, 3.2], 0.0))


def test_without_noise_what_was_measured_stands() -> None:
    runs = curves(np.linspace(3, 3.3, 8), 0.0)
    assert settled(runs) == pytest.approx(measured(runs), abs=1e-12)


@pytest.mark.parametrize("n", [4, 8, 20, 60])
def test_settled_levels_are_much_closer_to_the_truth_than_noisy_ones(n: int) -> None:
    """Up to what all share, the mean noise of the ends, which comparisons within the family do not feel."""
    raw, better = [], []
    for seed in range(10):
        finals = np.random.default_rng(seed).uniform(3.0, 3.2, n)
        runs = curves(finals, 0.02, seed)
        raw.append(np.std(measured(runs) - np.log(finals)))
        better.append(np.std(settled(runs) - np.log(finals)))
    assert np.mean(better) < 0.4 * np.mean(raw)


def test_own_misfit_is_not_taken_for_noise_of_the_end() -> None:
    """Curves that really bend differently at the end keep what was measured, though their reports are a little noisy."""
    rng = np.random.default_rng(1)
    t = STEPS / 100
    runs = []
    for i in range(12):
        late = 0.03 * rng.standard_normal() * np.clip((t - 0.5) / 0.5, 0, 1)
        values = 3 * (1 + 0.3 * (t**-0.4 - 1)) * np.exp(late + 0.001 * rng.standard_normal(100))
        runs.append(Curve.from_points(STEPS, values, horizon=100, metric=Metric(end="last"), run_id=str(i)))
    assert settled(runs) == pytest.approx(measured(runs), abs=0.003)


def test_two_references_say_nothing_of_each_others_noise() -> None:
    runs = curves([3.0, 3.1], 0.02)
    assert settled(runs) == pytest.approx(measured(runs))
