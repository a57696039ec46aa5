"""Rules that finish one trial only: the one that a method of the replay ranks first once all have trained to the stop."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bench.methods import METHODS
from bench.methods.view import current_levels
from bench.replay import view_of
from bench.scores import pick_weights, with_fallback
from bench.simulation import Outcome, Sweep, in_two_phases
from bench.tasks import Task
from hpo.core.metric import Metric

FloatArray = NDArray[np.float64]


def picked(name: str, stop: float, sweep: Sweep) -> Outcome:
    """Return the outcome of finishing the first choice of the method ``name``; ties are broken by the sweep's seed.

    A method that does not look trains nothing before it chooses.
    """
    weights = _weights(name, stop, sweep.task)
    pick = int(np.random.default_rng(sweep.seed).choice(weights.size, p=weights))
    return in_two_phases(sweep, stop if METHODS[name].looks else 0.0, [pick])


@lru_cache(maxsize=4)
def _memory(_references: tuple[tuple[str, Metric], ...]) -> dict[Hashable, object]:
    """Return what methods have fitted to the same references by the same metric."""
    return {}


@lru_cache(maxsize=16)
def _weights(name: str, stop: float, task: Task) -> FloatArray:
    """Return the chance of each trial to be chosen, shape (n_trials,): even among those tied for the first place."""
    view = view_of(task, stop, _memory(tuple((reference.run_id, reference.full.metric) for reference in task.references)))
    current = current_levels(view.targets) if METHODS[name].looks else np.zeros(len(view.targets))
    return pick_weights(with_fallback(METHODS[name].predict(view).score, current))
