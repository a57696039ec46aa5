"""Expected against actual: the report on our own sweep, and the arithmetic of what a sweep found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bench.cli import app
from bench.methods import METHODS
from bench.methods.view import Method, Prediction
from bench.outlook import QUANTITIES, VIEWS, _actual
from bench.protocol import load_protocol
from bench.records import OWN_DATA, load_records
from bench.tasks import make_tasks
from hpo.core.proxy_design import Keeping


@pytest.fixture
def task():
    protocol = load_protocol("own_sweep_val")
    return make_tasks(protocol, load_records(OWN_DATA, protocol))[0][0]


def oracle(task, sign=1.0):
    """A method that knows the truth, or its opposite, to within 1e-4."""

    def predict(view):
        level = sign * np.log(task.truth)
        draws = level + 1e-4 * np.random.default_rng(0).standard_normal((200, level.size))
        return Prediction(level, level, np.full_like(level, 1e-4), np.full_like(level, np.inf), draws)

    return Method("landscape", predict)


def test_a_sweep_that_knows_the_truth_finds_it_for_the_least(task, monkeypatch):
    monkeypatch.setitem(METHODS, "landscape", oracle(task))
    found = _actual(task, 0.2, Keeping())
    assert (found["p_best_of_pick"], found["regret_of_pick_pct"], found["p_best"]) == (1, 0, 1)
    assert found["cost_share"] == pytest.approx(0.2 + 0.8 * found["kept_share"])
    assert found["kept_share"] <= 2 / 12


def test_a_sweep_that_has_it_all_wrong_pays_the_worst_regret(task, monkeypatch):
    monkeypatch.setitem(METHODS, "landscape", oracle(task, sign=-1.0))
    found = _actual(task, 0.2, Keeping())
    assert found["p_best_of_pick"] == 0
    assert found["regret_of_pick_pct"] == pytest.approx(100 * (np.max(task.truth) / np.min(task.truth) - 1))


def test_the_command_reports_on_our_own_sweep(tmp_path: Path) -> None:
    arguments = ("outlook", "--curves", str(OWN_DATA), "--protocols", "own_sweep_val", "--out", str(tmp_path), "--json")
    ended = CliRunner().invoke(app, arguments)
    report = json.loads(ended.stdout)
    assert ended.exit_code == 0
    assert [row["stop"] for row in report["rows"]] == [0.1, 0.2, 0.3, 0.5]
    for row in report["rows"]:
        for view in VIEWS:
            assert set(row[view]) == set(QUANTITIES)
            assert 0 <= row[view]["p_best_of_pick"] <= row[view]["p_best"] <= 1
            assert row["stop"] < row[view]["cost_share"] <= 1
    assert {path.name for path in tmp_path.iterdir()} == {"outlook.json", "outlook.md", "outlook.svg"}


def test_an_unknown_protocol_is_one_line(tmp_path: Path) -> None:
    ended = CliRunner().invoke(app, ("outlook", "--curves", str(tmp_path), "--protocols", "nope", "--out", str(tmp_path)))
    assert ended.exit_code == 2
    assert len(ended.stderr.splitlines()) == 1
