"""The simpler rules that a forecast has to beat, and what a decision is logged with."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from hpo.core.curve import Curve
from hpo.core.decision import StoppingSettings
from hpo.core.model import CollapseModel
from hpo.engine.config import parse_config
from hpo.engine.judging import Judgement, Look, current_best, judge, transfer
from hpo.engine.plan import plan_sweep


def _curve(run_id: str, final: float, until: int = 200, bad_step: int | None = None) -> Curve:
    steps = np.arange(1, until + 1)
    values = final * (1 + 0.3 * (1 - steps / 200) ** 2)
    if bad_step is not None:
        values = np.where(steps >= bad_step, math.nan, values)
    return Curve.from_points(steps, values, horizon=200, run_id=run_id, family="toy")


def _model() -> CollapseModel:
    return CollapseModel.fit([_curve(f"r{k}", 2 + 0.1 * k) for k in range(4)])


def _judged(*curves: Curve, **settings):
    return judge(_model(), curves, range(len(curves)), StoppingSettings(**settings), seed=0)


def test_current_best_is_the_lowest_loss_so_far():
    assert current_best(_judged(_curve("a", 2.0, 40), _curve("b", 1.9, 40), _curve("c", 2.1, 40))) == "b"


def test_current_best_is_the_first_of_equals_and_ignores_diverged_runs():
    assert current_best(_judged(_curve("a", 1.0, 40, bad_step=40), _curve("b", 2.0, 40), _curve("c", 2.0, 40))) == "b"


def test_without_a_finite_curve_there_is_no_current_best():
    assert current_best(Judgement(())) is None
    assert current_best(_judged(_curve("a", 1.0, 40, bad_step=1))) is None


def test_transfer_takes_the_settings_that_were_best_on_the_largest_proxies(tiny):
    tiny["proxies"] = {"sizes": [{"width": 8}, {"width": 8, "depth": 2}], "settings": 6}
    plan = plan_sweep(parse_config(tiny))
    large = max(run.recipe.n_params for run in plan.proxies)
    finals = {run.name: 2.0 if run.recipe.n_params == large else 1.0 for run in plan.proxies}
    best = next(run for run in plan.proxies if run.recipe.n_params == large and run.searched == plan.candidates[3].searched)
    assert transfer(plan.candidates, plan.proxies, finals | {best.name: 1.9}) == "trial-03"


def test_transfer_scores_a_candidate_by_its_nearest_proxy(tiny):
    plan = plan_sweep(parse_config(tiny))
    proxy = plan.proxies[0]
    moved = replace(
        plan.candidates[2], name="moved", searched={"lr": proxy.searched["lr"] * 1.01, "tau": proxy.searched["tau"]}
    )
    candidates = [run for run in plan.candidates if run.searched != proxy.searched]
    candidates.append(moved)
    finals = {run.name: 2.0 for run in plan.proxies} | {proxy.name: 1.0}
    assert transfer(candidates, plan.proxies, finals) == "moved"


def test_without_a_finished_proxy_nothing_is_transferred(tiny):
    plan = plan_sweep(parse_config(tiny))
    assert transfer(plan.candidates, plan.proxies, {}) is None


def test_a_judgement_repeats_exactly():
    curves = [_curve(f"t{k}", 1.8 + 0.01 * k, 40) for k in range(3)]
    one, two = (_judged(*curves).to_lines() for _ in range(2))
    assert [{**line, "time": ""} for line in one] == [{**line, "time": ""} for line in two]


def test_decisions_are_json_with_their_numbers_and_read_back_as_themselves():
    curves = [_curve("t0", 1.8, 40), _curve("t1", 2.4, 40), _curve("t2", 2.0, 40, bad_step=30)]
    judgement = judge(_model(), curves, [5, 6, 7], StoppingSettings(keep_max=1), seed=0)
    lines = judgement.to_lines()
    assert Judgement.read(json.loads(json.dumps(lines, allow_nan=False))) == judgement
    assert [line["trial"] for line in lines] == [5, 6, 7]
    assert [line["action"] for line in lines] == ["continue", "stop", "stop"]
    assert lines[2]["reason"] == "non_finite"
    assert {"fraction", "forecast", "lower", "upper", "p_best", "family", "n_references"} <= set(lines[0]["numbers"])
    assert lines[0]["numbers"]["fraction"] == pytest.approx(0.2)


def test_kept_and_reserve_are_ordered_by_the_chance_to_win_and_error_is_what_was_stopped():
    judgement = _judged(_curve("a", 2.4, 40), _curve("b", 1.80, 40), _curve("c", 1.801, 40), keep_max=1)
    assert len(judgement.kept) == 1
    chances = [verdict.p_best for verdict in (*judgement.kept, *judgement.reserve)]
    assert chances == sorted(chances, reverse=True)
    assert judgement.error_spent == pytest.approx(1 - judgement.kept[0].p_best)
    assert set(judgement.tie_set) == {1, 2}


def test_what_cannot_be_forecast_goes_on_last():
    judgement = judge(CollapseModel.fit([]), [_curve("a", 2.0, 40)], [0], StoppingSettings(), seed=0)
    assert [verdict.reason for verdict in judgement.kept] == ["no_references"]
    assert judgement.reserve == []


def test_a_later_look_judges_those_that_go_on_and_remembers_the_first():
    curves = [_curve("a", 1.80, 40), _curve("b", 1.801, 40), _curve("c", 2.4, 40)]
    first = judge(_model(), curves, range(3), StoppingSettings(), 0, Look(n_later=1))
    assert [verdict.run for verdict in first.kept] in (["a", "b"], ["b", "a"])
    longer = [_curve("a", 1.80, 100), _curve("b", 1.801, 100), curves[2]]
    look = Look(1, 0, {"a", "b"}, first.error_spent)
    both = first.replaced(judge(_model(), longer, range(3), StoppingSettings(keep_max=1), 0, look).verdicts)
    assert [verdict.look for verdict in both.verdicts] == [1, 1, 0]
    assert [verdict.numbers["fraction"] for verdict in both.verdicts] == [pytest.approx(f) for f in (0.5, 0.5, 0.2)]
    assert [verdict.numbers["fraction"] for verdict in both.first] == [pytest.approx(0.2)] * 3
    assert len(both.kept) == 1
    assert both.look == 1
    assert Judgement.read(json.loads(json.dumps(both.to_lines()))) == both
