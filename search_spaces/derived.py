"""From the controls a sweep searches to the settings a training loop takes.

Weight decay follows from τ: λ = B / (η τ D) (arXiv 2505.13738), the number of steps from tokens per parameter:
T = TPP · N / B. Both are in *base* values: under μP and CompleteP the width divides η and multiplies λ, so ηλ, and with
it τ, is the same at every width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONTROLS = ("lr", "tau", "weight_decay", "tpp", "batch_sequences", "batch_tokens")


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """The run that a point is applied to, and its settings where the point says nothing.

    Parameters
    ----------
    n_params : float
        Parameters N.
    n_tokens : float
        Training tokens D; a searched ``tpp`` overrides it.
    seq_len : int
        Tokens per sequence.
    batch_sequences : int
        Sequences per batch.
    lr : float, optional
        Base peak learning rate.
    weight_decay, tau : float, optional
        Base weight decay, or the τ that gives it; at most one.

    Raises
    ------
    ValueError
        A quantity that is not finite and positive (decay may be 0), or both a decay and a τ.
    """

    n_params: float
    n_tokens: float
    seq_len: int
    batch_sequences: int
    lr: float | None = None
    weight_decay: float | None = None
    tau: float | None = None

    def __post_init__(self) -> None:
        for name in ("n_params", "n_tokens", "seq_len", "batch_sequences", "lr", "tau"):
            if getattr(self, name) is not None:
                _positive(name, getattr(self, name))
        for name in ("seq_len", "batch_sequences"):
            _whole(name, getattr(self, name))
        if self.weight_decay is not None:
            _decay(self.weight_decay)
        if self.weight_decay is not None and self.tau is not None:
            raise ValueError("expected weight_decay or tau, not both; found both")


def derive(settings: Mapping[str, Any], run: RunContext) -> dict[str, Any]:
    """Return the training settings of one point at the size of ``run``.

    ``lr``, ``weight_decay`` (left out if neither a decay nor a τ is known), ``batch_sequences`` and ``n_steps``, in base
    values; everything that is no control (:data:`CONTROLS`) is passed on. A batch given in tokens is rounded to whole
    sequences, and the rounded batch and the whole number of steps solve λ, so that the run as trained has the τ asked for.

    Raises
    ------
    ValueError
        A control that is not a positive number, a batch that is no whole number of sequences, ``tau`` together with
        ``weight_decay`` (or two batch sizes), no learning rate, or a decay above 1/η: AdamW would overshoot zero.
    """
    batch = _batch_sequences(settings, run)
    n_tokens = _positive("tpp", settings["tpp"]) * run.n_params if "tpp" in settings else run.n_tokens
    n_steps = max(1, round(n_tokens / (batch * run.seq_len)))
    lr = settings.get("lr", run.lr)
    if lr is None:
        raise ValueError("lr must be searched, fixed or given with the run; found none")
    lr = _positive("lr", lr)
    decay = _weight_decay(settings, run, lr, n_steps)
    passed_on = {name: value for name, value in settings.items() if name not in CONTROLS}
    solved = {"lr": lr, "batch_sequences": batch, "n_steps": n_steps}
    return passed_on | solved | ({} if decay is None else {"weight_decay": decay})


def _batch_sequences(settings: Mapping[str, Any], run: RunContext) -> int:
    if "batch_tokens" in settings and "batch_sequences" in settings:
        raise ValueError("expected batch_sequences or batch_tokens, not both; found both")
    if "batch_tokens" in settings:
        tokens = _positive("batch_tokens", settings["batch_tokens"])
        if tokens < run.seq_len / 2:
            raise ValueError(f"batch_tokens must be at least one sequence of {run.seq_len} tokens; found {tokens:g}")
        return max(1, round(tokens / run.seq_len))
    return _whole("batch_sequences", settings.get("batch_sequences", run.batch_sequences))


def _weight_decay(settings: Mapping[str, Any], run: RunContext, lr: float, n_steps: int) -> float | None:
    """Return the base decay: as stated, or 1/(η τ T), which is B/(η τ D) for the D = T·B trained on."""
    if "tau" in settings and "weight_decay" in settings:
        raise ValueError("expected tau or weight_decay, not both; found both")
    tau = settings.get("tau", None if "weight_decay" in settings else run.tau)
    stated = settings.get("weight_decay", run.weight_decay)
    decay = None if stated is None else _decay(stated)
    if tau is not None:
        decay = 1.0 / (lr * _positive("tau", tau) * n_steps)
    if decay is not None and decay * lr > 1.0:
        cause = "weight_decay must be" if tau is None else f"tau {tau:g} over {n_steps} steps needs a weight decay"
        raise ValueError(f"{cause} at most 1/lr = {1 / lr:.4g}; found {decay:.4g}")
    return decay


def _decay(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise ValueError(f"weight_decay must be finite and at least 0; found {value!r}")
    return float(value)


def _positive(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be finite and above 0; found {value!r}")
    return float(value)


def _whole(name: str, value: Any) -> int:
    number = _positive(name, value)
    if number != int(number):
        raise ValueError(f"{name} must be a whole number; found {value!r}")
    return int(number)
