"""Directions, scales and the way back."""

from __future__ import annotations

import math

import pytest

from hpo.adapters.optuna_scale import Extremes, Scale, extremes_of, jsonable, kind_for
from hpo.core.metric import Metric


@pytest.mark.parametrize(
    ("losses", "kind"),
    [
        ([], "log"),
        ([10.0, 3.0], "log"),
        ([1000.3, 1000.1], "identity"),  # the log is straight over so short a range
        ([-0.1, -0.9], "log1m"),
        ([-0.1, -0.11], "identity"),
        ([-0.5, 0.5], "identity"),
        ([0.0, 3.0], "identity"),
        ([-0.9, -1.0], "identity"),
        ([math.nan, math.inf, 3.0, 9.0], "log"),
    ],
)
def test_the_scale_follows_from_the_values(losses: list[float], kind: str) -> None:
    assert kind_for(extremes_of(losses)) == kind


def test_extremes_of_two_sets_are_those_of_their_union() -> None:
    assert extremes_of([1.0, 2.0]).including(extremes_of([])) == Extremes(1.0, 2.0)
    assert extremes_of([1.0]).including(extremes_of([5.0])) == Extremes(1.0, 5.0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("kind", ["log", "log1m", "identity"])
def test_values_come_back_and_better_ones_have_lower_levels(sign: float, kind: str) -> None:
    scale = Scale.for_study(sign, kind, spread=0.7)  # type: ignore[arg-type]
    losses = {"log": (0.5, 3.0), "log1m": (-0.9, -0.2), "identity": (-2.0, 5.0)}[kind]
    better, worse = (sign * x for x in losses)
    assert scale.to_study(scale.to_core(better)) == pytest.approx(better)
    assert scale.level(better) < scale.level(worse)
    assert scale.kind == kind
    assert scale.to_study(None) is None
    low, high = scale.interval(scale.to_core(better), scale.to_core(worse))
    assert low is not None
    assert high is not None
    assert low < high


def test_a_margin_is_relative_to_the_value() -> None:
    for value in (3.0, -3.0):
        scale = Scale.for_study(1.0, "log" if value > 0 else "identity", spread=2.0)
        worse = scale.worse_by(scale.level(value), 0.1)
        back = scale.to_study(float(scale.metric.to_raw(worse)))
        assert back == pytest.approx(value + 0.1 * abs(value))


@pytest.mark.parametrize(("mode", "sign", "factor"), [("min", 1, 1), ("min", -1, -1), ("max", 1, -1), ("max", -1, 1)])
def test_a_models_metric_is_met_in_its_own_direction(mode: str, sign: float, factor: float) -> None:
    metric = Metric("m", transform="identity", mode=mode)  # type: ignore[arg-type]
    assert Scale.for_metric(sign, metric).to_core(2.0) == 2.0 * factor


def test_numbers_become_json() -> None:
    assert [jsonable(x) for x in (1.5, None, "a", math.inf)] == [1.5, None, "a", "inf"]
