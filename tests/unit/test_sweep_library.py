"""What ``hpo sweep --library`` says before anything is trained."""

from __future__ import annotations

import json

import pytest
import yaml

SWEEP = {
    "model": {"width": 16, "depth": 1, "head_dim": 8},
    "data": {"seq_len": 32},
    "training": {"tokens": 100_000},
    "search": {"space": {"parameters": {"lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 3}}}},
    "proxies": {"sizes": [{"width": 8}], "settings": 3},
}
OWN = {
    "trainable": "operator:add",
    "target": {"n_steps": 100, "n_params": 4000, "batch_tokens": 100},
    "search": SWEEP["search"],
    "proxies": {"sizes": [{"n_params": 1000}], "settings": 3},
}


@pytest.fixture
def sweep(tmp_path):
    """Return the path of a configuration."""
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(SWEEP))
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(OWN))
    return tmp_path / "sweep.yaml"


def test_a_dry_run_says_that_the_library_has_nothing_yet(hpo, sweep, tmp_path):
    code, out, err = hpo("sweep", sweep, "--library", tmp_path / "library", "--dry-run")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"library           no entry of this sweep's kind in the library {tmp_path / 'library'}"
    said = json.loads(hpo("sweep", sweep, "--library", tmp_path / "library", "--dry-run", "--json")[1])
    assert said["library"]["entry"] is None
    assert said["n_proxies"] == 3
    assert not (tmp_path / "library").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--library", "sweep.yaml"], "expected the folder of a proxy library; found Not a directory"),
        (["--library", "x", "--set", "proxies.library.entry=0123456789"], "expected an entry 0123456789; found no entries"),
        (["--library", "x", "--set", "proxies.library.drift_level=2"], "proxies.library.drift_level: expected less than 1"),
        (["--library", "x", "--set", "proxies.library.folder=2"], "one of path, data, tokeniser, entry, force, drift_level"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_made(hpo, sweep, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = hpo("sweep", sweep, *arguments, "--out", "run")
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_data_without_a_name_are_refused_for_a_function_of_ones_own(hpo, sweep, tmp_path):
    code, _, err = hpo("sweep", sweep.with_name("own.yaml"), "--library", tmp_path / "x", "--out", tmp_path / "run")
    assert code == 2
    assert err == "hpo: proxies.library.data: expected a name of the training data, with trainable; found nothing\n"


def test_a_resumed_run_keeps_its_library(hpo, tmp_path):
    code, _, err = hpo("sweep", "--resume", tmp_path, "--library", tmp_path)
    assert code == 2
    assert "--library: expected no such option with --resume" in err
