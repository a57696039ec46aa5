"""Families whose runs rise by design, as by warm restarts or in stages: there a rise is no divergence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpo.core.curve import Curve
from hpo.core.references import Reference, has_label


def without_usual_rise(curve: Curve, references: Sequence[Reference]) -> Curve:
    """Return a curve that is not called diverging where at least half of the references of its label have risen like that."""
    if not curve.diverging:
        return curve
    kin = [r for r in references if has_label(r, curve.family, curve.metric)]
    is_usual = bool(kin) and 2 * sum(r.has_risen for r in kin) >= len(kin)
    return replace(curve, diverging=False) if is_usual else curve
