"""Finished trials as references: which are kept, when the model is fitted to them, and the best level among them.

A study may finish thousands of trials, and a decision must not wait for all of them. Of each family label the newest and the
best are kept; where constraints are told, a trial that breaks one teaches its curve as any other, but is nobody's rival. The
model is fitted anew whenever the label's trials have grown by a twentieth, have become sixteen more, or one is a record; until
then what was fitted stands. All of it follows from the order in which trials finished, never from when somebody asks, so that
another process comes to the same model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy as np
from optuna.trial import FrozenTrial

from hpo.adapters.optuna_trials import FunctionError, is_feasible
from hpo.core.curve import Curve
from hpo.core.finals import settled_levels
from hpo.core.model import CollapseModel
from hpo.core.model_settings import ModelSettings
from hpo.core.references import Reference, is_reference
from hpo.core.rivals import MOST_FINISHED, Finished
from hpo.core.shape import ShapeSettings

N_NEWEST = 64
N_BEST = 16
GROWTH = 0.05
MOST_WAITING = 16
"""Newest and best trials kept of a label; growth and number of its trials after which the model is fitted anew."""
OWN_SETTINGS = ModelSettings(shape=ShapeSettings(mean="none"))
"""Of a model of the study's own trials alone: each schedule stands for itself. (A response mean takes seconds to fit.)"""


@dataclass(frozen=True)
class Kept:
    """A finished trial, its measured final level (smaller is better), and whether it may be the best of a constrained study."""

    trial: FrozenTrial
    level: float
    is_feasible: bool = True


@dataclass(frozen=True)
class Taught:
    """What a kept trial teaches: a reference, if its curve is whole, and the noise variance of its final level."""

    reference: Reference | None
    noise: float


@dataclass
class Shelf:
    """The kept trials of one label.

    Attributes
    ----------
    members : tuple of Kept
        Those that the model is fitted to, in the order in which they finished.
    """

    newest: deque[Kept] = field(default_factory=lambda: deque(maxlen=N_NEWEST))
    best: list[Kept] = field(default_factory=list)
    members: tuple[Kept, ...] = ()
    n_added: int = 0
    n_fitted: int = 0
    model: CollapseModel | None = None
    best_level: float = np.inf
    best_family: str | None = None
    rivals: tuple[Finished, ...] = ()

    def add(self, kept: Kept) -> bool:
        """Take one more finished trial; return True if the model is to be fitted anew."""
        is_record = not self.n_added or (kept.is_feasible and (not self.best or kept.level < self.best[0].level))
        self.newest.append(kept)
        if kept.is_feasible:
            self.best = sorted([*self.best, kept], key=lambda k: k.level)[:N_BEST]
        self.n_added += 1
        waiting = self.n_added - self.n_fitted
        if not (is_record or waiting >= MOST_WAITING or waiting >= GROWTH * self.n_added):
            return False
        newest = {k.trial.number for k in self.newest}
        older = [k for k in self.best if k.trial.number not in newest]
        self.members = (*sorted(older, key=lambda k: k.trial.number), *self.newest)
        self.n_fitted, self.model = self.n_added, None
        return True


class References:
    """The references of one study by family label.

    Parameters
    ----------
    given : CollapseModel or None
        References from elsewhere; its settings then hold for all.
    curve_of : callable
        Returns the curve of a finished trial.
    """

    def __init__(self, given: CollapseModel | None, curve_of: Callable[[FrozenTrial], Curve]) -> None:
        self._given, self._curve_of = given, curve_of
        self._settings = OWN_SETTINGS if given is None else given.settings
        self._shelves: dict[str, Shelf] = {}
        self._taught: dict[int, Taught] = {}
        self._best_level: float | None = None

    def add(self, label: str, trial: FrozenTrial, level: float) -> None:
        """Take a complete trial whose measured final level is finite."""
        shelf = self._shelves.setdefault(label, Shelf())
        if shelf.add(Kept(trial, level, is_feasible(trial))):
            self._best_level = None

    def model_for(self, label: str) -> CollapseModel:
        """Return the model that judges trials of a label."""
        if label not in self._shelves and self._given is None and self._shelves:
            label = next(iter(self._shelves))  # abstains because its family is another, not for want of references
        shelf = self._shelves.get(label)
        if shelf is None:
            return self._given or CollapseModel([], self._settings)
        return shelf.model or self._fit(label, shelf)

    def rivals(self, label: str) -> tuple[Finished, ...]:
        """Return the best feasible trials of a label that are references, their levels less their noise, best first."""
        self.model_for(label)
        shelf = self._shelves.get(label)
        return () if shelf is None else shelf.rivals

    @property
    def best_level(self) -> float | None:
        """Lowest final level of all kept feasible trials less their noise; None before any has finished."""
        if self._best_level is None and self._shelves:
            for label in self._shelves:
                self.model_for(label)
            self._best_level = min(shelf.best_level for shelf in self._shelves.values())
        return None if self._best_level is None or np.isinf(self._best_level) else self._best_level

    @property
    def best_family(self) -> str | None:
        """Name of the family whose references the best level was settled against, None if it is as measured."""
        shelf = min(self._shelves.values(), key=lambda shelf: shelf.best_level, default=None)
        return None if self.best_level is None or shelf is None else shelf.best_family

    def forget(self) -> None:
        """Drop everything but what was given."""
        self._shelves.clear()
        self._taught.clear()
        self._best_level = None

    def _fit(self, label: str, shelf: Shelf) -> CollapseModel:
        taught = {k.trial.number: self._taught.get(k.trial.number) or self._teach(k.trial) for k in shelf.members}
        given = () if self._given is None else tuple(r for r in self._given.references if r.family in ("", label))
        own = [t.reference for t in taught.values() if t.reference is not None]
        model = shelf.model = CollapseModel([*given, *own], self._settings)
        settled = _settled(model, [t for t in taught.values() if t.reference is not None])
        levels = [settled.get(id(taught[k.trial.number].reference), (k.level, None)) for k in shelf.members]
        may_win = [k.is_feasible for k in shelf.members]
        shelf.best_level, shelf.best_family = min(compress(levels, may_win), key=lambda found: found[0], default=(np.inf, None))
        known = [(t.reference, level) for t, (level, _) in zip(taught.values(), levels, strict=True)]
        shelf.rivals = _rivals(list(compress(known, may_win)))
        self._drop_unused(taught)
        return model

    def _teach(self, trial: FrozenTrial) -> Taught:
        try:
            curve = self._curve_of(trial)
        except FunctionError:  # it answered when the trial finished, and does no more
            return Taught(None, 0.0)
        if not is_reference(curve) or (curve.fraction_seen or 0.0) > 1.0 + 1e-6:
            return Taught(None, 0.0)
        is_report = curve.metric.end == "window" or trial.value in trial.intermediate_values.values()
        reference = Reference.of(curve, is_report)
        return Taught(reference, reference.noise.end)

    def _drop_unused(self, taught: dict[int, Taught]) -> None:
        """Keep what was made of members only, so that memory does not grow with the study."""
        in_use = {k.trial.number for shelf in self._shelves.values() for k in shelf.members}
        self._taught = {n: t for n, t in {**self._taught, **taught}.items() if n in in_use}


def _rivals(found: Sequence[tuple[Reference | None, float]]) -> tuple[Finished, ...]:
    known = [Finished(reference, level) for reference, level in found if reference is not None]
    return tuple(sorted(known, key=lambda f: f.level)[:MOST_FINISHED])


def _settled(model: CollapseModel, own: Sequence[Taught]) -> dict[int, tuple[float, str | None]]:
    """Return the settled final level of the study's own references, and the name of their family, by their identity."""
    noise = {id(t.reference): t.noise for t in own}
    out: dict[int, tuple[float, str | None]] = {}
    for family in model.families:
        if family.response is not None or not any(id(r) in noise for r in family.references):
            continue
        try:
            levels = settled_levels(family, np.array([noise.get(id(r), 0.0) for r in family.references]))
        except np.linalg.LinAlgError:
            continue
        by_reference = zip(family.references, levels, strict=True)
        out |= {id(r): (float(x), family.name) for r, x in by_reference if id(r) in noise}
    return out
