"""The unit of the model's scale: what its priors, which are sized for the logs of losses, mean for another metric.

A language model's log loss falls by some .2 after a tenth of training, and the priors of the shape, of the response mean and
of the landscape are sds of such logs. A perplexity falls by three times as much, an accuracy that rises from .02 to .05 by a
tenth, and a value that has no log (a negated loss) by anything. Such values count in units in which references fall as losses
do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
TYPICAL_FALL = 0.2
"""Fall of log loss after :data:`FALLS_FROM` for which the priors are sized."""
FALLS_FROM = 0.1
SHARE = 0.75
"""Quantile of the references' falls that is typical of them: in a study some runs learn nothing."""
LEAST, MOST = 1e-50, 1e50
"""Units beyond which squares of squares leave what floats hold."""
NEARLY = 1.6
"""Factor up to which a unit counts as 1: a prior need not be more exact."""


def unit_of(rows: Sequence[FloatArray], nodes: FloatArray) -> float:
    """Return the unit in which references fall as losses do, 1 where they do not fall.

    Parameters
    ----------
    rows : sequence of ndarray, shape (n_nodes,)
        y(t̂) − y(1) of each, NaN where it is not known.
    nodes : ndarray, shape (n_nodes,)
        t̂.
    """
    late = nodes >= FALLS_FROM
    falls = [float(np.nanmax(np.abs(row[late]), initial=0.0)) for row in rows]
    found = float(np.quantile(falls, SHARE)) / TYPICAL_FALL if falls else 1.0
    return min(max(found, LEAST), MOST) if 0 < found < np.inf else 1.0


def rounded(unit: float) -> float:
    """Return the unit, 1 if it is nearly that."""
    return 1.0 if 1.0 / NEARLY <= unit <= NEARLY else unit
