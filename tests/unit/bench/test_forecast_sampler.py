"""The replay that compares samplers with and without forecasts, on made-up recorded runs."""

from __future__ import annotations

import numpy as np
import pytest
from optuna.samplers import RandomSampler
from optuna_studies import HORIZON, curve, steps

from bench import forecast_sampler
from bench.forecast_sampler import Table, compared, replayed, summary
from bench.records import Record
from hpo import Metric, RecordedRun

pytestmark = pytest.mark.usefixtures("quiet_optuna")


def table(n: int = 40, n_trials: int = 25, categories: tuple[str, ...] = ()) -> Table:
    """Return runs whose final value rises with the distance of their one setting from 0.3."""
    settings = np.linspace(0, 1, n)
    truth = 3.0 + np.abs(settings - 0.3)
    records = []
    for i, final in enumerate(truth.tolist()):
        reports = curve(final, steps(), wiggle=0.001, seed=i)
        at, values = np.array(list(reports), dtype=float), np.array(list(reports.values()))
        run = RecordedRun(run_id=str(i), steps=at, values=values, horizon=float(HORIZON), metric=Metric(end="last"))
        records.append(Record(run, {}, {}))
    return Table("made up", tuple(records), settings[:, None], categories, truth, None, n_trials)


def test_each_suggestion_runs_the_nearest_setting_that_was_not_run() -> None:
    made = table()
    study, picks = replayed(made, RandomSampler(seed=0))
    assert len(set(picks)) == len(picks) == 25
    first = study.trials[0].params["x0"]
    assert picks[0] == int(np.abs(made.settings[:, 0] - first).argmin())
    finished = [t for t in study.trials if t.state.name == "COMPLETE"]
    assert [t.value for t in finished] == [pytest.approx(made.records[picks[t.number]].run.values[-1]) for t in finished]
    assert 3 <= len(finished) < 25


def test_a_category_goes_before_a_distance() -> None:
    made = table(categories=tuple("ab" * 20))
    study, picks = replayed(made, RandomSampler(seed=0))
    chosen = [t.params["category"] for t in study.trials][:15]
    assert chosen == [made.categories[i] for i in picks][:15]


def test_forecasts_change_nothing_for_a_sampler_that_does_not_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(forecast_sampler.SAMPLERS, "tpe", RandomSampler)
    row = compared(table(), "tpe", 3)
    assert row is not None
    assert (row["suggestions"], row["best"]) == (0.0, 0.0)
    assert row["stopped"][0] == row["stopped"][1] > 0


def test_the_interval_is_paired_and_tables_weigh_alike() -> None:
    rows = [
        {"table": name, "seed": seed, "suggestions_without": 0.5, "suggestions": d, "best_without": 0.1, "best": 0.0}
        for name, d, seeds in (("a", -0.1, 10), ("b", -0.3, 30))
        for seed in range(seeds)
    ]
    found = summary(rows)["suggestions"]
    assert found["difference"] == pytest.approx(-0.2)
    assert found["interval95"] == pytest.approx([-0.2, -0.2])
    assert found["by_table"] == pytest.approx({"a": -0.1, "b": -0.3})
