"""What runs of a family are told apart by: the controls that all of them know, and whose effects its references can tell.

Where schedules are known, τ, TPP and N are. Of a schedule of which only the name is known the same holds for runs that share
it, but any study may have such a name: there the learning rate counts only where the references are a sweep of it, narrow
enough for its effect to be linear, and the length only where runs differ in it. Where nothing at all is known of schedules, τ
would only explain what they do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hpo.core.coordinates import Coordinates
from hpo.core.shape import ShapeSettings, common_controls

SAME_CONTROL = 0.05
FEWEST_OF_NAME, WIDEST_SWEEP = 3, 4.0
"""References whose schedules are but names tell effects from so many on, and of the learning rate within so many e-folds."""
_OF_RATES = ("log_tau", "log_lr")


@dataclass(frozen=True, eq=False)
class Teaching:
    """The references of a family as runs with controls."""

    runs: tuple[Coordinates, ...]

    def controls_for(self, others: Sequence[Coordinates], settings: ShapeSettings) -> tuple[str, ...]:
        """Return what both the references and ``others`` know and the settings use.

        Where τ differs among the references only as their lengths do (one learning rate), what lengths do would be taken for
        τ's. Where all are of one length, what τ does would be taken for that of lengths; no response mean says better where
        schedules are but names. The decay rate ηλ/B stands for it then.
        """
        every = [self._common, *others]
        known = [name for name in common_controls(every, settings) if not self._common.label or self._tells(name, others)]
        if "log_tau" not in known or self._tells_tau or any("log_rate" not in run.controls for run in every):
            return tuple(known)
        return tuple("log_rate" if name == "log_tau" else name for name in known)

    def _tells(self, name: str, others: Sequence[Coordinates]) -> bool:
        """True if the references, whose schedules are but names, tell what a control does."""
        if name in _OF_RATES:
            return self._is_sweep
        apart = np.ptp([run.controls[name] for run in (*self.runs, *others)])
        return len(self.runs) >= FEWEST_OF_NAME and bool(apart > SAME_CONTROL)

    @cached_property
    def _is_sweep(self) -> bool:
        rates = [run.controls.get("log_lr", np.nan) for run in self.runs]
        return len(rates) >= FEWEST_OF_NAME and bool(np.ptp(rates) <= WIDEST_SWEEP)

    @cached_property
    def _tells_tau(self) -> bool:
        """True if τ differs among the references other than with length and size, as far as all tell these, and lengths do."""
        names = [c for c in ("log_tau", "log_tpp", "log_n") if c in self._common.controls]
        rows = np.array([[run.controls[c] for c in names] for run in self.runs])
        if self._common.label and len(names) > 1 and np.max(np.ptp(rows[:, 1:], axis=0)) <= SAME_CONTROL:
            return False
        sides = np.column_stack((np.ones(len(rows)), rows[:, 1:]))
        left = rows[:, 0] - sides @ np.linalg.lstsq(sides, rows[:, 0], rcond=None)[0]
        return bool(np.ptp(left) > SAME_CONTROL)

    @cached_property
    def _common(self) -> Coordinates:
        """What all references know, as one run's coordinates."""
        first, *others = self.runs
        controls = {c: x for c, x in first.controls.items() if all(c in run.controls for run in others)}
        if not all(run.is_scheduled for run in self.runs):
            return Coordinates(controls)
        return Coordinates(controls, first.schedule, max(run.label for run in self.runs))
