# mypy: disable-error-code="misc"
# ruff: noqa: ARG002
# (a hook takes what the library hands it; the base class is untyped where transformers is not installed)
"""The pruner in Hugging Face's ``Trainer``: training ends in good order, then ``trainer.train()`` raises ``TrialPruned``."""

from __future__ import annotations

from typing import Any

import optuna
from optuna.trial import Trial
from transformers import TrainerCallback

from hpo.adapters.callbacks import report_on_all_ranks, state_total_steps
from hpo.adapters.smoke_alarm import SmokeAlarm


class TransformersCallback(TrainerCallback):
    """Reports one logged value at every log or evaluation, and ends training when the trial should stop.

    Add it last, ``Trainer(..., callbacks=[..., TransformersCallback(trial)])``. The trainer is asked to stop, so that the
    callbacks before this one (progress bars, loggers) close what they opened; then ``trainer.train()`` raises. Under
    ``torchrun`` every process adds it, with None for the trial on all but rank 0; all leave at the same step.

    Parameters
    ----------
    trial : Trial or None
        The live trial; None on the ranks other than 0.
    monitor : str
        Name of a logged value: ``"eval_loss"``, an ``eval_`` metric, or ``"loss"`` for the training loss.
    alarm : SmokeAlarm, optional
        Watches the value for faults, and the logged learning rate; with one the trial may be None everywhere.

    Notes
    -----
    A trial that does not say its ``total_steps`` is given the trainer's ``max_steps``. Tokens are reported where the
    trainer counts them (``include_num_input_tokens_seen``).
    """

    def __init__(self, trial: Trial | None, monitor: str = "eval_loss", *, alarm: SmokeAlarm | None = None) -> None:
        self.trial, self.monitor, self.alarm = trial, monitor, alarm
        self._pruned: optuna.TrialPruned | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """State the length of training."""
        self._pruned = None
        state_total_steps(self.trial, state.max_steps)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Report the monitored value if it is among what is logged; ask the trainer to stop if the trial should.

        Raises
        ------
        RuntimeError
            Reporting failed on another rank.
        """
        if logs is None or self.monitor not in logs or self._pruned is not None:
            return
        tokens = float(state.num_input_tokens_seen or 0) or None
        step, value, lr = int(state.global_step), float(logs[self.monitor]), logs.get("learning_rate")
        try:
            report_on_all_ranks(self.trial, step, value, tokens, alarm=self.alarm, lr=None if lr is None else float(lr))
        except optuna.TrialPruned as pruned:
            self._pruned = pruned
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Raise if the trial was stopped.

        Raises
        ------
        optuna.TrialPruned
            The pruner stopped the trial.
        """
        if self._pruned is not None:
            raise self._pruned
