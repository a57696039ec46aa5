# mypy: disable-error-code="misc"
# ruff: noqa: ARG002
# (a hook takes what the library hands it; the base class is untyped where Lightning is not installed)
"""The pruner in a Lightning ``Trainer``: ``trainer.fit`` raises ``TrialPruned`` on every rank, at the same step."""

from __future__ import annotations

from typing import Any

from optuna.trial import Trial

from hpo.adapters.callbacks import logged_value, report_on_all_ranks, state_total_steps
from hpo.adapters.smoke_alarm import SmokeAlarm

try:
    from lightning.pytorch import Callback
except ImportError:  # the same library under its older name
    from pytorch_lightning import Callback


class LightningCallback(Callback):
    """Reports one of ``trainer.callback_metrics`` after every validation, or every so many optimiser steps.

    Lightning calls the ``on_exception`` hooks of all callbacks and closes its loggers before ``trainer.fit`` raises.

    Parameters
    ----------
    trial : Trial or None
        The live trial; None on the ranks other than 0. With several processes use a strategy that runs the script in each
        (``"ddp"``, ``torchrun``): a spawned process cannot pass ``TrialPruned`` on to the one that waits for it.
    monitor : str
        Name under which the module logs the value: ``self.log("val_loss", ...)``.
    every_n_steps : int or None
        None: after every validation. Else after every so many optimiser steps, for a value logged in ``training_step``.
    alarm : SmokeAlarm, optional
        Watches the value for faults, and the first optimiser's learning rate; with one the trial may be None everywhere.

    Raises
    ------
    ValueError
        ``every_n_steps`` is not above 0.

    Notes
    -----
    A trial that does not say its ``total_steps`` is given the trainer's ``estimated_stepping_batches``. Steps are
    ``trainer.global_step``: with several optimisers they pass that number, and the pruner then decides nothing.
    """

    def __init__(
        self,
        trial: Trial | None,
        monitor: str = "val_loss",
        every_n_steps: int | None = None,
        *,
        alarm: SmokeAlarm | None = None,
    ) -> None:
        if every_n_steps is not None and every_n_steps <= 0:
            raise ValueError(f"every_n_steps must be above 0, or None; found {every_n_steps!r}")
        self.trial, self.monitor, self.every_n_steps, self.alarm = trial, monitor, every_n_steps, alarm

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """State the length of training."""
        state_total_steps(self.trial, float(trainer.estimated_stepping_batches))

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Report after a validation, the sanity check before training apart.

        Raises
        ------
        optuna.TrialPruned
            The trial should stop.
        ValueError
            The monitored value was not logged.
        """
        if self.every_n_steps is None and not trainer.sanity_checking and trainer.state.fn == "fit":
            self._report(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Report after every ``every_n_steps`` optimiser steps.

        Raises
        ------
        optuna.TrialPruned
            The trial should stop.
        ValueError
            The monitored value was not logged.
        """
        if self.every_n_steps is not None and trainer.global_step > 0 and trainer.global_step % self.every_n_steps == 0:
            self._report(trainer)

    def _report(self, trainer: Any) -> None:
        value = logged_value(trainer.callback_metrics, self.monitor)
        groups = trainer.optimizers[0].param_groups if trainer.optimizers else []
        lr = float(groups[0]["lr"]) if groups else None
        report_on_all_ranks(self.trial, int(trainer.global_step), value, alarm=self.alarm, lr=lr)
