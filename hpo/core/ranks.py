"""The chance that a run ends lowest, told by ranks: its own among the references at t̂, and how well theirs held till the end.

A forecast is about distances. In studies most of whose runs learn nothing, those that have just begun to learn are apart from
them by next to nothing, and yet are among the first; what will win is nearly always among the first few at t̂ = 0.1. Ranks see
that. They are taken as normal scores of a Gaussian copula, whose correlation is that of the references' own ranks, each told by
its own curve and all others (:mod:`hpo.core.hindsight`). Both chances are pooled as logarithms: of two experts neither of whom
is always right, neither may be sure alone.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.stats import rankdata

from hpo.core.hindsight import Correction, Hindsight

FloatArray = NDArray[np.float64]
FEWEST = 10
"""Fewer references than this have no ranks."""
UNRELATED = 2.0
"""Prior weight, in references, of no relation between ranks at t̂ and at the end."""


def have_ranks(known: Hindsight) -> bool:
    """True if the references are enough to have ranks."""
    return known.final.size >= FEWEST


def chance_by_rank(known: Hindsight, correction: Correction, level: float, best: float) -> float | None:
    """Return the probability that a run whose forecast is ``level`` ends below ``best``, None with too few references.

    Parameters
    ----------
    known : Hindsight
        Of references of the run's size and length, at its t̂; their forecasts are corrected as the run's own has been.
    level, best : float
        On the model's scale.
    """
    if not have_ranks(known):
        return None
    n = known.final.size
    told = correction.of(known.level)
    at, end = _scores(told), _scores(known.final)
    held = max(float(at @ end), 0.0) / math.sqrt((float(at @ at) + UNRELATED) * (float(end @ end) + UNRELATED))
    gap = _score_among(known.final, best) - held * _score_among(told, level)
    return float(special.stdtr(n - 2, gap / math.sqrt(1.0 - held * held)))


def pooled(chance: float, by_rank: float | None) -> float:
    """Return the logarithmic pool of a chance and, if ranks tell one, theirs: their geometric mean."""
    return chance if by_rank is None else math.sqrt(max(chance, 0.0)) * math.sqrt(by_rank)


def _scores(values: FloatArray) -> FloatArray:
    """Return the normal scores of values, ties alike, shape (n,)."""
    return np.asarray(special.ndtri((rankdata(values) - 0.5) / values.size), dtype=np.float64)


def _score_among(values: FloatArray, one: float) -> float:
    """Return the normal score of one more value; one that is among the values counts as below its like."""
    return float(special.ndtri((np.sum(values < one) + 0.5) / (values.size + 1)))
