"""What a model's references say of forecasts from them, remembered by the family, kind and t̂ of the run asked about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hpo.core.coordinates import Kind, kind_of
from hpo.core.curve import Curve
from hpo.core.hindsight import Correction, Hindsight, correction_of, hindsight_of, stage_of
from hpo.core.landscape_trust import LandscapeOf, Trust, left_out, trust_of
from hpo.core.outsider import FIRST, distance, widened
from hpo.core.posterior import Alignment
from hpo.core.references import Family
from hpo.core.remembered import Remembered
from hpo.core.shape import ShapeSettings

FloatArray = NDArray[np.float64]
Home = tuple[int, tuple[str, ...]]
"""A family's position, and the controls that its runs are told apart by."""
_Stage = tuple[Home, Kind, float]
"""Where references are looked back on: a family, a size and length, and a t̂."""
Seen = tuple[Hindsight, Correction]


class LookingBack:
    """The references of a model's families as forecasts of the others would have had them.

    Parameters
    ----------
    families : sequence of Family
    settings : ShapeSettings
        Degenerate ones, which give the simpler methods, are not corrected.
    """

    def __init__(self, families: Sequence[Family], settings: ShapeSettings) -> None:
        self._families, self._settings = families, settings
        self._known: Remembered[_Stage, Seen] = Remembered()
        self._trusts: Remembered[tuple[int, Home, Kind, float], Trust] = Remembered()

    def at(self, home: Home, run: Curve) -> Seen:
        """Return the references as they were when as far as ``run``, and by what its forecast is to be corrected."""
        return self._at(_stage(home, run))

    def trust(self, landscape: LandscapeOf, home: Home, run: Curve) -> Trust:
        """Return how far a landscape, which lives as long as this, is believed for a run that has got so far."""
        stage = _stage(home, run)
        return self._trusts.get((id(landscape[0]), *stage), lambda: trust_of(left_out(*self._at(stage), landscape)))

    def scales(self, known: Sequence[Seen], runs: Sequence[Curve], aligned: Alignment) -> FloatArray:
        """Return each run's own scale, wider where it stands apart from all references (:mod:`hpo.core.outsider`).

        ``known`` is :meth:`at` of each run.
        """
        if np.isinf(self._settings.scale_dof):
            return aligned.scale
        far = [distance(one, level) for (one, _), level in zip(known, aligned.level.tolist(), strict=True)]
        told = zip(aligned.scale.tolist(), far, runs, strict=True)
        return np.array([widened(scale, off, run.fraction_seen or FIRST) for scale, off, run in told])

    def _at(self, stage: _Stage) -> Seen:
        return self._known.get(stage, lambda: self._look_back(*stage))

    def _look_back(self, home: Home, kind: Kind, fraction: float) -> Seen:
        family = self._families[home[0]]
        kin = [(one.shape_for([]), one.references) for one in family.kin]
        known = hindsight_of([(family.fit(home[1]), family.references), *kin], kind, fraction)
        return known, correction_of(known) if np.isfinite(self._settings.covariance_weight) else Correction()


def _stage(home: Home, run: Curve) -> _Stage:
    return home, kind_of(run.recipe), stage_of(run.fraction_seen or 0.0)
