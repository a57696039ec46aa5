"""Families whose runs rise by design, as by warm restarts or in stages: there a rise is no divergence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hpo.core.curve import Curve
from hpo.core.divergence import has_risen
from hpo.core.references import Reference, has_label
from hpo.core.shape import NODES


def without_usual_rise(curve: Curve, references: Sequence[Reference]) -> Curve:
    """Return a curve that is not called diverging where at least half of the references of its label have risen like that."""
    if not curve.diverging:
        return curve
    kin = [r for r in references if has_label(r, curve.family, curve.metric)]
    is_usual = bool(kin) and 2 * sum(_has_risen(r) for r in kin) >= len(kin)
    return replace(curve, diverging=False) if is_usual else curve


def _has_risen(reference: Reference) -> bool:
    metric, known = reference.metric, np.isfinite(reference.residuals)
    levels = metric.to_model(reference.final_loss) + reference.residuals[known]
    return has_risen(NODES[known], np.asarray(metric.to_loss(metric.to_raw(levels)), dtype=np.float64))
