import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hpo.adapters.curve_files import RecordedRun, read_runs, write_run
from hpo.core.metric import Metric
from hpo.core.recipe import Recipe
from hpo.core.schedules import recorded_schedule, schedule, unknown_schedule

TIDY = {
    "source": "ours", "family": "tiny", "group": "g", "run_id": "a", "n_params": 1000.0, "batch_tokens": 100.0,
    "lr": 0.01, "weight_decay": 0.5, "warmup_steps": 5.0, "schedule": "cosine_to_0.1x", "total_steps": 50.0,
    "total_tokens": 5000.0, "hp": '{"depth": 3, "final_full_val_loss": 2.5}',
}  # fmt: skip


def tidy(n=50, **changes):
    steps = np.arange(1, n + 1)
    frame = {**TIDY, "step": steps, "tokens": steps * 100.0, "train_loss": 2 + 1 / steps, **changes}
    return pd.DataFrame({name: value for name, value in frame.items() if value is not None})


def save(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True, double_precision=15)
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


def text_file(tmp_path, text, name="run.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_format_gives_the_same_runs(tmp_path, suffix):
    both = pd.concat([tidy(), tidy(run_id="b", lr=0.02)])
    first, second = read_runs(save(both, tmp_path / f"curves{suffix}"))
    assert (first.run_id, second.run_id) == ("a", "b")
    assert (first.family, first.group, first.horizon) == ("tiny", "g", 50.0)
    assert first.metric == Metric("train_loss")
    np.testing.assert_allclose(first.values, 2 + 1 / np.arange(1, 51), rtol=1e-12)
    np.testing.assert_array_equal(first.tokens, np.arange(1, 51) * 100.0)
    assert first.recipe == Recipe(
        schedule=schedule("cosine", final_ratio=0.1), n_params=1000, n_tokens=5000, batch_tokens=100, lr=0.01,
        weight_decay=0.5, warmup_fraction=0.1,
    )  # fmt: skip
    assert second.recipe.lr == 0.02
    assert first.recipe.tau == pytest.approx(100 / (0.01 * 0.5 * 5000))
    assert first.settings["depth"] == 3
    assert first.settings["lr"] == 0.01


def test_a_recorded_full_validation_is_a_setting_not_the_end_of_the_curve(tmp_path):
    (run,) = read_runs(save(tidy(), tmp_path / "a.parquet"))
    assert run.settings["final_full_val_loss"] == 2.5
    assert run.metric.end == "window"
    assert run.curve().final_loss == pytest.approx(float(np.mean(run.values[-5:])))


def test_a_metric_that_ends_by_a_named_value_takes_it_from_the_settings(tmp_path):
    (run,) = read_runs(save(tidy(), tmp_path / "a.parquet"))
    named = RecordedRun(**{**vars(run), "metric": Metric("train_loss", end="final_full_val_loss")})
    assert named.curve().final_loss == 2.5
    assert named.curve(until=0.5).end_value is None


def test_the_prefix_of_a_run(tmp_path):
    (run,) = read_runs(save(tidy(), tmp_path / "a.parquet"))
    prefix = run.curve(until=0.2)
    assert prefix.n_points == 10
    assert prefix.fraction_seen == pytest.approx(0.2)
    assert prefix.final_loss is None
    with pytest.raises(ValueError, match=r"until must lie in \(0, 1\]; found 1\.5"):
        run.curve(until=1.5)


@pytest.mark.parametrize("header", ["step,loss", "iteration,train_loss", "Steps,Train/Loss", "global_step;loss", "step\tloss"])
def test_a_plain_log_is_one_run_named_after_its_file(tmp_path, header):
    mark = next(mark for mark in ",;\t" if mark in header)
    path = text_file(tmp_path, f"{header}\n1{mark}3.5\n2{mark}3.25\n", "mine.csv")
    (run,) = read_runs(path)
    assert run.run_id == "mine"
    assert run.metric.name == "train_loss"
    assert (run.horizon, run.recipe) == (None, None)
    assert run.values.tolist() == [3.5, 3.25]
    with pytest.raises(ValueError, match="only where its whole length is known"):
        run.curve(until=0.5)


def test_a_log_in_tokens_has_its_horizon_in_tokens(tmp_path):
    (run,) = read_runs(text_file(tmp_path, "tokens,loss,total_tokens\n100,3,1000\n200,2,1000\n"))
    assert run.horizon == 1000
    assert run.curve().fraction_seen == pytest.approx(0.2)


def test_a_learning_rate_that_varies_is_a_log(tmp_path):
    steps = np.arange(1, 101)
    frame = pd.DataFrame({"step": steps, "loss": 3.0, "lr": 0.02 * (1 - steps / 100), "total_steps": 100})
    (run,) = read_runs(save(frame, tmp_path / "log.csv"))
    assert run.recipe.lr == pytest.approx(0.02 * 0.99)
    assert run.recipe.schedule.name == "recorded"
    assert float(run.recipe.schedule(0.5)) == pytest.approx(0.5, abs=0.02)
    (prefix,) = read_runs(save(frame[:40], tmp_path / "prefix.csv"))
    assert prefix.recipe is None
    assert prefix.learning_rates.size == 40


def test_a_log_of_the_whole_run_is_believed_over_a_wrong_name(tmp_path):
    steps = np.arange(1, 51)
    right = tidy(lr_at_step=0.01 * schedule("cosine", final_ratio=0.1)(steps / 50, 0.1))
    assert read_runs(save(right, tmp_path / "a.csv"))[0].recipe.schedule == schedule("cosine", final_ratio=0.1)
    wrong = tidy(lr_at_step=0.01 * schedule("linear")(steps / 50, 0.1))
    assert read_runs(save(wrong, tmp_path / "b.csv"))[0].recipe.schedule.name == "recorded"
    named_only = tidy(schedule="their own thing")
    assert read_runs(save(named_only, tmp_path / "c.csv"))[0].recipe.schedule == unknown_schedule("their own thing")


def test_folders_wildcards_and_one_run(tmp_path):
    for name in "abc":
        save(tidy(run_id=name), tmp_path / f"{name}.parquet")
    (tmp_path / "notes.md").write_text("no curve")
    assert [run.run_id for run in read_runs(tmp_path)] == ["a", "b", "c"]
    assert [run.run_id for run in read_runs(str(tmp_path / "[ab].parquet"))] == ["a", "b"]
    assert [run.run_id for run in read_runs([tmp_path / "c.parquet", tmp_path / "a.parquet"])] == ["c", "a"]
    assert [run.run_id for run in read_runs(tmp_path, run="b")] == ["b"]


def test_one_id_in_two_files_is_told_apart_by_path(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        text_file(tmp_path / folder, "step,loss\n1,2\n", "log.csv")
    paths = [tmp_path / folder / "log.csv" for folder in ("one", "two")]
    assert [run.run_id for run in read_runs(paths)] == [f"{path}:log" for path in paths]


def test_metrics_logged_at_different_steps_do_not_look_like_nan(tmp_path):
    steps = np.arange(10, 210, 10)
    train, val = np.where(steps % 20 == 0, np.nan, 3.0), np.where(steps % 50 == 0, 2.5, np.nan)
    path = save(pd.DataFrame({"step": steps, "train_loss": train, "val_loss": val, "total_steps": 200}), tmp_path / "a.csv")
    (by_train,), (by_val,) = read_runs(path), read_runs(path, metric="val_loss")
    assert by_train.steps.tolist() == [s for s in steps if s % 20]
    assert by_val.steps.tolist() == [50, 100, 150, 200]
    assert by_val.metric == Metric("val_loss", end="last")
    assert by_val.curve().nonfinite_step is None


def test_a_nan_written_beside_another_metric_is_not_logged(tmp_path):
    (run,) = read_runs(text_file(tmp_path, "step,train_loss,val_loss\n1,3,nan\n2,nan,2.5\n3,2,nan\n"))
    assert run.steps.tolist() == [1, 3]


@pytest.mark.parametrize("word", ["nan", "NaN", "inf", "-inf"])
def test_an_explicit_nan_or_inf_is_a_value(tmp_path, word):
    (run,) = read_runs(text_file(tmp_path, f"step,loss,lr\n1,3,.1\n2,{word},.1\n3,2,.1\n"))
    assert run.curve().nonfinite_step == 2


@pytest.mark.parametrize("word", ["NaN", "Infinity", "null"])
def test_json_lines_may_say_nan(tmp_path, word):
    text = "".join(f'{{"step": {k}, "loss": {3 if k < 3 else word}}}\n' for k in range(1, 6))
    (run,) = read_runs(text_file(tmp_path, text, "a.jsonl"))
    assert run.curve().nonfinite_step == 3


def _log_of(tmp_path, losses, **columns):
    """Write what pandas writes: a step, a training loss with NaN as a blank cell, and other columns."""
    frame = pd.DataFrame({"step": np.arange(1, len(losses) + 1), "train_loss": losses, "lr": 0.01} | columns)
    frame.to_csv(tmp_path / "log.csv", index=False)
    return tmp_path / "log.csv"


def test_blank_losses_to_the_end_beside_other_columns_are_nan(tmp_path):
    losses = np.where(np.arange(100) < 60, 3.0, np.nan)
    validation = np.where(np.arange(100) % 10 == 9, 3.1, np.nan)
    (run,) = read_runs(_log_of(tmp_path, losses, val_loss=validation, grad_norm=1.0), metric="train_loss")
    assert run.curve().nonfinite_step == 61
    assert any("blank from step 61 on: taken for NaN" in note for note in run.notes)


def test_blanks_are_not_nan_while_they_may_be_rhythm(tmp_path):
    losses = np.where(np.arange(98) % 10 == 0, 3.0, np.nan)
    (run,) = read_runs(_log_of(tmp_path, losses, grad_norm=1.0), metric="train_loss")
    assert run.curve().nonfinite_step is None
    assert run.steps.tolist() == list(range(1, 98, 10))


def test_rows_of_other_metrics_at_the_end_are_no_blanks(tmp_path):
    losses = np.where(np.arange(20) < 10, 3.0, np.nan)
    (run,) = read_runs(_log_of(tmp_path, losses, test_loss=np.where(np.arange(20) < 10, np.nan, 3.1)), metric="train_loss")
    assert run.curve().nonfinite_step is None


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_run_that_never_recovers_from_empty_cells_diverged(tmp_path, suffix):
    steps = np.arange(1.0, 11.0)
    frame = pd.DataFrame({"step": steps, "train_loss": np.where(steps < 6, 3.0, np.nan), "val_score": 0.1, "lr_at_step": 1.0})
    (run,) = read_runs(save(frame, tmp_path / f"a{suffix}"))
    assert run.curve().nonfinite_step == 6


def test_rows_after_the_last_sparse_report_are_not_a_divergence(tmp_path):
    steps = np.arange(1.0, 12.0)
    frame = pd.DataFrame({"step": steps, "train_loss": np.where(steps % 4 == 0, 3.0, np.nan), "lr_at_step": 1.0})
    (run,) = read_runs(save(frame, tmp_path / "a.csv"))
    assert run.steps.tolist() == [4, 8]


def test_the_only_loss_is_found_and_several_are_listed(tmp_path):
    assert read_runs(text_file(tmp_path, "step,nll\n1,2\n"))[0].metric.name == "nll"
    several = text_file(tmp_path, "step,loss_a,loss_b\n1,2,3\n")
    with pytest.raises(ValueError, match="found loss_a, loss_b"):
        read_runs(several)
    assert read_runs(several, metric="loss_b")[0].values.tolist() == [3]


def test_scores_are_maximised(tmp_path):
    path = text_file(tmp_path, "step,train_loss,val_accuracy,val_bleu\n1,2,0.5,31\n")
    assert read_runs(path, metric="val_accuracy")[0].metric == Metric("val_accuracy", "log1m", "last", "max")
    assert read_runs(path, metric="val_bleu")[0].metric == Metric("val_bleu", "identity", "last", "max")
    assert read_runs(path, metric="val_bleu", mode="min")[0].metric == Metric("val_bleu", "log", "last", "min")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found an empty file"),
        ("step,loss\n", "no rows"),
        ("epoch_id,loss\n1,2\n", "expected a step column .* found epoch_id, loss"),
        ("step,time\n1,2\n", r"expected one loss column, or --loss; found step, time"),
        ("step,loss\n1,abc\n", "column loss: expected numbers; found 'abc'"),
        ("step,loss,lr\n1,2,-1\n2,2,-1\n", "run run: lr must be finite and above 0; found -1"),
        ("step,loss,total_steps\n1,2,0\n", "total_steps must be above 0; found 0"),
        ("step,loss,hp\n1,2,{oops\n", "hp must be a JSON object"),
        ("run_id,step,loss\n,1,2\nb,1,2\n", "expected a run id in every row"),
        ('{"step": 1}\nnot json\n{"step": 2}\n', "line 2 is not JSON"),
        (bytes(range(256)) * 4, "binary data"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe\xfd", "expected Parquet, TensorBoard .* CSV or TSV; found binary data"),
        (b"PAR1 and nothing more", "expected Parquet; "),
        (b"\x80\x04\x95.", "found binary data"),
        (b"PK\x03\x04\x14\x00\x00\x00", "found a zip archive: unpack it first"),
        ("1 2 3\n4 5 6 7\n", "expected a step column"),
        ("step,loss\n1,2\n2,3,4,5\n", "expected CSV or TSV; CSV parse error: Expected 2 columns, got 4"),
    ],
)
def test_bad_files_are_told_in_one_line_that_names_the_file(tmp_path, text, message):
    path = text_file(tmp_path, text)
    with pytest.raises(ValueError, match=message) as caught:
        read_runs(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_runs_and_metrics(tmp_path):
    with pytest.raises(ValueError, match=r"gone\.csv: no such file"):
        read_runs(tmp_path / "gone.csv")
    with pytest.raises(ValueError, match="no file matches"):
        read_runs(tmp_path / "*.csv")
    with pytest.raises(ValueError, match="in this folder; found none"):
        read_runs(tmp_path)
    path = save(tidy(), tmp_path / "a.csv")
    with pytest.raises(ValueError, match="run 'z' is not in these files; found a"):
        read_runs(path, run="z")
    with pytest.raises(ValueError, match="metric 'bleu' is not a column; found train_loss"):
        read_runs(path, metric="bleu")


def test_a_line_that_is_still_being_written_is_left_for_later(tmp_path):
    assert read_runs(text_file(tmp_path, "step,loss,lr\n1,2,.1\n2,3,.1\n3,4"))[0].steps.tolist() == [1, 2]
    assert read_runs(text_file(tmp_path, '{"step": 1, "loss": 2}\n{"step": 2, "lo', "a.jsonl"))[0].steps.tolist() == [1]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"recipe": None, "horizon": None, "tokens": None, "learning_rates": None, "settings": {}},
        {"recipe": Recipe(schedule=recorded_schedule([0, 0.3, 1], [0.2, 0.7, 0.1]), total_steps=10.0)},
        {"recipe": Recipe(schedule=unknown_schedule("linear"), warmup_fraction=0.1, total_steps=10.0)},
        {
            "recipe": Recipe(
                schedule=schedule("wsd"), lr=0.3, base_lr=1 / 3, base_weight_decay=0.0, flops_exact=1e21, total_steps=10.0
            )
        },
        {"metric": Metric("val_acc", "log1m", "final_acc", "max"), "values": np.array([0.1, 0.2, 0.3])},
        {"values": np.array([3.0, np.nan, np.inf]), "metric": Metric("my_loss", end="last")},
        {"values": np.array([np.nan, np.nan, np.nan])},
        {"settings": {"lr": 0.5, "nested": {"a": [1, None, "τ"]}, "flag": True, "n": 3}},
    ],
    ids=range(9),
)
def test_a_written_run_reads_back_equal(tmp_path, changes):
    steps = np.array([1.0, 2.0, 5.0])
    about = {
        "run_id": "trial 7", "family": "f", "group": "g", "steps": steps, "values": np.array([3.0, 2.5, 1 / 3]),
        "horizon": 10.0,
        "tokens": steps * 64, "learning_rates": np.array([0.1, np.nan, 0.3]), "metric": Metric(), "settings": {"tau": 0.1},
        "recipe": Recipe(schedule=schedule("linear"), n_params=1e6, n_tokens=640, batch_tokens=64, lr=0.3, weight_decay=0.1),
    }  # fmt: skip
    run = RecordedRun(**{**about, **changes})
    write_run(tmp_path / "run.parquet", run)
    (back,) = read_runs(tmp_path / "run.parquet")
    assert back == run
    assert back != RecordedRun(**{**vars(run), "steps": run.steps + 1})
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.parquet"]


def test_a_written_run_is_tidy_for_other_readers(tmp_path):
    run = RecordedRun(
        run_id="a", steps=np.array([1.0, 2.0]), values=np.array([3.0, 2.0]), horizon=4.0, settings={"tau": 0.1},
        recipe=Recipe(schedule=schedule("linear"), lr=0.3, warmup_fraction=0.25, total_steps=4.0),
    )  # fmt: skip
    write_run(tmp_path / "a.parquet", run)
    frame = pd.read_parquet(tmp_path / "a.parquet")
    assert frame["train_loss"].tolist() == [3.0, 2.0]
    assert frame.loc[0, ["run_id", "lr", "schedule", "total_steps", "warmup_steps"]].tolist() == ["a", 0.3, "linear", 4.0, 1.0]
    assert json.loads(frame["hp"][0]) == {"tau": 0.1}
    frame.to_csv(tmp_path / "a.csv", index=False)
    (again,) = read_runs(tmp_path / "a.csv")
    assert again.recipe == run.recipe


def test_a_run_of_a_newer_schema_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("hpo.adapters.curve_files.FILE_SCHEMA", 99)
    run = RecordedRun(run_id="a", steps=np.array([1.0]), values=np.array([3.0]))
    write_run(tmp_path / "a.parquet", run)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="expected a curve file of schema 1"):
        read_runs(tmp_path / "a.parquet")


def test_settings_that_are_not_json_are_refused_before_anything_is_written(tmp_path):
    run = RecordedRun(run_id="a", steps=np.array([1.0]), values=np.array([3.0]), settings={"f": object()})
    with pytest.raises(ValueError, match="settings must be JSON-ready"):
        write_run(tmp_path / "a.parquet", run)
    assert list(tmp_path.iterdir()) == []


def test_a_million_rows_read_back_equal(tmp_path):
    n = 1_000_000
    steps = np.arange(1.0, n + 1)
    run = RecordedRun(run_id="a", steps=steps, values=2 + 5 / np.sqrt(steps), tokens=steps * 64, horizon=float(n))
    write_run(tmp_path / "a.parquet", run)
    assert read_runs(tmp_path / "a.parquet") == [run]


CURVES = Path(os.environ.get("HPO_CURVES", Path(__file__).resolve().parents[3].parent / "shared" / "curves"))


@pytest.mark.skipif(not CURVES.is_dir(), reason="recorded curves not found: set HPO_CURVES to their folder")
@pytest.mark.parametrize(
    ("name", "n_runs", "n_diverged", "schedules"),
    [
        ("lr_scheduling_schaipp", 131, 0, {"cosine", "wsd", "constant"}),
        ("olmo_ladder", 15, 0, {"cosine"}),
        ("multipowerlaw", 18, 0, {"constant", "recorded"}),
        ("taskset_rnn_text", 1500, 126, {"unknown"}),
        ("stepback_momo", 171, 3, {"constant"}),
        ("algoperf", 1313, 0, {"unknown"}),
    ],
)
def test_published_curves(name, n_runs, n_diverged, schedules):
    runs = read_runs(CURVES / f"{name}.parquet")
    curves = [run.curve() for run in runs]
    assert len(runs) == n_runs
    assert sum(curve.nonfinite_step is not None for curve in curves) == n_diverged
    assert sum(curve.is_complete for curve in curves) == n_runs - n_diverged
    assert {run.recipe.schedule.name for run in runs} == schedules


@pytest.mark.skipif(not CURVES.is_dir(), reason="recorded curves not found: set HPO_CURVES to their folder")
def test_the_ladder_of_olmo_has_matched_controls():
    runs = read_runs(CURVES / "olmo_ladder.parquet")
    assert {round(run.recipe.tpp, 1) for run in runs} == {10.0, 20.0, 40.0}
    at_chinchilla = [run.recipe.tau for run in runs if round(run.recipe.tpp) == 20]
    assert max(at_chinchilla) / min(at_chinchilla) < 1.25
