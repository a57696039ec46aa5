"""Recipe files: the shapes they come in, and what is refused."""

from __future__ import annotations

import json

import pytest

from hpo.adapters.recipe_files import read_recipes

BODY = {"n_params": 1e6, "n_tokens": 2e7, "batch_tokens": 1e4, "lr": 1e-2, "weight_decay": 0.1, "schedule": "linear"}


@pytest.mark.parametrize(
    "content",
    [
        [{"name": "a", **BODY}, {"name": "b", **BODY}],
        {"a": BODY, "b": BODY},
        {"recipes": [{"run_id": "a", **BODY}, {"run_id": "b", **BODY}]},
        {"models": {"a": BODY, "b": {"recipe": {**BODY, "schedule": {"name": "linear"}}}}},
    ],
)
def test_lists_and_mappings_are_read(tmp_path, content):
    (tmp_path / "f.json").write_text(json.dumps(content))
    made = read_recipes(tmp_path / "f.json")
    assert [c.run_id for c in made] == ["a", "b"]
    assert made[1].tpp == pytest.approx(20)
    assert made[1].tau == pytest.approx(0.5)
    assert str(made[1].schedule) == "linear"


def test_tables_are_read(tmp_path):
    (tmp_path / "f.csv").write_text("run_id,n_params,total_tokens,schedule\na,1e6,2e7,linear\nb,2e6,4e7,\n")
    made = read_recipes(tmp_path / "f.csv")
    assert [c.tpp for c in made] == [20, 20]
    assert made[1].schedule is None


def test_published_controls_stand_in_for_unpublished_quantities(tmp_path):
    (tmp_path / "f.yaml").write_text(
        "a: {tpp: 234, tau: 0.051}\nb: {n_params: 2e9, n_tokens: 4e10, warmup_tokens: 1e9, tau: 0.1}\n"
    )
    first, second = read_recipes(tmp_path / "f.yaml")
    assert (first.tpp, first.tau) == (234, 0.051)
    assert second.warmup_fraction == pytest.approx(0.025)


@pytest.mark.parametrize("length", ["total_steps: 4000", "total_steps: .nan, batch_tokens: 1e7", "batch_tokens: 1e7"])
def test_a_warm_up_in_steps_is_a_fraction_of_the_run(tmp_path, length):
    (tmp_path / "f.yaml").write_text(f"a: {{n_params: 2e9, n_tokens: 4e10, warmup_steps: 200, {length}}}\n")
    (made,) = read_recipes(tmp_path / "f.yaml")
    assert made.warmup_fraction == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "expected a list of recipes"),
        ("{", "YAML, JSON or a table"),
        ("", "found nothing"),
        ("a: {n_params: -5, tpp: 3}", "n_params must be a finite number above 0; found -5"),
        ("a: {lr: 1}", "expected n_params and n_tokens, or tpp and tau"),
        ("[{name: a, tpp: 3}, {name: a, tpp: 3}]", "found a more than once"),
    ],
)
def test_what_is_not_a_recipe_is_refused_in_one_line(tmp_path, text, message):
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_recipes(tmp_path / "f.yaml")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="No such file"):
        read_recipes(tmp_path / "none.yaml")
