"""What a sweep will run."""

from __future__ import annotations

import dataclasses
import itertools
import sys

import numpy as np
import pytest

from hpo.engine.config import InputError, SweepConfig, load_config, parse_config
from hpo.engine.plan import coordinates, plan_sweep, well_spread

OWN_TARGET = {"n_steps": 600, "n_params": 4000, "batch_tokens": 100}
GRID = [{"lr": lr, "tau": tau} for lr in (0.001, 0.01, 0.1) for tau in (0.1, 0.3, 0.9)]


def test_the_same_configuration_gives_the_same_plan(tiny):
    tiny["search"] |= {"candidates": 5}
    first, second = plan_sweep(parse_config(tiny)), plan_sweep(parse_config(tiny))
    assert [run.settings for run in first.candidates] == [run.settings for run in second.candidates]
    assert [run.name for run in first.proxies] == [run.name for run in second.proxies]


def test_proxies_have_the_searched_values_of_candidates(tiny):
    plan = plan_sweep(parse_config(tiny))
    searched = [run.searched for run in plan.candidates]
    assert len(plan.proxies) == 4
    assert all(run.searched in searched for run in plan.proxies)


def test_every_run_has_the_timescale_asked_for_at_every_size(tiny):
    tiny["training"] = {"tpp": 20.0, "batch_sequences": 8}
    plan = plan_sweep(parse_config(tiny))
    for run in (*plan.proxies, *plan.candidates):
        assert run.recipe.tau == pytest.approx(run.searched["tau"], rel=1e-9)
        assert run.recipe.base_lr == run.searched["lr"]
        assert run.recipe.tpp == pytest.approx(20, rel=0.01)


def test_planning_does_not_load_torch(tiny):
    before = "torch" in sys.modules
    plan_sweep(parse_config(tiny))
    assert ("torch" in sys.modules) == before


def test_candidates_stop_at_the_fraction_and_proxies_at_the_end(tiny):
    plan = plan_sweep(parse_config(tiny))
    assert {run.stop_step / run.n_steps for run in plan.proxies} == {1.0}
    assert all(abs(run.stop_step - 0.2 * run.n_steps) <= 0.5 for run in plan.candidates)


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.3, 0.5])
def test_a_run_is_judged_where_its_evaluation_at_that_share_is_there(tiny, fraction):
    run = plan_sweep(parse_config(tiny)).candidates[0]
    for n_steps in range(400, 700):
        evaluated = {max(1, round(k * n_steps / 50)) for k in range(1, 51)}  # as proxies.loop places them
        assert dataclasses.replace(run, n_steps=n_steps).step_at(fraction) in evaluated


def test_replicates_differ_in_seed_only(tiny):
    tiny["proxies"] |= {"settings": 1, "replicates": 2}
    one, two = plan_sweep(parse_config(tiny)).proxies
    assert one.settings["training"].pop("seed") + 1 == two.settings["training"].pop("seed")
    assert one.settings == two.settings


def test_points_to_try_first_come_first(tiny):
    tiny["proxies"]["settings"] = 2
    tiny["search"] |= {"candidates": 3, "first": [{"lr": 0.02, "tau": 0.5}]}
    plan = plan_sweep(parse_config(tiny))
    assert len(plan.candidates) == 3
    assert plan.candidates[0].searched == {"lr": 0.02, "tau": 0.5}


def test_max_trials_takes_points_from_all_over_the_grid_but_first_what_was_to_be_tried_first(tiny):
    tiny["search"]["first"] = [{"lr": 5e-3, "tau": 0.3}]
    tiny |= {"max_trials": 5}
    plan = plan_sweep(SweepConfig.model_validate(tiny))
    points = [run.searched for run in plan.candidates]
    assert len(points) == 5
    assert points[0] == {"lr": 5e-3, "tau": 0.3}
    corners = [(lr, tau) for lr in (3e-3, 4.8e-2) for tau in (0.1, 0.8)]
    assert [(p["lr"], p["tau"]) for p in points[1:]] == [pytest.approx(corner) for corner in corners]


def test_a_selection_of_several_needs_proxies_and_pruning_does_not(tiny):
    del tiny["proxies"]
    with pytest.raises(InputError, match="proxies: expected sizes and settings"):
        plan_sweep(SweepConfig.model_validate(tiny))
    assert plan_sweep(SweepConfig.model_validate({**tiny, "stopping": "prune"})).proxies == ()
    assert len(plan_sweep(SweepConfig.model_validate({**tiny, "max_trials": 1})).candidates) == 1


def test_well_spread_points_are_the_corners_and_then_the_middle():
    assert well_spread(GRID, 5) == [0, 2, 4, 6, 8]


def test_well_spread_points_are_distinct_up_to_all_of_them():
    for n in range(1, len(GRID) + 1):
        chosen = well_spread(GRID, n)
        assert len(set(chosen)) == n


def test_distances_are_in_log_units_and_know_categories():
    points = [{"lr": 1e-3, "opt": "a"}, {"lr": 1e-2, "opt": "a"}, {"lr": 1e-1, "opt": "b"}]
    position = coordinates(points)
    between = {pair: np.linalg.norm(position[pair[0]] - position[pair[1]]) for pair in itertools.combinations(range(3), 2)}
    assert between[0, 1] == pytest.approx(0.5)
    assert between[1, 2] == pytest.approx(np.sqrt(0.25 + 1.0))


def test_a_parameter_that_only_some_points_have_separates_them():
    position = coordinates([{"opt": "sgd", "momentum": 0.9}, {"opt": "sgd", "momentum": 0.8}, {"opt": "adamw"}])
    assert np.linalg.norm(position[0] - position[2]) > np.linalg.norm(position[0] - position[1]) > 0


def test_the_demo_meets_its_promises(repository):
    plan = plan_sweep(load_config(repository / "bench" / "demo.yaml"))
    largest = max(run.flops for run in plan.proxies)
    assert len({run.flops for run in plan.proxies}) >= 2
    assert min(run.flops for run in plan.candidates) >= 2.9 * largest
    assert len(plan.candidates) >= 9
    assert len({str(run.searched) for run in plan.proxies}) < len(plan.candidates)
    assert plan.config.stopping.keep_max <= 2


def test_ones_own_function_gets_target_size_and_searched_values(tiny):
    own = _own(tiny)
    plan = plan_sweep(parse_config(own))
    assert plan.candidates[0].settings | {"seed": 0} == {**own["target"], **plan.candidates[0].searched, "seed": 0}
    assert plan.proxies[0].recipe.n_params == 1000
    assert plan.candidates[0].flops == 6 * 4000 * 600 * 100


def test_ones_own_function_gets_the_weight_decay_of_tau(tiny):
    own = _own(tiny)
    own["target"] = {"n_params": 4000, "tpp": 20.0, "seq_len": 10, "batch_sequences": 10}
    own["proxies"]["sizes"] = [{"n_params": 1000}]
    own["search"]["space"]["parameters"]["tau"] = {"type": "float", "low": 0.1, "high": 0.8, "points": 2}
    plan = plan_sweep(parse_config(own))
    assert plan.candidates[0].n_steps == 800
    assert plan.candidates[0].recipe.tau == pytest.approx(plan.candidates[0].searched["tau"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trainable": "nowhere.at_all:train"}, r"trainable: expected an importable module; found no module nowhere"),
        ({"trainable": "json:nothing"}, r"trainable: expected a function nothing in json; found nothing"),
        ({"trainable": "operator:neg"}, r"trainable: expected a function of \(settings, session\); found neg\(a, /\)"),
        (
            {"trainable": "broken_module:train"},
            r"trainable: expected an importable broken_module; found .*broken_module.py, line 2\)",
        ),
        ({"recipe": "operator:add"}, r"recipe: expected a function of \(settings\); found add\(a, b, /\)"),
        ({"recipe": "json:dumps"}, r"recipe: expected a function that returns an hpo.Recipe; found str: "),
        ({"recipe": "operator:neg"}, r"recipe: expected a function that returns an hpo.Recipe; found TypeError: bad operand"),
        ({"target": {**OWN_TARGET, "n_steps": 0.5}}, r"target.n_steps: expected a whole number of at least 1; found 0.5"),
        ({"target": {**OWN_TARGET, "seed": "x"}}, r"target.seed: expected a whole number; found x"),
        ({"target": {"n_steps": 600}}, r"target: expected n_steps, n_params and batch_tokens"),
        ({"target": {"n_steps": 600, "n_params": 4000, "batch_tokens": -1}}, r"target: .*above 0; found -"),
        ({"target": {**OWN_TARGET, "n_steps": None}}, r"expected n_steps, .*found \['batch_tokens'"),
        ({"target": {**OWN_TARGET, "n_steps": "abc"}}, r"target.n_steps: expected a number; found abc"),
        ({"target": {**OWN_TARGET, "schedule": "linear"}}, r"target.schedule: expected a mapping with .*; found linear"),
        ({"target": {**OWN_TARGET, "schedule": [1]}}, r"target.schedule: expected a mapping with .*; found \[1\]"),
    ],
)
def test_ones_own_function_that_cannot_work_is_refused(tiny, change, message, tmp_path, monkeypatch):
    (tmp_path / "broken_module.py").write_text("x = 1\nx / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=message) as refused:
        plan_sweep(parse_config(_own(tiny) | change))
    assert "\n" not in str(refused.value)


def _own(tiny):
    del tiny["model"], tiny["training"], tiny["data"]
    del tiny["search"]["space"]["parameters"]["tau"]
    tiny["proxies"] = {"sizes": [{"n_params": 1000, "n_steps": 300}], "settings": 2}
    return {**tiny, "trainable": "operator:add", "target": OWN_TARGET}


def own_sweep(**proxy: object) -> dict[str, object]:
    target = {"n_steps": 100, "n_params": 4000, "batch_tokens": 100, "dataset": "wiki", "reader": {"tokenizer": "bytes"}}
    space = {"parameters": {"lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 3}}}
    sizes = [{"n_params": 1000, **proxy}]
    block = {"trainable": "operator:add", "target": target, "search": {"space": space}}
    return {**block, "proxies": {"sizes": sizes, "settings": 2}}


@pytest.mark.parametrize(
    ("proxy", "key"),
    [({"dataset": "books"}, "dataset"), ({"reader": {"tokenizer": "gpt2"}}, r"reader\.tokenizer"), ({"corpus": "x"}, "corpus")],
)
def test_proxies_of_other_data_than_the_targets_are_named_and_refused_unless_forced(proxy, key):
    made = own_sweep(**proxy)
    with pytest.raises(InputError, match=rf"proxies\.sizes\.0\.{key}: expected the target's .*other_data: true.*; found"):
        plan_sweep(parse_config(made))
    made["proxies"] |= {"other_data": True}
    assert len(plan_sweep(parse_config(made)).proxies) == 2


def test_proxies_of_another_vocabulary_than_the_targets_are_refused(tiny):
    tiny["proxies"]["sizes"] = [{"width": 8, "vocab_size": 300}]
    with pytest.raises(InputError, match=r"proxies\.sizes\.0\.vocab_size: expected the target's 256"):
        plan_sweep(parse_config(tiny))
