"""``hpo efficiency`` as a user meets it."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest
from planning_commands import plan, planning_commands


@pytest.fixture
def hpo():
    """Run a command; returns exit code, stdout, stderr."""
    return planning_commands()


def test_compression_as_json(hpo):
    rows = json.loads(hpo("efficiency", "compression", "--tpp", "20,234", "--params", "1e9", "--json")[1])["rows"]
    assert rows[1]["params_ratio"] == pytest.approx(0.378, abs=5e-4)
    assert rows[1]["flops"] / rows[0]["flops"] == pytest.approx(1.67, abs=0.005)


def test_frontier_of_the_published_models_says_what_follows(hpo):
    document = json.loads(hpo("efficiency", "frontier", "--json")[1])
    found = document["comparison"]
    assert found["flops_saved_fraction"] == pytest.approx(0.58, abs=0.005)
    assert found["flops_saved_fraction_by_published_fit"] == pytest.approx(0.26, abs=0.005)
    assert found["flops_saved_fraction_by_refit_interval"][1] < found["claimed_flops_saved_fraction"]
    assert any("does not follow" in note for note in document["notes"])


def test_scaling_of_finished_runs_feeds_the_plan(hpo, tmp_path):
    rows = ["name,flops,loss,n_params,n_tokens"]
    rows += [
        f"m{k},{c},{(c / 1e30) ** -0.05},{(c / 120) ** 0.5},{20 * (c / 120) ** 0.5}" for k, c in enumerate((1e18, 1e19, 1e20))
    ]
    (tmp_path / "models.csv").write_text("\n".join(rows) + "\n")
    code, out, _ = hpo(
        *("efficiency", "scaling", "--models", tmp_path / "models.csv", "--at", "5e19", "-o", tmp_path / "law.json", "--json")
    )
    assert code == 0
    document = json.loads(out)
    assert document["law"]["exponent"] == pytest.approx(-0.05)
    assert document["scale"] == pytest.approx(1e30, rel=1e-6)
    assert document["predictions"][0]["loss"] == pytest.approx((5e19 / 1e30) ** -0.05)
    target = str((5e19 / 1e30) ** -0.05)
    planned = plan(hpo, "--target-loss", target, "--loss-law", tmp_path / "law.json", "--tpp", "20")["recipes"][0]
    assert planned["flops"] == pytest.approx(5e19, rel=0.01)


def test_a_table_without_its_columns_is_named(hpo, tmp_path):
    (tmp_path / "models.csv").write_text("name,accuracy\na,1\n")
    code, _, err = hpo("efficiency", "frontier", "--models", tmp_path / "models.csv")
    assert code == 2
    assert "expected columns name, flops and accuracy or loss; found accuracy, name" in err


def accuracies(path, scale):
    """Write three sizes of two runs each, whose best accuracy has an error of (C / 1e38)^−0.1."""
    rows = ["run_id,n_params,batch_tokens,total_steps,total_tokens,step,val_accuracy"]
    for n_params in (1e8, 3e8, 1e9):
        error = (6 * n_params * 20 * n_params / 1e38) ** -0.1
        for k in range(2):
            head = f"r{n_params:g}-{k},{n_params},1e6,200,{20 * n_params}"
            rows += [f"{head},{step},{(100 - error - 5 * k) * scale * step / 200}" for step in (50, 100, 150, 200)]
    path.write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize("scale", [1.0, 0.01])
def test_accuracies_of_finished_runs_are_fitted_as_shares_or_percent(hpo, tmp_path, scale):
    accuracies(tmp_path / "runs.csv", scale)
    arguments = ("efficiency", "scaling", tmp_path / "runs.csv", "--metric", "val_accuracy", "--at", "1e19", "--json")
    code, out, _ = hpo(*arguments)
    document = json.loads(out)
    assert code == 0
    assert len(document["models"]) == 3
    assert document["law"]["exponent"] == pytest.approx(-0.1, abs=1e-6)
    assert document["predictions"][0]["accuracy"] == pytest.approx(100 - (1e19 / 1e38) ** -0.1)


def test_models_of_one_number_of_tokens_per_parameter_can_be_fitted_alone(hpo, tmp_path):
    rows = ["name,flops,loss,n_params,n_tokens"]
    for tpp, factor in ((20, 1.0), (40, 0.9)):
        rows += [
            f"m{n:g}-{tpp},{6 * n * n * tpp},{factor * (6 * n * n * tpp / 1e30) ** -0.05},{n},{n * tpp}"
            for n in (1e8, 3e8, 1e9)
        ]
    (tmp_path / "models.csv").write_text("\n".join(rows) + "\n")
    document = json.loads(hpo("efficiency", "scaling", "--models", tmp_path / "models.csv", "--tpp", "20", "--json")[1])
    assert (len(document["models"]), document["notes"]) == (3, [])
    assert document["law"]["exponent"] == pytest.approx(-0.05)
    code, _, err = hpo("efficiency", "scaling", "--models", tmp_path / "models.csv", "--tpp", "30")
    assert code == 2
    assert "found 30, where theirs are 20, 40" in err


def test_a_model_that_a_cheaper_one_beats_is_named_with_it(hpo, tmp_path):
    (tmp_path / "models.csv").write_text("name,flops,loss\na,1e18,3.0\nb,2e18,3.1\nc,4e18,2.8\n")
    rows = json.loads(hpo("efficiency", "frontier", "--models", tmp_path / "models.csv", "--json")[1])["models"]
    assert [(row["on_frontier"], row["beaten_by"]) for row in rows] == [(True, None), (False, "a"), (True, None)]


@pytest.mark.parametrize("command", ["compression", "scaling", "frontier"])
def test_figures_are_well_formed_and_name_what_they_show(hpo, tmp_path, command):
    path = tmp_path / "figure.svg"
    assert hpo("efficiency", command, "--figure", path)[0] == 0
    words = " ".join(ET.parse(path).getroot().itertext())
    assert ("234 TPP" if command == "compression" else "Celerity-1.8B") in words


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("name,flops,accuracy\na,1e20,50\nb,1e21,101\n", "below 100; found b with 101"),
        ("name,flops,loss\na,1e20,2.5\nb,1e21,-2.8\n", "losses above 0; found b with -2.8"),
        ("name,flops,loss\na,1e20,2.5\na,1e21,2.4\n", "every name once; found a"),
    ],
)
def test_a_model_that_cannot_be_is_named(hpo, tmp_path, table, words):
    (tmp_path / "models.csv").write_text(table)
    code, _, err = hpo("efficiency", "frontier", "--models", tmp_path / "models.csv")
    assert code == 2
    assert words in err


def models(tmp_path, quality, values):
    path = tmp_path / "models.csv"
    path.write_text(f"name,flops,{quality}\n" + "".join(f"m{k},{10.0 ** (18 + k)},{v}\n" for k, v in enumerate(values)))
    return path


@pytest.mark.parametrize(
    ("quality", "values", "words"),
    [
        ("accuracy", (25.0, 25.1, 25.3), "100 − accuracy = "),
        ("accuracy", (0.4, 0.5, 0.6), "shares belong times 100"),
        ("loss", (3, 2.999, 2.998), "loss = "),
        ("loss", (3, 2.99, 2.995), "the interval of the exponent holds 0"),
        ("loss", (3, 3.1, 3.2), "quality falls as compute rises"),
    ],
)
def test_models_that_compute_hardly_changes_are_fitted_with_a_word(hpo, tmp_path, quality, values, words):
    path = models(tmp_path, quality, values)
    code, out, _ = hpo("efficiency", "scaling", "--models", path, "--at", "3e18")
    assert (code, words in out) == (0, True)
    assert json.loads(hpo("efficiency", "scaling", "--models", path, "--json")[1])["law"]["n_points"] == 3


@pytest.mark.parametrize(("quality", "value"), [("loss", 3), ("accuracy", 25)])
def test_models_of_one_quality_give_no_law(hpo, tmp_path, quality, value):
    code, out, err = hpo("efficiency", "scaling", "--models", models(tmp_path, quality, (value,) * 3))
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert f"some difference in {quality} to fit; found {value} of all" in err


def test_a_law_of_losses_that_rise_plans_nothing(hpo, tmp_path):
    law = tmp_path / "law.json"
    assert hpo("efficiency", "scaling", "--models", models(tmp_path, "loss", (3, 3.1, 3.2)), "-o", law)[0] == 0
    code, out, err = hpo("plan", "--target-loss", "3.05", "--tpp", "20", "--loss-law", law)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "loss_law: expected a loss that falls as compute rises" in err


def test_a_table_with_a_byte_order_mark_is_read(hpo, tmp_path):
    path = models(tmp_path, "loss", (3, 2.5, 2))
    path.write_text("\ufeff" + path.read_text(), encoding="utf-8")
    assert json.loads(hpo("efficiency", "frontier", "--models", path, "--json")[1])["models"][0]["name"] == "m0"


@pytest.mark.parametrize("command", ["compression", "scaling", "frontier"])
def test_a_figure_is_not_written_under_the_name_of_another_format(hpo, tmp_path, command):
    code, out, err = hpo("efficiency", command, "--figure", tmp_path / "q.png")
    assert (code, out, list(tmp_path.iterdir())) == (2, "", [])
    assert "--figure: expected a name that ends in .svg" in err
