"""The callbacks in the real libraries: tiny models trained on made-up data, one of them with its loss in larger units.

That one's curve has exactly the others' shape and ends a third higher, so that the forecast, and what it should be, are known.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import optuna
import pytest
from child_processes import environment_of
from optuna.trial import Trial, TrialState

from hpo import CollapsePruner, Curve, Monitor, SmokeAlarm, report
from hpo.adapters import callbacks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("default"),  # other people's warnings, of libraries newer or older than each other
]
N_GOOD, WORSE = 3, 1.35  # as many as references are needed: none of them can be stopped
Train = Callable[[Trial | None, float, int], float]


def study_of(train: Train) -> optuna.Study:
    """Return a study of N_GOOD alike trials and one whose loss is WORSE times as large."""

    def objective(trial: Trial) -> float:
        units = 1.0 if trial.number < N_GOOD else WORSE
        return train(trial, units, trial.number)

    study = optuna.create_study(pruner=CollapsePruner(min_references=3), sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(objective, n_trials=N_GOOD + 1)
    return study


def check(study: optuna.Study, n_steps: int, untold: float) -> None:
    """Check that the last trial alone was stopped, early, with a forecast of what training to the end gives."""
    *good, bad = study.trials
    assert [t.state for t in good] == [TrialState.COMPLETE] * N_GOOD
    assert all(t.user_attrs["total_steps"] == n_steps for t in study.trials)
    assert bad.state == TrialState.PRUNED
    assert bad.user_attrs["reason"] == "cannot_win"
    assert bad.user_attrs["stopped_at"] == max(bad.intermediate_values) <= 0.5 * n_steps
    assert bad.user_attrs["predicted_final"] == pytest.approx(untold, rel=0.1)
    assert max(good[0].intermediate_values) == n_steps


JUMP, AT = 1.5, 0.5
"""A fault: from half of training on the loss is so many times what it should be."""


def check_alarm(train: Callable[[Trial | None, SmokeAlarm, bool], object], n_steps: int, *, marks: bool = True) -> None:
    """Check that a run with a fault is called soon after it and its trial marked, and one without is not."""
    told: list[tuple[float, float]] = []
    train(None, cast("SmokeAlarm", SimpleNamespace(update=lambda step, loss, **_: told.append((step, loss)))), False)
    reference = Curve.from_points(*zip(*told, strict=True), horizon=float(n_steps), run_id="reference")
    for is_faulty in (False, True):
        called: list[Any] = []
        alarm = SmokeAlarm(Monitor.against(reference, total=float(n_steps)), called.append)
        watched = optuna.create_study(pruner=optuna.pruners.NopPruner()).ask() if marks else None
        train(watched, alarm, is_faulty)
        assert len(called) == is_faulty, alarm.status
        if watched is not None:
            attributes = watched.study.trials[0].user_attrs
            assert attributes.get("suspect", False) is is_faulty
            assert not is_faulty or attributes["suspect_onset"] == pytest.approx(AT, abs=0.05)
        if is_faulty:
            assert AT <= called[0].detected_at <= AT + 0.1
            assert called[0].onset == pytest.approx(AT, abs=0.05)


def torch_data(seed: int, n: int = 256) -> tuple[Any, Any]:
    """Return inputs, shape (n, 8), and noisy targets, shape (n, 1), of a linear rule."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=draw)
    y = x @ torch.linspace(-1, 1, 8)[:, None] + 0.7 * torch.randn(n, 1, generator=draw)
    return x, y


def test_a_plain_torch_loop_stops() -> None:
    torch = pytest.importorskip("torch")
    n_steps = 200

    def train(trial: Trial | None, units: float, seed: int) -> float:
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
        x, y = torch_data(0)
        draw = torch.Generator().manual_seed(seed)
        loss = torch.tensor(0.0)
        if trial is not None:
            trial.set_user_attr("total_steps", n_steps)
        for step in range(1, n_steps + 1):
            optimiser.zero_grad()
            batch = torch.randint(256, (64,), generator=draw)
            torch.nn.functional.mse_loss(model(x[batch]), y[batch]).backward()
            optimiser.step()
            loss = units * torch.nn.functional.mse_loss(model(x), y)
            if trial is not None:
                report(trial, step, loss.item())
        return loss.item()

    check(study_of(train), n_steps, train(None, WORSE, N_GOOD))


def test_a_plain_torch_loop_tells_a_fault() -> None:
    torch = pytest.importorskip("torch")
    n_steps = 200

    def train(trial: Trial | None, alarm: SmokeAlarm, is_faulty: bool) -> None:
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
        x, y = torch_data(0)
        for step in range(1, n_steps + 1):
            optimiser.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimiser.step()
            told = loss.item() * (JUMP if is_faulty and step > AT * n_steps else 1.0)
            alarm.update(step, told, trial=trial)

    check_alarm(train, n_steps)


closed_at: list[int] = []
"""Steps at which other callbacks were told that training is over."""


def hugging_face(folder: Path, monitor: str, n_ranks: int = 1, *, every: int = 3) -> Train:
    """Return a training function of a GPT-2 of one layer, made from its configuration: nothing is downloaded."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    class Scaled(Trainer):
        units = 1.0

        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            found = super().compute_loss(*args, **kwargs)
            return (self.units * found[0], found[1]) if isinstance(found, tuple) else self.units * found

    class Closing(TrainerCallback):
        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            closed_at.append(state.global_step)

    class Jump(TrainerCallback):
        trainer: Scaled

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == AT * state.max_steps:
                self.trainer.units *= JUMP

    def train(trial: Trial | None, units: float, seed: int, alarm: SmokeAlarm | None = None, is_faulty: bool = False) -> float:
        torch.manual_seed(0)
        shape = GPT2Config(vocab_size=16, n_positions=8, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
        steps = torch.arange(8).repeat(64, 1) + torch.arange(64)[:, None]
        rows = [{"input_ids": row, "labels": row} for row in steps % 16]
        arguments = TrainingArguments(
            output_dir=str(folder),
            max_steps=60,
            per_device_train_batch_size=16,
            learning_rate=3e-3,
            logging_steps=every,
            eval_strategy="steps",
            eval_steps=3,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=seed,
        )
        is_alone = trial is None and alarm is None and n_ranks == 1
        found = [] if is_alone else [callbacks.TransformersCallback(trial, monitor, alarm=alarm)]
        jump = Jump()
        others = [Closing(), *([jump] if is_faulty else [])]
        trainer = Scaled(GPT2LMHeadModel(shape), arguments, train_dataset=rows, eval_dataset=rows, callbacks=[*others, *found])
        trainer.units, jump.trainer = units, trainer
        trainer.train()
        return float(next(entry[monitor] for entry in reversed(trainer.state.log_history) if monitor in entry))

    return train


@pytest.mark.parametrize("monitor", ["eval_loss", "loss"])
def test_hugging_face_trainer_stops_in_good_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, monitor: str) -> None:
    for name in ("transformers", "accelerate"):
        pytest.importorskip(name, reason=f"{name} absent: pip install {name}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    closed_at.clear()
    train = hugging_face(tmp_path, monitor)
    study = study_of(train)
    assert closed_at == [60] * N_GOOD + [study.trials[-1].user_attrs["stopped_at"]]
    check(study, 60, train(None, WORSE, N_GOOD))


@pytest.mark.parametrize("has_trial", [True, False])
def test_hugging_face_trainer_tells_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_trial: bool) -> None:
    for name in ("transformers", "accelerate"):
        pytest.importorskip(name, reason=f"{name} absent: pip install {name}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    train = hugging_face(tmp_path, "loss", every=1)
    check_alarm(lambda trial, alarm, is_faulty: train(trial, 1.0, 0, alarm, is_faulty), 60, marks=has_trial)


def lightning(monitor: str, every_n_steps: int | None = None, n_ranks: int = 1) -> Train:  # noqa: C901 - one model, its faults
    """Return a training function of a linear model under Lightning, which logs ``loss`` and ``val_loss``."""
    import torch
    from lightning.pytorch import Callback, LightningModule, Trainer

    class Closing(Callback):
        def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
            closed_at.append(trainer.global_step)

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            closed_at.append(trainer.global_step)

    class Linear(LightningModule):
        def __init__(self, units: float) -> None:
            super().__init__()
            self.layer, self.units = torch.nn.Linear(8, 1), units

        def loss_of(self, batch: Any) -> Any:
            return self.units * torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

        def training_step(self, batch: Any, index: int) -> Any:
            self.log("loss", self.loss_of(torch_data(0)), batch_size=64)  # of all data: one batch's is noisy by 18 %
            return self.loss_of(batch)

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", self.loss_of(batch), batch_size=64)

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters(), lr=0.05)

    class Jump(Callback):
        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step == AT * trainer.estimated_stepping_batches:
                pl_module.units *= JUMP

    def train(trial: Trial | None, units: float, seed: int, alarm: SmokeAlarm | None = None, is_faulty: bool = False) -> float:
        torch.manual_seed(0)
        points, draw = torch.utils.data.TensorDataset(*torch_data(0)), torch.Generator().manual_seed(seed)
        data = torch.utils.data.DataLoader(points, batch_size=64)
        shuffled = torch.utils.data.DataLoader(points, batch_size=64, shuffle=True, generator=draw)
        is_alone = trial is None and alarm is None and n_ranks == 1
        found = [] if is_alone else [callbacks.LightningCallback(trial, monitor, every_n_steps, alarm=alarm)]
        found += [Jump()] if is_faulty else []
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
        where = {"accelerator": "cpu", "devices": n_ranks, "strategy": "ddp" if n_ranks > 1 else "auto"}
        trainer = Trainer(max_epochs=40, callbacks=[Closing(), *found], **where, **quiet)
        trainer.fit(Linear(units), shuffled, data)
        return float(trainer.callback_metrics[monitor])

    return train


@pytest.mark.parametrize(("monitor", "every_n_steps"), [("val_loss", None), ("loss", 4)])
def test_lightning_stops(monitor: str, every_n_steps: int | None) -> None:
    pytest.importorskip("lightning", reason="lightning absent: pip install lightning")
    closed_at.clear()
    train = lightning(monitor, every_n_steps)
    study = study_of(train)
    assert closed_at == [160] * N_GOOD + [study.trials[-1].user_attrs["stopped_at"]]
    check(study, 160, train(None, WORSE, N_GOOD))


def test_lightning_tells_a_fault() -> None:
    pytest.importorskip("lightning", reason="lightning absent: pip install lightning")
    train = lightning("loss", 1)
    check_alarm(lambda trial, alarm, is_faulty: train(trial, 1.0, 0, alarm, is_faulty), 160)


def test_lightning_wants_a_logged_value_and_a_positive_interval() -> None:
    pytest.importorskip("lightning", reason="lightning absent: pip install lightning")
    with pytest.raises(ValueError, match="every_n_steps must be above 0"):
        callbacks.LightningCallback(None, "loss", 0)
    trial, train = optuna.create_study(pruner=CollapsePruner()).ask(), lightning("val_accuracy")
    with pytest.raises(ValueError, match=r"monitor must be one of .*'val_loss'"):
        train(trial, 1.0, 0)


KERAS = """
import sys
sys.path.insert(0, sys.argv[1])
import keras, numpy as np
from test_optuna_frameworks import AT, JUMP, N_GOOD, WORSE, check, check_alarm, study_of
from hpo.adapters.callbacks import KerasCallback
draw = np.random.default_rng(0)
x = draw.normal(size=(256, 8)).astype("float32")
y = (x @ np.linspace(-1, 1, 8)[:, None] + 0.7 * draw.normal(size=(256, 1))).astype("float32")

class Jump(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch >= AT * self.params["epochs"]:
            logs["val_loss"] *= JUMP

def train(trial, units, seed, alarm=None, is_faulty=False):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(keras.optimizers.Adam(0.05), lambda a, b: units * keras.ops.mean((a - b) ** 2, axis=-1))
    found = [Jump()] if is_faulty else []
    found += [KerasCallback(trial, alarm=alarm)] if trial is not None or alarm is not None else []
    history = model.fit(x, y, batch_size=64, epochs=40, validation_data=(x, y), verbose=0, callbacks=found)
    return history.history["val_loss"][-1]

check(study_of(train), 40, train(None, WORSE, N_GOOD))
check_alarm(lambda trial, alarm, is_faulty: train(trial, 1.0, 0, alarm, is_faulty), 40)
print("backend", keras.backend.backend())
"""


def test_keras_stops(repository: Path) -> None:
    """In a process of its own: Keras takes its backend from the environment when it is imported."""
    if find_spec("keras") is None:  # importing it here would look for TensorFlow
        pytest.skip("keras absent: pip install keras")
    environment = environment_of(repository, KERAS_BACKEND="torch")
    command = [sys.executable, "-c", KERAS, str(repository / "tests" / "contract")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split()[-2:] == ["backend", "torch"]


RANK = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import optuna
import test_optuna_frameworks as frameworks
from hpo import CollapsePruner
from torch import distributed

folder, library, rank = Path(sys.argv[2]), sys.argv[3], int(os.environ["RANK"])
hugging = library == "transformers"
train = frameworks.hugging_face(folder, "eval_loss", 2) if hugging else frameworks.lightning("val_loss", n_ranks=2)
said = []
study = optuna.create_study(pruner=CollapsePruner()) if rank == 0 else None
for number in range(frameworks.N_GOOD + 1):
    trial = study.ask() if rank == 0 else None
    try:
        value = train(trial, 1.0 if number < frameworks.N_GOOD else frameworks.WORSE, number)
        said.append("end")
        if trial:
            study.tell(trial, value)
    except optuna.TrialPruned:
        said.append("pruned")
        if trial:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
said = [f"{word} at {step}" for word, step in zip(said, frameworks.closed_at, strict=True)]
(folder / f"rank{rank}").write_text("\\n".join(said))
distributed.barrier()
os._exit(0)  # what is tested is done; gloo's threads now and then outlive the interpreter's end and abort it
"""


@pytest.mark.parametrize("library", ["transformers", "lightning"])
def test_two_ranks_leave_together(repository: Path, tmp_path: Path, library: str) -> None:
    """Under torchrun, gloo: rank 0 has the study, rank 1 nothing."""
    for name in ("transformers", "accelerate") if library == "transformers" else (library,):
        pytest.importorskip(name, reason=f"{name} absent: pip install {name}")
    script = tmp_path / "rank.py"
    script.write_text(RANK, encoding="utf-8")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, str(script), str(repository / "tests" / "contract"), str(tmp_path), library]
    environment = environment_of(repository, HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1")
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)
    assert run.returncode == 0, run.stderr
    first, second = ((tmp_path / f"rank{rank}").read_text().splitlines() for rank in range(2))
    assert first == second
    *good, bad = first
    assert len(set(good)) == 1
    end, pruned = int(good[0].removeprefix("end at ")), int(bad.removeprefix("pruned at "))
    assert pruned <= 0.5 * end
