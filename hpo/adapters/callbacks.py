"""One line in a training loop: report to the trial and stop when it should, alone or on all ranks of a distributed run.

The callbacks of Hugging Face's ``Trainer``, of Lightning and of Keras must derive from classes of those libraries. Each has a
module of its own, and its name is loaded from there when first used: ``TransformersCallback``, ``LightningCallback``,
``KerasCallback``. Each takes a :class:`~hpo.adapters.smoke_alarm.SmokeAlarm` too, which watches the run for faults.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import import_module
from math import isfinite
from typing import TYPE_CHECKING, Any

import optuna
from optuna.trial import Trial

from hpo.adapters.optuna_live import report

if TYPE_CHECKING:
    from hpo.adapters.keras_callback import KerasCallback
    from hpo.adapters.lightning_callback import LightningCallback
    from hpo.adapters.smoke_alarm import SmokeAlarm
    from hpo.adapters.transformers_callback import TransformersCallback

__all__ = [
    "EpochCallback",
    "KerasCallback",
    "LightningCallback",
    "TransformersCallback",
    "logged_value",
    "report_on_all_ranks",
    "state_total_steps",
]
_HOMES = {
    "KerasCallback": "hpo.adapters.keras_callback",
    "LightningCallback": "hpo.adapters.lightning_callback",
    "TransformersCallback": "hpo.adapters.transformers_callback",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def report_on_all_ranks(
    trial: Trial | None,
    step: int,
    loss: float,
    tokens: float | None = None,
    *,
    alarm: SmokeAlarm | None = None,
    lr: float | None = None,
) -> None:
    """Report from rank 0 of a ``torch.distributed`` group; every rank gets its decision and leaves together.

    Call it on every rank at the same steps. Outside a process group it is :func:`hpo.adapters.optuna_live.report`.

    Parameters
    ----------
    trial : Trial or None
        The live trial on rank 0; ignored on the others.
    step, loss, tokens
        As for ``report``; rank 0's count.
    alarm : SmokeAlarm, optional
        Told of the report on rank 0. With one the trial may be None: then nothing is stopped.
    lr : float, optional
        The learning rate now, for the alarm.

    Raises
    ------
    optuna.TrialPruned
        On every rank, when the trial should stop.
    RuntimeError
        On the other ranks, when reporting failed on rank 0 (which raises its own error).
    ValueError
        ``trial`` is None where it is needed.
    """
    from torch import distributed

    alone = not (distributed.is_available() and distributed.is_initialized())
    if alone or distributed.get_world_size() == 1:
        _report(trial, step, loss, tokens, alarm, lr)
        return
    word: list[Any] = ["go on", ""]
    failure: BaseException | None = None
    if distributed.get_rank() == 0:
        try:
            _report(trial, step, loss, tokens, alarm, lr)
        except optuna.TrialPruned as pruned:
            word, failure = ["stop", str(pruned)], pruned
        except BaseException as error:  # noqa: BLE001 - the other ranks wait for a word, whatever happened here
            word, failure = ["failed", repr(error)], error
    distributed.broadcast_object_list(word, src=0)
    if failure is not None:
        raise failure
    if word[0] == "stop":
        raise optuna.TrialPruned(word[1])
    if word[0] == "failed":
        raise RuntimeError(f"rank 0 could not report: {word[1]}")


def state_total_steps(trial: Trial | None, total_steps: float) -> None:
    """Leave the length of a trial's training in ``user_attrs["total_steps"]``, where the pruner looks, unless it is there.

    An infinite, zero or negative number (training without an end) says nothing and is not written.
    """
    if trial is not None and isfinite(total_steps) and total_steps > 0 and "total_steps" not in trial.user_attrs:
        trial.set_user_attr("total_steps", int(total_steps))


def logged_value(logs: Mapping[str, Any] | None, monitor: str) -> float:
    """Return the monitored one of the logged values.

    Raises
    ------
    ValueError
        It was not logged; the message names what was.
    """
    if logs is None or monitor not in logs:
        raise ValueError(f"monitor must be one of the logged values {sorted(logs or {})}; found {monitor!r}")
    return float(logs[monitor])


class EpochCallback:
    """For training loops of your own with Keras-style callbacks: reports one entry of ``logs`` after every epoch.

    Keras itself wants :class:`~hpo.adapters.keras_callback.KerasCallback`.

    Parameters
    ----------
    trial : Trial
    monitor : str
        Key in ``logs``.
    alarm : SmokeAlarm, optional
        Watches the run; with one the trial may be None.
    """

    def __init__(self, trial: Trial | None, monitor: str = "val_loss", *, alarm: SmokeAlarm | None = None) -> None:
        self.trial, self.monitor, self.alarm = trial, monitor, alarm
        self._is_first = True

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Report epoch ``epoch`` (counted from 0) as step ``epoch + 1``; epochs without the monitored entry are passed over.

        Raises
        ------
        optuna.TrialPruned
            The trial should stop.

        Warns
        -----
        UserWarning
            The first epoch lacks the monitored entry: it may be misspelt, or not be evaluated at every epoch.
        """
        is_first, self._is_first = self._is_first, False
        if logs is None or self.monitor not in logs:
            if is_first:
                found = f"epoch {epoch + 1} logged {sorted(logs or {})} and no {self.monitor!r} (monitor)"
                warnings.warn(f"{found}: such epochs are passed over", UserWarning, stacklevel=2)
            return
        rate = None if "learning_rate" not in logs else float(logs["learning_rate"])
        _report(self.trial, epoch + 1, logged_value(logs, self.monitor), None, self.alarm, rate)


def _report(
    trial: Trial | None, step: int, loss: float, tokens: float | None, alarm: SmokeAlarm | None, lr: float | None
) -> None:
    if alarm is not None:
        alarm.update(step, loss, lr=lr, trial=trial)
    if trial is not None:
        report(trial, step, loss, tokens)
    elif alarm is None:
        raise ValueError("trial must be the live trial on rank 0; found None")
