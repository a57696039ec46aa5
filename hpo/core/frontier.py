"""What compute bought: published models as data, and the Pareto frontier of any set of models.

References: arXiv 2509.25087 (Celerity's compute and average accuracies, and those it states for BTLM-3B).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A model, its compute and how good it is.

    Attributes
    ----------
    flops : float
        Training FLOPs.
    quality : float
        Average accuracy in percent, or a loss; which is better is said where they are compared.
    n_params, n_tokens : float, optional
        N and D.
    source : str
        Where the numbers are from.
    """

    name: str
    flops: float
    quality: float
    n_params: float | None = None
    n_tokens: float | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.flops) and self.flops > 0 and math.isfinite(self.quality)):
            raise ValueError(
                f"{self.name}: flops must be above 0 and quality finite; found {self.flops!r} and {self.quality!r}"
            )


def _published(name: str, n_params: float, n_tokens: float, flops: float, accuracy: float) -> TrainedModel:
    source = "arXiv 2509.25087"
    return TrainedModel(name=name, n_params=n_params, n_tokens=n_tokens, flops=flops, quality=accuracy, source=source)


CELERITY_MODELS = (
    _published("Celerity-300M", 2.71e8, 63.4e9, 1.47e20, 46.43),
    _published("Celerity-500M", 5.03e8, 117.8e9, 5.15e20, 51.40),
    _published("Celerity-900M", 9.06e8, 212.3e9, 1.68e21, 54.23),
    _published("Celerity-1.8B", 1.81e9, 424.0e9, 6.54e21, 61.00),
    _published("Celerity-3.9B", 3.88e9, 909.2e9, 2.89e22, 65.28),
)
"""The family at 234 tokens per parameter; quality is the average accuracy in percent."""

BTLM_3B = _published("BTLM-3B", 2.6e9, 6.27e11, 1.55e22, 62.10)
"""An earlier model of the same laboratory, for contrast."""

PUBLISHED_MODELS = (*CELERITY_MODELS, BTLM_3B)


def beaten_by(models: Sequence[TrainedModel], *, higher_is_better: bool) -> list[TrainedModel | None]:
    """Return for each model the cheapest of those that beat it, as good or better for no more compute; None on the frontier.

    Equal models are both on the frontier. O(n²).
    """
    sign = 1.0 if higher_is_better else -1.0
    points = [(m.flops, -sign * m.quality) for m in models]  # both: lower is better
    better = [[k for k, other in enumerate(points) if _dominates(other, one)] for one in points]
    return [models[min(ks, key=lambda k: points[k])] if ks else None for ks in better]


def _dominates(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return a[0] <= b[0] and a[1] <= b[1] and a != b


@dataclass(frozen=True)
class Comparison:
    """One model against another: how much less compute (fraction), and how much quality is lost (positive: it is lower)."""

    name: str
    against: str
    flops_saved_fraction: float
    quality_lost: float


def compare(model: TrainedModel, against: TrainedModel) -> Comparison:
    """Return the compute ``model`` saves against another, and the accuracy it gives up."""
    return Comparison(model.name, against.name, 1.0 - model.flops / against.flops, against.quality - model.quality)
