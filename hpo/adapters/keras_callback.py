# mypy: disable-error-code="misc"
# ruff: noqa: ARG002
# (a hook takes what the library hands it; the base class is untyped where Keras is not installed)
"""The pruner in Keras: ``model.fit`` raises ``TrialPruned``."""

from __future__ import annotations

from typing import Any

from keras.callbacks import Callback
from optuna.trial import Trial

from hpo.adapters.callbacks import EpochCallback, state_total_steps
from hpo.adapters.smoke_alarm import SmokeAlarm


class KerasCallback(Callback):
    """Reports one entry of ``logs`` after every epoch.

    Parameters
    ----------
    trial : Trial
    monitor : str
        Key in ``logs``.
    alarm : SmokeAlarm, optional
        Watches the value for faults, epoch by epoch, and the learning rate where Keras logs it; with one the trial may be None.

    Notes
    -----
    A trial that does not say its ``total_steps`` is given the number of epochs, because steps are epochs here.
    """

    def __init__(self, trial: Trial | None, monitor: str = "val_loss", *, alarm: SmokeAlarm | None = None) -> None:
        super().__init__()
        self._reporter = EpochCallback(trial, monitor, alarm=alarm)

    def on_train_begin(self, logs: Any = None) -> None:
        """State the length of training."""
        state_total_steps(self._reporter.trial, float(self.params["epochs"]))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Report epoch ``epoch`` (counted from 0) as step ``epoch + 1``.

        Raises
        ------
        optuna.TrialPruned
            The trial should stop.
        """
        self._reporter.on_epoch_end(epoch, logs)
