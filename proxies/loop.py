"""The training loop: forward, backward, clip, step; a report every step, checkpoints when due, resume bit for bit.

The learning rate of the k-th of T updates is the schedule at its middle, t̂ = (k − ½)/T, so that the sum over steps is the
integral of the schedule to second order whatever T is, and no update is spent at a learning rate of zero. The loss reported
for step k is that of batch k before its update.

A checkpoint holds weights, optimiser state, random states, the step (which is the position in the data) and the settings it
belongs to, as tensors and plain values: it loads with ``weights_only=True``.
"""

from __future__ import annotations

import json
import math
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hpo.core.schedule_shapes import FloatArray
from hpo.core.session import Session
from proxies.data import Batches, check_vocabulary, held_out_sequences, training_batches
from proxies.model import Decoder
from proxies.optimiser import build_optimiser, set_lr
from proxies.parameterisation import role_multipliers
from proxies.runtime import autocast, choose_device, small_steps
from proxies.settings import RunSettings

STATE_FILE = "state.pt"


class Trainer:
    """One run's model, optimiser and data, and the step that moves them.

    Parameters
    ----------
    run : RunSettings
        All settings; building it draws the initial weights and opens the data.
    """

    def __init__(self, run: RunSettings) -> None:
        self.run, self.step = run, 0
        self.device = choose_device(run.training)
        self.batches = training_batches(run)
        torch.manual_seed(run.training.seed)
        self.model = Decoder(run.model, run.data.seq_len, run.training.seed).to(self.device)
        self.optimiser = build_optimiser(self.model, run.training)
        self.multipliers = lr_multipliers(run)
        self._parameters = list(self.model.parameters())
        compiles = run.training.compile and self.device.type == "cuda"
        self._loss = cast(nn.Module, torch.compile(self.model)) if compiles else self.model

    def advance(self) -> float:
        """Make the next update and return its batch's loss; one read of the device, after the update is queued."""
        self.step += 1
        tokens, targets = self.batch(self.batches, self.step)
        set_lr(self.optimiser, float(self.multipliers[self.step - 1]))
        loss = self.loss(tokens, targets)
        torch.autograd.backward(loss)
        if self.run.training.clip is not None:
            nn.utils.clip_grad_norm_(self._parameters, self.run.training.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return loss.item()

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of a batch, in the run's precision."""
        with autocast(self.run.training, self.device):
            return cast(Tensor, self._loss(tokens, targets))

    def batch(self, batches: Batches, step: int) -> tuple[Tensor, Tensor]:
        """Return inputs and targets of ``step``, each (batch_sequences, seq_len), on the device."""
        return self._on_device(batches.at(step))

    def _on_device(self, ids: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        check_vocabulary(ids, self.run.model.vocab_size, self.run.data)
        both = torch.from_numpy(ids).to(self.device)
        return both[:, :-1], both[:, 1:]

    @torch.no_grad()
    def held_out_loss(self) -> float | None:
        """Return the mean loss over the held-out sequences, or None without held-out data."""
        if not self._held_out:
            return None
        losses = [self.loss(*self._on_device(ids)).item() for ids in self._held_out]
        return float(np.average(losses, weights=[len(ids) for ids in self._held_out]))

    @cached_property
    def _held_out(self) -> list[NDArray[np.int64]]:
        return held_out_sequences(self.run)

    def save(self, folder: Path) -> None:
        """Write the state into ``folder``."""
        random: dict[str, Any] = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(self.device)
        state = {
            "step": self.step,
            "settings": self._identity(),
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "random": random,
        }
        torch.save(state, folder / STATE_FILE)

    def load(self, folder: Path) -> None:
        """Take up the state in ``folder``; ``ValueError`` if it belongs to other settings."""
        state = torch.load(folder / STATE_FILE, map_location="cpu", weights_only=True)
        if state["settings"] != self._identity():
            changed = _difference(json.loads(state["settings"]), json.loads(self._identity()))
            raise ValueError(f"settings must be those the checkpoint in {folder} was made with: {changed}")
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        torch.set_rng_state(state["random"]["cpu"])
        if self.device.type == "cuda" and "cuda" in state["random"]:
            torch.cuda.set_rng_state(state["random"]["cuda"], self.device)
        self.step = int(state["step"])

    def _identity(self) -> str:
        identity = self.run.identity()
        identity["data"]["n_windows"] = len(self.batches.windows)
        return json.dumps(identity, sort_keys=True)


def run_loop(run: RunSettings, session: Session) -> None:
    """Train ``run`` until its last step, or until ``session`` asks to stop; go on from its checkpoint if it has one.

    The last step also reports ``val_loss`` where there is held-out data, and so do earlier ones if ``evaluations`` says so. A
    loss that is not finite is reported like any other: whether to stop is the session's answer. Running out of memory raises,
    as torch raises it.
    """
    with small_steps(run.training.threads):
        trainer = Trainer(run)
        folder = session.restore()
        if folder is not None:
            trainer.load(folder)
        n_steps, peak = run.training.n_steps, _hidden_peak(trainer)
        evaluated = evaluation_steps(run)
        while trainer.step < n_steps and not session.should_stop():
            loss = trainer.advance()
            step = trainer.step
            extra = _evaluated(trainer, loss) if step in evaluated else {}
            session.report(
                step=step, loss=loss, tokens=step * run.batch_tokens, lr=peak * float(trainer.multipliers[step - 1]), **extra
            )
            session.checkpoint(trainer.save)


def lr_multipliers(run: RunSettings) -> FloatArray:
    """Return the schedule's value for each update, shape (n_steps,): at t̂ = (k − ½)/T for the k-th."""
    n = run.training.n_steps
    middle = (np.arange(n, dtype=np.float64) + 0.5) / n
    return run.training.schedule(middle, run.training.warmup_fraction)


def evaluation_steps(run: RunSettings) -> frozenset[int]:
    """Return the steps that report the held-out loss."""
    n, times = run.training.n_steps, run.training.evaluations
    return frozenset(max(1, round(k * n / times)) for k in range(1, times + 1))


def _hidden_peak(trainer: Trainer) -> float:
    return trainer.run.training.lr * role_multipliers(trainer.run.model, "hidden_matrix").lr


def _evaluated(trainer: Trainer, loss: float) -> dict[str, float]:
    held_out = trainer.held_out_loss() if math.isfinite(loss) else None
    return {} if held_out is None else {"val_loss": held_out}


def _difference(saved: dict[str, Any], mine: dict[str, Any]) -> str:
    for block, values in mine.items():
        for key, value in values.items():
            if saved.get(block, {}).get(key) != value:
                return f"{block}.{key} was {saved.get(block, {}).get(key)!r}; found {value!r}"
    return "they differ"
