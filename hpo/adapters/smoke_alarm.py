"""The monitor in a training loop: told of every report, it speaks up once when the run has left its family's curve.

The callbacks of :mod:`hpo.adapters.callbacks` take one as ``alarm``, beside a trial or without any:

    alarm = SmokeAlarm(Monitor(model, recipe))
    trainer = Trainer(..., callbacks=[TransformersCallback(None, monitor="loss", alarm=alarm)])
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

from hpo.adapters.blas_threads import one_blas_thread
from hpo.core.monitor import Monitor, Status

if TYPE_CHECKING:
    from optuna.trial import Trial


class RunIsSuspect(UserWarning):
    """A run has left its family's curve."""


class SmokeAlarm:
    """A monitor with something to do at its first alarm.

    Parameters
    ----------
    monitor : Monitor
        In the unit of steps that is reported: optimiser steps in Hugging Face's ``Trainer`` and Lightning, epochs in Keras.
    on_alarm : callable, optional
        Called once with the status; default: a :class:`RunIsSuspect` warning. What it raises ends training.

    Attributes
    ----------
    status : Status
        After the last report.
    """

    def __init__(self, monitor: Monitor, on_alarm: Callable[[Status], object] | None = None) -> None:
        self._monitor, self._on_alarm, self._has_called = monitor, on_alarm or _warn, False

    @property
    def status(self) -> Status:
        """What is known of the run."""
        return self._monitor.status

    def update(self, step: float, loss: float, *, lr: float | None = None, trial: Trial | None = None) -> Status:
        """Take one report and return the status; at the first alarm mark the trial and call ``on_alarm``.

        A marked trial has the user attributes ``suspect`` (True), ``suspect_kind``, ``suspect_onset`` (t̂) and
        ``suspect_reason``. No pruner looks at them.
        """
        with one_blas_thread:
            status = self._monitor.update(step, loss, lr=lr)
        if status.status == "alarm" and not self._has_called:
            self._has_called = True
            if trial is not None:
                mark_suspect(trial, status)
            self._on_alarm(status)
        return status


def mark_suspect(trial: Trial, status: Status) -> None:
    """Leave an alarm in a trial's user attributes."""
    onset = None if status.onset is None or not math.isfinite(status.onset) else status.onset
    told = {"": True, "_kind": status.kind, "_onset": onset, "_reason": status.reason}
    for key, value in told.items():
        if value is not None:
            trial.set_user_attr(f"suspect{key}", value)


def _warn(status: Status) -> None:
    since = "" if status.onset is None else f" from {status.onset:.1%} of its training on"
    size = "" if status.size_pct is None else f" by {status.size_pct:+.2g} %"
    warnings.warn(f"the run left its family's curve{since}{size}: {status.reason}", RunIsSuspect, stacklevel=3)
