"""``hpo check`` on published runs and recipes, in this process."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from hpo.commands.check import check

app = typer.Typer()
app.command()(check)

LLAMA2 = """
7B: {n_params: 7e9, n_tokens: 2e12, batch_tokens: 4e6, lr: 3e-4, weight_decay: 0.1, schedule: cosine_to_0.1x}
13B: {n_params: 13e9, n_tokens: 2e12, batch_tokens: 4e6, lr: 3e-4, weight_decay: 0.1, schedule: cosine_to_0.1x}
34B: {n_params: 34e9, n_tokens: 2e12, batch_tokens: 4e6, lr: 1.5e-4, weight_decay: 0.1, schedule: cosine_to_0.1x}
70B: {n_params: 70e9, n_tokens: 2e12, batch_tokens: 4e6, lr: 1.5e-4, weight_decay: 0.1, schedule: cosine_to_0.1x}
"""
KEYS = {"collapse", "delta", "noise_floor", "max_delta_pct", "controls", "mismatched", "outliers", "reason"}


@pytest.fixture
def hpo_check():
    def run(*arguments):
        done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
        return done.exit_code, json.loads(done.stdout) if done.exit_code < 2 else None, done.stderr

    return run


@pytest.mark.parametrize("ladder", ["1xC", "2xC"])
def test_olmo_ladder_collapses_at_matched_controls(hpo_check, curves_folder, ladder):
    code, said, _ = hpo_check(curves_folder / "olmo_ladder.parquet", "--run", f"*-{ladder}")
    assert code == 0
    assert set(said) == KEYS
    assert said["collapse"] is True
    assert said["mismatched"] == []
    assert said["max_delta_pct"] < 0.5


@pytest.mark.parametrize("size", ["190M", "370M", "760M", "1B", "3B"])
def test_olmo_runs_do_not_collapse_across_tokens_per_parameter(hpo_check, curves_folder, size):
    code, said, _ = hpo_check(curves_folder / "olmo_ladder.parquet", "--run", f"{size}-*")
    assert code == 1
    assert said["collapse"] is False
    assert "tpp" in said["mismatched"]
    assert 2.3 <= said["max_delta_pct"] <= 2.95


@pytest.mark.parametrize("name", ["cosine_24000", "cosine_72000", "wsd_20000_24000", "wsdld_20000_24000"])
def test_multipowerlaw_sizes_do_not_collapse_at_one_length(hpo_check, curves_folder, name):
    code, said, _ = hpo_check(curves_folder / "multipowerlaw.parquet", "--run", f"*/{name}")
    assert code == 1
    assert said["mismatched"] == ["tpp"]
    assert 0.85 <= said["max_delta_pct"] <= 1.15


def test_llama2_is_called_as_not_matching_from_its_recipes(hpo_check, tmp_path):
    (tmp_path / "llama2.yaml").write_text(LLAMA2)
    code, said, _ = hpo_check("--recipes", tmp_path / "llama2.yaml")
    assert code == 1
    assert said["collapse"] is None
    assert said["mismatched"] == ["tpp", "tau"]


@pytest.mark.parametrize(("tpp", "tau"), [(20, 0.175), (80, 0.087), (234, 0.051)])
def test_celerity_is_called_as_matching_from_its_recipes(hpo_check, tmp_path, tpp, tau):
    sizes = {"300M": 2.71e8, "500M": 5.03e8, "900M": 9.06e8, "1.8B": 1.81e9, "3.9B": 3.88e9}
    warmups = {name: min(0.1, 375e6 / (tpp * n)) for name, n in sizes.items()}
    recipes = {
        name: {"n_params": n, "n_tokens": tpp * n, "tau": tau, "schedule": "linear", "warmup_fraction": warmups[name]}
        for name, n in sizes.items()
    }
    (tmp_path / "celerity.json").write_text(json.dumps(recipes))
    code, said, _ = hpo_check("--recipes", tmp_path / "celerity.json")
    assert code == 0
    assert said["mismatched"] == []


def test_recipes_that_share_no_control_are_not_said_to_match(hpo_check, tmp_path):
    (tmp_path / "apart.yaml").write_text("a: {tpp: 20}\nb: {tau: 0.2}\nc: {tpp: 20, n_params: 1e9}\n")
    code, said, _ = hpo_check("--recipes", tmp_path / "apart.yaml")
    assert (code, said["mismatched"]) == (0, [])
    assert "not known for every run: tpp, tau" in said["reason"]
    done = CliRunner().invoke(app, ["--recipes", str(tmp_path / "apart.yaml")])
    assert done.stdout.startswith("recipes match as far as they could be compared: ")
    (tmp_path / "apart.yaml").write_text("a: {tpp: 20}\nb: {tau: 0.2}\n")
    code, _, err = hpo_check("--recipes", tmp_path / "apart.yaml")
    assert (code, err.count("\n")) == (2, 1)
    assert "found a: tpp; b: tau" in err


def test_curves_without_recipes_say_that_no_control_was_compared(hpo_check, tmp_path):
    for name in ("a", "b"):
        rows = [f"{step},{2 * (1 + 0.3 * (1 - step / 100) ** 2)},100" for step in range(1, 101)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["step,loss,total_steps", *rows]))
    code, said, _ = hpo_check(tmp_path / "a.csv", tmp_path / "b.csv")
    assert (code, said["collapse"]) == (0, True)
    assert "no control could be compared" in said["reason"]


def test_bad_input_is_one_line_and_exit_2(hpo_check, tmp_path):
    (tmp_path / "one.csv").write_text("step,loss,total_steps\n1,3,2\n2,2,2\n")
    for arguments in ([], ["no-such-file.csv"], [tmp_path / "one.csv"], ["--recipes", tmp_path / "none.yaml"]):
        code, _, err = hpo_check(*arguments)
        assert code == 2
        assert err.startswith("hpo: ")
        assert err.count("\n") == 1


def test_plain_logs_of_different_length_need_only_be_said_to_be_whole(hpo_check, tmp_path):
    for name, n, bend in (("a", 100, 0.3), ("b", 250, 0.3), ("c", 100, 0.5)):
        rows = [f"{step},{2 * (1 + bend * (1 - step / n) ** 2)}" for step in range(1, n + 1)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["step,loss", *rows]))
    alike = (tmp_path / "a.csv", tmp_path / "b.csv")
    code, _, said = hpo_check(*alike)
    assert code == 2
    assert "a: its total length is unknown" in said
    assert "--total" in said
    assert hpo_check(*alike, "--total", "last")[0] == 0
    code, found, _ = hpo_check(*alike, tmp_path / "c.csv", "--total", "last")
    assert (code, found["outliers"]) == (1, ["c"])
    assert hpo_check(*alike, "--total", "250")[2].count("\n") == 1  # one of them would be 40 % of the way
    assert hpo_check(*alike, "--total", "some")[0] == 2


def test_a_figure_is_not_named_as_another_format(tmp_path, curves_folder):
    target = tmp_path / "figure.png"
    done = CliRunner().invoke(app, [str(curves_folder / "olmo_ladder.parquet"), "--run", "*-1xC", "--figure", str(target)])
    assert (done.exit_code, target.exists()) == (2, False)
    assert "--figure: expected a name that ends in .svg" in done.stderr


def test_the_figure_is_an_svg(tmp_path, curves_folder):
    target = tmp_path / "figure.svg"
    done = CliRunner().invoke(app, [str(curves_folder / "olmo_ladder.parquet"), "--run", "*-1xC", "--figure", str(target)])
    assert done.exit_code == 0
    assert done.stdout.startswith("collapse: ")
    assert target.read_text().startswith("<svg")
