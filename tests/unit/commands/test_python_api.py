"""``hpo.sweep``: what it makes of its arguments before anything runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import optuna
import pytest

import hpo
from hpo.commands import python_api

TARGET = {"n_steps": 100, "n_params": 1000, "batch_tokens": 10}


def train(settings, session):
    """A training function that can be imported."""


def test_optuna_distributions_become_a_space():
    space = {
        "lr": optuna.distributions.FloatDistribution(1e-4, 1e-1, log=True),
        "depth": optuna.distributions.IntDistribution(2, 8, step=2),
        "act": optuna.distributions.CategoricalDistribution(["relu", "gelu"]),
        "tau": {"type": "float", "low": 0.1, "high": 0.4},
    }
    assert python_api._as_space(space) == {
        "parameters": {
            "lr": {"type": "float", "low": 1e-4, "high": 1e-1, "log": True},
            "depth": {"type": "int", "low": 2, "high": 8, "step": 2},
            "act": {"type": "categorical", "choices": ["relu", "gelu"]},
            "tau": {"type": "float", "low": 0.1, "high": 0.4},
        }
    }


def test_a_function_is_sent_by_value_only_where_it_cannot_be_imported():
    assert python_api._is_importable(pytest.importorskip)
    assert not python_api._is_importable(lambda settings, session: None)

    def local(settings, session): ...

    assert not python_api._is_importable(local)
    assert python_api._label(local).endswith(":local")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"space": {"lr": 3}}, r"space.lr must be an Optuna distribution or a mapping with a type; found 3"),
        ({"space": [1, 2]}, r"space must be a name, a file, or a mapping of names to parameters; found \[1, 2\]"),
        ({"target": [1, 2]}, r"target must be a mapping of names to values; found \[1, 2\]"),
        ({"target": {**TARGET, "loss": print}}, r"target.loss must be a number, a text, .*; found <built-in function print>"),
        ({"proxies": 3}, r"proxies must be a mapping of names to values; found 3"),
        ({"out": 3}, r"out must be the path of the run folder; found 3"),
        ({"settle": 1}, r"settle: expected at least 2 seeds each .*; found 1"),
        ({"recipe": print}, r"recipe: expected .*string; found <built-in function print>"),
        ({"trainable": "mine:train"}, r"trainable must not be given beside the function itself"),
        ({"nonsense": 1}, r"nonsense: expected one of name, seed, .*; found an unknown key"),
        ({"proxies": None}, r"proxies: expected sizes and settings"),
        ({"stopping": "guess"}, r"stopping.rule: expected 'select' or 'prune'; found 'guess'"),
        ({"resume": True}, r"out must name the run folder"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    space = {"lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 4}}
    given = {"space": space, "target": TARGET, "proxies": {"sizes": [{"n_params": 500}], "settings": 2}, **arguments}
    with pytest.raises(ValueError, match=message) as raised:
        hpo.sweep(train, **given)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_only_functions_of_settings_and_session_are_swept():
    with pytest.raises(ValueError, match="train must be a function"):
        hpo.sweep("mine:train", {}, target=TARGET)
    space = {"lr": {"type": "float", "grid": [0.1]}}
    with pytest.raises(
        ValueError, match=r"trainable: expected a function of \(settings, session\); found <lambda>\(settings\)"
    ):
        hpo.sweep(lambda settings: None, space, target=TARGET)


def test_numpy_numbers_paths_and_tuples_are_written_as_plain_values():
    given = {
        "n_steps": np.int64(100),
        "lr": np.float32(0.5),
        "data": Path("a/b"),
        "betas": (0.9, 0.95),
        "deep": {"x": np.bool_(True)},
    }
    plain = python_api._plain("target", given)
    assert plain == {"n_steps": 100, "lr": 0.5, "data": "a/b", "betas": [0.9, 0.95], "deep": {"x": True}}
    assert type(plain["n_steps"]) is int


def test_a_storage_that_cannot_be_opened_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = {"lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 4}}
    with pytest.raises(ValueError, match=r"storage: expected an Optuna storage URL that can be opened"):
        hpo.sweep(train, space, target=TARGET, stopping="prune", storage="sqlite:////nowhere/at/all.db", out="mine")
    assert not (tmp_path / "mine").exists()
