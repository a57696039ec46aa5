"""Pareto frontiers."""

from __future__ import annotations

import pytest

from hpo.core.frontier import TrainedModel, beaten_by, compare


def model(flops, quality):
    return TrainedModel(name=f"{flops:g}", flops=flops, quality=quality)


def on_frontier(models, **options):
    return [by is None for by in beaten_by(models, **options)]


def test_a_model_that_a_cheaper_one_beats_is_not_on_the_frontier():
    models = [model(1, 50), model(2, 49), model(3, 60)]
    assert on_frontier(models, higher_is_better=True) == [True, False, True]
    assert on_frontier(models, higher_is_better=False) == [True, True, False]


def test_equal_models_are_both_on_the_frontier():
    assert on_frontier([model(1, 2), model(1, 2)], higher_is_better=False) == [True, True]


def test_a_comparison_says_what_is_saved_and_what_is_lost():
    one = compare(model(1, 59), model(4, 60))
    assert (one.flops_saved_fraction, one.quality_lost) == (0.75, 1)


def test_flops_must_be_positive():
    with pytest.raises(ValueError, match="flops must be above 0"):
        model(0, 1)
