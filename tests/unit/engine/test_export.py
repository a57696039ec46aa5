"""The winner as configurations that can be run."""

from __future__ import annotations

import yaml

from hpo.engine.config import SweepConfig, load_config, parse_config
from hpo.engine.export import export_winner, next_size_config, winner_config
from hpo.engine.plan import plan_sweep
from hpo.engine.run_folder import new_run_folder


def test_the_winners_configuration_is_one_run_with_its_very_settings(tiny):
    plan = plan_sweep(SweepConfig.model_validate({**tiny, "max_trials": 5, "time_budget": 9.0}))
    winner = plan.candidates[3]
    again = plan_sweep(parse_config(winner_config(plan, winner.searched)))
    assert [run.settings for run in again.candidates] == [winner.settings]
    assert again.proxies == ()
    assert again.config.time_budget is None


def test_the_next_size_tries_the_winner_first_and_has_the_old_target_as_a_proxy(tiny):
    plan = plan_sweep(SweepConfig.model_validate(tiny))
    winner = plan.candidates[3].searched
    larger = plan_sweep(parse_config(next_size_config(plan, winner)))
    assert larger.candidates[0].searched == winner
    assert len(larger.candidates) == len(plan.candidates)
    assert larger.candidates[0].settings["model"]["width"] == 32
    old_target = plan.candidates[0].settings["model"]
    assert {run.recipe.n_params for run in larger.proxies} == {plan.candidates[0].recipe.n_params}
    assert all(run.settings["model"] == old_target for run in larger.proxies)


def test_ones_own_settings_go_on_as_the_proxies_sizes_do(tiny):
    own = {key: value for key, value in tiny.items() if key not in ("model", "data", "training")}
    own["search"] = {"space": {"parameters": {"lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 4}}}}
    own |= {"trainable": "operator:add", "target": {"n_steps": 900, "n_params": 4000, "batch_tokens": 10, "kind": "a"}}
    own["proxies"] = {"sizes": [{"n_params": 1000}, {"n_params": 2000, "n_steps": 600}], "settings": 2}
    plan = plan_sweep(SweepConfig.model_validate(own))
    data = next_size_config(plan, plan.candidates[0].searched)
    assert data["target"] == {"n_steps": 1350, "n_params": 8000, "batch_tokens": 10, "kind": "a"}
    assert data["proxies"]["sizes"] == [{"n_params": 2000, "n_steps": 600}, {"n_params": 4000, "n_steps": 900}]
    plan_sweep(parse_config(data))


def test_both_files_are_read_back_and_a_settled_tie_decides(tiny, tmp_path):
    config = SweepConfig.model_validate(tiny)
    plan, folder = plan_sweep(config), new_run_folder(tmp_path / "run", config)
    one, other = (plan.candidates[i].searched for i in (1, 2))
    export_winner(plan, {"winner": one, "actual_final_loss": 3.0, "settled": {"winner": other}}, folder)
    assert plan_sweep(load_config(folder.winner)).candidates[0].searched == other
    assert yaml.safe_load(folder.next_size.read_text())["search"]["first"] == [other]
