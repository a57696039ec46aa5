"""Real faults of three kinds in our own training, each from a restart at 60 % on, beside the same run without one.

    python -m bench.monitor_faults            # about 10 minutes of one core; a call that was killed goes on

- ``low_precision_loss``: the gradient of the loss is rounded to 8-bit floats (e5m2) without a scale, divided by the tokens of
  eight micro-batches as where gradients are accumulated, so that what is small underflows: the model learns worse from there
  on, and the loss that is reported is right. ``mild_low_precision_loss`` is the same with one micro-batch;
- ``wrong_lr``: the schedule's state was not restored, so that the learning rate starts anew with its warm-up;
- ``repeated_data``: the loader serves the same 1 % of the batches over and over.

Model: 78k parameters, byte by byte, as in our own sweep. Two healthy runs with other seeds are references; the faulty
runs and the healthy one have one data order and one past.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import torch
import typer
from torch import Tensor
from torch.nn import functional

from bench.command_line import input_errors
from bench.own_runs import OwnRun, is_finished, keep, thinned, train_missing
from hpo.adapters.training_session import FolderSession, read_log
from proxies.loop import Trainer, evaluation_steps, run_loop
from proxies.parameterisation import role_multipliers
from proxies.runtime import small_steps
from proxies.settings import RunSettings, read_settings

if TYPE_CHECKING:
    from proxies.data import Batches

ONSET = 0.6
REPEATED_SHARE = 0.01
PARQUET = Path(__file__).parent / "data" / "own_faults.parquet"


class FaultyTrainer(Trainer):
    """Goes on from a checkpoint as the healthy trainer does."""

    name: ClassVar[str] = "healthy"

    def load(self, folder: Path) -> None:
        """Take up the state in ``folder``, and note where that was."""
        super().load(folder)
        self.resumed_at = self.step


class _RoundedGradient(torch.autograd.Function):
    """Cross-entropy whose gradient passes through 8-bit floats (five bits of exponent, two of mantissa) without a scale."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, micro_batches: int) -> Tensor:
        ctx.micro_batches = micro_batches
        ctx.save_for_backward(logits, targets)
        return functional.cross_entropy(logits, targets)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        logits, targets = ctx.saved_tensors
        per_logit = logits.softmax(-1)
        per_logit[torch.arange(len(targets)), targets] -= 1.0
        share = gradients[0] / (ctx.micro_batches * len(targets))
        return ctx.micro_batches * (share * per_logit).to(torch.float8_e5m2).to(logits.dtype), None, None


class LowPrecisionLoss(FaultyTrainer):
    """The loss's gradient underflows."""

    name = "low_precision_loss"
    micro_batches: ClassVar[int] = 8

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the right loss, its gradient being wrong."""
        logits = self.model.logits(tokens).flatten(0, 1)
        return _RoundedGradient.apply(logits, targets.flatten(), self.micro_batches)  # type: ignore[no-untyped-call, no-any-return]


class MildLowPrecisionLoss(LowPrecisionLoss):
    """Little of the gradient underflows."""

    name = "mild_low_precision_loss"
    micro_batches = 1


class WrongLr(FaultyTrainer):
    """The schedule begins anew."""

    name = "wrong_lr"

    def load(self, folder: Path) -> None:
        """Take up all of the state but the schedule's."""
        super().load(folder)
        self.multipliers[self.resumed_at :] = self.multipliers[: len(self.multipliers) - self.resumed_at].copy()


class RepeatedData(FaultyTrainer):
    """The same few batches come over and over."""

    name = "repeated_data"

    def batch(self, batches: Batches, step: int) -> tuple[Tensor, Tensor]:
        """Return the batch of one of the first steps after the restart."""
        few = max(1, round(REPEATED_SHARE * self.run.training.n_steps))
        return super().batch(batches, self.resumed_at + 1 + (step - self.resumed_at - 1) % few)


TRAINERS: tuple[type[FaultyTrainer], ...] = (FaultyTrainer, LowPrecisionLoss, MildLowPrecisionLoss, WrongLr, RepeatedData)


def reference_runs() -> list[OwnRun]:
    """Return the healthy runs that the faulty ones are held against."""
    return [_run(f"faults-reference-seed{seed}", "reference", seed) for seed in (1, 2)]


def watched_run(trainer: type[FaultyTrainer]) -> OwnRun:
    """Return the run that ``trainer`` makes from its restart on."""
    return _run(f"faults-{trainer.name.replace('_', '-')}", trainer.name, 0)


def _run(run_id: str, group: str, seed: int) -> OwnRun:
    return OwnRun(
        run_id=run_id,
        group=group,
        family="own-faults",
        width=32,
        tpp=10.0,
        batch_sequences=5,
        lr=9.5e-3,
        tau=0.35,
        seed=seed,
        model={"depth": 3, "head_dim": 4},
        notes={} if group in ("reference", "healthy") else {"fault": group, "onset": ONSET},
    )


def train(folder: Path) -> None:
    """Train what ``folder`` does not hold yet."""
    train_missing(reference_runs(), folder)
    for trainer in TRAINERS:
        run = watched_run(trainer)
        if not is_finished(run, folder):
            _train_on(trainer, read_settings(run.settings), _past(folder), folder / run.run_id)
            print(f"{run.run_id}: done", flush=True)


def _past(folder: Path) -> Path:
    """Return the folder of the run up to the restart, trained if need be."""
    home, run = folder / "past", watched_run(FaultyTrainer)
    with FolderSession(home, stop_step=round(ONSET * run.n_steps)) as session:
        run_loop(read_settings(run.settings), session)
    return home


def _train_on(trainer: type[FaultyTrainer], run: RunSettings, past: Path, home: Path) -> None:
    """Go on from a copy of ``past``, as after a restart, with another trainer."""
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(past, home)
    evaluated, peak = evaluation_steps(run), run.training.lr * role_multipliers(run.model, "hidden_matrix").lr
    with small_steps(run.training.threads), FolderSession(home) as session:
        one, checkpoint = trainer(run), session.restore()
        if checkpoint is None:
            raise ValueError(f"{past}: expected a checkpoint; found none")
        one.load(checkpoint)
        while one.step < run.training.n_steps:
            loss = one.advance()
            held_out = one.held_out_loss() if one.step in evaluated else None
            extra = {} if held_out is None else {"val_loss": held_out}
            rate = peak * float(one.multipliers[one.step - 1])
            session.report(step=one.step, loss=loss, tokens=one.step * run.batch_tokens, lr=rate, **extra)


def collect(folder: Path, path: Path = PARQUET) -> None:
    """Write the runs in ``folder``, thinned, to the Parquet file ``path``."""
    runs = [*reference_runs(), *(watched_run(trainer) for trainer in TRAINERS)]
    keep([thinned(run, read_log(folder / run.run_id)) for run in runs], path)


def faults_command(
    runs: Annotated[Path, typer.Option(help="Folder of the training runs; what is there is not trained again.")] = Path(
        "runs/own-faults"
    ),
    out: Annotated[Path, typer.Option(help="Where the thinned curves go.")] = PARQUET,
) -> None:
    """Train the runs with and without faults and keep their curves."""
    with input_errors():
        train(runs)
        collect(runs, out)


if __name__ == "__main__":
    typer.run(faults_command)
