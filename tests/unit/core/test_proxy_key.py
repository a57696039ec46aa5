"""What must be alike for proxies to be reused, and how it is said that it is not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from synthetic import recipe

from hpo.core.proxy_key import ProxyKey, differences
from hpo.core.schedules import schedule, unknown_schedule

KEY = ProxyKey.of([recipe(tau=0.1), recipe(tau=0.4)], family="decoder", data="wiki", tokeniser="bytes")


def parts(wanted: ProxyKey, found: ProxyKey) -> list[str]:
    return [one.part for one in differences(wanted, found)]


def test_runs_of_one_schedule_and_horizon_have_one_key_whatever_their_settings_and_size():
    other = ProxyKey.of([recipe(tau=2.0, n_params=9e6)], family="decoder", data="wiki", tokeniser="bytes")
    assert parts(KEY, other) == []
    assert other.id == KEY.id


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("family", replace(KEY, family="encoder")),
        ("data", replace(KEY, data="books")),
        ("tokeniser", replace(KEY, tokeniser="gpt2")),
        ("metric", replace(KEY, metric="val_loss")),
        ("schedule", replace(KEY, schedules=((schedule("constant"), 0.1),))),
        ("schedule", replace(KEY, schedules=())),
        ("tpp", replace(KEY, tpp=(26.0, 26.0))),
        ("tpp", replace(KEY, tpp=(20.0, 80.0))),
        ("tpp", replace(KEY, tpp=None)),
    ],
)
def test_each_part_that_differs_is_named_with_both_values(part, other):
    (one,) = differences(KEY, other)
    assert one.part == part
    assert (one.wanted, one.found) == (KEY.in_words[part], other.in_words[part])
    assert str(one) == f"{part} {one.found} instead of {one.wanted}"


def test_tokens_per_parameter_match_within_a_quarter():
    assert parts(KEY, replace(KEY, tpp=(16.1, 24.9))) == []


def test_schedules_match_by_their_values_not_their_names():
    same = ProxyKey.of([recipe(sched=schedule("cosine", final_ratio=0.1))], family="f", data="d", tokeniser="t")
    other = ProxyKey.of([recipe(sched=schedule("cosine", final_ratio=0.101))], family="f", data="d", tokeniser="t")
    assert parts(same, other) == []


def test_a_model_of_more_schedules_teaches_a_sweep_of_one_of_them_not_the_reverse():
    both = replace(KEY, schedules=(*KEY.schedules, (schedule("constant"), 0.0)))
    assert parts(KEY, both) == []
    assert parts(both, KEY) == ["schedule"]


def test_unknown_schedules_match_under_one_label_only():
    mine, yours = ((unknown_schedule(label), 0.0) for label in ("mine", "yours"))
    assert parts(replace(KEY, schedules=(mine,)), replace(KEY, schedules=(mine,))) == []
    assert parts(replace(KEY, schedules=(mine,)), replace(KEY, schedules=(yours,))) == ["schedule"]


def test_a_key_comes_back_from_json():
    assert ProxyKey.from_dict(json.loads(json.dumps(KEY.to_dict()))) == KEY
    unknown = replace(KEY, tpp=None)
    assert ProxyKey.from_dict(unknown.to_dict()) == unknown


@pytest.mark.parametrize(
    "changes",
    [{"tpp": [1]}, {"tpp": [float("nan"), 1.0]}, {"tpp": [9, 1]}, {"tpp": [0, 1]}, {"data": 3}, {"more": 1}, {"schedules": {}}]
    + [{"schedules": [{"schedule": {"name": "linear"}, "warmup_fraction": bad}]} for bad in (None, 1.0, -0.1, True)],
)
def test_a_malformed_key_is_refused(changes):
    with pytest.raises(ValueError, match=r"key|schedule|tpp|warmup"):
        ProxyKey.from_dict({**KEY.to_dict(), **changes})
