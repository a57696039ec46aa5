from __future__ import annotations

from bench.table import markdown_table

CELL = {"mae_pct": 8e300, "mae_pct_se": 2.0, "rho": 0.5}
RESULT = {
    "protocol": {"name": "p", "role": "test", "metric": "loss"},
    "tasks": [],
    "summary": {"hpo": {"0.1": CELL}},
    "left_out": [{"key": "a", "reason": "too few"}, {"key": "b", "reason": "too few"}],
}


def test_huge_numbers_are_short_and_what_was_left_out_is_said():
    table = markdown_table(RESULT, ("rho", "mae_pct", "crps"))
    assert "| 0.1 | hpo | 0.50 | 8.00e+300 ± 2.00 | – |" in table
    assert table.endswith("left out: 2 (a): too few")
