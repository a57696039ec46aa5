"""Runs that stand apart from all references of their kind."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpo.core.curve import Curve
from hpo.core.hindsight import Hindsight
from hpo.core.model import CollapseModel
from hpo.core.outsider import FEWEST, FIRST, FURTHEST, distance, widened


def references(level, sd=0.01):
    level = np.asarray(level, dtype=float)
    return Hindsight((), level, np.zeros(level.size), level, np.full(level.size, sd**2))


def test_an_ordinary_run_is_no_outsider():
    assert distance(references([0.0, 0.1, 0.2, 0.3, 0.4]), 0.25) == 1.0


def test_a_run_far_from_all_references_is_one_on_either_side():
    known = references([0.0, 0.01, 0.02, 0.03, 0.04])
    below, above = distance(known, -0.48), distance(known, 0.52)
    assert below == pytest.approx(above)
    assert below > 20
    assert distance(known, 1e9) == FURTHEST


def test_few_references_have_no_outsiders():
    assert distance(references(np.zeros(FEWEST - 1)), 5.0) == 1.0


def test_one_wild_reference_does_not_move_the_middle():
    ordinary, wild = references([0.0, 0.01, 0.02, 0.03, 0.04]), references([0.0, 0.01, 0.02, 0.03, 1e3])
    assert distance(ordinary, 0.5) == pytest.approx(distance(wild, 0.5), rel=0.2)


@given(st.floats(0.1, 10.0), st.floats(1.0, FURTHEST), st.floats(0.01, 1.0))
def test_scales_grow_with_the_distance_and_less_so_later(scale, far, fraction):
    now, later = widened(scale, far, fraction), widened(scale, far, min(1.0, 2 * fraction))
    assert min(scale, far) * (1 - 1e-12) <= now <= max(scale, far) * (1 + 1e-12)
    assert abs(later - scale) <= abs(now - scale) + 1e-12
    assert widened(scale, 1.0, fraction) == pytest.approx(scale)
    assert widened(scale, far, FIRST / 2) == widened(scale, far, FIRST)


def test_what_runs_at_chance_say_of_one_that_has_learned_is_little():
    """They go on where they are, give or take nothing; it need not."""
    rng, steps = np.random.default_rng(0), np.arange(1, 201)

    def run(level, until):
        values = level * np.exp(0.001 * rng.normal(size=200))
        return Curve.from_points(
            steps[steps <= 200 * until], values[steps <= 200 * until], horizon=200, run_id=f"{rng.random()}"
        )

    model = CollapseModel.fit([run(0.7, 1.0) for _ in range(8)])
    usual, learned = model.forecast(run(0.7, 0.1)), model.forecast(run(0.6, 0.1))
    assert usual.upper - usual.lower < 0.02
    assert learned.level_sd > 5 * usual.level_sd
    assert model.forecast(run(0.6, 0.8)).level_sd < 0.3 * learned.level_sd
