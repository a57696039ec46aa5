"""Which proxies, at how many settings, stopped where."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hpo.core.coordinates import Coordinates, size_coordinate
from hpo.core.proxy_beliefs import knowledge_before, usual_beliefs
from hpo.core.proxy_design import Keeping, Trial, cheapest_outcome
from hpo.core.proxy_search import FAR, Space, best_within, cheapest_designs, far_controls, judged, smallest_proxy
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule

RATES = np.geomspace(1e-3, 1.6e-2, 8).tolist()
STOPS = (0.15, 0.3)


def trial(n_params, lr):
    tokens = 20 * n_params
    made = Recipe(
        schedule=schedule("linear"), n_params=n_params, n_tokens=tokens, batch_tokens=tokens / 5000, lr=lr, weight_decay=0.1
    )
    return Trial(recipe=made, settings={"lr": lr}, flops=6 * n_params * tokens)


def space(n_params=1e8, shares=(0.5, 0.25), groups=((0,), (1,), (0, 1)), **options):
    candidates = tuple(trial(n_params, lr) for lr in RATES)
    known = knowledge_before(replace(usual_beliefs(n_params), misfit_sd=0.01), [c.point for c in candidates])
    return Space(
        candidates=candidates,
        sizes=tuple(tuple(trial(share * n_params, lr) for lr in RATES) for share in shares),
        spread=lambda n: np.linspace(0, len(RATES) - 1, n).round().astype(int).tolist(),
        known=known,
        keeping=Keeping(alpha=0.1),
        groups=groups,
        **options,
    )


def least_cost(whole):
    return min(cheapest_outcome(whole.candidates, whole.proxies(*plan), min(STOPS)) for plan in whole.plans())


def test_every_stop_has_its_cheapest_design_and_they_come_cheapest_first():
    made = cheapest_designs(space(), 0, STOPS)
    assert sorted(d.stop for d in made) == list(STOPS)
    assert [d.outlook.flops for d in made] == sorted(d.outlook.flops for d in made)
    assert all(d.outlook.p_best > 0.85 for d in made)


def test_no_other_design_is_much_cheaper():
    whole = space()
    best = cheapest_designs(whole, 0, (0.15,))[0]
    others = [judged(whole, sizes, settings, 0.15, 7) for sizes, settings in whole.plans()]
    enough = [d.outlook.flops for d in others if d.outlook.p_best >= whole.wanted]
    assert best.outlook.flops <= 1.05 * min(enough)


def test_a_budget_that_is_too_small_for_the_wanted_probability_buys_the_best_there_is():
    wanted = cheapest_designs(space(), 0, STOPS)[0]
    poor = space(budget=1.05 * least_cost(space()))
    made = best_within(poor, 0, STOPS)
    assert made.outlook.flops_at_most <= poor.budget * (1 + 1e-9)
    assert made.outlook.p_best < wanted.outlook.p_best
    assert cheapest_designs(poor, 0, STOPS) == []


def test_no_design_within_a_budget_can_cost_more_than_it():
    whole = space()
    free = cheapest_designs(whole, 0, STOPS)
    budget = free[0].outlook.flops_at_most * 0.8
    assert budget > free[0].outlook.flops
    within = cheapest_designs(replace(whole, budget=budget), 0, STOPS)
    assert within
    assert all(one.outlook.flops_at_most <= budget * (1 + 1e-9) for one in within)
    assert all(one.keep_max < len(whole.candidates) for one in within)


def test_a_budget_below_every_design_buys_nothing():
    assert best_within(space(budget=0.99 * least_cost(space())), 0, STOPS) is None


def test_sizes_too_far_below_a_tiny_target_are_not_taken():
    near, far = space(1e5, shares=(0.5, 0.1)).plans(), space(1e5, shares=(0.1,), groups=((0,),)).plans()
    assert {sizes for sizes, _ in near} == {(0,), (0, 1)}
    assert list(far) == []


def test_a_large_target_learns_from_a_tenth():
    assert {sizes for sizes, _ in space(1e9, shares=(0.1,), groups=((0,),)).plans()} == {(0,)}


def test_designs_have_the_proxies_that_judging_needs():
    counts = {settings for sizes, settings in space(groups=((0,),), min_proxies=6).plans()}
    assert counts == {6, 8}


@pytest.mark.parametrize("earliest", [0.2, 0.9])
def test_no_stop_lies_in_the_warm_up(earliest):
    made = cheapest_designs(space(earliest=earliest), 0, STOPS)
    assert made
    assert all(d.stop > earliest for d in made)


@pytest.mark.parametrize("n_params", [1e5, 1e7, 1e10])
def test_the_smallest_proxy_lies_just_within_reach(n_params):
    n = smallest_proxy(n_params)
    assert size_coordinate(n_params) - size_coordinate(n) == pytest.approx(FAR, rel=1e-6)


def test_many_candidates_are_searched_with_fewer_sweeps():
    assert space().n_search > replace(space(), candidates=space().candidates * 50).n_search


@pytest.mark.parametrize(
    ("n_params", "tpp", "tau", "far"),
    [
        (1e8, 20, 0.2, ()),
        (1e8, 39, 0.11, ()),
        (1e7, 20, 0.2, ()),
        (1e6, 20, 0.2, ("log_n",)),
        (6.7e3, 2, 0.2, ("log_n", "log_tpp")),
        (1e9, 41, 0.2, ("log_tpp",)),
        (1e8, 20, 0.9, ("log_tau",)),
    ],
)
def test_a_finished_run_teaches_only_near_the_candidates(n_params, tpp, tau, far):
    target = {"log_n": size_coordinate(1e8), "log_tpp": np.log(20), "log_tau": np.log(0.2)}
    run = {"log_n": size_coordinate(n_params), "log_tpp": np.log(tpp), "log_tau": np.log(tau)}
    assert far_controls(Coordinates(run), [Coordinates(target), Coordinates({**target, "log_tau": np.log(0.4)})]) == far
    assert far_controls(Coordinates({}), [Coordinates(target)]) == ()
