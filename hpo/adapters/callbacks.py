"""One line in a training loop: report to the trial and stop when it should, alone or on all ranks of a distributed run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import optuna
from optuna.trial import Trial

from hpo.adapters.optuna_live import report


def report_on_all_ranks(trial: Trial | None, step: int, loss: float, tokens: float | None = None) -> None:
    """Report from rank 0 of a ``torch.distributed`` group; every rank gets its decision and leaves together.

    Call it on every rank at the same steps. Outside a process group it is :func:`hpo.adapters.optuna_live.report`.

    Parameters
    ----------
    trial : Trial or None
        The live trial on rank 0; ignored on the others.
    step, loss, tokens
        As for ``report``; rank 0's count.

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
        _report(trial, step, loss, tokens)
        return
    word: list[Any] = ["go on", ""]
    failure: BaseException | None = None
    if distributed.get_rank() == 0:
        try:
            _report(trial, step, loss, tokens)
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


class EpochCallback:
    """For training loops with Keras-style callbacks: reports one entry of ``logs`` after every epoch.

    Parameters
    ----------
    trial : Trial
    monitor : str
        Key in ``logs``.
    """

    def __init__(self, trial: Trial, monitor: str = "val_loss") -> None:
        self.trial, self.monitor = trial, monitor

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Report epoch ``epoch`` (counted from 0) as step ``epoch + 1``.

        Raises
        ------
        optuna.TrialPruned
            The trial should stop.
        ValueError
            ``logs`` lacks the monitored entry.
        """
        if logs is None or self.monitor not in logs:
            raise ValueError(f"monitor must be one of the logged values {sorted(logs or {})}; found {self.monitor!r}")
        report(self.trial, epoch + 1, float(logs[self.monitor]))


def _report(trial: Trial | None, step: int, loss: float, tokens: float | None) -> None:
    if trial is None:
        raise ValueError("trial must be the live trial on rank 0; found None")
    report(trial, step, loss, tokens)
