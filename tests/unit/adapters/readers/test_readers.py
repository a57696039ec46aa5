"""Each format is read as the library that writes it means it. Where a library is missing, the reader says which."""

from __future__ import annotations

import gzip
import importlib.util
import json
import shutil
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

from hpo.adapters.curve_column_names import Columns
from hpo.adapters.curve_files import read_runs
from hpo.adapters.readers import wandb_frames, wandb_offline
from hpo.adapters.readers.registry import READERS, find_files, read_table

LOGS = Path(__file__).resolve().parents[3] / "support" / "logs"
STEPS = np.arange(1, 61)
HAS_TENSORBOARD = importlib.util.find_spec("tensorboard") is not None
HAS_WANDB = importlib.util.find_spec("wandb") is not None


def text(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def event_file(folder, steps, *, tag="train/loss", name=""):
    """Write an event file with the package that Ray brings along, whose frames and protobufs are TensorBoard's."""
    from tensorboardX import FileWriter
    from tensorboardX.proto.summary_pb2 import Summary

    writer = FileWriter(str(folder), filename_suffix=name)
    for step in steps:
        writer.add_summary(Summary(value=[Summary.Value(tag=tag, simple_value=2 + 1 / step)]), int(step))
    writer.close()
    return next(file for file in sorted(folder.iterdir()) if file.name.endswith(name))


def only(path, **options):
    (run,) = read_runs(path, **options)
    return run


def without(monkeypatch, package):
    """Make ``package`` fail to import, as where it is not installed."""
    real = importlib.import_module

    def refuse(name, *rest):
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(
        f"hpo.adapters.readers.{'tensorboard' if package == 'tensorboard' else 'wandb_offline'}.import_module", refuse
    )


@pytest.mark.skipif(not HAS_TENSORBOARD, reason="needs the package tensorboard")
class TestTensorBoard:
    def test_a_folder_of_event_files_is_one_run_named_after_it(self, tmp_path):
        event_file(tmp_path / "run7", STEPS)
        run = only(tmp_path)
        assert (run.run_id, run.metric.name) == ("run7", "train_loss")
        np.testing.assert_array_equal(run.steps, STEPS)
        np.testing.assert_allclose(run.values, 2 + 1 / STEPS, rtol=1e-6)

    def test_a_later_file_that_goes_back_is_a_restart_and_wins(self, tmp_path):
        event_file(tmp_path / "r", STEPS[:30], name=".1")
        event_file(tmp_path / "r", [20, 21, 22], name=".2")
        run = only(tmp_path / "r")
        assert run.steps.tolist() == list(range(1, 23))
        assert run.restarts == (20.0,)
        assert any("restarted at 20" in note for note in run.notes)

    @pytest.mark.parametrize("harm", ["cut", "flip"])
    def test_a_damaged_file_is_read_up_to_the_damage_which_is_said(self, tmp_path, harm):
        file = event_file(tmp_path / "r", STEPS)
        data = bytearray(file.read_bytes())
        if harm == "flip":
            data[len(data) // 2] ^= 255
        file.write_bytes(data if harm == "flip" else data[: len(data) // 2])
        run = only(file)
        assert 20 < run.steps.size < 40
        assert run.steps.tolist() == list(range(1, run.steps.size + 1))
        assert any("damaged or cut off at byte" in note and f"of {file.stat().st_size}" in note for note in run.notes)

    def test_other_tags_are_columns(self, tmp_path):
        event_file(tmp_path / "r", STEPS, tag="Loss/val")
        assert only(tmp_path / "r").metric.name == "val_loss"

    def test_the_summary_writer_of_torch_is_read(self, tmp_path):
        from torch.utils.tensorboard import SummaryWriter

        with SummaryWriter(str(tmp_path)) as writer:
            for step in STEPS:
                writer.add_scalar("loss/train", 2 + 1 / step, step)
                writer.add_histogram("weights", np.ones(3), step)
        np.testing.assert_allclose(only(tmp_path).values, 2 + 1 / STEPS, rtol=1e-6)


def test_without_tensorboard_the_reader_names_the_package(tmp_path, monkeypatch):
    event_file(tmp_path / "r", STEPS[:3])
    without(monkeypatch, "tensorboard")
    with pytest.raises(ValueError, match="pip install tensorboard"):
        read_runs(tmp_path / "r")


def test_an_offline_run_of_wandb_is_read_or_the_package_named(tmp_path):
    if not HAS_WANDB:
        with pytest.raises(ValueError, match="pip install wandb"):
            read_runs(LOGS / "wandb")
        return
    run = only(LOGS / "wandb")
    assert (run.run_id, run.metric.name, run.horizon) == ("tiny", "train_loss", 60)
    np.testing.assert_allclose(run.values, 2 + 1 / STEPS)
    assert run.recipe.n_params == 1e6
    assert run.settings["optimizer"] == "adamw"
    assert only(LOGS / "wandb", metric="val_loss").steps.tolist() == [10, 20, 30, 40, 50, 60]
    cut = tmp_path / "run-x.wandb"
    cut.write_bytes(next((LOGS / "wandb").rglob("*.wandb")).read_bytes()[:9_000])
    part = only(cut)
    assert 0 < part.steps.size < 60
    assert any("cut off at byte" in note for note in part.notes)


def test_without_wandb_the_reader_names_the_package(monkeypatch):
    without(monkeypatch, "wandb")
    with pytest.raises(ValueError, match="pip install wandb"):
        read_runs(LOGS / "wandb")


def frame(kind, content):
    return struct.pack("<IHB", zlib.crc32(content, zlib.crc32(bytes([kind]))), len(content), kind) + content


def test_the_frames_of_a_wandb_file_are_joined_and_checked():
    header = b":W&B\xe1\xbe\x00"
    data = header + frame(1, b"whole") + frame(2, b"be") + frame(3, b"gi") + frame(4, b"n")
    found = wandb_frames.records(data)
    assert [found.data[a:b] for a, b in zip(found.starts, found.ends, strict=True)] == [b"whole", b"begin"]
    assert found.damage is None
    for broken in (data[:-1], data[:-8] + b"x" * 8, data[: -len(frame(4, b"n"))]):
        found = wandb_frames.records(broken)
        assert "at byte" in found.damage
        assert [found.data[a:b] for a, b in zip(found.starts, found.ends, strict=True)] == [b"whole"]
    assert wandb_frames.records(next((LOGS / "wandb").rglob("*.wandb")).read_bytes()).starts.size > 60


def test_the_frames_of_many_blocks_are_found_in_order():
    rng = np.random.default_rng(0)
    written, data = [], bytearray(b":W&B\xe1\xbe\x00")
    for size in rng.choice([0, 1, 90, 5_000, 40_000, 100_000], size=60):
        written.append(rng.bytes(int(size)))
        left, kinds = written[-1], (2, 1)  # the first part; whole
        while True:
            data += bytes(-len(data) % 32_768) if -len(data) % 32_768 < 7 else b""
            part, left = left[: 32_768 - len(data) % 32_768 - 7], left[32_768 - len(data) % 32_768 - 7 :]
            data += frame(kinds[not left], part)
            kinds = (3, 4)
            if not left:
                break
    found = wandb_frames.records(bytes(data))
    assert [found.data[a:b] for a, b in zip(found.starts, found.ends, strict=True)] == written
    data[len(data) // 2] ^= 1
    broken = wandb_frames.records(bytes(data))
    assert "damaged at byte" in broken.damage
    assert [broken.data[a:b] for a, b in zip(broken.starts, broken.ends, strict=True)] == written[: broken.starts.size]


def test_odd_rows_of_a_wandb_history_are_read_beside_the_plain_ones():
    record_of = pytest.importorskip("wandb.proto.wandb_internal_pb2").Record
    made = []
    for k, value in enumerate(("1.5", '"NaN"', "2", '{"_type": "image"}', "true", "[1, 2]")):
        record = record_of(num=k)
        record.history.step.num = k
        record.history.item.add(nested_key=["train", "loss"] if k % 2 else ["train/loss"], value_json=value)
        record.history.item.add(key="name", value_json='"a"')
        made.append(record.SerializeToString())
    data = b":W&B\xe1\xbe\x00" + b"".join(frame(1, one) for one in made)
    table, *_ = wandb_offline._parsed(data, Path("run-1.wandb"))
    assert table.column("_step").to_pylist() == [0, 1, 2, 3, 4, 5]
    assert str(table.column("train/loss").to_pylist()) == "[1.5, nan, 2.0, None, 1.0, None]"
    assert table.column("name").to_pylist() == ["a"] * 6


def test_a_trainer_state_is_its_history_without_the_summary():
    run = only(LOGS / "huggingface")
    assert (run.run_id, run.horizon, run.metric.name) == ("huggingface", 60, "train_loss")
    assert run.steps.tolist() == list(range(5, 65, 5))
    assert run.learning_rates is not None
    assert only(LOGS / "huggingface", metric="eval_loss").steps.tolist() == [20, 40, 60]


def test_of_checkpoints_the_furthest_counts(tmp_path):
    for step in (40, 60, 9):
        state = json.loads((LOGS / "huggingface" / "trainer_state.json").read_text())
        text(tmp_path / f"checkpoint-{step}" / "trainer_state.json", json.dumps({**state, "global_step": step}))
    assert find_files(tmp_path) == [tmp_path / "checkpoint-60" / "trainer_state.json"]
    assert only(tmp_path).run_id == tmp_path.name


def test_lightning_metrics_are_named_after_their_version():
    run = only(LOGS / "lightning_logs")
    assert (run.run_id, run.metric.name, run.steps.size) == ("version_0", "train_loss", 24)
    assert only(LOGS / "lightning_logs", metric="val_loss").steps.tolist() == [59, 119]


def test_an_mlflow_run_has_its_parameters_as_recipe_and_settings():
    run = only(LOGS / "mlruns")
    assert (run.run_id, run.horizon) == ("tiny", 60)
    np.testing.assert_allclose(run.values, 2 + 1 / STEPS)
    assert (run.recipe.n_params, run.recipe.lr) == (1e6, 0.01)
    assert run.settings["optimizer"] == "adamw"


def test_a_restarted_mlflow_run_is_stitched(tmp_path):
    home = next(p for p in (LOGS / "mlruns" / "1").iterdir() if p.is_dir())
    shutil.copytree(home, tmp_path / "run")
    with (tmp_path / "run" / "metrics" / "train" / "loss").open("a") as log:
        log.write("1700000000000 9 50\n1700000000000 9.5 51\n17000")
    run = only(tmp_path / "run")
    assert run.steps.tolist() == list(range(1, 52))
    assert run.values[-2:].tolist() == [9, 9.5]


NANOGPT = """Overriding config with config/train_shakespeare_char.py:
max_iters = 5000
number of parameters: 10.65M
step 0: train loss 4.2874, val loss 4.2823
iter 0: loss 4.2654, time 11234.51ms, mfu -100.00%
iter 10: loss 3.2421, time 19.51ms, mfu 19.03%
step 250: train loss 1.9666, val loss 2.0621
iter 250: loss 2.0382, time 2954.32ms, mfu 17.12%
"""
LLM_C = """| learning rate (LR)    | 6.00e-04                                           |
val loss 11.0094
step    1/19560 | loss 11.0094 (+nanz)| norm 15.3776 (+nanz)| lr 8.57e-07 | 3058.34 ms | 30.2% bf16 MFU | 171426 tok/s
step    2/19560 | loss 10.9634 (+nanz)| norm 14.9612 (+nanz)| lr 1.71e-06 | 1210.28 ms | 50.3% bf16 MFU | 433189 tok/s
val loss 10.5
"""
MEGATRON = """ [2026-01-01] iteration   100/ 500 | learning rate: 1.000E-05 | lm loss: 9.12E+00 | loss scale: 1.0 | norm: 1.2 |
 [2026-01-01] iteration   200/ 500 | learning rate: 2.000E-05 | lm loss: 8.12E+00 | loss scale: 1.0 | norm: 1.2 |
"""
SHORT = "s:0 tel:11.0\ns:1 trl:10.9 lr:0.000001 norm:15.3\ns:2 trl:10.8 lr:0.000002 norm:15.3\ns:2 tel:10.7\n"
PRINTED = "{'loss': 3.1, 'learning_rate': 5e-05, 'epoch': 0.1}\n{'loss': nan, 'learning_rate': 4e-05, 'epoch': 0.2}\n"
EPOCHS = "".join(f"Epoch [{e}/2], Step [{s}/300], Loss: {4 - e - s / 300:.4f}\n" for e in (1, 2) for s in (100, 200, 300))
SPEEDRUN = "step:0/5100 val_loss:10.8 train_time:0ms\nstep:1/5100 train_loss:10.7 train_time:223ms step_avg:nanms\n"


@pytest.mark.parametrize(
    ("log", "metric", "steps", "values", "horizon"),
    [
        (NANOGPT, None, [0, 10, 250], [4.2654, 3.2421, 2.0382], None),
        (NANOGPT, "val loss", [0, 250], [4.2823, 2.0621], None),
        (LLM_C, None, [1, 2], [11.0094, 10.9634], 19560),
        (LLM_C, "val loss", [2], [10.5], 19560),
        (MEGATRON, None, [100, 200], [9.12, 8.12], 500),
        (SHORT, None, [1, 2], [10.9, 10.8], None),
        (SHORT, "val_loss", [0, 2], [11.0, 10.7], None),
        (PRINTED, None, [0.1, 0.2], [3.1, np.nan], None),
        (EPOCHS, None, [100, 200, 300, 400, 500, 600], [2.6667, 2.3333, 2, 1.6667, 1.3333, 1], 600),
        (SPEEDRUN, "train_loss", [1], [10.7], 5100),
    ],
)  # fmt: skip
def test_logs_for_people_are_read_by_pattern(tmp_path, log, metric, steps, values, horizon):
    run = only(text(tmp_path / "train.log", log), metric=metric)
    assert run.steps.tolist() == steps
    np.testing.assert_allclose(run.values, values, atol=1e-4)
    assert run.horizon == horizon


def test_a_learning_rate_in_a_text_log_is_read(tmp_path):
    np.testing.assert_allclose(only(text(tmp_path / "a.log", LLM_C)).learning_rates, [8.57e-07, 1.71e-06])


def test_an_exported_chart_has_a_run_a_column(tmp_path):
    head = ",".join(f'"{run} - train/loss{end}"' for run in ("run a", "b") for end in ("", "__MIN", "__MAX"))
    first, second = read_runs(text(tmp_path / "chart.csv", f'"Step",{head}\n1,3.5,3.5,3.5,,,\n2,3.4,3.4,3.4,3.6,3.6,3.6\n'))
    assert (first.run_id, first.values.tolist()) == ("run a", [3.5, 3.4])
    assert (second.run_id, second.steps.tolist()) == ("b", [2])


@pytest.mark.parametrize(
    "document",
    [
        [{"_step": 1, "loss": 3.5}, {"_step": 2, "loss": 3.2}],
        {"_step": {"0": 1, "1": 2}, "loss": {"0": 3.5, "1": 3.2}},
        {"step": [1, 2], "loss": [3.5, 3.2]},
        {"history": [{"step": 1, "loss": 3.5}, {"step": 2, "loss": 3.2}]},
    ],
)
def test_json_documents_of_rows_or_columns(tmp_path, document):
    run = only(text(tmp_path / "history.json", json.dumps(document, indent=1)))
    assert (run.steps.tolist(), run.values.tolist()) == ([1, 2], [3.5, 3.2])


def test_columns_may_be_named(tmp_path):
    path = text(tmp_path / "a.csv", "n,seen,a,b,eta\n1,10,3,5,.1\n2,20,2,4,.2\n")
    with pytest.raises(ValueError, match=r"expected a step column .*, or --step; found n, seen, a, b, eta"):
        read_runs(path)
    run = only(path, columns=Columns(step="n", loss="b", tokens="seen", lr="eta"))
    assert (run.steps.tolist(), run.values.tolist()) == ([1, 2], [5, 4])
    assert (run.tokens.tolist(), run.learning_rates.tolist()) == ([10, 20], [0.1, 0.2])
    assert run.notes == ()
    with pytest.raises(ValueError, match="--tokens 'nope' is not a column; found n, seen, a, b, eta"):
        read_runs(path, columns=Columns(step="n", tokens="nope"))


def test_epochs_will_do_where_nothing_else_counts(tmp_path):
    run = only(text(tmp_path / "a.csv", "epoch,loss,total_epochs\n1,3,4\n2,2,4\n"))
    assert (run.steps.tolist(), run.horizon) == ([1, 2], 4)
    assert any("counted in epochs" in note for note in run.notes)


def test_epochs_are_not_taken_for_steps(tmp_path):
    rows = "\n".join(f"{k},{4 - k / 2},4,2,1000,1e6" for k in range(1, 5))
    recipe = only(text(tmp_path / "a.csv", f"epoch,loss,total_epochs,warmup_steps,batch_tokens,n_params\n{rows}\n")).recipe
    assert (recipe.n_tokens, recipe.total_steps, recipe.warmup_fraction) == (None, None, None)
    assert (recipe.batch_tokens, recipe.n_params) == (1000, 1e6)


def test_a_guess_is_explained_and_our_own_names_are_none(tmp_path):
    (note,) = only(text(tmp_path / "a.csv", "iter,Train/Loss,val/loss\n1,3,4\n")).notes
    assert "step is column 'iter', loss is column 'Train/Loss'; other losses: val/loss (--step/--loss to say otherwise)" in note
    assert only(text(tmp_path / "b.csv", "step,train_loss\n1,3\n")).notes == ()


def test_a_restarted_log_is_stitched_and_the_later_segment_wins(tmp_path):
    lines = [f"{s},{3 - 0.01 * s}" for s in range(1, 31)] + [f"{s},2" for s in range(21, 41)]
    run = only(text(tmp_path / "a.csv", "\n".join(["step,train_loss", *lines]) + "\n"))
    assert run.steps.tolist() == list(range(1, 41))
    assert set(run.values[20:].tolist()) == {2.0}
    assert run.restarts == (21.0,)
    assert run.notes == ("run a: restarted at 21; where steps were logged twice the later ones count",)


@pytest.mark.parametrize("seed", range(12))
def test_rows_repeated_at_the_end_in_no_order_count_where_they_are_and_throw_nothing_away(tmp_path, seed):
    rng = np.random.default_rng(seed)
    again = rng.permutation(np.arange(0, 200, 2))[:25]
    lines = [f"{s},3" for s in range(0, 200, 2)] + [f"{s},2" for s in (*again, 0)]
    run = only(text(tmp_path / "a.csv", "\n".join(["step,train_loss", *lines]) + "\n"))
    assert run.steps.tolist() == list(range(0, 200, 2))
    assert run.restarts == ()
    assert set(run.steps[run.values == 2.0].tolist()) == {*again, 0}


def test_a_run_that_is_restarted_again_and_again_is_stitched(tmp_path):
    steps = [s for start in (0, 20, 40, 30, 60) for s in range(start, start + 30)]
    lines = [f"{s},{3 - 0.01 * s}" for s in steps]
    run = only(text(tmp_path / "a.csv", "\n".join(["step,train_loss", *lines]) + "\n"))
    assert run.steps.tolist() == list(range(90))
    assert run.restarts == (20.0, 40.0, 30.0)


def test_a_log_in_no_order_is_sorted(tmp_path):
    lines = [f"{s},{s}" for s in range(40, 0, -1)]
    run = only(text(tmp_path / "a.csv", "\n".join(["step,train_loss", *lines]) + "\n"))
    assert run.steps.tolist() == list(range(1, 41))
    assert run.restarts == ()


def test_a_growing_log_is_read_up_to_its_last_whole_line(tmp_path):
    path = text(tmp_path / "a.csv", "step,loss\n1,3\n2,25")
    assert read_runs(path)[0].values.tolist() == [3, 25]
    assert read_runs(path, growing=True)[0].values.tolist() == [3]
    log = text(tmp_path / "a.log", "step 1 loss 3.0\nstep 2 loss 2.5\nstep 3 loss 2")
    assert read_runs(log, growing=True)[0].steps.tolist() == [1, 2]


def test_every_reader_is_named_once_and_the_last_takes_any_text(tmp_path):
    assert len({reader.name for reader in READERS}) == len(READERS)
    assert read_table(text(tmp_path / "x", "step;loss\n1;2\n")).columns == ["step", "loss"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.log"])
def test_a_million_rows_cost_two_seconds(tmp_path, name):
    line = {"a.csv": "{},{:.4f}\n", "a.jsonl": '{{"step": {}, "loss": {:.4f}}}\n', "a.log": "iter {}: loss {:.4f}, time 9ms\n"}
    with (tmp_path / name).open("w") as file:
        file.write("step,loss\n" if name == "a.csv" else "")
        file.writelines(line[name].format(step, 2 + 1 / step) for step in range(1, 1_000_001))
    begun = time.process_time()
    assert only(tmp_path / name).steps.size == 1_000_000
    assert time.process_time() - begun < 2


AS_PEOPLE_HAVE_THEM = {
    "comments.csv": b"# a run\n# lr=0.1\nstep,loss\n1,3.5\n2,3.25\n",
    "numpy.csv": b"# step,loss\n1.0e+00,3.5e+00\n2.0e+00,3.25e+00\n",
    "decimal_comma.csv": b"step;loss\n1;3,5\n2;3,25\n",
    "thousands.csv": b'step,loss\n"1,000",3.5\n"2,000",3.25\n',
    "powershell.csv": "step,loss\r\n1,3.5\r\n2,3.25\r\n".encode("utf-16"),
    "packed.csv.gz": gzip.compress(b"step,loss\n1,3.5\n") + gzip.compress(b"2,3.25\n"),
    "packed.jsonl.gz": gzip.compress(b'{"step": 1, "loss": 3.5}\n{"step": 2, "loss": 3.25}\n'),
    "split.json": b'{"columns": ["step", "loss"], "index": [0, 1], "data": [[1, 3.5], [2, 3.25]]}',
    "appended.csv": b"step,loss\r\n1,3.5\r\nstep,loss\r\n2,3.25\r\n",
    "nested.jsonl": b'{"step": 1, "metrics": {"loss": 3.5}}\n{"step": 2, "metrics": {"loss": 3.25}, "x": {"y": {"z": 1}}}\n',
    "nan.jsonl": b'{"step": 1, "metrics": {"loss": 3.5, "norm": NaN}}\n{"step": 2, "metrics": {"loss": 3.25}}\n',
    "colours.log": b"INFO - \x1b[31mstep:  1  \x1b[32mloss: 3.5\x1b[39m\n\x1b[31mstep: 2 \x1b[32mloss: 3.25\x1b[0m\n",
    "bar.log": "\r".join(f" 1%|█  | {k}/500 [00:0{k}<01:20, 4.2it/s, loss={4 - k / 4}]" for k in (2, 3)).encode(),
}


@pytest.mark.parametrize("name", AS_PEOPLE_HAVE_THEM)
def test_logs_as_people_have_them(tmp_path, name):
    (tmp_path / name).write_bytes(AS_PEOPLE_HAVE_THEM[name])
    run = only(tmp_path / name)
    assert run.values.tolist() == [3.5, 3.25]
    assert run.steps.tolist() == {"thousands.csv": [1000, 2000], "bar.log": [2, 3]}.get(name, [1, 2])
    assert run.run_id == name.split(".")[0]


def test_fields_of_objects_are_columns_and_settings_stay_together(tmp_path):
    rows = [{"step": k, "train": {"loss": 3 + k}, "val": {"loss": 4 + k}, "hp": {"lr": 0.1}, "shape": [1]} for k in (1, 2)]
    run = only(text(tmp_path / "log.jsonl", "".join(json.dumps(row) + "\n" for row in rows)))
    assert (run.metric.name, run.values.tolist(), run.settings["lr"]) == ("train_loss", [4, 5], 0.1)
    assert only(text(tmp_path / "log.json", json.dumps(rows)), metric="val.loss").values.tolist() == [5, 6]


def test_of_steps_that_several_processes_log_the_last_row_counts_and_it_is_said(tmp_path):
    rows = "".join(f"{step},{rank},{2 + rank}\n" for step in (1, 2, 3) for rank in (0, 1))
    run = only(text(tmp_path / "log.csv", f"step,rank,loss\n{rows}"))
    assert run.values.tolist() == [3, 3, 3]
    assert any("6 rows at 3 steps" in note for note in run.notes)


def test_runs_in_one_table_are_told_apart_by_a_column_that_names_them(tmp_path):
    rows = [f"{name},{step},{loss}" for name, loss in (("a", 3), ("b", 4)) for step in (1, 2, 3)]
    first, second = read_runs(text(tmp_path / "log.csv", "\n".join(["run,step,loss", *rows]) + "\n"))
    assert [(one.run_id, one.values.tolist()) for one in (first, second)] == [("a", [3, 3, 3]), ("b", [4, 4, 4])]
    assert any("guessed that 'run' names the runs" in note for note in first.notes)
    one = only(text(tmp_path / "one.csv", "\n".join(["run,step,loss", *rows[:3]]) + "\n"))
    assert (one.run_id, one.settings["run"]) == ("one", "a")


def test_a_parent_of_nested_mlflow_runs_without_metrics_is_no_run(tmp_path):
    home = next(p for p in (LOGS / "mlruns" / "1").iterdir() if p.is_dir())
    shutil.copytree(home, tmp_path / "1" / "child")
    (tmp_path / "1" / "parent" / "metrics").mkdir(parents=True)
    text(tmp_path / "1" / "parent" / "meta.yaml", "run_id: parent\n")
    assert only(tmp_path).run_id == "tiny"


def test_a_c_program_on_windows_names_what_is_not_finite(tmp_path):
    (tmp_path / "log.csv").write_text("step,loss\n1,3.5\n2,1.#INF\n3,-1.#IND00\n")
    assert str(only(tmp_path / "log.csv").values.tolist()) == "[3.5, inf, nan]"


PACKED = gzip.compress(b"step,loss\n" + b"".join(b"%d,3.5\n" % k for k in range(300)))


def test_a_packed_log_that_is_cut_off_is_read_up_to_there(tmp_path):
    (tmp_path / "log.csv.gz").write_bytes(PACKED[:-12])
    assert only(tmp_path / "log.csv.gz").steps.size > 250


def test_a_damaged_packed_log_is_refused(tmp_path):
    (tmp_path / "log.csv.gz").write_bytes(PACKED[:-8] + b"x" * 8)
    with pytest.raises(ValueError, match=r"log\.csv\.gz: damaged gzip data"):
        read_runs(tmp_path / "log.csv.gz")
