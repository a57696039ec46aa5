"""Rules in phases on recorded curves: who trains how far before anything more is decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bench.rules import best_first
from bench.simulation import Sweep
from hpo.core.decision import StoppingSettings
from hpo.core.model import CollapseModel
from hpo.core.rungs import select_at_look

QUARTER_AT = 0.2


@dataclass(frozen=True)
class Phase:
    """Trials, in order, that train on to one fraction of their training."""

    trials: tuple[int, ...]
    until: float


def everything(_sweep: Sweep, order: Sequence[int]) -> list[Phase]:
    """Return the one phase of training all to the end."""
    return [Phase(tuple(order), 1.0)]


def quarter(sweep: Sweep, order: Sequence[int]) -> list[Phase]:
    """Return the phases of keeping the quarter with the best values so far."""
    best = best_first(sweep, QUARTER_AT)[: max(1, round(len(sweep.trials) / 4))]
    return [Phase(tuple(order), QUARTER_AT), Phase(tuple(best), 1.0)]


def climbing(looks: Sequence[float], settings: StoppingSettings | None = None) -> Callable[..., list[Phase]]:
    """Return the rule ``select`` with these looks (one: without rungs)."""

    def phases(sweep: Sweep, order: Sequence[int]) -> list[Phase]:
        model = CollapseModel.fit([record.full for record in sweep.task.references])
        at = np.full(len(sweep.trials), looks[0])
        going, spent, made = list(order), 0.0, []
        for k, look in enumerate(looks):
            if len(going) > 1 or k == 0:
                made.append(Phase(tuple(going), look))
                at[going] = look
                curves = [record.prefix(float(until)) for record, until in zip(sweep.trials, at, strict=True)]
                forecast = model.forecast_many(curves, np.random.default_rng(sweep.seed))
                found = select_at_look(
                    curves,
                    forecast,
                    settings or StoppingSettings(),
                    going=going,
                    error_spent=spent,
                    looks_left=len(looks) - k,
                )
                going, spent = [going[i] for i in found.kept], spent + found.error_spent
        return [*made, Phase(tuple(going), 1.0)]

    return phases
