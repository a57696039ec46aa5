from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from recorded import loss, protocol_text, run_rows, sweep_frame, write

from bench.protocol import load_protocol
from bench.records import load_records
from bench.sharing import common_until, union_cost
from bench.tasks import make_tasks


def tasks_of(tmp_path, frame, **changes):
    folder = write(tmp_path / "curves", frame)
    path = tmp_path / "p.yaml"
    path.write_text(protocol_text(**changes))
    protocol = load_protocol(path)
    return make_tasks(protocol, load_records(folder, protocol))


def ids(records):
    return [r.run_id for r in records]


def test_targets_and_references_are_what_the_filters_say(tmp_path):
    (task,), left_out = tasks_of(tmp_path, sweep_frame())
    assert ids(task.targets) == ["T2000-lr0.00025", "T2000-lr0.0005", "T2000-lr0.001", "T2000-lr0.002"]
    assert all(name.startswith("T1000") for name in ids(task.references))
    assert (task.key, left_out) == ("all", [])


def test_one_task_for_each_value_and_its_key_names_it(tmp_path):
    frame = pd.concat([sweep_frame(), sweep_frame(schedule="constant").assign(run_id=lambda f: "c" + f.run_id)])
    tasks, _ = tasks_of(tmp_path, frame, task_by=["schedule"])
    assert [task.key for task in tasks] == ["schedule=constant", "schedule=linear"]


def test_an_unknown_task_by_field_and_an_empty_filter_are_one_line(tmp_path):
    with pytest.raises(ValueError, match="task_by 'colour' is unknown of run"):
        tasks_of(tmp_path, sweep_frame(), task_by=["colour"])
    with pytest.raises(ValueError, match=r"no run of anything.parquet meets targets"):
        tasks_of(tmp_path, sweep_frame(), targets={"total_steps": 7})
    with pytest.raises(ValueError, match=r"references: no run of anything.parquet has 'colour'; found .*total_steps"):
        tasks_of(tmp_path, sweep_frame(), references={"colour": "red"})


def test_a_key_of_hp_can_filter_and_a_column_goes_first(tmp_path):
    runs = [run_rows(f"r{k}", loss(1e-3, 100), total=100, hp={"depth": k, "family": "not this"}) for k in range(4)]
    (task,), _ = tasks_of(tmp_path, pd.concat(runs), targets={"depth": [1, 3], "family": "f"}, references={})
    assert ids(task.targets) == ["r1", "r2", "r3"]


def test_runs_can_be_named_one_by_one(tmp_path):
    (task,), _ = tasks_of(tmp_path, sweep_frame(), targets={"run_id": ["T2000-lr0.0005", "T2000-lr0.001", "T2000-lr0.002"]})
    assert ids(task.targets) == ["T2000-lr0.0005", "T2000-lr0.001", "T2000-lr0.002"]


def test_a_diverged_target_has_the_worst_truth_and_a_recovered_one_its_own(tmp_path):
    frame = sweep_frame()
    dead = (frame.run_id == "T2000-lr0.002") & (frame.step > 1000)
    hiccup = (frame.run_id == "T2000-lr0.001") & (frame.step == 1000)
    frame.loc[dead | hiccup, "val_loss"] = math.nan
    frame.loc[hiccup, "val_loss"] = math.inf
    (task,), _ = tasks_of(tmp_path, frame)
    truth = dict(zip(ids(task.targets), task.truth, strict=True))
    assert truth["T2000-lr0.002"] == math.inf
    assert np.isfinite(truth["T2000-lr0.001"])


def test_a_run_without_the_named_truth_is_no_target(tmp_path):
    frame = sweep_frame()
    frame["final_full"] = np.where(frame.run_id == "T2000-lr0.001", np.nan, 1.0)
    (task,), _ = tasks_of(tmp_path, frame, truth="final_full")
    assert "T2000-lr0.001" not in ids(task.targets)


def test_a_truth_nobody_knows_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="truth 'typo' is neither a key of hp nor a column"):
        tasks_of(tmp_path, sweep_frame(), truth="typo")


def test_a_column_as_truth_counts_with_its_last_value(tmp_path):
    frame = sweep_frame()
    frame["test_loss"] = frame.step / 1e3
    (task,), _ = tasks_of(tmp_path, frame, truth="test_loss")
    assert task.truth.tolist() == [2.0] * 4


def test_no_method_sees_results_among_the_settings(tmp_path):
    frame = sweep_frame()
    frame["final_full"] = 1.0
    frame["hp"] = '{"own_start": 5, "prefix_from": "x", "final_other": 2.0, "answer": 42, "depth": 3}'
    (task,), _ = tasks_of(tmp_path, frame, truth="answer")
    for record in [*task.targets, *task.references]:
        assert not {"final_full", "final_other", "answer", "own_start", "prefix_from"} & record.run.settings.keys()
        assert record.run.settings["depth"] == 3


def test_a_prefix_holds_no_point_past_the_stop(tmp_path):
    (task,), _ = tasks_of(tmp_path, sweep_frame())
    assert all(r.prefix(0.2).last_step <= 0.2 * 2000 for r in task.targets)
    assert all(r.prefix(0.2).end_value is None for r in task.targets)


def test_references_dearer_than_every_target_are_left_out(tmp_path):
    (task,), _ = tasks_of(tmp_path, sweep_frame(), targets={"total_steps": 1000}, references={"total_steps": 2000})
    assert (task.references, task.n_dearer) == ((), 4)


def test_a_target_is_never_its_own_reference(tmp_path):
    (task,), _ = tasks_of(tmp_path, sweep_frame(), references={})
    assert not set(ids(task.targets)) & set(ids(task.references))


def test_references_are_of_the_targets_family_where_there_are_any(tmp_path):
    other = sweep_frame(totals=(1000,)).assign(family="other", run_id=lambda f: "o" + f.run_id)
    (task,), _ = tasks_of(tmp_path, pd.concat([sweep_frame(), other]))
    assert {r.run.family for r in task.references} == {"f"}
    (task,), _ = tasks_of(tmp_path, pd.concat([sweep_frame(totals=(2000,)), other]))
    assert {r.run.family for r in task.references} == {"other"}


def test_drawn_references_leave_the_targets_are_finished_and_do_not_depend_on_the_order_of_rows(tmp_path):
    frame = sweep_frame(lrs=np.geomspace(1e-4, 1e-2, 12).tolist())
    frame.loc[(frame.run_id == frame.run_id.iloc[0]) & (frame.step > 500), "val_loss"] = np.nan
    draw = {"targets": {}, "references": {"sample": 5, "seed": 1}, "task_by": ["total_steps"]}
    tasks, _ = tasks_of(tmp_path, frame, **draw)
    again, _ = tasks_of(tmp_path, frame.sample(frac=1, random_state=0), **draw)
    assert [sorted(ids(t.references)) for t in tasks] == [sorted(ids(t.references)) for t in again]
    for task in tasks:
        assert len(task.references) == 5
        assert not set(ids(task.references)) & set(ids(task.targets))
        assert all(r.full.is_complete for r in task.references)


def test_a_task_too_small_is_left_out_with_its_reason(tmp_path):
    tasks, left_out = tasks_of(tmp_path, sweep_frame(), targets={}, references={"sample": 3}, task_by=["total_steps"])
    assert tasks == []
    assert "fewer than min_targets 3" in left_out[0]["reason"]


def test_a_task_of_logs_that_end_early_says_so(tmp_path):
    frame = sweep_frame()
    tasks, left_out = tasks_of(tmp_path, frame[frame.step <= 0.9 * frame.total_steps])
    assert tasks == []
    assert "0 targets with a known truth (4 logs end before their total_steps)" in left_out[0]["reason"]


def test_studies_split_a_task_into_equal_parts(tmp_path):
    frame = sweep_frame(totals=(2000,), lrs=np.geomspace(1e-4, 1e-2, 11).tolist())
    tasks, _ = tasks_of(tmp_path, frame, references={"sample": 2}, study_size=5)
    members = [set(ids(t.targets)) | set(ids(t.references)) for t in tasks]
    assert [len(m) for m in members] == [5, 5]
    assert not members[0] & members[1]


def trunk_frame():
    """Two targets and a shorter reference cut from one trunk, and a stranger."""
    trunk = loss(1e-3, 2000)
    runs = []
    for name, start in (("a", 30), ("b", 40)):
        values = np.concatenate([trunk[:start], trunk[start:] * 0.99])
        runs.append(run_rows(name, values, total=2000, hp={"prefix_from": "trunk.json", "own_start": start * 40}))
    runs.append(run_rows("short", np.concatenate([trunk[:20], trunk[20:25] * 0.97]), total=1000))
    runs.append(run_rows("stranger", loss(2e-3, 2000), total=2000))
    return pd.concat(runs)


def test_shared_prefixes_and_leaks_are_found_from_equal_values(tmp_path):
    frame = trunk_frame()
    frame["hp"] = "{}"
    (task,), _ = tasks_of(tmp_path, frame)
    assert task.shared_fraction == pytest.approx(0.6)
    assert {(target, reference) for target, reference, _ in task.leaks(0.2)} == {("a", "short"), ("b", "short")}
    assert task.leaks(0.2)[0][2] == pytest.approx(0.4)
    assert task.leaks(0.5) == []


def test_what_runs_say_of_their_trunk_counts_where_values_were_not_logged(tmp_path):
    frame = trunk_frame()
    frame = frame[~((frame.run_id == "b") & (frame.step < 500))]
    (task,), _ = tasks_of(tmp_path, frame)
    assert task.shared_fraction == pytest.approx(0.6)


def test_a_value_at_chance_level_is_no_shared_trajectory(tmp_path):
    runs = [run_rows(f"r{k}", np.r_[[0.1] * 49, 0.2 + k], total=2000) for k in range(3)]
    (task,), _ = tasks_of(tmp_path, pd.concat(runs), references={"total_steps": 1})
    assert task.shared_fraction == 0.0


def test_shared_steps_are_paid_once():
    until = np.array([[100.0, 60.0], [60.0, 100.0]])
    price = np.ones(2)
    assert union_cost(until, np.array([20.0, 20.0]), price) == 20
    assert union_cost(until, np.array([100.0, 100.0]), price) == 140
    assert union_cost(until, np.array([100.0, 0.0]), price, known=np.array([50.0, 60.0])) == 40


def test_common_parts_are_symmetric_and_whole_on_the_diagonal(tmp_path):
    (task,), _ = tasks_of(tmp_path, trunk_frame())
    until = common_until([*task.targets, *task.references])
    np.testing.assert_array_equal(until, until.T)
    assert np.diag(until).tolist() == [2000, 2000, 2000, 1000]


def test_any_format_of_file_will_do(tmp_path):
    folder = tmp_path / "curves"
    folder.mkdir()
    sweep_frame().to_csv(folder / "runs.csv", index=False)
    path = tmp_path / "p.yaml"
    path.write_text(protocol_text(file="runs.csv"))
    protocol = load_protocol(path)
    (task,), _ = make_tasks(protocol, load_records(folder, protocol))
    assert len(task.targets) == 4


def test_a_missing_file_is_named(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(protocol_text(file="gone.parquet"))
    with pytest.raises(ValueError, match=r"gone.parquet: no such file"):
        load_records(tmp_path, load_protocol(path))
