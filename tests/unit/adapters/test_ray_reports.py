from __future__ import annotations

import math

import numpy as np
import pytest

from hpo.adapters.ray_reports import STRICT, allow_missing_metrics, number_in, settings_in, step_in


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.array(2.0), np.array([2.0])[0]])
def test_numbers_of_every_kind_are_read(value: object) -> None:
    assert number_in({"x": value}, "x") == 2.0


@pytest.mark.parametrize("result", [{}, {"x": None}, {"x": "2.0"}, {"x": [1, 2]}, {"x": np.ones(2)}])
def test_what_is_not_a_number_is_none(result: dict[str, object]) -> None:
    assert number_in(result, "x") is None


def test_a_value_may_be_nan_and_a_step_may_not() -> None:
    assert math.isnan(number_in({"x": math.nan}, "x") or 0.0)
    assert [step_in({"t": t}, "t") for t in (math.nan, math.inf, -1, 0, 3)] == [None, None, None, 0.0, 3.0]


def test_numbers_and_names_are_found_in_a_nested_config_the_outermost_first() -> None:
    config = {"lr": np.float64(0.1), "model": {"lr": 5.0, "width": 64}, "object": object(), "schedule": "linear"}
    assert settings_in(config) == {"lr": 0.1, "width": 64, "schedule": "linear"}


def test_rays_check_is_switched_off_unless_the_user_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STRICT, "0")
    allow_missing_metrics()
    import os

    assert os.environ[STRICT] == "0"
