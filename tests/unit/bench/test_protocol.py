from __future__ import annotations

import pytest
from recorded import protocol_text

from bench.protocol import Protocol, built_in_names, load_protocol, matches


def loaded(tmp_path, **changes) -> Protocol:
    path = tmp_path / "p.yaml"
    path.write_text(protocol_text(**changes))
    return load_protocol(path)


@pytest.mark.parametrize(
    ("rule", "value", "meets"),
    [
        (35000, 35000.0, True),
        (35000, 35001.0, False),
        ([120, 126], 126.0, True),
        ([120, 126], 127.0, False),
        (["120e6", "126e6"], 123e6, True),  # YAML 1.1 reads 120e6 as a text
        (["120e6", "126e6"], 130e6, False),
        ([0.1, 0.5, 0.9], 0.5, True),
        ([0.1, 0.5, 0.9], 0.7, False),
        (["a", "b"], "b", True),
        (["a", "b"], "c", False),
        ("a", "a", True),
        (True, True, True),
        (True, 1.0, False),
        ("1", "1", True),
        (1, "1", True),
        ("1e3", 1000, True),
        ("x", 1000, False),
    ],
)
def test_a_filter_meets_what_it_says(rule, value, meets):
    assert matches({"field": rule}, {"field": value}) is meets


def test_a_field_that_a_run_does_not_have_meets_no_filter():
    assert not matches({"depth": 3}, {"width": 3})
    assert matches({}, {"width": 3})


def test_the_published_example_loads(tmp_path):
    path = tmp_path / "example.yaml"
    path.write_text(
        "name: schaipp-35k\nfile: lr_scheduling_schaipp.parquet\nmetric: train_loss\ntruth: final_full_val_loss\n"
        "targets:    {family: slimpajama_llama_norm, n_params: [120e6, 126e6], total_steps: 35000}\n"
        "references: {family: slimpajama_llama_norm, n_params: [120e6, 126e6], total_steps: [1, 30000]}\n"
        "mode: min\ntask_by: [schedule]\nmin_targets: 3\nstop_at: [0.1, 0.2, 0.3, 0.5]\nnoise: 4e-4\nrole: test\n"
    )
    made = load_protocol(path)
    assert made.noise == 4e-4
    assert matches(made.targets, {"family": "slimpajama_llama_norm", "n_params": 123587328.0, "total_steps": 35000.0})


def test_drawn_references_have_a_number_a_seed_and_perhaps_a_filter(tmp_path):
    made = loaded(tmp_path, references={"sample": 8, "seed": 3, "optimizer": "adam"})
    assert (made.sample, made.seed, made.reference_filter) == (8, 3, {"optimizer": "adam"})


def test_a_filter_by_seed_is_no_draw(tmp_path):
    made = loaded(tmp_path, references={"seed": 1})
    assert made.sample is None
    assert made.reference_filter == {"seed": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sotp_at": [0.1]}, "key sotp_at: unknown; known are name, file"),
        ({"stop_at": [0.1, 1.5]}, "key stop_at: must be fractions above 0 and below 1"),
        ({"mode": "lowest"}, "key mode: .*found 'lowest'"),
        ({"references": {"sample": 0}}, "key references: sample must be a whole number"),
        ({"min_targets": 0}, "key min_targets"),
        ({"targets": {"lr": {"from": 1}}}, "key targets.lr: "),
    ],
)
def test_a_mistake_is_one_line_naming_file_and_key(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message) as error:
        loaded(tmp_path, **changes)
    assert "\n" not in str(error.value)
    assert "p.yaml" in str(error.value)


def test_a_missing_key_and_a_file_that_is_no_mapping_are_named(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text("name: x\n")
    with pytest.raises(ValueError, match="key file: missing"):
        load_protocol(path)
    path.write_text("- 1\n")
    with pytest.raises(ValueError, match="expected a mapping"):
        load_protocol(path)
    path.write_text("a: [1\n")
    with pytest.raises(ValueError, match="expected a YAML file"):
        load_protocol(path)


def test_an_unknown_name_lists_the_built_in_ones():
    with pytest.raises(ValueError, match=r"no such file, nor one of the built-in .*schaipp_25k_val"):
        load_protocol("nowhere")


def test_every_built_in_protocol_loads_under_its_own_name_and_both_roles_occur():
    made = {name: load_protocol(name) for name in built_in_names()}
    assert all(protocol.name == name for name, protocol in made.items())
    assert {protocol.role for protocol in made.values()} == {"develop", "test"}


def test_tuning_never_sees_a_test_file_but_schaipps_shorter_half():
    roles = {}
    for name in built_in_names():
        protocol = load_protocol(name)
        roles.setdefault(protocol.file, set()).add(protocol.role)
    assert [file for file, found in roles.items() if len(found) > 1] == [
        "lr_scheduling_schaipp.parquet",
        "taskset_rnn_text.parquet",  # three of the six tasks each
    ]
