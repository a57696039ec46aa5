"""Sweeps that several modules use."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from command_line import OWN_SWEEP, CommandLine


@pytest.fixture
def hpo(tmp_path: Path) -> CommandLine:
    """The command line in a folder of its own."""
    return CommandLine(tmp_path)


@pytest.fixture
def own_sweep() -> Callable[..., dict[str, Any]]:
    """Return a maker of sweeps of the user's own function, with more settings for its target."""

    def make(**target: Any) -> dict[str, Any]:
        config = deepcopy(OWN_SWEEP)  # tests change what they get
        config["target"] |= target
        return config

    return make


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommandLine, dict[str, Any]]:
    """The sweep of the user's own function to which nothing happens: its command line and its result."""
    hpo = CommandLine(tmp_path_factory.mktemp("undisturbed"))
    code, out, err = hpo("sweep", hpo.write(OWN_SWEEP), "--out", hpo.run, "--json")
    assert code == 0, err
    return hpo, dict(json.loads(out))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommandLine, int, str, str]:
    """One verified sweep of tiny real models, shared by the tests of a module: the command line and what it said."""
    hpo = CommandLine(tmp_path_factory.mktemp("sweep"))
    tiny = {
        "name": "tiny",
        "model": {"width": 16, "depth": 1, "head_dim": 8, "ffn_ratio": 2.0},
        "data": {"seq_len": 32},
        "training": {"tokens": 60_000, "batch_sequences": 8},
        "search": {
            "space": {
                "parameters": {
                    "lr": {"type": "float", "low": 3e-3, "high": 4.8e-2, "log": True, "points": 3},
                    "tau": {"type": "float", "low": 0.1, "high": 0.8, "log": True, "points": 2},
                }
            }
        },
        "proxies": {"sizes": [{"width": 8}], "settings": 4},
        "stopping": {"at": 0.2, "keep_max": 1},
    }
    code, out, err = hpo("sweep", hpo.write(tiny), "--out", hpo.run, "--verify", "--json")
    return hpo, code, out, err
