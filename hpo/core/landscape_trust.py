"""How far a landscape is believed against a run's own curve: as far as it would have helped to order the references.

What finished runs say of settings may be right on the whole and wrong where it matters: in a study most of whose runs learn
nothing, settings predict a run that learns to end like the others. So each reference is taken as a run that has got so far and
forecast from the others by its curve (:mod:`hpo.core.hindsight`) and by its settings. The landscape's variance is multiplied by
the factor under which the two together give the orders of pairs the highest likelihood, of pairs with one of the better runs,
as only those decide a sweep. A factor of 1 believes the landscape as it is, infinity not at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpo.core.hindsight import FEWEST, Correction, Hindsight, is_worse_than_chance, order_logs
from hpo.core.landscape import Landscape
from hpo.core.references import Reference

FloatArray = NDArray[np.float64]
FACTORS: FloatArray = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 1e6])
BETTER = 1 / 3
"""Share of the references that count as the better ones."""
LandscapeOf = tuple[Landscape, Sequence[Reference]]


@dataclass(frozen=True)
class LeftOut:
    """References forecast from the others, shape (n,) each, on the model's scale.

    Attributes
    ----------
    final, noise : ndarray
        The true final values, and the variance of their noise.
    curve, curve_variance : ndarray
        What their curves say, up to some t̂.
    landscape, landscape_variance : ndarray
        What their settings say.
    """

    final: FloatArray
    noise: FloatArray
    curve: FloatArray
    curve_variance: FloatArray
    landscape: FloatArray
    landscape_variance: FloatArray


@dataclass(frozen=True)
class Trust:
    """How far to believe a landscape.

    Attributes
    ----------
    factor : float
        By what to multiply its variance, of :data:`FACTORS`.
    misleads : bool
        True unless curve and landscape together would have ordered the references no worse than a coin.
    """

    factor: float = 1.0
    misleads: bool = True


def trust_of(runs: LeftOut) -> Trust:
    """Return how far a landscape is believed: as it is where too few references can tell."""
    if runs.final.size < FEWEST:
        return Trust()
    factor = _likeliest_factor(runs)
    told = order_logs(runs.final, *_together(runs, factor))
    return Trust(factor, is_worse_than_chance(told, runs.final, runs.noise))


def _likeliest_factor(runs: LeftOut) -> float:
    better = np.argsort(runs.final, kind="stable")[: max(round(BETTER * runs.final.size), 2)]
    logs = [order_logs(runs.final, *_together(runs, factor), better) for factor in FACTORS]
    likelihoods = np.stack([rows.sum(axis=1) / max(runs.final.size - 1, 1) for rows in logs])
    best = likelihoods[int(np.argmax(likelihoods.mean(axis=1)))]
    behind = best - likelihoods
    error = behind.std(axis=1, ddof=1) / math.sqrt(best.size)
    return float(FACTORS[np.flatnonzero(behind.mean(axis=1) <= error)[-1]])


def _together(runs: LeftOut, factor: float) -> tuple[FloatArray, FloatArray]:
    """Return level and variance of what curves and landscape say together."""
    curve, landscape = 1.0 / runs.curve_variance, 1.0 / (factor * runs.landscape_variance)
    level = (curve * runs.curve + landscape * runs.landscape) / (curve + landscape)
    return level, 1.0 / (curve + landscape)


def left_out(known: Hindsight, correction: Correction, landscape: LandscapeOf) -> LeftOut:
    """Return the references that a landscape was fitted to too, forecast by both.

    Parameters
    ----------
    known : Hindsight
        By their curves, still to be corrected.
    landscape : (Landscape, references)
        The landscape, and what it was fitted to, in its order.
    """
    fitted, references = landscape
    where = {id(reference): k for k, reference in enumerate(references)}
    shared = [i for i, run in enumerate(known.runs) if id(run) in where]
    at = [where[id(known.runs[i])] for i in shared]
    settings, variance = fitted.left_out
    curve = correction.of(known.level[shared])
    return LeftOut(known.final[shared], known.noise[shared], curve, known.variance[shared], settings[at], variance[at])
