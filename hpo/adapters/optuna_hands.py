"""What a person said of single trials of a study: keep it, or stop it, whatever the forecast."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

import numpy as np

Order = Literal["keep", "stop"]


class Orders:
    """Orders by study and trial; one that comes before any study was served is for the first that will be."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, int], Order] = {}
        self._early: dict[int, Order] = {}

    def give(self, order: Order, trial_number: int, study: str | None, served: Collection[str]) -> None:
        """Take an order; a later one about the same trial replaces it.

        Parameters
        ----------
        study : str or None
            Name of the trial's study; None: the one that is served.
        served : collection of str
            Names of the studies that were served so far.

        Raises
        ------
        ValueError
            The trial number is not one; several studies are served and none is named.
        """
        if not _is_number_of_a_trial(trial_number):
            raise ValueError(f"trial_number must be a whole number from 0 on; found {trial_number!r}")
        if study is None and len(served) > 1:
            names = ", ".join(repr(name) for name in sorted(served))
            raise ValueError(f"study must be given where one pruner serves several; found None, and {names}")
        name = study if study is not None else next(iter(served), None)
        if name is None:
            self._early[trial_number] = order
        else:
            self._given[name, trial_number] = order

    def about(self, study: str, trial_number: int) -> Order | None:
        """Return the order about a trial, None if there is none."""
        if self._early:
            self._given |= {(study, number): order for number, order in self._early.items()}
            self._early = {}
        return self._given.get((study, trial_number))

    def withdraw(self, study: str, trial_number: int) -> None:
        """Forget the order about a trial, if there is one."""
        self._given.pop((study, trial_number), None)


def _is_number_of_a_trial(given: object) -> bool:
    return isinstance(given, int | np.integer) and not isinstance(given, bool) and int(given) >= 0
