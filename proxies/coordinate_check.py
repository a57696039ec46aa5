"""The coordinate check: whether the scale of activations stays put when a model grows, before and while it learns.

A parameterisation is right when both the activations and what training changes in them keep their scale as width or depth
grow. :func:`activation_scales` trains one model for a few steps and watches a fixed batch; :func:`growth` turns one
quantity of a ladder of models into an exponent: 0 is flat, 0.5 grows like a square root.

References: arXiv 2203.03466 (appendix D.1), arXiv 2505.01618 (section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxies.loop import Trainer
from proxies.runtime import small_steps
from proxies.settings import RunSettings

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ActivationScales:
    """Root mean squares on a fixed batch after 0, 1, … n_steps updates, each of shape (n_steps + 1,).

    ``stream`` is the residual stream after the last block, ``logits`` the model's output; the ``_change`` of each is against
    its value before the first update (0 there).
    """

    stream: FloatArray
    logits: FloatArray
    stream_change: FloatArray
    logits_change: FloatArray


def activation_scales(run: RunSettings, n_steps: int) -> ActivationScales:
    """Return the scales of ``run``'s model over its first ``n_steps`` updates; the watched batch is not trained on."""
    with small_steps(run.training.threads):
        trainer = Trainer(run)
        tokens, _ = trainer.batch(trainer.batches, n_steps + 1)
        seen = [_watch(trainer, tokens)]
        for _ in range(n_steps):
            trainer.advance()
            seen.append(_watch(trainer, tokens))
    stream, logits = zip(*seen, strict=True)
    return ActivationScales(_rms(stream), _rms(logits), _rms(stream, stream[0]), _rms(logits, logits[0]))


def growth(sizes: Sequence[float], scales: Sequence[float]) -> float:
    """Return the exponent p of scale ∝ size^p, the least-squares slope in logs; all values must be above 0."""
    return float(np.polyfit(np.log(np.asarray(sizes)), np.log(np.asarray(scales)), 1)[0])


@torch.no_grad()
def _watch(trainer: Trainer, tokens: Tensor) -> tuple[Tensor, Tensor]:
    streams: list[Tensor] = []
    handle = trainer.model.final_norm.register_forward_pre_hook(lambda _, inputs: streams.append(inputs[0].float()))
    try:
        logits = trainer.model.logits(tokens).float()
    finally:
        handle.remove()
    return streams[0], logits


def _rms(values: Sequence[Tensor], origin: Tensor | None = None) -> FloatArray:
    return np.array([(v if origin is None else v - origin).square().mean().sqrt().item() for v in values])
