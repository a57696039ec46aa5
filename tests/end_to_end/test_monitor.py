"""``hpo monitor`` on published runs: silent while healthy, and on a fault put into one of them."""

from __future__ import annotations

import numpy as np
import pytest

from hpo.adapters.curve_files import read_runs
from hpo.core.model import CollapseModel
from hpo.core.monitor import Monitor


@pytest.fixture(scope="module")
def ladder(curves_folder):
    return {run.run_id: run for run in read_runs(curves_folder / "olmo_ladder.parquet")}


def watched(ladder, run_id, fault=None):
    run = ladder[run_id]
    size, multiple = run_id.split("-")
    family = [one.curve() for name, one in ladder.items() if name.endswith(f"-{multiple}") and not name.startswith(f"{size}-")]
    monitor = Monitor(CollapseModel.fit(family), run.recipe, total=run.horizon, metric=run.metric, judge_every=0.005)
    values = run.values if fault is None else run.values * np.exp(fault(run.steps / run.horizon))
    for step, value in zip(run.steps.tolist(), values.tolist(), strict=True):
        monitor.update(step, value)
    return monitor.judge()


@pytest.mark.parametrize("size", ["190M", "370M", "760M", "1B", "3B"])
@pytest.mark.parametrize("multiple", ["1xC", "2xC"])
def test_healthy_ladder_runs_are_silent(ladder, size, multiple):
    status = watched(ladder, f"{size}-{multiple}")
    assert status.status == "ok"
    assert status.final_loss == pytest.approx(ladder[f"{size}-{multiple}"].curve().final_loss, rel=0.002)


@pytest.mark.parametrize("size", ["370M", "760M", "3B"])
def test_a_lasting_half_percent_is_found_in_a_ladder_run(ladder, size):
    status = watched(ladder, f"{size}-2xC", lambda t: np.where(t >= 0.6, 0.005, 0.0))
    assert (status.status, status.kind) == ("alarm", "step")
    assert status.onset == pytest.approx(0.6, abs=0.03)
    assert status.detected_at <= 0.65
    assert status.size_pct == pytest.approx(0.5, abs=0.15)
