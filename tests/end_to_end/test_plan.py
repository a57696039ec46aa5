"""``hpo plan`` and ``fit-tau`` as a user meets them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import yaml
from planning_commands import plan, planning_commands

from hpo.engine.config import load_config
from hpo.engine.plan import plan_sweep

KEYS = {
    *("name", "n_params", "n_tokens", "tpp", "tau", "n_steps", "batch_sequences", "batch_tokens", "lr", "weight_decay"),
    *("lr_times_weight_decay", "warmup_fraction", "flops"),
}
LADDER = ("--sizes", "48x2", "--head-dim", "8", "--ladder", "0.5", "--rungs", "2", "--tpp", "20", "--batch", "8")


@pytest.fixture
def hpo():
    """Run a command; returns exit code, stdout, stderr."""
    return planning_commands()


def test_json_holds_recipes_and_notes(hpo):
    document = plan(hpo, "--family", "celerity", "--tpp", "20,80,234")
    assert set(document) == {"recipes", "notes"}
    assert len(document["recipes"]) == 15
    assert all(set(recipe) >= KEYS for recipe in document["recipes"])


def test_a_given_rate_splits_the_product(hpo):
    recipe = plan(hpo, "--family", "celerity", "--sizes", "300M", "--tpp", "20", "--lr", "0.02")["recipes"][0]
    assert recipe["lr"] == 0.02
    assert recipe["lr"] * recipe["weight_decay"] == pytest.approx(recipe["lr_times_weight_decay"])
    hidden = recipe["groups"]["hidden_matrix"]
    assert hidden["lr"] * hidden["weight_decay"] == pytest.approx(recipe["lr_times_weight_decay"])


def test_a_fixed_warm_up_lifts_the_published_cap(hpo):
    document = plan(hpo, "--family", "celerity", "--tpp", "20", "--warmup", "0.1")
    assert {recipe["warmup_fraction"] for recipe in document["recipes"]} == {0.1}
    assert not any("departs" in note for note in document["notes"])


def test_hours_and_money(hpo):
    recipe = plan(hpo, "--params", "1e9", "--tpp", "20", "--flops-per-s", "4e14", "--price", "2")["recipes"][0]
    assert recipe["gpu_hours"] == pytest.approx(recipe["flops"] / 4e14 / 3600)
    assert recipe["price"] == pytest.approx(2 * recipe["gpu_hours"])


def test_a_budget_gives_the_widest_model_that_fits(hpo):
    recipe = plan(hpo, "--compute", "1e16", "--tpp", "20", "--depth", "4", "--head-dim", "16")["recipes"][0]
    assert recipe["flops"] == pytest.approx(1e16, rel=0.2)
    assert recipe["flops"] <= 1e16 * 1.001


def test_a_target_loss_becomes_compute(hpo):
    document = plan(hpo, "--target-loss", "2.5", "--tpp", "20")
    assert document["recipes"][0]["flops"] == pytest.approx(3.86e21, rel=0.01)
    assert any("loss 2.5 takes" in note for note in document["notes"])


def test_the_written_plan_is_a_sweep_that_runs_the_same_recipes(hpo, tmp_path):
    path = tmp_path / "plan.yaml"
    document = json.loads(hpo("plan", *LADDER, "--json", "-o", path)[1])
    sweep = plan_sweep(load_config(path))
    largest = document["recipes"][-1]
    for run in sweep.candidates:
        assert run.n_steps == largest["n_steps"]
        assert run.recipe.n_params == largest["n_params"]
        assert run.flops == pytest.approx(largest["flops"])
        assert run.recipe.lr * run.recipe.weight_decay == pytest.approx(largest["lr_times_weight_decay"])
        assert run.recipe.tau == pytest.approx(largest["tau"])
    proxies = {(run.recipe.n_params, run.n_steps) for run in sweep.proxies}
    assert proxies == {(r["n_params"], r["n_steps"]) for r in document["recipes"][:-1]}


def test_a_planned_rate_is_the_middle_of_those_that_the_sweep_tries(hpo, tmp_path):
    path = tmp_path / "plan.yaml"
    code, _, err = hpo("plan", *LADDER, "--lr", "0.02", "-o", path)
    assert (code, "a sweep over lr, about 0.02," in err) == (0, True)
    rates = sorted(run.searched["lr"] for run in plan_sweep(load_config(path)).candidates)
    assert (rates[0], rates[len(rates) // 2], rates[-1]) == pytest.approx((0.002, 0.02, 0.2))


def test_a_plan_no_sweep_can_hold_is_written_as_recipes(hpo, tmp_path):
    path = tmp_path / "plan.yaml"
    code, out, err = hpo("plan", "--family", "celerity", "--tpp", "20", "-o", path)
    assert code == 0
    assert "300M" in out
    assert "not a sweep: its runs differ in batch" in err
    assert len(yaml.safe_load(path.read_text())["recipes"]) == 5


def test_a_family_of_ones_own_and_options_that_win_over_it(hpo, tmp_path):
    path = tmp_path / "mine.yaml"
    mine = {
        "name": "mine",
        "model": {"head_dim": 8, "ffn": "swiglu"},
        "sizes": [{"width": 16, "depth": 2}, {"name": "big", "width": 48, "depth": 2}],
        "data": {"seq_len": 32},
        "tpp": 40,
        "tau": 0.3,
        "batch": 4,
        "schedule": {"name": "cosine", "final_ratio": 0.1},
    }
    path.write_text(yaml.safe_dump(mine))
    recipes = plan(hpo, path, "--tau", "0.2")["recipes"]
    assert [recipe["name"] for recipe in recipes] == ["16x2", "big"]
    assert {(recipe["tau"], recipe["tpp"], recipe["batch_tokens"]) for recipe in recipes} == {(0.2, 40, 128)}
    assert recipes[0]["schedule"] == {"name": "cosine", "parameters": {"final_ratio": 0.1}}
    assert recipes[0]["model"]["ffn"] == "swiglu"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "expected a family, sizes, params, compute or target_loss"),
        (("--sizes", "48x3"), "tpp: expected tpp, tokens, compute or target_loss; found none"),
        (("--sizes", "50x3", "--tpp", "20"), "head_dim: expected to divide model.width; found 16 and 50"),
        (("--sizes", "50", "--tpp", "20"), "sizes: expected WIDTHxDEPTH"),
        (("--params", "1e9", "--tokens", "2e10", "--tpp", "30"), "tpp and tokens must agree"),
        (("--params", "1e9", "--tpp", "20", "--vocab", "-5"), "expected no shape beside bare parameter counts"),
        (
            ("--sizes", "50x3,60x3", "--head-dim", "10", "--depth", "5", "--tpp", "20"),
            "found 5 beside one that each size states",
        ),
        (("--family", "celerity", "--tpp", "20", "--seq-len", "64"), "data.seq_len: expected none beside the published family"),
        (
            ("--sizes", "50x3", "--head-dim", "10", "--tpp", "20", "--loss-law", "mup"),
            "loss_law: expected target_loss beside it",
        ),
        (("--family", "celerity", "--tpp", "20", "--head-dim", "60"), "expected no shape beside the published family celerity"),
        (("--compute", "1e20", "--tpp", "20", "--vocab", "512"), "expected model.depth beside it"),
        (("--params", "-1", "--tpp", "20"), "--params: expected finite numbers above 0"),
        (("--params", "1e9", "--tpp", "0"), "--tpp: expected finite numbers above 0"),
        (("--params", "1e9", "--tpp", "nan"), "--tpp: expected finite numbers above 0"),
        (("--params", "1e9", "--tokens", "-5"), "tokens: expected greater than 0; found -5.0"),
        (("--params", "1e9", "--tpp", "1000"), "expected to lie in [20, 234] for tau"),
        (("--params", "1e9", "--tpp", "1000"), "found 1000; --extrapolate goes on"),
        (("--params", "1e9", "--tpp", "20", "--tau", "1e-6", "--extrapolate"), "a weight decay above 1/lr"),
        (("--params", "1e9", "--tpp", "20", "--tau", "5"), "tau: expected to lie in [0.0256, 0.447]"),
        (("--params", "1e9", "--tpp", "20", "--tau", "5"), "--extrapolate goes on all the same"),
        (("--params", "1e9", "--tpp", "20", "--lr", "0"), "lr: expected greater than 0"),
        (("--params", "1e9", "--tpp", "20", "--batch", "none"), "batch: expected a whole number of sequences"),
        (("--params", "1e9", "--tpp", "20", "--batch", "published"), "no batch of its own"),
        (("--family", "celerity", "--sizes", "7B"), "expected one of 300M, 500M, 900M, 1.8B, 3.9B; found 7B"),
        (("--family", "llama"), "family: expected"),
        (("--params", "1e9", "--tpp", "20", "--schedule", "zigzag"), "schedule"),
        (("--params", "1e9", "--tpp", "20", "--price", "2"), "flops_per_s: expected a value beside price_per_hour"),
        (("--sizes", "16x3", "--tpp", "20", "--ladder", "0.9"), "ladder: expected rungs of different widths"),
        (("nowhere.yaml",), "nowhere.yaml: expected a readable YAML file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(hpo, arguments, words):
    code, out, err = hpo("plan", *arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert words in err


def sweeps(path, law=(1.084, -0.527)):
    """Write three finished τ sweeps at 20, 40 and 80 tokens per parameter whose best τ obeys ``law``."""
    rows = ["run_id,n_params,batch_tokens,lr,weight_decay,total_steps,total_tokens,step,train_loss"]
    n_params, batch, steps = 1e6, 1e4, 200
    for tpp in (20, 40, 80):
        tokens = tpp * n_params
        best = law[0] * tpp ** law[1]
        for k, tau in enumerate((best * np.geomspace(0.2, 6, 8)).tolist()):
            final = 3 + 0.05 * math.log(tau / best) ** 2
            decay = batch / (0.01 * tau * tokens)
            head = f"t{tpp}-{k},{n_params},{batch},0.01,{decay!r},{steps},{tokens}"
            rows += [
                f"{head},{step},{final * (1 + 0.3 * (1 - step / steps)) if step < 190 else final}" for step in range(1, 201)
            ]
    path.write_text("\n".join(rows) + "\n")


def test_the_law_of_ones_own_sweeps_feeds_the_plan(hpo, tmp_path):
    sweeps(tmp_path / "runs.csv")
    law = tmp_path / "tau.json"
    code, out, err = hpo("fit-tau", tmp_path / "runs.csv", "-o", law, "--tpp", "60", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["law"]["exponent"] == pytest.approx(-0.527, abs=0.02)
    low, high = document["law"]["exponent_interval"]
    assert low < -0.527 < high
    assert document["predictions"][0]["tau"] == pytest.approx(1.084 * 60**-0.527, rel=0.02)
    recipe = plan(hpo, "--params", "1e9", "--tpp", "40", "--tau", law)["recipes"][0]
    assert recipe["tau"] == pytest.approx(1.084 * 40**-0.527, rel=0.02)


def test_the_columns_of_ones_own_sweeps_can_be_named(hpo, tmp_path):
    sweeps(tmp_path / "runs.csv")
    odd = tmp_path / "odd.csv"
    odd.write_text((tmp_path / "runs.csv").read_text().replace("step,train_loss", "k,ours", 1))
    code, _, err = hpo("fit-tau", odd)
    assert (code, err.count("\n")) == (2, 1)
    assert "--step" in err
    assert hpo("fit-tau", odd, "--step", "k", "--loss", "ours")[0] == 0
    assert hpo("efficiency", "frontier", odd, "--step", "k", "--loss", "ours")[0] == 0


def test_a_fitted_law_is_not_extrapolated_silently(hpo, tmp_path):
    sweeps(tmp_path / "runs.csv")
    law = tmp_path / "tau.json"
    assert hpo("fit-tau", tmp_path / "runs.csv", "-o", law, "--tpp", "234")[0] == 2
    assert hpo("fit-tau", tmp_path / "runs.csv", "-o", law)[0] == 0
    code, _, err = hpo("plan", "--params", "1e9", "--tpp", "234", "--tau", law)
    assert code == 2
    assert "[20, 80]" in err
    notes = plan(hpo, "--params", "1e9", "--tpp", "234", "--tau", law, "--extrapolate")["notes"]
    assert any("extrapolated" in note for note in notes)


def test_runs_without_a_decay_cannot_give_tau(hpo, tmp_path):
    (tmp_path / "runs.csv").write_text("step,total_steps,train_loss\n1,2,3.0\n2,2,2.0\n")
    code, _, err = hpo("fit-tau", tmp_path / "runs.csv")
    assert code == 2
    assert "known lr, weight_decay, batch_tokens" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sizes: [{width: 64, depth: 3, n_params: 1.0e+9}]", "sizes.0.n_params: expected the 278,976 parameters of 64x3"),
        ("sizes: [{n_params: big}]", "sizes.0.n_params: expected a finite number above 0; found big"),
        ("sizes: [{n_params: 1.0e+9, widht: 64}]", "sizes.0.widht: expected one of"),
        ("sizes: [{name: a, width: 64, depth: 3}, {name: a, width: 128, depth: 3}]", "sizes: expected every size once"),
    ],
)
def test_a_size_that_contradicts_itself_or_another_is_refused(hpo, tmp_path, text, words):
    (tmp_path / "mine.yaml").write_text(f"{text}\ntpp: 20\n")
    code, out, err = hpo("plan", tmp_path / "mine.yaml")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert words in err


def test_batches_are_shown_beside_the_optimal_and_the_critical_one(hpo):
    document = plan(hpo, "--params", "1e9", "--tpp", "20", "--batch", "4096")
    recipe = document["recipes"][0]
    assert recipe["optimal_batch_tokens"] < recipe["critical_batch_tokens"] < recipe["batch_tokens"]
    assert any(note.startswith("warning") and "critical batch" in note for note in document["notes"])


def test_a_law_of_another_schedule_is_remarked_on(hpo):
    notes = plan(hpo, "--params", "1e9", "--tpp", "20", "--schedule", "{name: wsd, cooldown_fraction: 0.2}")["notes"]
    assert any(note.startswith("warning") and "linear decay to zero" in note for note in notes)
    assert not any("linear decay" in note for note in plan(hpo, "--params", "1e9", "--tpp", "20")["notes"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "--params", "1e9", "--tpp", "20,20"), "tpp: expected every value once; found 20 twice"),
        (("fit-tau", "nowhere.csv", "--exponent", "nan"), "--exponent: expected a finite number"),
        (("fit-tau", "nowhere.csv", "--exponent", "-200"), "--exponent: expected within -10 and 10"),
        (("efficiency", "compression", "--tpp", "1e300"), "--tpp: expected numbers within"),
        (("efficiency", "compression", "--params", "1e300", "--json"), "params must lie within"),
        (("efficiency", "compression", "--optimal-tpp", "0"), "optimal_tpp must be finite and above 0"),
    ],
)
def test_bad_numbers_are_one_line(hpo, arguments, words):
    code, out, err = hpo(*arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert words in err


BUDGETS = (
    ("--compute", "1e15", "--head-dim", "4", "--depth", "3"),
    ("--target-loss", "2.5", "--head-dim", "64", "--depth", "24"),
)


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_ladder_below_what_a_budget_buys_is_a_sweep(hpo, tmp_path, budget):
    path = tmp_path / "plan.yaml"
    code, out, err = hpo("plan", *budget, "--tpp", "20", "--ladder", "0.25", "--batch", "8", "-o", path, "--json")
    assert (code, "a sweep over lr" in err) == (0, True)
    sizes = [recipe["n_params"] for recipe in json.loads(out)["recipes"]]
    assert [n / sizes[-1] for n in sizes] == pytest.approx([1 / 16, 1 / 4, 1], rel=0.3)
    assert len(load_config(path).proxies.sizes) == 2


def test_a_budget_that_whole_heads_leave_unspent_is_said(hpo):
    rough = ("--compute", "1e13", "--tpp", "20", "--depth", "3")
    assert any("uses 36 % of the budget: widths are whole heads of 16" in note for note in plan(hpo, *rough)["notes"])
    fine = ("--compute", "1e16", "--tpp", "20", "--depth", "4", "--head-dim", "4")
    assert not any("of the budget" in note for note in plan(hpo, *fine)["notes"])


def test_a_target_loss_is_met_by_the_next_width_up(hpo):
    loss, family = ("--target-loss", "2.5", "--tpp", "20"), ("--depth", "24", "--head-dim", "128")
    bare, document = plan(hpo, *loss), plan(hpo, *loss, *family)
    share = document["recipes"][0]["flops"] / bare["recipes"][0]["flops"]
    assert 1 < share < 1.2
    assert any(f"smallest width that reaches it, with {share:.3g} times" in note for note in document["notes"])


HUGE = "9" * 330


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "--params", "1e300", "--tpp", "20"), "--params: expected numbers within 1e-40 and 1e+40; found 1e300"),
        (("plan", "--params", "1e9", "--tpp", "20", "--flops-per-s", "1e-320"), "flops_per_s: expected within 1e-40"),
        (("plan", "--params", "1e9", "--tpp", "20", "--batch", HUGE), "batch: expected a whole number of sequences"),
        (("plan", "--sizes", f"64x{HUGE}", "--tpp", "20"), "sizes.0.depth: expected a whole number below"),
        (("plan", "--sizes", "64x3", "--tpp", "20", "--seq-len", HUGE), "data.seq_len: expected below"),
        (("plan", "--compute", "1e300", "--tpp", "20"), "compute: expected within"),
        (("plan", "--target-loss", "1e-30", "--tpp", "20", "--extrapolate"), "flops must lie within"),
    ],
)
def test_quantities_beyond_all_reason_are_one_line_and_leave_no_file(hpo, tmp_path, arguments, words):
    code, out, err = hpo(*arguments, "--json", "-o", tmp_path / "out.yaml")
    assert (code, out, len(err.splitlines()), list(tmp_path.iterdir())) == (2, "", 1, [])
    assert words in err


def test_the_largest_quantities_still_make_a_plan(hpo):
    recipe = plan(hpo, *("--params", "1e40", "--tpp", "100", "--flops-per-s", "1e-40", "--price", "1e40"))["recipes"][0]
    assert math.isfinite(recipe["price"])


def test_the_sweep_that_is_written_is_named_by_what_it_tunes(hpo, tmp_path):
    path = tmp_path / "plan.yaml"
    err = hpo("plan", "--sizes", "64x3,48x3", "--tpp", "20", "--batch", "8", "-o", path)[2]
    assert "a sweep over lr for 64x3" in err
    assert load_config(path).model.width == 64


@pytest.mark.parametrize(
    ("rule", "words", "power"), [("published", "square root of the size", 0.5), ("optimal", "as D^0.383", 0.383)]
)
def test_how_batches_grow_is_said_as_they_do(hpo, rule, words, power):
    document = plan(hpo, "--family", "celerity", "--tpp", "20", "--batch", rule)
    assert any(words in note for note in document["notes"])
    first, last = document["recipes"][0], document["recipes"][-1]
    grown = math.log(last["batch_tokens"] / first["batch_tokens"]) / math.log(last["n_params"] / first["n_params"])
    assert grown == pytest.approx(power, abs=0.02)


@pytest.mark.parametrize("horizon", [("--tokens", "1e7"), ("--compute", "1e13")])
def test_sizes_of_other_tokens_per_parameter_are_said_not_to_collapse(hpo, horizon):
    ladder = ("--sizes", "64x3", "--ladder", "0.5", "--rungs", "1", "--head-dim", "8", "--batch", "8", "--extrapolate")
    said = "curves collapse across sizes within one tpp, not across tpp"
    assert any(said in note for note in plan(hpo, *ladder, *horizon)["notes"])
    assert not any(said in note for note in plan(hpo, *ladder, "--tpp", "20")["notes"])


@pytest.mark.parametrize("command", ["plan", "plan-proxies"])
def test_what_is_read_is_not_overwritten(hpo, tmp_path, command):
    path = tmp_path / "mine.yaml"
    if command == "plan":
        path.write_text("params: [1.0e+9]\ntpp: 20\n")
    else:
        hpo("plan", *LADDER, "-o", path)
    before = path.read_text()
    code, out, err = hpo(command, path, "-o", path)
    assert (code, out, path.read_text()) == (2, "", before)
    assert "--output: expected another file than the one read" in err


def test_the_folder_of_a_sweep_stands_for_its_curves(hpo, tmp_path):
    (tmp_path / "curves").mkdir()
    sweeps(tmp_path / "curves" / "runs.csv")
    (tmp_path / "config.yaml").write_text("name: a sweep\n")
    (tmp_path / "decisions.jsonl").write_text('{"decision": "stop"}\n')
    code, out, err = hpo("fit-tau", tmp_path, "--json")
    assert (code, err) == (0, "")
    assert len(json.loads(out)["sweeps"]) == 3
