"""The papers' parametric surrogate with early-align (arXiv 2509.25087, sections 3 and 5).

Fitted to the references of the target's schedule where there are at least :data:`ENOUGH`, else to all with known τ, TPP and
schedule; aligned by log least squares to the prefix past warm-up. Abstains where a control is unknown.

Deviations
----------
The paper tested one schedule only. One surrogate over mixed schedules breaks its τ law, hence the choice of references.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bench.methods.view import Prediction, TaskView, final_levels, folds, names, residual_sd
from hpo.core.curve import Curve
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedules_match
from hpo.core.surrogate import Surrogate, early_align, fit_surrogate, surrogate_mean, usable_for_surrogate

FloatArray = NDArray[np.float64]
ENOUGH = 3


def predict(view: TaskView) -> Prediction:
    """Return aligned forecasts; each target's interval is from leave-one-out errors of the references it uses."""
    level = np.full(len(view.targets), np.nan)
    sd = np.full(len(view.targets), np.nan)
    prefixes = {c.run_id: c for c in view.reference_prefixes}
    for i, target in enumerate(view.targets):
        chosen = references_for(target, view.references)
        if not chosen or target.nonfinite_step is not None or target.metric.transform != "log":
            continue
        level[i] = aligned(target, _fit(view, chosen))
        own = [prefixes[c.run_id] for c in chosen]
        sd[i] = view.remember(("surrogate sd", view.stop, *names(chosen)), partial(_own_sd, view, chosen, own))
    score = np.where([t.nonfinite_step is not None for t in view.targets], np.inf, level)
    return Prediction(score, level, sd, np.full_like(level, np.inf))


def references_for(target: Curve, references: Sequence[Curve]) -> tuple[Curve, ...]:
    """Return the references a target's surrogate is fitted to; none if the target's own controls are unknown."""
    if target.recipe is None or target.recipe.tau is None or target.recipe.tpp is None or not target.recipe.schedule.is_known:
        return ()
    usable = tuple(c for c in references if usable_for_surrogate(c))
    alike = tuple(c for c in usable if _same_schedule(target.recipe, c.recipe))
    return alike if len(alike) >= ENOUGH else usable


def aligned(prefix: Curve, surrogate: Surrogate | None) -> float:
    """Return log L̂(T) of a prefix by early-align over its bins past warm-up (all bins if none is), weighted by their points."""
    if surrogate is None or prefix.recipe is None or prefix.fractions.size == 0:
        return float("nan")
    past = prefix.fractions > (prefix.recipe.warmup_fraction or 0.0)
    past = past if past.any() else np.ones_like(past)
    y = prefix.metric.to_model(prefix.means[past])
    shape = surrogate_mean(surrogate, prefix.recipe, prefix.fractions[past])
    return early_align(y, shape, prefix.counts[past])


def _fit(view: TaskView, references: Sequence[Curve]) -> Surrogate | None:
    return view.remember(("surrogate", *names(references)), lambda: fit_surrogate(references).surrogate)


def _own_sd(view: TaskView, references: Sequence[Curve], prefixes: Sequence[Curve]) -> float:
    errors = np.full(len(references), np.nan)
    ends = final_levels(references)
    for out in folds(len(references)):
        rest = [c for i, c in enumerate(references) if i not in out]
        if rest:
            fitted = _fit(view, rest)
            errors[out] = [aligned(prefixes[i], fitted) - ends[i] for i in out]
    return residual_sd(errors)


def _same_schedule(a: Recipe, b: Recipe | None) -> bool:
    if b is None:
        return False
    return schedules_match(a.schedule, b.schedule, (a.warmup_fraction or 0.0, b.warmup_fraction or 0.0))
