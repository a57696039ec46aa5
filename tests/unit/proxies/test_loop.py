"""The loop: every step reported, the schedule met, and a resumed run equal to an uninterrupted one bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hpo.adapters.training_session import FolderSession, read_log
from proxies.data import held_out_sequences
from proxies.loop import STATE_FILE, Trainer, lr_multipliers, run_loop
from proxies.settings import RunSettings, read_settings

N_STEPS = 12


class Recorder:
    """A session that keeps what it is told; it saves a checkpoint after ``save_at`` and stops after ``stop_at``."""

    def __init__(self, folder: Path | None = None, save_at: int = 0, stop_at: int = 10**9, restore: bool = False) -> None:
        self.folder, self.save_at, self.stop_at = folder, save_at, stop_at
        self.rows: list[dict[str, float]] = []
        self._restore = restore

    def report(self, *, step: int, loss: float, tokens: float | None = None, **extra: float) -> None:
        self.rows.append({"step": step, "loss": loss, "tokens": tokens or 0, **extra})

    def checkpoint(self, save: Callable[[Path], None]) -> bool:
        if self.folder is None or self.rows[-1]["step"] != self.save_at:
            return False
        save(self.folder)
        return True

    def restore(self) -> Path | None:
        return self.folder if self._restore else None

    def should_stop(self) -> bool:
        return bool(self.rows) and self.rows[-1]["step"] >= self.stop_at

    def column(self, name: str) -> list[float]:
        return [row[name] for row in self.rows]


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"the {i}th line says {i * i}\n" for i in range(2000)))
    return str(path)


def run_of(text: str, model: dict[str, Any] | None = None, **training: Any) -> RunSettings:
    return read_settings(
        {
            "model": {"width": 32, "depth": 2, **(model or {})},
            "data": {"path": text, "seq_len": 16},
            "training": {"lr": 0.01, "n_steps": N_STEPS, "batch_sequences": 4, "device": "cpu", **training},
        }
    )


def trained(run: RunSettings, session: Recorder | None = None) -> Recorder:
    session = session or Recorder()
    run_loop(run, session)
    return session


def test_every_step_is_reported_once_with_its_tokens(text: str) -> None:
    session = trained(run_of(text))
    assert session.column("step") == list(range(1, N_STEPS + 1))
    assert session.column("tokens") == [64 * step for step in range(1, N_STEPS + 1)]


def test_training_lowers_the_loss(text: str) -> None:
    losses = trained(run_of(text, n_steps=60)).column("loss")
    assert losses[0] == pytest.approx(math.log(256), abs=0.3)
    assert np.mean(losses[-5:]) < 0.75 * losses[0]


@pytest.mark.parametrize("ffn", ["relu2", "swiglu"])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(text: str, tmp_path: Path, ffn: str) -> None:
    run = run_of(text, {"ffn": ffn, "bias": True})
    whole = trained(run).column("loss")
    first = trained(run, Recorder(tmp_path, save_at=5, stop_at=7)).column("loss")
    torch.manual_seed(99)
    second = trained(run, Recorder(tmp_path, restore=True)).column("loss")
    assert first[:5] + second == whole


def test_a_resumed_run_ends_with_the_same_weights(text: str, tmp_path: Path) -> None:
    run = run_of(text)
    folders = [tmp_path / name for name in ("whole", "first", "second")]
    for folder in folders:
        folder.mkdir()
    trained(run, Recorder(folders[0], save_at=N_STEPS))
    trained(run, Recorder(folders[1], save_at=4, stop_at=4))
    session = Recorder(folders[1], save_at=N_STEPS, restore=True)
    trained(run, session)
    states = [torch.load(folder / STATE_FILE, weights_only=True)["model"] for folder in (folders[0], folders[1])]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_run_in_two_folder_sessions_has_the_log_of_one(text: str, tmp_path: Path) -> None:
    run = run_of(text)
    with FolderSession(tmp_path / "whole") as session:
        run_loop(run, session)
    with FolderSession(tmp_path / "halves", stop_step=5) as session:
        run_loop(run, session)
    with FolderSession(tmp_path / "halves") as session:
        run_loop(run, session)
    whole, halves = read_log(tmp_path / "whole"), read_log(tmp_path / "halves")
    assert all(np.array_equal(whole[name], halves[name], equal_nan=True) for name in whole)


def test_a_run_already_at_its_stop_step_trains_no_further(text: str, tmp_path: Path) -> None:
    for _ in range(2):
        with FolderSession(tmp_path / "run", stop_step=5) as session:
            run_loop(run_of(text), session)
    assert read_log(tmp_path / "run")["step"].tolist() == [1, 2, 3, 4, 5]


def test_a_checkpoint_loads_as_plain_tensors(text: str, tmp_path: Path) -> None:
    trained(run_of(text), Recorder(tmp_path, save_at=3))
    state = torch.load(tmp_path / STATE_FILE, weights_only=True)
    assert state["step"] == 3
    assert set(state) == {"step", "settings", "model", "optimiser", "random"}


def test_a_checkpoint_of_other_settings_is_refused_by_name(text: str, tmp_path: Path) -> None:
    trained(run_of(text), Recorder(tmp_path, save_at=3))
    with pytest.raises(ValueError, match=r"training\.lr was 0\.01; found 0\.02"):
        trained(run_of(text, lr=0.02), Recorder(tmp_path, restore=True))


def test_a_checkpoint_of_other_data_is_refused_by_name(text: str, tmp_path: Path) -> None:
    trained(run_of(text), Recorder(tmp_path, save_at=3))
    with Path(text).open("a") as file:
        file.write("more text than before\n" * 10)
    with pytest.raises(ValueError, match=r"data\.n_windows was \d+; found \d+"):
        trained(run_of(text), Recorder(tmp_path, restore=True))


def test_the_learning_rate_follows_the_schedule_at_the_middle_of_each_step(text: str) -> None:
    run = run_of(text, {"base_width": 16}, schedule={"name": "cosine", "parameters": {"final_ratio": 0.1}})
    middles = (np.arange(N_STEPS) + 0.5) / N_STEPS
    expected = 0.01 / 2 * run.training.schedule(middles, 0.1)
    np.testing.assert_allclose(trained(run).column("lr"), expected, rtol=1e-12)


def test_the_learning_rates_the_optimiser_used_are_those_reported(text: str) -> None:
    trainer = Trainer(run_of(text))
    for step in range(1, 4):
        trainer.advance()
        group = trainer.optimiser.param_groups[0]
        assert group["lr"] == group["peak_lr"] * trainer.multipliers[step - 1]


def test_the_mean_of_the_schedule_does_not_depend_on_the_number_of_steps(text: str) -> None:
    means = [lr_multipliers(run_of(text, n_steps=n)).mean() for n in (100, 1000)]
    assert means[0] == pytest.approx(means[1], rel=1e-3)
    assert means[1] == pytest.approx(0.5, rel=1e-3)


def test_the_last_step_reports_the_held_out_loss(text: str) -> None:
    rows = trained(run_of(text)).rows
    assert "val_loss" in rows[-1]
    assert not any("val_loss" in row for row in rows[:-1])
    assert rows[-1]["val_loss"] == pytest.approx(rows[-1]["loss"], rel=0.2)


def test_evaluations_are_spread_evenly_and_end_with_the_last_step(text: str) -> None:
    rows = trained(run_of(text, evaluations=4, held_out_sequences=7)).rows
    assert [row["step"] for row in rows if "val_loss" in row] == [3, 6, 9, 12]


def test_evaluating_more_often_does_not_change_the_training(text: str) -> None:
    assert trained(run_of(text, evaluations=5)).column("loss") == trained(run_of(text)).column("loss")


def test_the_held_out_sequences_depend_on_neither_seed_nor_batch(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxies.data.EVALUATED_AT_ONCE", 64 * 16)
    runs = [run_of(text, held_out_sequences=70), run_of(text, held_out_sequences=70, data_seed=3, batch_sequences=2)]
    first, other = (held_out_sequences(run) for run in runs)
    assert [part.shape for part in first] == [(64, 17), (6, 17)]
    assert all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_the_held_out_loss_is_the_mean_over_sequences(text: str) -> None:
    trainer = Trainer(run_of(text, held_out_sequences=70))
    windows = np.concatenate(held_out_sequences(trainer.run))
    with torch.no_grad():
        one_by_one = [trainer.model(torch.tensor(w[None, :-1]), torch.tensor(w[None, 1:])).item() for w in windows]
    assert trainer.held_out_loss() == pytest.approx(float(np.mean(one_by_one)), rel=1e-5)


def test_more_held_out_sequences_than_there_are_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"training\.held_out_sequences must be at most the \d+ of"):
        trained(run_of(text, held_out_sequences=10**6))


def test_the_loop_leaves_when_asked(text: str) -> None:
    assert trained(run_of(text), Recorder(stop_at=4)).column("step") == [1, 2, 3, 4]


def test_a_diverged_loss_is_reported_and_ends_the_run_in_a_folder_session(text: str, tmp_path: Path) -> None:
    run = run_of(text, {"parameterisation": "sp"}, lr=1e38, clip=None, warmup_fraction=0.0)
    with FolderSession(tmp_path / "run") as session:
        run_loop(run, session)
    losses = read_log(tmp_path / "run")["loss"]
    assert len(losses) < N_STEPS
    assert not np.isfinite(losses[-1])
    assert np.isfinite(losses[:-1]).all()


def test_gradients_are_clipped_to_the_given_norm(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []
    trainer = Trainer(run_of(text, clip=0.01))
    step = trainer.optimiser.step

    def watch() -> None:
        norms.append(math.sqrt(sum(float(p.grad.square().sum()) for p in trainer.model.parameters() if p.grad is not None)))
        step()

    monkeypatch.setattr(trainer.optimiser, "step", watch)
    trainer.advance()
    assert norms[0] == pytest.approx(0.01, rel=1e-3)


def test_other_trials_see_the_same_batches(text: str) -> None:
    small, large = Trainer(run_of(text)), Trainer(run_of(text, {"width": 64}, lr=1.0, seed=5))
    assert torch.equal(small.batch(small.batches, 3)[0], large.batch(large.batches, 3)[0])


def test_two_runs_of_one_seed_are_equal_and_of_two_seeds_are_not(text: str) -> None:
    first, again, other = (trained(run_of(text, seed=seed)).column("loss") for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_bfloat16_on_the_cpu_stays_near_float32(text: str) -> None:
    exact, rounded = (trained(run_of(text, dtype=dtype)).column("loss") for dtype in ("float32", "bfloat16"))
    np.testing.assert_allclose(rounded, exact, rtol=0.03)


def test_the_process_is_left_as_it_was(text: str) -> None:
    before = torch.get_num_threads()
    trained(run_of(text, threads=before + 1, n_steps=1))
    assert torch.get_num_threads() == before
    assert torch.tensor([1e-39]).mul(1.0).item() != 0.0


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_a_gpu_trains_in_bfloat16_and_goes_on_from_a_checkpoint(text: str, tmp_path: Path, compiled: bool) -> None:
    run = run_of(text, device="cuda", n_steps=60, compile=compiled)
    first = trained(run, Recorder(tmp_path, save_at=30, stop_at=30)).column("loss")
    second = trained(run, Recorder(tmp_path, restore=True)).column("loss")
    exact = trained(run_of(text, n_steps=60)).column("loss")
    np.testing.assert_allclose(first + second, exact, rtol=0.05)


@pytest.mark.parametrize(
    ("device", "message"),
    [("cuda:99", "must be on this machine"), ("gpu", "must name a torch device"), ("meta", "must be on this machine")],
)
def test_a_device_this_machine_lacks_is_named(text: str, device: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^training.device {message}"):
        Trainer(run_of(text, device=device))
