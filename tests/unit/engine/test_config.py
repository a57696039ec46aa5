"""Wrong input is told in one line that names the value; right input comes back whole."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hpo.engine.config import InputError, dump_config, load_config, parse_config

BAD = [
    ("sape=3", "sape", "one of name, seed", "unknown key"),
    ("model.widht=3", "model.widht", "one of family, width", "unknown key"),
    ("model.width=wide", "model.width", "valid integer", "wide"),
    ("model.width=2.5", "model.width", "valid integer", "2.5"),
    ("model.depth=true", "model.depth", "valid integer", "True"),
    ("model.depth=0", "model.depth", "greater than 0", "0"),
    ("model.head_dim=5", "model.head_dim", "divide model.width", "5 and 16"),
    ("training.tpp=0", "training.tpp", "greater than 0", "0"),
    ("training.tpp=-20", "training.tpp", "greater than 0", "-20"),
    ("training.tpp=20", "training", "exactly one of tpp and tokens", "both"),
    ("training.tokens=null", "training", "exactly one of tpp and tokens", "neither"),
    ("training.tokens=.inf", "training.tokens", "finite", "inf"),
    ("training.warmup_fraction=1", "training.warmup_fraction", "less than 1", "1"),
    ("training.schedule={name: quadratic}", "training.schedule", "linear", "quadratic"),
    ("training.schedule={name: linear, slope: 2}", "training.schedule", "final_ratio", "slope"),
    ("training={tokens: 1e5, tau: 0.2, weight_decay: 0.1}", "training", "tau and weight_decay", "both"),
    ("stopping.at=0", "stopping.at", "greater than 0", "0"),
    ("stopping.at=1.5", "stopping.at", "less than 1", "1.5"),
    ("stopping.alpha=1", "stopping.alpha", "less than 1", "1"),
    ("stopping.keep_min=2", "stopping.keep_max", "at least keep_min (2)", "1"),
    ("stopping.rungs=[0.3, 0.3]", "stopping.rungs", "rising fractions above at (0.2)", "[0.3, 0.3]"),
    ("stopping.rungs=[0.1]", "stopping.rungs", "rising fractions above at (0.2)", "[0.1]"),
    ("stopping.rungs=[1.0]", "stopping.rungs.0", "less than 1", "1.0"),
    ("search.candidates=many", "search.candidates", "a number above 0 or grid", "many"),
    ("search.candidates=-3", "search.candidates", "a number above 0 or grid", "-3"),
    ("search.space=nowhere.yaml", "search.space", "lr_tau", "nowhere.yaml"),
    ("search.space={parameters: {lr: {type: float, low: 2, high: 1}}}", "parameters.lr", "high", ""),
    ("search={space: {parameters: {opt: {type: categorical, choices: [1, 2]}}}, candidates: 5}", "candidates", "2", "5"),
    ("proxies.settings=7", "proxies.settings", "at most the 6 candidates", "7"),
    ("proxies.sizes=[]", "proxies.sizes", "at least 1 item", "[]"),
    ("proxies.sizes=[{widht: 8}]", "proxies.sizes.0", "width", "unknown key"),
    ("proxies.sizes=[{width: 8}, {width: 12}]", "proxies.sizes.1", "divide", "8 and 12"),
    ("proxies.sizes=[{width: 32}]", "proxies.sizes.0", "cheaper to train than the target", "32"),
    ("data.path=/nowhere/text", "data.path", "existing file", "/nowhere/text"),
    ("data.format=tokens", "data.path", "for format tokens", "nothing"),
    ("model.vocab_size=100", "model.vocab_size", "above every id", "100"),
    ("trainable=toy", "trainable", "package.module:function", "toy"),
    ("model=null", "config", "exactly one of model and trainable", "neither"),
    ("name=a/b", "name", "letters", "a/b"),
    ("resources.cpu=0", "resources.cpu", "greater than 0", "0"),
    ("nothing", "--set", "key=value", "nothing"),
    ("training.tau.x=3", "--set", "block", "training.tau.x=3"),
    ("training.lr=[1", "--set", "YAML", ""),
]


@pytest.mark.parametrize(("override", "path", "expected", "found"), BAD, ids=[case[0] for case in BAD])
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, tiny, hpo, override, path, expected, found):
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tiny))
    if override.startswith("training.tau"):
        override = override.replace("tau", "lr")
        tiny["training"]["lr"] = 0.1
        (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tiny))
        found = found.replace("tau", "lr")
    code, out, err = hpo("sweep", tmp_path / "sweep.yaml", "--out", tmp_path / "run", "--set", override)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert path in err
    assert expected in err
    assert found in err
    assert [p.name for p in tmp_path.iterdir()] == ["sweep.yaml"]


@pytest.mark.parametrize("text", ["", "- 1", "a: [", "\x00"], ids=["empty", "list", "torn", "binary"])
def test_a_file_that_is_no_configuration_is_named(tmp_path, hpo, text):
    (tmp_path / "sweep.yaml").write_text(text)
    code, _, err = hpo("sweep", tmp_path / "sweep.yaml")
    assert code == 2
    assert err.count("\n") == 1
    assert "sweep.yaml" in err


def test_a_missing_file_is_named(tmp_path, hpo):
    code, _, err = hpo("sweep", tmp_path / "none.yaml")
    assert code == 2
    assert "none.yaml: expected a readable YAML file; found No such file or directory" in err


@pytest.mark.parametrize(("content", "expected"), [(b"", "hold text"), (b"too short", "hold at least one batch")])
def test_text_that_is_too_short_is_refused(tmp_path, tiny, hpo, content, expected):
    (tmp_path / "text").write_bytes(content)
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tiny))
    code, _, err = hpo("sweep", tmp_path / "sweep.yaml", "--set", f"data.path={tmp_path / 'text'}", "--dry-run")
    assert code == 2
    assert err.count("\n") == 1
    assert f"data.path: expected to {expected}" in err


def test_tokens_beyond_the_vocabulary_are_refused(tmp_path, tiny, hpo):
    (tmp_path / "ids.bin").write_bytes(b"\xff\x7f" * 5000)
    tiny["data"] |= {"path": str(tmp_path / "ids.bin"), "format": "tokens"}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tiny))
    code, _, err = hpo("sweep", tmp_path / "sweep.yaml", "--dry-run")
    assert code == 2
    assert "model.vocab_size: expected above every id in the data; found 256, id 32767" in err


def test_a_vocabulary_larger_than_the_dtype_is_refused(tiny):
    tiny["data"] |= {"path": "ids.bin", "format": "tokens", "dtype": "uint16"}
    tiny["model"]["vocab_size"] = 70_000
    with pytest.raises(InputError, match=r"model\.vocab_size: expected at most the 65536 ids of uint16; found 70000"):
        parse_config(tiny)


def test_the_resolved_configuration_reads_back_as_itself(tmp_path, tiny):
    config = parse_config(tiny)
    (tmp_path / "config.yaml").write_text(dump_config(config))
    assert load_config(tmp_path / "config.yaml") == config


def test_numbers_with_an_exponent_are_numbers(tmp_path, tiny):
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tiny))
    config = load_config(tmp_path / "sweep.yaml", ["training.lr=1e-3"])
    assert config.training is not None
    assert config.training.lr == 1e-3


def test_an_override_reaches_a_block_that_the_file_leaves_out(tmp_path, tiny):
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(tiny))
    assert load_config(tmp_path / "sweep.yaml", ["resources.max_concurrent=1"]).resources.max_concurrent == 1


def test_the_demo_is_a_valid_configuration(repository: Path):
    assert load_config(repository / "bench" / "demo.yaml").stopping.at <= 0.2


def test_a_key_given_twice_is_refused(tmp_path: Path):
    path = tmp_path / "twice.yaml"
    path.write_text("name: a\nname: b\n")
    with pytest.raises(InputError, match="key 'name' is given twice in line 1"):
        load_config(path)


def test_a_number_where_a_block_belongs_is_told_in_plain_words(tmp_path: Path):
    path = tmp_path / "flat.yaml"
    path.write_text("search: 3\n")
    with pytest.raises(InputError, match="search: expected a block of keys and values; found 3"):
        load_config(path)
