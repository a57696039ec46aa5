from __future__ import annotations

import pytest

pytest.importorskip("ray")

from bench.decision_latency import measure


def test_reports_are_timed_and_some_of_them_are_judged():
    found = measure(n_trials=5, n_reports=60)
    assert 0 < found["report_ms"] <= found["p99_ms"]
    assert found["judged_ms"] > 0
    assert found["learned_us"] > 0
