"""Errors and regrets, and how a result reads."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hpo.engine.result import error_pct, regrets
from hpo.engine.tables import summary_lines, trials_table


@dataclass
class _Run:
    name: str


def test_errors_are_signed_percentages():
    assert error_pct(2.2, 2.0) == pytest.approx(10.0)
    assert error_pct(1.8, 2.0) == pytest.approx(-10.0)
    assert error_pct(None, 2.0) is None
    assert error_pct(1.0, None) is None
    assert error_pct(1.0, 0.0) is None


def test_regret_is_zero_for_the_best_and_unknown_without_a_final_loss():
    finals = {"a": 2.0, "b": 2.1}
    found = regrets({"ours": _Run("a"), "current_best": _Run("b"), "transfer": _Run("c"), "none": None}, finals)
    assert found == {"ours": 0.0, "current_best": pytest.approx(5.0), "transfer": None, "none": None}


def test_a_result_without_a_forecast_can_be_shown_and_price_and_settlement_where_there_are():
    nothing = dict.fromkeys(("status", "final_loss", "sd", "lower", "upper", "p_best"))
    result = {
        "winner": {"lr": 0.01},
        "forecast": {"final_loss": None, "lower": None, "upper": None, "at_fraction": 0.2},
        "actual_final_loss": 2.0,
        "forecast_error_pct": None,
        "tie_set": [],
        "current_best_pick": None,
        "transfer_pick": {"lr": 0.01},
        "flops_spent": {"proxies": 1.0, "candidates": 1.0, "winner": 1.0, "total": 3.0},
        "flops_full_sweep": 4.0,
        "saved_fraction": 0.25,
        "break_even_trials": None,
        "trials": [
            {"number": 0, "settings": {"lr": 0.01}, "state": "winner", "reason": "no_family", "loss_at_stop": 3.0}
            | {"forecast": nothing, "actual_final_loss": 2.0},
            {"number": 1, "settings": {"opt": "sgd"}, "state": "failed", "reason": "boom", "loss_at_stop": None}
            | {"forecast": nothing, "actual_final_loss": None},
        ],
    }
    text = "\n".join(summary_lines(result))
    assert "it was not forecast" in text
    assert "25%" in text
    assert "settled" not in text
    assert trials_table(result).row_count == 2

    means = [{"number": 4, "mean": 2.5}, {"number": 3, "mean": 2.25}, {"number": 5, "mean": None}]
    text = "\n".join(summary_lines({**result, "price": 1.25, "settled": {"seeds": 2, "trials": means}}))
    assert "price             1.25" in text
    assert "settled           trial 3 at 2.2500, trial 4 at 2.5000 (means of 2 seeds)" in text
