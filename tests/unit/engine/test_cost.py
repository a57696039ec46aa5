"""The arithmetic of compute."""

from __future__ import annotations

import json

import pytest
import yaml

from hpo.engine.config import parse_config
from hpo.engine.cost import Spending, estimate, spending
from hpo.engine.plan import plan_sweep


def test_parts_add_up_and_saving_is_against_the_full_sweep():
    spent = Spending(proxies=20.0, candidates=24.0, winner=8.0, full_sweep=120.0, n_candidates=12)
    assert spent.total == 52.0
    assert spent.saved_fraction == pytest.approx(1 - 52 / 120)


def test_break_even_is_where_the_sweep_first_costs_less():
    spent = Spending(proxies=20.0, candidates=24.0, winner=8.0, full_sweep=120.0, n_candidates=12)
    n = spent.break_even_trials
    assert n is not None

    def cost(trials: int) -> float:
        return 20.0 + 8.0 + trials * 2.0

    assert cost(n) < n * 10.0
    assert cost(n - 1) >= (n - 1) * 10.0


def test_without_a_saving_there_is_no_break_even():
    spent = Spending(proxies=20.0, candidates=120.0, winner=0.0, full_sweep=120.0, n_candidates=12)
    assert spent.break_even_trials is None
    assert spent.saved_fraction < 0


def test_spending_counts_the_steps_trained(tiny):
    plan = plan_sweep(parse_config(tiny))
    stopped, winner, proxy = plan.candidates[0], plan.candidates[1], plan.proxies[0]
    steps = {stopped.name: stopped.stop_step, winner.name: winner.n_steps, proxy.name: 10}
    spent = spending(plan, steps)
    assert spent.proxies == pytest.approx(proxy.flops * 10 / proxy.n_steps)
    assert spent.candidates == pytest.approx(2 * winner.flops_at(winner.stop_step))
    assert spent.winner == pytest.approx(winner.flops - winner.flops_at(winner.stop_step))
    assert spent.full_sweep == pytest.approx(sum(run.flops for run in plan.candidates))


def test_a_diverged_candidate_costs_what_it_trained(tiny):
    plan = plan_sweep(parse_config(tiny))
    assert spending(plan, {plan.candidates[0].name: 3}).candidates == pytest.approx(plan.candidates[0].flops_at(3))


def test_an_estimate_knows_hours_and_money(tiny):
    tiny |= {"resources": {"flops_per_s": 1e9}, "price_per_hour": 2.0}
    plan = plan_sweep(parse_config(tiny))
    one, two = estimate(plan, 1), estimate(plan, 2)
    assert one.hours == pytest.approx(one.spending.total / 1e9 / 3600)
    assert two.hours is not None
    assert one.hours > two.hours > one.hours / 2
    assert one.price == pytest.approx(2 * one.hours)


def test_a_dry_run_shows_the_estimate_and_writes_nothing(tmp_path, tiny, hpo, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tiny))
    code, out, err = hpo("sweep", "sweep.yaml", "--dry-run")
    assert (code, err) == (0, "")
    for word in ("expected cost", "full sweep", "expected saving", "break-even", "proxies"):
        assert word in out
    assert [p.name for p in tmp_path.iterdir()] == ["sweep.yaml"]


def test_a_dry_run_as_json_is_one_document(tmp_path, tiny, hpo):
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tiny))
    code, out, _ = hpo("sweep", tmp_path / "sweep.yaml", "--dry-run", "--json")
    estimated = json.loads(out)
    assert code == 0
    assert estimated["candidates"] == 6
    assert estimated["saved_fraction"] == pytest.approx(1 - estimated["flops_spent"]["total"] / estimated["flops_full_sweep"])


def test_rungs_are_estimated_by_the_same_share_left_at_each_look(tiny, hpo, tmp_path):
    tiny["stopping"] = {"at": 0.1, "rungs": [0.2, 0.4], "keep_max": 1}
    plan = plan_sweep(parse_config(tiny))
    made, run = estimate(plan, 1), plan.candidates[0]
    assert made.kept_at == pytest.approx({0.1: 6 ** (2 / 3), 0.2: 6 ** (1 / 3), 0.4: 1})
    first, second, third = (run.flops_at(int(at * run.n_steps)) for at in (0.1, 0.2, 0.4))
    stages = [6 ** (2 / 3) * (second - first), 6 ** (1 / 3) * (third - second), run.flops - third]
    assert made.spending.winner == pytest.approx(sum(stages), rel=1e-6)
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tiny))
    assert (
        "expected to go on: 3.3 after 10%, 1.8 after 20%, 1 after 40%" in hpo("sweep", tmp_path / "sweep.yaml", "--dry-run")[1]
    )


def test_without_rungs_the_estimate_is_the_one_look(tiny):
    made = estimate(plan_sweep(parse_config(tiny)), 1)
    assert made.kept_at == {0.2: 1}


def test_an_expected_number_that_is_not_whole_costs_what_lies_between(tiny):
    plan = plan_sweep(parse_config({**tiny, "resources": {"flops_per_s": 1e9}}))
    two, between, three = (estimate(plan, 1, kept) for kept in (2, 2.4, 3))
    assert between.kept == 2.4
    assert between.spending.total == pytest.approx(0.6 * two.spending.total + 0.4 * three.spending.total)
    assert between.hours == pytest.approx(0.6 * two.hours + 0.4 * three.hours)
