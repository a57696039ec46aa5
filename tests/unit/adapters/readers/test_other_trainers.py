"""Logs as other trainers write them, and tables with marks, units and packing of other people's taste."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma

import numpy as np
import pytest

from hpo.adapters.curve_column_names import Columns
from hpo.adapters.curve_files import read_runs

STEPS = np.arange(10, 401, 10)
LOSSES = np.round(2.0 + 3.0 / STEPS, 4)

LINES = {
    "transformers 5": "{{'loss': '{loss}', 'grad_norm': '1.2', 'learning_rate': '3e-04', 'epoch': '{step}'}}",
    "torchtune": "Step {step} | loss:{loss} lr:3e-04 tokens_per_second_per_gpu:4512.3",
    "nanotron": "[INFO|DP=0]: iteration: {step} / 400 | consumed_tokens: 2.6M | lm_loss: {loss} | lr: 3e-04 | grad_norm: 1.1",
    "levanter": "INFO :: train:  50%|███    | {step}/400 [00:10<01:10, 2.1it/s, loss={loss}]",
    "composer": "[batch={step}/400]:\n\t Train time/batch: 9\n\t Train loss/train/total: {loss}\n\t Train lr/g0: 3e-04",
    "megatron": " iteration {step:5d}/  400 | consumed samples: 64 | learning rate: 3.0E-04 | lm loss: {loss} | loss scale: 1",
    "deepspeed": "[Rank 0] step={step}, skipped=0, lr=[3e-04], mom=[(0.9, 0.95)]\nsteps: {step} loss: {loss} iter time: 0.5",
    "llm.c": "step {step:4d}/400 | loss {loss} (+0.12z)| norm 1.23 (+0.45z)| lr 3.00e-04 | 1234.56 ms",
    "nanochat": "step {step:05d}/00400 (2.50%) | loss: {loss} | grad norm: 0.12 | lrm: 0.9 | dt: 512.12ms | tok/sec: 1,023,456",
    "fairseq": "2026-01-01 | INFO | train_inner | epoch 001:  9 / 400 loss={loss}, ppl=9.1, num_updates={step}, lr=3e-04",
    "fairseq, json": 'INFO | train_inner | {{"epoch": 1, "update": 0.1, "loss": "{loss}", "num_updates": "{step}"}}',
    "clu": "I0101 10:00:00.1 140 logging_writer.py:48] [{step}] accuracy=0.5, learning_rate=3e-04, loss={loss}",
    "olmo": "2026-01-01\tINFO\t[step={step}/400,epoch=0]\n    optim/total_grad_norm=0.2\n    train/CrossEntropyLoss={loss}",
    "mmengine": "mmengine - INFO - Iter(train) [{step:6d}/400]  lr: 3e-04  eta: 1:00:00  time: 0.5  memory: 100  loss: {loss}",
    "detectron": "[d2.utils.events]:  eta: 1:00:00  iter: {step}  total_loss: {loss}  loss_cls: 1.1  loss_box: 0.9  lr: 3e-4",
    "tensors": "step={step} metrics={{'loss': tensor({loss}, device='cuda:0'), 'lr': 0.0003}}",
    "numpy 2": "step {step}: loss = np.float32({loss})",
    "yaml": "- step: {step}\n  loss: {loss}",
}
TABLES = {
    "bars": ("step|loss", "{step}|{loss}"),
    "markdown": ("| step | train loss |\n|---|---:|", "| {step} | {loss} |"),
    "blanks": ("step loss", "{step} {loss}"),
    "aligned": ("  step       loss", "{step:6d}    {loss:7.4f}"),
    "numpy.savetxt": ("# step loss", "{step} {loss}"),
    "counted": ("step,loss", "{step}/400,{loss}"),
    "nats": ("Step,Loss [nats]", "{step},{loss} nats"),
}


def log(path, head, line):
    rows = [line.format(step=step, loss=loss) for step, loss in zip(STEPS.tolist(), LOSSES.tolist(), strict=True)]
    path.write_text("\n".join([*([head] if head else []), *rows]) + "\n", encoding="utf-8")
    return path


def assert_read(path, **options):
    (run,) = read_runs(path, **options)
    assert run.steps == pytest.approx(STEPS)
    assert run.values == pytest.approx(LOSSES)
    return run


@pytest.mark.parametrize("trainer", LINES)
def test_what_trainers_print_is_read(tmp_path, trainer):
    assert assert_read(log(tmp_path / "train.log", "2026-01-01 INFO begins", LINES[trainer])).metric.name == "train_loss"


@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_other_marks_are_read(tmp_path, kind):
    assert_read(log(tmp_path / "log.txt", *TABLES[kind]))


@pytest.mark.parametrize(
    ("written", "tokens"),
    [("1.2B tokens", 1.2e9), ("1.2B", 1.2e9), ("350M", 3.5e8), ("0.5k", 500.0), ("2T", 2e12), ("7", 7.0), (".5 M", 5e5)],
)
def test_units_count(tmp_path, written, tokens):
    (tmp_path / "log.csv").write_text(f"tokens,loss\n{written},3.0\n9T,2.9\n")
    (run,) = read_runs(tmp_path / "log.csv")
    assert run.steps.tolist() == [tokens, 9e12]


@pytest.mark.parametrize("written", ["1.2X", "4.3 %", "12:30", "B", "1e3e4"])
def test_other_units_are_refused_by_their_cell(tmp_path, written):
    (tmp_path / "log.csv").write_text(f"step,loss\n1,3.0\n{written},2.9\n")
    with pytest.raises(ValueError, match=r"log\.csv: column step: expected numbers; found '"):
        read_runs(tmp_path / "log.csv")


@pytest.mark.parametrize(("suffix", "pack"), [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress)])
def test_packed_logs_are_read_and_one_that_is_cut_off_says_so(tmp_path, suffix, pack):
    plain = log(tmp_path / "plain.csv", "step,loss", "{step},{loss}").read_bytes()
    (tmp_path / f"log.csv.{suffix}").write_bytes(pack(plain))
    run = assert_read(tmp_path / f"log.csv.{suffix}")
    assert run.run_id == "log"
    assert not run.notes
    many = b"step,loss\n" + b"".join(f"{k},{2 + np.sin(k):.9f}\n".encode() for k in range(1, 60_000))
    packed = pack(many)
    (tmp_path / f"cut.csv.{suffix}").write_bytes(packed[: 9 * len(packed) // 10])
    (run,) = read_runs(tmp_path / f"cut.csv.{suffix}")
    assert 0 < run.steps.size < 59_999
    assert any("cut off; read up to there" in note for note in run.notes)


def test_a_restart_may_add_columns_to_a_table(tmp_path):
    first = [f"{step},{loss}" for step, loss in zip(STEPS[:30], LOSSES[:30], strict=True)]
    later = [f"{step},3e-4,{loss}" for step, loss in zip(STEPS[25:], LOSSES[25:], strict=True)]
    (tmp_path / "log.csv").write_text("\n".join(["step,loss", *first, "step,lr,loss", *later]) + "\n")
    run = assert_read(tmp_path / "log.csv")
    assert any("restarted at 260" in note for note in run.notes)


def test_text_of_one_byte_a_character_is_text(tmp_path):
    log(tmp_path / "log.csv", "step,loss,größe", "{step},{loss},1")
    (tmp_path / "log.csv").write_bytes((tmp_path / "log.csv").read_text(encoding="utf-8").encode("latin-1"))
    assert_read(tmp_path / "log.csv")


def test_json_lines_may_be_called_json(tmp_path):
    assert_read(log(tmp_path / "scalars.json", "", '{{"lr": 3e-4, "loss": {loss}, "iter": 7, "step": {step}}}'))


def test_the_rows_of_a_keras_history_are_its_epochs(tmp_path):
    (tmp_path / "history.json").write_text(json.dumps({"loss": LOSSES.tolist(), "val_loss": (LOSSES + 1).tolist()}))
    (run,) = read_runs(tmp_path / "history.json")
    assert run.steps.tolist() == list(range(1, STEPS.size + 1))
    assert run.values == pytest.approx(LOSSES)
    assert any("rows are taken for epochs" in note for note in run.notes)


def test_a_series_from_the_page_of_tensorboard_has_its_tag_from_its_name_or_is_named(tmp_path):
    rows = [[1.7e9 + k, int(step), loss] for k, (step, loss) in enumerate(zip(STEPS, LOSSES.tolist(), strict=True))]
    (tmp_path / "run-a-tag-eval_loss.json").write_text(json.dumps(rows))
    lines = ["Wall time,Step,Value", *(f"{w},{step},{loss}" for w, step, loss in rows)]
    (tmp_path / "run-a-tag-eval_loss.csv").write_text("\n".join(lines))
    (tmp_path / "chart.csv").write_text("\n".join(lines))
    for suffix in ("json", "csv"):
        assert assert_read(tmp_path / f"run-a-tag-eval_loss.{suffix}").metric.name == "val_loss"
    with pytest.raises(ValueError, match="or --loss; found Wall time, Step, Value"):
        read_runs(tmp_path / "chart.csv")
    assert_read(tmp_path / "chart.csv", columns=Columns(loss="Value"))
