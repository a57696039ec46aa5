from __future__ import annotations

import numpy as np
import pytest

from hpo.core.schedules import recorded_schedule, schedule, schedule_from_dict, schedules_match, unknown_schedule

ALL = [
    schedule("constant"),
    schedule("linear"),
    schedule("cosine", final_ratio=0.1),
    schedule("wsd", cooldown_fraction=0.2, shape="sqrt"),
    schedule("step", milestones=(0.5, 0.8), factor=0.1),
    schedule("exponential", final_ratio=0.01),
]


def test_decay_to_zero_warms_up_over_a_tenth_then_falls_to_exactly_zero():
    eta = schedule("linear")([0.0, 0.05, 0.1, 0.55, 1.0], warmup_fraction=0.1)
    np.testing.assert_allclose(eta, [0.0, 0.5, 1.0, 0.5, 0.0], atol=1e-15)


@pytest.mark.parametrize("made", ALL, ids=str)
def test_values_stay_within_zero_and_one_and_start_at_the_peak(made):
    eta = made(np.linspace(0, 1, 1001))
    assert eta.min() >= 0
    assert eta.max() <= 1
    assert eta[0] == 1


def test_wsd_cools_down_over_its_fraction_of_training_whatever_the_warmup():
    wsd = schedule("wsd", cooldown_fraction=0.2)
    np.testing.assert_allclose(wsd([0.79, 0.9, 1.0], warmup_fraction=0.1), [1.0, 0.5, 0.0], atol=1e-12)


@pytest.mark.parametrize("made", ALL, ids=str)
def test_a_recorded_schedule_matches_the_one_it_was_recorded_from(made):
    t = np.linspace(0, 1, 2001)
    recorded = recorded_schedule(t, 3e-4 * made(t, 0.02))
    if made.name != "step":  # a jump cannot be interpolated from 256 points to within the tolerance everywhere
        assert schedules_match(made, recorded, (0.02, 0.0))


def test_schedules_match_by_their_values_not_by_their_names():
    assert schedules_match(schedule("linear"), schedule("wsd", cooldown_fraction=1.0))
    assert not schedules_match(schedule("linear"), schedule("cosine"))


def test_unknown_schedules_match_by_label_only_and_never_a_known_one():
    assert schedules_match(unknown_schedule("a"), unknown_schedule("a"))
    assert not schedules_match(unknown_schedule("a"), unknown_schedule("b"))
    assert not schedules_match(unknown_schedule("constant"), schedule("constant"))


@pytest.mark.parametrize("made", [*ALL, unknown_schedule("x"), recorded_schedule([0, 0.5, 1], [0, 1, 0.2])], ids=str)
def test_dict_round_trip_gives_an_equal_schedule(made):
    assert schedule_from_dict(made.to_dict()) == made


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("triangle", {}, "must be one of"),
        ("linear", {"warmup": 0.1}, "has no parameter 'warmup'"),
        ("cosine", {"final_ratio": 1.5}, r"must lie in \[0, 1\]"),
        ("cosine", {"final_ratio": float("nan")}, r"must lie in \[0, 1\]"),
        ("wsd", {"cooldown_fraction": 0}, "above 0"),
        ("wsd", {"shape": "round"}, "linear, sqrt or cosine"),
    ],
)
def test_a_bad_schedule_is_refused_naming_the_value(name, parameters, words):
    with pytest.raises(ValueError, match=words):
        schedule(name, **parameters)


def test_a_recorded_schedule_needs_two_points_and_a_positive_rate():
    with pytest.raises(ValueError, match="two finite points"):
        recorded_schedule([0.5], [1e-3])
