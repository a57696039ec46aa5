"""Pairs of neighbours: which are matched, how far apart their curves are, and where a fall of the gap crosses 1 %."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.neighbours import Pair, fall_of, neighbours_figure, neighbours_report, neighbours_table, own_pairs, recorded_pairs
from bench.own_ladder import ladder_runs
from bench.own_neighbours import CONTEXT, neighbour_runs

PAIR = Pair("made up", 1e6, 4e6, None, 20.0, 1e4, "linear", 1.0, {str(t): 0.5 for t in (0.2, 0.3, 0.5, 0.7)}, 2)


def test_the_crossing_of_a_known_fall_is_found():
    """gap = 1 % · (N / 10⁸)^−.5 · (TPP / 20)^−1, with 5 % of noise."""
    rng = np.random.default_rng(0)
    sizes = np.geomspace(1e5, 1e10, 12)
    tpps = np.tile([10.0, 20.0, 40.0], 4)
    gaps = (sizes / 1e8) ** -0.5 * (tpps / 20) ** -1.0 * np.exp(0.05 * rng.standard_normal(12))
    pairs = [replace(PAIR, small=n / 2, large=2 * n, tpp=tpp, gap_pct=g) for n, tpp, g in zip(sizes, tpps, gaps, strict=True)]
    fall = fall_of([*pairs, replace(PAIR, context=4, gap_pct=50.0)])
    assert fall.coefficients[1:] == pytest.approx([-0.5, -1.0], abs=0.1)
    for tpp, size in ((20.0, 1e8), (10.0, 4e8)):
        middle, low, high = fall.crossing(tpp)
        assert low < size < high < 3 * low
        assert middle == pytest.approx(size, rel=0.4)


def test_few_pairs_are_no_fall():
    with pytest.raises(ValueError, match="at least five pairs"):
        fall_of([PAIR] * 4)


def test_the_further_pairs_differ_in_what_they_say_and_keep_their_controls():
    base = {(run.width, run.seed): run for run in ladder_runs() if run.group == "matched"}
    for run in neighbour_runs():
        like = base[run.width, run.seed]
        assert run.recipe.tpp == pytest.approx((2.0 if run.group == "longer" else 1.0) * like.recipe.tpp, rel=1e-3)
        assert run.recipe.tau == pytest.approx(like.recipe.tau)
        if run.group == "context":
            assert run.data["seq_len"] == CONTEXT
            assert run.recipe.batch_tokens == pytest.approx(like.recipe.batch_tokens, rel=0.03)
        else:
            assert run.recipe.batch_tokens == like.recipe.batch_tokens * (0.5 if run.group == "half_batch" else 1.0)


def test_our_own_short_contexts_are_nearer_than_long_ones():
    gaps = {(pair.context, round(pair.small / 1e3)): pair.gap_pct for pair in own_pairs() if pair.tpp < 12}
    assert gaps[4, 24] < 1.5
    assert gaps[4, 96] < 1.5
    assert gaps[64, 47] > 5.0


def test_recorded_neighbours_at_twenty_tokens_a_parameter_are_within_one_per_cent(curves_folder):
    pairs = recorded_pairs(curves_folder)
    assert len(pairs) >= 12
    assert all(pair.gap_pct < 1.0 for pair in pairs if pair.tpp > 18)
    assert max(pair.gap_pct for pair in pairs if pair.tpp < 12) > 1.0


def test_table_and_figure_hold_every_pair(curves_folder):
    report = neighbours_report(curves_folder)
    table = neighbours_table(report)
    assert table.count("\n| ") == 1 + len(report["pairs"])
    assert "at 20 tokens per parameter at N = " in table
    assert "fit, 20 TPP" in neighbours_figure(report)
