"""``hpo monitor`` on small files: answers, exit codes, following a growing log, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from bench.reader_speed import WRITERS
from hpo.adapters.curve_files import read_runs
from hpo.adapters.model_files import write_model
from hpo.commands.monitor import monitor
from hpo.core.model import CollapseModel

app = typer.Typer()
app.command()(monitor)

STEPS = 400
T = np.arange(1, STEPS + 1) / STEPS
HEADER = "run_id,step,total_steps,train_loss,val_loss"


def rows(run_id, final, seed, fault=0.0, until=1.0, total=STEPS):
    rng = np.random.default_rng(seed)
    curve = final * (1 + 0.3 * (1 - T) ** 1.5)
    train = curve * np.exp(0.004 * rng.standard_normal(STEPS) + fault)
    val = 1.02 * curve * np.exp(0.004 * rng.standard_normal(STEPS))
    made = zip(range(1, STEPS + 1), train, val, T, strict=True)
    return [f"{run_id},{step},{total},{a:.6f},{b:.6f}" for step, a, b, t in made if t <= until]


@pytest.fixture
def folder(tmp_path):
    references = [row for k in range(5) for row in rows(f"r{k}", 2 + 0.1 * k, k)]
    (tmp_path / "references.csv").write_text("\n".join([HEADER, *references]) + "\n")
    curves = [
        one.curve() for column in ("train_loss", "val_loss") for one in read_runs(tmp_path / "references.csv", metric=column)
    ]
    write_model(tmp_path / "model.json", CollapseModel.fit(curves))
    write(tmp_path / "ok.csv", rows("ok", 1.9, 10, until=0.6))
    write(tmp_path / "step.csv", rows("step", 1.9, 11, fault=np.where(T >= 0.5, 0.02, 0.0)))
    return tmp_path


def write(path, lines):
    path.write_text("\n".join([HEADER, *lines]) + "\n")


@contextmanager
def growing(path, lines):
    """Append the lines to the log from another thread, each in two pieces, as a training run does."""

    def grow():
        with path.open("a") as log:
            for k, line in enumerate(lines):
                log.write(line[:9])
                log.flush()
                log.write(line[9:] + "\n")
                log.flush()
                time.sleep(0.1 if k % 10 == 0 else 0)

    writer = threading.Thread(target=grow)
    writer.start()
    yield
    writer.join()


@pytest.fixture
def hpo(folder):
    def run(*arguments):
        done = CliRunner().invoke(app, [*map(str, arguments)])
        return done.exit_code, done.stdout, done.stderr

    return run


def test_a_healthy_run_exits_0(hpo, folder):
    code, out, _ = hpo(folder / "ok.csv", "--model", folder / "model.json")
    assert code == 0
    assert "ok: ok at 60.0% of training" in out


def test_a_faulty_run_exits_1_with_its_diagnosis(hpo, folder):
    code, out, _ = hpo(folder / "step.csv", "--model", folder / "model.json", "--json")
    said = json.loads(out)
    assert code == 1
    assert (said["status"], said["kind"]) == ("alarm", "step")
    assert said["onset"] == pytest.approx(0.5, abs=0.02)
    assert said["cost_pct"] == pytest.approx(2, abs=0.5)


def test_one_finished_run_is_reference_enough(hpo, folder):
    arguments = ("--reference", folder / "references.csv", "--reference-run", "r3")
    assert hpo(folder / "ok.csv", *arguments)[0] == 0
    assert hpo(folder / "step.csv", *arguments)[0] == 1


def test_the_command_on_alarm_runs_once(hpo, folder):
    hpo(folder / "step.csv", "--model", folder / "model.json", "--on-alarm", f"echo alarm >> {folder / 'said'}")
    assert (folder / "said").read_text() == "alarm\n"
    hpo(folder / "ok.csv", "--model", folder / "model.json", "--on-alarm", f"touch {folder / 'never'}")
    assert not (folder / "never").exists()


def test_what_the_command_prints_is_no_part_of_the_document_and_its_failure_is_said(folder):
    command = [sys.executable, "-m", "hpo", "monitor", "step.csv", "--model", "model.json", "--json"]
    done = subprocess.run(
        [*command, "--on-alarm", "echo paged; exit 3"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, json.loads(done.stdout)["status"]) == (1, "alarm")
    assert done.stderr.splitlines() == ["paged", "hpo: --on-alarm: expected a command that ends with 0; it ended with 3"]


@pytest.mark.parametrize("wrong", [("--figure", "f.bmp"), ("--validation", "nope")])
def test_what_is_wrong_in_the_arguments_is_said_before_the_command_runs(hpo, folder, wrong):
    code, out, err = hpo(
        folder / "step.csv", "--model", folder / "model.json", "--on-alarm", f"touch {folder / 'never'}", *wrong
    )
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert not (folder / "never").exists()


def test_a_run_among_its_references_is_not_held_against_itself(hpo, folder):
    others = hpo(folder / "step.csv", "--reference", folder / "references.csv")
    code, out, err = hpo(folder / "step.csv", "--reference", folder / "references.csv", "--reference", folder / "step.csv")
    assert (code, out) == (1, others[1])
    assert "it is among the references as well: left out of them" in err


def test_overfitting_is_told_by_the_validation_loss(hpo, folder):
    write(folder / "over.csv", rows("over", 1.9, 12, fault=-0.1 * np.maximum(T - 0.5, 0)))
    code, out, _ = hpo(folder / "over.csv", "--model", folder / "model.json", "--validation", "val_loss", "--json")
    assert (code, json.loads(out)["kind"]) == (1, "overfitting")


def test_following_alarms_while_the_log_grows(hpo, folder):
    lines = rows("grow", 1.9, 13, fault=np.where(T >= 0.5, 0.03, 0.0))
    write(folder / "grow.csv", lines[:150])
    with growing(folder / "grow.csv", lines[150:300]):
        code, out, _ = hpo(folder / "grow.csv", "--model", folder / "model.json", "--follow", "--poll", 0.02, "--json")
    said = json.loads(out)
    assert (code, said["status"]) == (1, "alarm")
    assert 0.5 <= said["detected_at"] <= 0.56
    assert said["residual"][-1][0] < 0.7  # it did not wait for the rest


def as_text(lines, form):
    cells = [line.split(",") for line in lines]
    if form == "jsonl":
        return [f'{{"step": {c[1]}, "total_steps": {c[2]}, "train_loss": {c[3]}}}' for c in cells]
    return [f"iter {c[1]}/{c[2]}: loss {c[3]}, time 12.3ms" for c in cells]


@pytest.mark.parametrize("form", ["jsonl", "log"])
def test_logs_of_other_formats_are_followed_through_a_restart(hpo, folder, form):
    lines = as_text(rows("grow", 1.9, 13, fault=np.where(T >= 0.5, 0.03, 0.0)), form)
    path = folder / f"grow.{form}"
    path.write_text("\n".join(lines[:150]) + "\n")
    with growing(path, [*lines[150:180], *lines[160:300]]):  # a restart from step 161
        code, out, _ = hpo(path, "--model", folder / "model.json", "--follow", "--poll", 0.02, "--json")
    said = json.loads(out)
    assert (code, said["status"]) == (1, "alarm")
    assert 0.5 <= said["detected_at"] <= 0.56
    assert said["onset"] == pytest.approx(0.5, abs=0.02)


def test_a_jump_where_the_log_was_restarted_is_a_restart(hpo, folder):
    lines = rows("again", 1.9, 14, fault=np.where(T >= 0.5, 0.03, 0.0))
    write(folder / "again.csv", [*lines[:215], *lines[199:]])
    code, out, err = hpo(folder / "again.csv", "--model", folder / "model.json", "--json")
    assert (code, json.loads(out)["kind"]) == (1, "restart")
    assert "restarted at 200; where steps were logged twice the later ones count" in err


def test_columns_are_guessed_with_a_word_or_named(hpo, folder):
    text = (folder / "ok.csv").read_text().replace("run_id,step,total_steps,train_loss", "run_id,my_x,total_steps,Loss/train")
    (folder / "odd.csv").write_text(text)
    code, _, err = hpo(folder / "odd.csv", "--model", folder / "model.json")
    assert (code, err.count("\n")) == (2, 1)
    assert "found run_id, my_x, total_steps, Loss/train, val_loss" in err
    code, _, err = hpo(folder / "odd.csv", "--model", folder / "model.json", "--step", "my_x")
    assert code == 0
    assert "guessed that loss is column 'Loss/train'; other losses: val_loss (--loss to say otherwise)" in err
    assert hpo(folder / "odd.csv", "--model", folder / "model.json", "--step", "my_x", "--loss", "Loss/train")[2] == ""


@pytest.mark.parametrize("value", ["0", "-1.5", "1e308"])
@pytest.mark.parametrize("known", [("--model", "model.json"), ("--reference", "references.csv")])
def test_one_value_that_is_no_loss_is_an_alarm_there(hpo, folder, value, known):
    lines = (folder / "ok.csv").read_text().splitlines()
    run_id, step, total, _, val = lines[200].split(",")
    lines[200] = ",".join((run_id, step, total, value, val))
    (folder / "odd.csv").write_text("\n".join(lines) + "\n")
    code, out, _ = hpo(folder / "odd.csv", known[0], folder / known[1], "--json")
    said = json.loads(out)
    assert (code, said["kind"]) == (1, "non_finite")
    assert said["onset"] == pytest.approx(200 / STEPS)


def test_several_finished_runs_are_a_model_and_the_data_order_is_seen_or_told(hpo, folder):
    order = 0.04 * np.random.default_rng(0).standard_normal(600)
    another = 0.04 * np.random.default_rng(9).standard_normal(600)

    def saved(name, horizon, seed, fault=0.0, noise=order):
        t = np.arange(1, horizon + 1) / horizon
        own = 0.004 * np.random.default_rng(seed).standard_normal(horizon)
        loss = 2 * (1 + 0.3 * (1 - t) ** 1.5) * np.exp(noise[:horizon] + own + np.where(t >= 0.6, fault, 0.0))
        lines = [f"{k},{horizon},{v:.6f}" for k, v in enumerate(loss, start=1)]
        (folder / f"{name}.csv").write_text("\n".join(["step,total_steps,train_loss", *lines]) + "\n")
        return folder / f"{name}.csv"

    references = [saved(f"ref{h}", h, h) for h in (450, 500, 600)]
    run = saved("run", 400, 1, fault=0.06)
    given = [word for path in references for word in ("--reference", path)]
    seen = json.loads(hpo(run, *given, "--json")[1])
    code, out, _ = hpo(run, *given, "--same-data", "--json")
    told = json.loads(out)
    assert (code, told["kind"]) == (1, "step")
    assert told["detected_at"] == pytest.approx(seen["detected_at"], abs=0.01)
    other = json.loads(hpo(saved("other", 400, 1, fault=0.06, noise=another), *given, "--json")[1])
    assert seen["detected_at"] < (other["detected_at"] or 1.0)
    code, out, _ = hpo(saved("well", 400, 2), *given)
    assert code == 0
    assert "on whose batches it was trained" in out
    assert "batches" not in hpo(saved("fine", 400, 2, noise=another), *given)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ok.csv"], "expected --model or --reference; found neither"),
        (["ok.csv", "--model", "model.json", "--reference", "ok.csv"], "found both"),
        (["ok.csv", "--model", "model.json", "--same-data"], "--same-data: expected --reference"),
        (["none.csv", "--model", "model.json"], "none.csv"),
        (["ok.csv", "--model", "none.json"], "none.json: expected a model file"),
        (["ok.csv", "--model", "references.csv"], "found something that is not JSON"),
        (["references.csv", "--model", "model.json"], "choose it by --run ID"),
        (["ok.csv", "--model", "model.json", "--total", "-3"], "--total: expected a number of steps above 0; found -3"),
        (["step.csv", "--reference", "ok.csv"], "a reference must be complete"),
        (["ok.csv", "--reference", "ok.csv"], "expected another run than ok; found the same log"),
        (["ok.csv", "--model", "model.json", "--metric", "nope"], "nope"),
        (["other.csv", "--reference", "step.csv"], "expected the run's family 'gpt'; found 'vit'"),
        (["bare.csv", "--model", "model.json"], "give --total"),
        (["twice.csv", "--model", "model.json"], "each column once; found loss more than once"),
        (["equal.csv", "--model", "model.json"], "expected one loss column, or --loss; found bar_loss, foo_loss"),
        (["val.csv", "--reference", "step.csv"], "metric 'val_loss' is not a column; found train_loss"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(hpo, folder, monkeypatch, arguments, message):
    monkeypatch.chdir(folder)
    (folder / "bare.csv").write_text("step,train_loss\n1,3\n2,2.9\n")
    (folder / "twice.csv").write_text("step,loss,loss\n1,3,3\n2,2.9,3\n")
    (folder / "equal.csv").write_text("step,bar_loss,foo_loss\n1,3,3\n2,2.9,3\n")
    (folder / "val.csv").write_text("step,total_steps,val_loss\n1,9,3\n2,9,2.9\n")
    (folder / "other.csv").write_text("family,step,total_steps,train_loss\ngpt,1,9,3\ngpt,2,9,2.1\n")
    (folder / "step.csv").write_text("family,step,total_steps,train_loss\nvit,1,2,3\nvit,2,2,2\n")
    code, out, err = hpo(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("hpo: ")
    assert err.count("\n") == 1


def test_another_metric_or_family_is_accepted_by_force(hpo, folder):
    run = folder / "ok.csv"
    code, out, _ = hpo(run, "--model", folder / "model.json", "--force", "--json")
    assert (code, json.loads(out)["status"]) == (0, "ok")
    text = (folder / "references.csv").read_text().replace("train_loss,val_loss", "eval_loss,other")
    (folder / "others.csv").write_text(text)
    assert hpo(run, "--reference", folder / "others.csv")[0] == 2
    code, _, err = hpo(run, "--reference", folder / "others.csv", "--force", "--json")
    assert code == 0, err


def test_a_run_that_says_too_little_yet_has_no_figure_and_no_error(hpo, folder):
    write(folder / "young.csv", rows("young", 1.9, 15, until=0.05))
    code, out, err = hpo(folder / "young.csv", "--model", folder / "model.json", "--figure", folder / "f.svg")
    assert (code, "abstained" in out) == (0, True)
    assert "no figure is written: too little seen" in err
    assert not (folder / "f.svg").exists()


def bare(path, lines):
    """Write step and loss alone, as a log of a user's own."""
    path.write_text("step,train_loss\n" + "\n".join(",".join((c := line.split(","))[1:2] + c[3:4]) for line in lines) + "\n")
    return path


def test_bare_logs_will_do_with_the_length_of_the_run(hpo, folder):
    """References are finished; what they do not say of themselves is no reason to refuse them."""
    given = [word for k in range(3) for word in ("--reference", bare(folder / f"ref{k}.csv", rows(f"r{k}", 2 + 0.1 * k, k)))]
    assert hpo(bare(folder / "well.csv", rows("well", 1.9, 16, until=0.7)), *given, "--total", 400)[0] == 0
    faulty = rows("ill", 1.9, 16, fault=np.where(T >= 0.5, 0.03, 0.0), until=0.7)
    code, out, _ = hpo(bare(folder / "ill.csv", faulty), *given, "--total", 400, "--json")
    assert (code, json.loads(out)["kind"]) == (1, "step")
    assert hpo(folder / "ill.csv", *given)[0] == 2


def test_a_schedule_that_the_log_does_not_name_is_that_of_the_references(hpo, folder):
    text = (folder / "references.csv").read_text().splitlines()
    named = [text[0] + ",schedule", *(f"{line},linear" for line in text[1:])]
    (folder / "references.csv").write_text("\n".join(named) + "\n")
    code, _, err = hpo(folder / "ok.csv", "--reference", folder / "references.csv")
    assert code == 0
    assert "the log does not name its schedule: taken to be that of the references, linear" in err


@pytest.mark.parametrize("constant", ["run", "references"])
def test_schedules_are_not_compared_where_neither_says_one(hpo, folder, constant):
    for name, holds in (("ok.csv", "run"), ("references.csv", "references")):
        frame = pd.read_csv(folder / name)
        if holds == constant:
            frame["lr"] = 1e-4  # logged, but no schedule
        frame.to_csv(folder / name, index=False)
    code, out, err = hpo(folder / "ok.csv", "--reference", folder / "references.csv")
    assert (code, "follows" in out) == (0, True), err


def test_the_figure_is_an_svg(hpo, folder):
    hpo(folder / "step.csv", "--model", folder / "model.json", "--figure", folder / "f.svg")
    assert "onset (step)" in (folder / "f.svg").read_text()


JUNK = bytes(np.random.default_rng(0).integers(0, 256, 64, dtype=np.uint8))
DAMAGES = {
    "empty": lambda raw: b"",
    "binary": lambda raw: JUNK * 20,
    "half": lambda raw: raw[: len(raw) // 2],
    "junk inside": lambda raw: raw[: len(raw) // 3] + JUNK + raw[len(raw) // 3 + len(JUNK) :],
    "a page": lambda raw: b"<html>" + raw,
    "no loss": lambda raw: raw.replace(b"loss", b"lots"),
}


@pytest.mark.parametrize("form", WRITERS)
def test_a_damaged_log_is_read_as_far_as_it_goes_or_refused_in_one_line(hpo, tmp_path, form):
    """Through the command: whatever the damage, an answer, or exit 2 with one line and nothing written."""
    needed = {"tensorboard": "tensorboard", "wandb": "wandb"}.get(form)
    if needed is not None:
        pytest.importorskip(needed)
    reference = WRITERS["csv"](tmp_path, 300)
    home = tmp_path / form
    home.mkdir()
    log = WRITERS[form](home, 300)
    file = log if log.is_file() else log / "metrics" / "train_loss"
    raw = file.read_bytes()
    for name, damage in DAMAGES.items():
        file.write_bytes(damage(raw))
        figure = tmp_path / f"{name}.svg"
        code, out, err = hpo(log, "--reference", reference, "--total", 300, "--json", "--figure", figure)
        assert code in (0, 1, 2), name
        assert code == 2 or json.loads(out)["status"] in ("ok", "alarm", "abstained"), name
        assert code != 2 or (err.count("\n") == 1 and out == "" and not figure.exists()), name
        assert code == 2 or name not in ("empty", "binary"), name
