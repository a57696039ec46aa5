import subprocess
import sys

import pytest

from search_spaces import BUILT_IN, RunContext, load_space

LR = {"type": "float", "low": 1e-3, "high": 1e-1, "log": True}
RUN = RunContext(n_params=1e5, n_tokens=2_048_000, seq_len=64, batch_sequences=16, lr=0.01, weight_decay=0.1)


def space(first=(), fixed=None, **parameters):
    return {"parameters": parameters, "first": list(first), "fixed": fixed or {}}


@pytest.mark.parametrize("name", BUILT_IN)
def test_built_in_spaces_have_a_grid_candidates_and_settings(name):
    made = load_space(name)
    grid = made.candidates("grid")
    assert len(grid) >= 9
    assert all(made.checked(point) == point for point in grid)
    for point in grid + made.candidates(20, seed=3):
        settings = made.derive(point, RUN)
        assert set(settings) >= {"lr", "weight_decay", "batch_sequences", "n_steps"}
        assert settings["lr"] * settings["weight_decay"] <= 1


def test_loading_a_space_and_deriving_imports_neither_optuna_nor_scipy():
    code = "import sys, search_spaces; search_spaces.load_space('lr_tau').grid(); print({'optuna', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_numbers_of_yaml_1_2_are_numbers(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "parameters:\n  lr: {type: float, low: 1e-3, high: 1E-1, log: true}\n  eps: {type: categorical, choices: [1e-8, 5]}\n"
    )
    made = load_space(path)
    assert (made.parameters["lr"].low, made.parameters["lr"].high) == (0.001, 0.1)
    assert made.parameters["eps"].choices == [1e-8, 5]


def test_a_grid_alone_states_the_range():
    one = load_space(space(lr={"type": "float", "grid": [0.1, "1e-2", 0.05]})).parameters["lr"]
    assert (one.low, one.high, one.grid_values()) == (0.01, 0.1, [0.01, 0.05, 0.1])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "parameters: expected a value; found none"),
        ([1], "expected a search space's name, file or mapping with parameters; found list"),
        (space(lr=3), "parameters.lr: expected "),
        (space(lr={"low": 1, "high": 2}), "parameters.lr.type: expected float, int or categorical; found 'none'"),
        (space(lr={**LR, "type": "real"}), "parameters.lr.type: expected float, int or categorical; found 'real'"),
        (space(lr={**LR, "low": "small"}), "parameters.lr.low: expected .*number.*; found 'small'"),
        (space(lr={**LR, "low": True}), "parameters.lr.low: expected a number; found 'True'"),
        (space(lr={**LR, "high": float("inf")}), "parameters.lr.high: expected a finite number; found 'inf'"),
        (space(lr={**LR, "low": 1}), "parameters.lr.low: expected at most high, 0.1; found 1"),
        (space(lr={**LR, "low": 0}), "parameters.lr.low: expected a value above 0 on a log scale; found 0"),
        (space(lr={**LR, "step": 0.1}), "parameters.lr.step: expected no step on a log scale; found step 0.1"),
        (space(lr={**LR, "grid": [0.5]}), r"parameters.lr.grid: expected values within \[0.001, 0.1\]; found 0.5"),
        (space(lr={**LR, "grid": [0.01], "points": 3}), "parameters.lr.points: expected grid or points, not both; found both"),
        (space(lr={**LR, "lo": 1}), "parameters.lr.lo: expected no such key; found 'lo'"),
        (space(n={"type": "int", "low": 1.5, "high": 3}), "parameters.n.low: expected a valid integer"),
        (
            space(o={"type": "categorical", "choices": ["a", "a"]}),
            "parameters.o.choices: expected distinct values; found 'a' twice",
        ),
        (space(lr={**LR, "when": {"o": "a"}}), "parameters.lr.when.o: expected an earlier categorical parameter; found 'o'"),
        (
            space(o={"type": "categorical", "choices": ["a", "b"]}, lr={**LR, "when": {"o": "c"}}),
            "parameters.lr.when.o: expected one of a, b; found 'c'",
        ),
        (space(lr=LR, first=[{"lr": 1}]), r"first.0.lr: expected a number in \[0.001, 0.1\]; found 1"),
        (space(lr=LR, first=[{"lr": 0.01}, {}]), r"first.1.lr: expected a number in \[0.001, 0.1\]; found none"),
        (space(lr=LR, first=[{"tau": 1}]), "first.0.tau: expected one of lr; found 'tau'"),
        (space(lr=LR, fixed={"lr": 1}), "fixed.lr: expected no parameter that is searched; found 'lr'"),
        (space(tau=LR, fixed={"weight_decay": 1}), "fixed.weight_decay: expected tau or weight_decay, not both; found both"),
    ],
)
def test_a_wrong_value_is_told_by_its_path_in_one_line(data, message):
    with pytest.raises(ValueError, match="^" + message) as caught:
        load_space(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("parameters: {lr: [", r"mine.yaml line 1: expected YAML"),
        ("parameters: {}\nparameters: {}\n", "key 'parameters' is given twice"),
        ("!!python/object/apply:os.system ['true']", "expected YAML; found could not determine a constructor"),
        ("", "expected a mapping with parameters; found NoneType"),
        ("parameters:\n  lr: {type: float, low: 2, high: 1}\n", r"mine.yaml: parameters.lr.low: expected"),
    ],
)
def test_bad_yaml_names_the_file(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        load_space(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["no_such_space", "", "/"])
def test_an_unknown_name_lists_the_built_in_ones(name):
    with pytest.raises(ValueError, match="must be one of lr, tau, lr_tau, batch_fixed_tau or a readable YAML file"):
        load_space(name)
