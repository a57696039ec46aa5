"""The chance to end lowest by ranks: what a forecast of distances does not see."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpo.core.hindsight import Correction, Hindsight
from hpo.core.ranks import FEWEST, chance_by_rank, pooled


def references(level, final):
    level, final = np.asarray(level, dtype=float), np.asarray(final, dtype=float)
    return Hindsight((), final, np.zeros(final.size), level, np.full(final.size, 1e-4))


RNG = np.random.default_rng(0)
FINAL = RNG.normal(size=20)
LEVEL = FINAL + 0.4 * RNG.normal(size=20)


def test_few_references_have_no_ranks():
    few = references(np.arange(FEWEST - 1), np.arange(FEWEST - 1))
    assert chance_by_rank(few, Correction(), 0.0, 0.0) is None


def test_the_first_may_win_however_small_its_lead():
    """All stand at chance but for a thousandth; one is ahead by as much, and forecasts know nothing of its rise."""
    known = references(-0.37 + 1e-3 * LEVEL, FINAL)
    best = float(FINAL.min())
    assert chance_by_rank(known, Correction(), -0.37 + 1e-3 * (LEVEL.min() - 0.1), best) > 0.1
    assert chance_by_rank(known, Correction(), -0.37 + 1e-3 * np.median(LEVEL), best) < 0.01


def test_ranks_that_did_not_hold_say_little():
    held = chance_by_rank(references(LEVEL, FINAL), Correction(), float(np.median(LEVEL)), float(FINAL.min()))
    mixed = references(np.roll(LEVEL, 7), FINAL)
    assert chance_by_rank(mixed, Correction(), float(np.median(LEVEL)), float(FINAL.min())) > 3 * held


def test_ranks_are_those_of_corrected_forecasts():
    """Where early differences turn round, the worst so far are the first."""
    turned, known = Correction(slope=-1.0), references(-LEVEL, FINAL)
    last = float((-LEVEL).max()) + 0.1
    plain = chance_by_rank(references(LEVEL, FINAL), Correction(), -last, float(FINAL.min()))
    assert chance_by_rank(known, turned, float(turned.of(np.array(last))), float(FINAL.min())) == pytest.approx(plain)


@given(st.floats(-3.0, 3.0), st.floats(0.0, 2.0))
def test_lower_is_likelier(level, further):
    known, best = references(LEVEL, FINAL), float(FINAL.min())
    chance = chance_by_rank(known, Correction(), level, best)
    assert chance_by_rank(known, Correction(), level + further, best) <= chance
    assert 0.0 < chance < 1.0


def test_neither_expert_is_sure_alone():
    assert pooled(1e-8, 0.25) == pytest.approx(5e-5)
    assert pooled(0.3, None) == 0.3
    assert pooled(0.0, 0.0) == 0.0
