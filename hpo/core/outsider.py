"""A run that stands apart from all references of its size and length: how they went on says less of it the further it is off.

Where most runs of a study learn nothing, their misfits are small and their forecasts sure; neither holds for the one that has
begun to learn, nor for one that stands far above. A run's scale (:func:`hpo.core.standing.own_scale`) is told by how it strayed
from the family's curve so far; how far its level, which the alignment leaves free, is from the references' tells it too. (Not
where controls tell runs apart: they say why levels differ.)
"""

from __future__ import annotations

import math

from hpo.core.hindsight import Hindsight

FEWEST = 4
"""Fewer references than this have no middle."""
OWN_WEIGHT = 4.0
"""A run's scale by its own departures counts as many times as its level among the references does at the first decisions."""
FIRST, FADES_BY = 0.1, 3.0
"""t̂ until which the level counts in full, and the power of t̂ by which it counts less then: the run's own curve tells more."""
FURTHEST = 100.0
"""Distances count up to this."""


def distance(known: Hindsight, level: float) -> float:
    """Return how far a run's aligned level is from the middle of the references'.

    In robust sds of these and of their forecasts; at least 1, so that nothing is surer for being ordinary, as where too few
    references can tell.
    """
    if known.level.size < FEWEST:
        return 1.0
    middle, spread = known.middle
    return min(max(abs(level - middle) / spread, 1.0), FURTHEST)


def widened(scale: float, far: float, fraction: float) -> float:
    """Return a run's scale once it is known how ``far`` it is, at ``fraction`` of training.

    One more component z of E λ ∝ (d + Σz²)/(d + m), of a weight that fades.
    """
    weight = min((FIRST / fraction) ** FADES_BY, 1.0) if far > 1.0 else 0.0
    return math.sqrt((OWN_WEIGHT * scale**2 + weight * far**2) / (OWN_WEIGHT + weight))
