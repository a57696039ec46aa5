"""Runs of our own: designed with matched controls, trained once, resumed where they were left, kept in tidy columns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench.own_runs import OwnRun, collect, is_finished, train_missing
from hpo.adapters.curve_files import read_runs
from hpo.adapters.training_session import FolderSession, read_log
from hpo.engine.run_folder import exclusive_file

SMALL = {"depth": 1, "head_dim": 4, "vocab_size": 128}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"the {i}th line says {i * i}\n" for i in range(4000)))
    return str(path)


def own(text: str, name: str = "a", seed: int = 0, **values: object) -> OwnRun:
    given = {"width": 8, "tpp": 1.5, "batch_sequences": 2, "lr": 0.01, "tau": 0.3, **values}
    return OwnRun(
        run_id=f"{name}-seed{seed}",
        group="g",
        family="f",
        seed=seed,
        model=SMALL,
        data={"path": text, "seq_len": 8},
        training={"evaluations": 10, "held_out_sequences": 20},
        notes={"lr": 0.01},
        **given,  # type: ignore[arg-type]
    )


def test_the_decay_gives_the_timescale_and_steps_the_tokens_per_parameter(text: str) -> None:
    run = own(text, width=16, tau=0.4, tpp=5.0)
    assert run.recipe.tau == pytest.approx(0.4, rel=1e-9)
    assert run.recipe.tpp == pytest.approx(5.0, rel=0.01)


@pytest.mark.parametrize("values", [{"tau": None}, {"weight_decay": 0.1}])
def test_exactly_one_of_timescale_and_decay(text: str, values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="exactly one of tau and weight_decay"):
        own(text, **values)


def test_finished_runs_are_not_trained_again(text: str, tmp_path: Path) -> None:
    runs = [own(text, "a"), own(text, "b", lr=0.02)]
    train_missing(runs[:1], tmp_path)
    before = (tmp_path / "a-seed0" / "log.csv").stat().st_mtime_ns
    train_missing(runs, tmp_path)
    assert (tmp_path / "a-seed0" / "log.csv").stat().st_mtime_ns == before
    assert all(is_finished(run, tmp_path) for run in runs)


def test_a_run_left_half_way_is_resumed_to_the_same_losses(text: str, tmp_path: Path) -> None:
    run = own(text)
    train_missing([run], tmp_path / "whole")
    from proxies.trainable import train

    with FolderSession(tmp_path / "halves" / run.run_id, stop_step=run.n_steps // 2) as session:
        train(run.settings, session)
    assert not is_finished(run, tmp_path / "halves")
    train_missing([run], tmp_path / "halves")
    whole, halves = (read_log(tmp_path / name / run.run_id) for name in ("whole", "halves"))
    assert all(np.array_equal(whole[name], halves[name], equal_nan=True) for name in whole)


def test_when_the_time_is_over_no_run_is_begun(text: str, tmp_path: Path) -> None:
    train_missing([own(text)], tmp_path, seconds=-1.0)
    assert not any(tmp_path.iterdir())


def test_a_run_that_another_process_trains_is_left_to_it(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = own(text)
    (tmp_path / run.run_id).mkdir()
    with exclusive_file(tmp_path / run.run_id / ".lock"):
        train_missing([run], tmp_path)
    assert "left to process" in capsys.readouterr().err
    assert not is_finished(run, tmp_path)


@pytest.mark.slow
def test_two_workers_leave_what_one_would(text: str, tmp_path: Path) -> None:
    runs = [own(text, "a"), own(text, "b", lr=0.02)]
    train_missing(runs, tmp_path / "one")
    train_missing(runs, tmp_path / "two", n_workers=2)
    for run in runs:
        one, two = (read_log(tmp_path / name / run.run_id) for name in ("one", "two"))
        assert all(np.array_equal(one[name], two[name], equal_nan=True) for name in one)


def test_two_runs_of_one_name_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="run ids must be distinct; found a-seed0 twice"):
        train_missing([own(text), own(text)], tmp_path)


def test_what_is_kept_reads_back_as_the_runs(text: str, tmp_path: Path) -> None:
    runs = [own(text, seed=seed) for seed in (0, 1)]
    train_missing(runs, tmp_path / "runs")
    path = tmp_path / "kept.parquet"
    collect(runs, tmp_path / "runs", path)
    for kept, run in zip(read_runs(path), runs, strict=True):
        log = read_log(tmp_path / "runs" / run.run_id)
        assert (kept.run_id, kept.metric.name, kept.group, kept.family) == (run.run_id, "val_loss", "g", "f")
        assert kept.settings == {"lr": 0.01, "seed": run.seed}
        assert kept.recipe is not None
        for name in ("n_params", "n_tokens", "lr", "weight_decay", "base_lr", "tau", "tpp", "warmup_fraction", "flops"):
            assert getattr(kept.recipe, name) == pytest.approx(getattr(run.recipe, name)), name
        assert kept.recipe.schedule == run.recipe.schedule
        np.testing.assert_allclose(kept.values, log["val_loss"][np.isfinite(log["val_loss"])], rtol=1e-6)
        assert kept.curve().is_complete


def test_the_kept_training_loss_is_the_mean_over_the_steps_since_the_last_row(text: str, tmp_path: Path) -> None:
    run = own(text, tpp=6.0)
    train_missing([run], tmp_path / "runs")
    collect([run], tmp_path / "runs", tmp_path / "kept.parquet")
    frame = pd.read_parquet(tmp_path / "kept.parquet")
    losses = read_log(tmp_path / "runs" / run.run_id)["loss"]
    start, end = int(frame["step"][6]), int(frame["step"][7])
    assert end > start + 1
    assert frame["train_loss"][7] == pytest.approx(losses[start:end].mean(), rel=1e-6)
    weights = np.diff(frame["step"], prepend=0)
    assert np.average(frame["train_loss"], weights=weights) == pytest.approx(losses.mean(), rel=1e-6)
    assert len(frame) == 200


def test_a_run_that_is_not_finished_is_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected finished runs; found a-seed0 unfinished"):
        collect([own(text)], tmp_path, tmp_path / "kept.parquet")
