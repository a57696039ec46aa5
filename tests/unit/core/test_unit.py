from __future__ import annotations

import numpy as np
import pytest

from hpo.core.shape import NODES
from hpo.core.unit import NEARLY, rounded, unit_of

FALL = -0.1 * np.log(NODES)


def test_values_that_fall_as_losses_do_are_their_own_unit():
    loss = FALL * 0.2 / FALL[NODES >= 0.1][0]
    assert unit_of([loss] * 3, NODES) == pytest.approx(1.0)
    assert unit_of([-1e4 * loss] * 3, NODES) == pytest.approx(1e4)


def test_the_start_of_training_and_what_is_not_known_tell_nothing():
    early = np.where(NODES < 0.1, 50.0, FALL)
    gaps = np.where(NODES < 0.3, np.nan, FALL)
    assert unit_of([early], NODES) == unit_of([FALL], NODES) > unit_of([gaps], NODES) > 0


def test_runs_that_do_not_fall_have_no_unit_and_few_of_them_change_none():
    assert (
        unit_of([], NODES) == unit_of([np.zeros(NODES.size)] * 3, NODES) == unit_of([np.full(NODES.size, np.nan)], NODES) == 1
    )
    assert unit_of([FALL, FALL, np.zeros(NODES.size)], NODES) == unit_of([FALL], NODES)


def test_a_unit_of_nearly_one_is_one():
    assert [rounded(x) for x in (1 / (1.1 * NEARLY), 0.9, 1.4, 1.1 * NEARLY)] == [1 / (1.1 * NEARLY), 1.0, 1.0, 1.1 * NEARLY]
