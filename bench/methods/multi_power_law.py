"""The multi-power law: a loss curve from its learning-rate schedule (arXiv 2503.12811).

    L(t) = L0 + A·(S1(t) + S_w)^−α − B·Σ_k (η_{k−1} − η_k)·G(η_k^−γ·S_k(t))      G(x) = 1 − (1 + C·x)^−β
    S1(t) = Σ_{i ≤ t} η_i,   S_k(t) = Σ_{k ≤ i ≤ t} η_i,   S_w = the sum of η over warm-up

Published use: the seven constants are fitted to whole curves of a few schedules at one size and one peak learning rate (Huber
loss, δ = 1e-3, of log residuals) and predict the curve under another schedule. The same is done here: for each target from the
references of its nearest size and, there, of the nearest peak learning rate (of all, where fewer than :data:`ENOUGH` have it);
no look at the target itself. :func:`predict_aligned` shifts the law's log loss to the later half of the prefix.
Abstains where a schedule or learning rate is unknown, or the metric is no positive loss.

Deviations
----------
Curves enter as bin means and the drops of the schedule as :data:`DROPS` equal parts of training, not step by step. Huber and
its gradient go to L-BFGS from three starts (the paper: AdamW from a grid).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from bench.methods.view import Prediction, TaskView, final_levels, folds, names, residual_sd
from hpo.core.curve import Curve

FloatArray = NDArray[np.float64]
HUBER = 1e-3
ENOUGH = 2
DROPS = 120
FIT_BINS = 40
_STARTS = ((0.75, 0.5, 100.0), (0.85, 0.4, 300.0), (0.65, 0.6, 30.0))
"""(L0 over the lowest loss, α, B) of each start."""


@dataclass(frozen=True)
class _Design:
    """One run's schedule at its points: what the law needs to know, shapes (n,) and (n, n_drops)."""

    total: FloatArray  # S1 + S_w
    drops: FloatArray  # (n_drops,) η_{k−1} − η_k
    since: FloatArray  # S_k(t), 0 before the drop
    log_lr: FloatArray  # (n_drops,) log η_k
    y: FloatArray  # log L
    weight: FloatArray


def predict(view: TaskView) -> Prediction:
    """Return the law's final values as scores and forecasts, the interval from leave-one-out errors on its references."""
    return _predict(view, align=False)


def predict_aligned(view: TaskView) -> Prediction:
    """Return the same, the law's level shifted to each prefix (ours, not published: for targets that no reference is like)."""
    return _predict(view, align=True)


def _predict(view: TaskView, *, align: bool) -> Prediction:
    level, sd = (np.full(len(view.targets), np.nan) for _ in range(2))
    prefixes = {c.run_id: c for c in view.reference_prefixes} if align else {}
    for i, target in enumerate(view.targets):
        chosen = references_for(target, view.references)
        if chosen and target.nonfinite_step is None:
            level[i] = _forecast(target, _fit(view, chosen), target if align else None)
            own = [prefixes.get(c.run_id) for c in chosen]
            key = ("mpl sd", view.stop if align else None, *names(chosen))
            sd[i] = view.remember(key, partial(_own_sd, view, chosen, own))
    return Prediction(level, level, sd, np.full_like(level, np.inf))


def references_for(target: Curve, references: Sequence[Curve]) -> tuple[Curve, ...]:
    """Return the references a target's law is fitted to: of the nearest size, and its peak learning rate if enough have it."""
    if target.metric.transform != "log" or not _has_rates(target):
        return ()
    usable = [c for c in references if c.final_loss is not None and _has_rates(c)]
    near = [c for c in usable if _gap(c, target, "n_params") <= min(_gap(r, target, "n_params") for r in usable) + 1e-9]
    alike = [c for c in near if _gap(c, target, "lr") <= min(_gap(r, target, "lr") for r in near) + 1e-9]
    return tuple(alike if len(alike) >= ENOUGH else near)


def final_level(target: Curve, constants: FloatArray | None) -> float:
    """Return log L(T) by the law, NaN without a fit."""
    if constants is None:
        return float("nan")
    design = _design(target, np.array([1.0]), np.zeros(1), np.ones(1))
    value = _law(constants, design)[0]
    return math.log(value) if value > 0 else float("nan")


def _forecast(target: Curve, constants: FloatArray | None, prefix: Curve | None) -> float:
    """Return the law's log L(T), shifted to the later half of ``prefix`` (past warm-up) if one is given."""
    level = final_level(target, constants)
    if prefix is None or constants is None or prefix.recipe is None or prefix.fractions.size == 0:
        return level
    seen = prefix.fractions > max(prefix.recipe.warmup_fraction or 0.0, 0.5 * float(prefix.fractions[-1]))
    y = prefix.metric.to_model(prefix.means[seen])
    if y.size == 0:
        return level
    law = _law(constants, _design(prefix, prefix.fractions[seen], y, prefix.counts[seen]))
    return level + float(np.average(y - np.log(np.maximum(law, 1e-9)), weights=prefix.counts[seen]))


def fit(references: Sequence[Curve]) -> FloatArray | None:
    """Return the seven constants (L0, log A, α, log B, log C, β, γ) fitted to whole curves; None if no fit ends finite."""
    designs = [d for d in map(_training_design, references) if d is not None]
    if not designs:
        return None
    lowest = min(float(np.exp(d.y.min())) for d in designs)
    best: tuple[float, FloatArray | None] = (math.inf, None)
    for share, alpha, strength in _STARTS:
        scale = [(np.exp(d.y[-1]) - share * lowest) * d.total[-1] ** alpha for d in designs]
        start = np.array([share * lowest, math.log(max(np.mean(scale), 1e-6)), alpha, math.log(strength), 0.7, 0.6, 0.6])
        found = minimize(
            _objective, start, args=(designs,), jac=True, method="L-BFGS-B", bounds=_bounds(lowest), options={"maxiter": 300}
        )
        if np.isfinite(found.fun) and found.fun < best[0]:
            best = (float(found.fun), np.asarray(found.x))
    return best[1]


def _bounds(lowest: float) -> list[tuple[float, float]]:
    return [(0.0, 0.999 * lowest), (-15.0, 15.0), (0.01, 3.0), (-5.0, 12.0), (-8.0, 8.0), (0.01, 3.0), (0.0, 2.0)]


def _law(constants: FloatArray, d: _Design) -> FloatArray:
    base, log_a, alpha, log_b, log_c, beta, gamma = constants
    x = np.exp(log_c - gamma * d.log_lr) * d.since
    gain = -np.expm1(-beta * np.log1p(x))
    return np.asarray(base + np.exp(log_a - alpha * np.log(d.total)) - np.exp(log_b) * (gain @ d.drops))


def _objective(constants: FloatArray, designs: Sequence[_Design]) -> tuple[float, FloatArray]:
    """Return the mean Huber loss of the log residuals and its gradient."""
    total, gradient = 0.0, np.zeros(7)
    for d in designs:
        value, jacobian = _law_with_gradient(constants, d)
        ok = value > 1e-6
        residual = np.where(ok, np.log(np.where(ok, value, 1.0)) - d.y, -10.0)
        size = np.abs(residual)
        total += float(d.weight @ np.where(size <= HUBER, 0.5 * size**2, HUBER * (size - 0.5 * HUBER)))
        pull = d.weight * np.clip(residual, -HUBER, HUBER) / np.where(ok, value, 1.0)
        gradient += jacobian.T @ pull
    return total / HUBER / len(designs), gradient / HUBER / len(designs)


def _law_with_gradient(constants: FloatArray, d: _Design) -> tuple[FloatArray, FloatArray]:
    base, log_a, alpha, log_b, log_c, beta, gamma = constants
    log_total = np.log(d.total)
    power = np.exp(log_a - alpha * log_total)
    x = np.exp(log_c - gamma * d.log_lr) * d.since
    log_1x = np.log1p(x)
    left = np.exp(-beta * log_1x)  # (1 + Cx)^−β
    strength = np.exp(log_b)
    gain = (1.0 - left) @ d.drops
    slope = beta * left * x / (1.0 + x)  # dG/dlog x
    columns = [
        np.ones_like(power),
        power,
        -power * log_total,
        -strength * gain,
        -strength * (slope @ d.drops),
        -strength * ((left * log_1x) @ d.drops),
        strength * (slope @ (d.drops * d.log_lr)),
    ]
    return base + power - strength * gain, np.column_stack(columns)


def _training_design(curve: Curve) -> _Design | None:
    """Return the design of a whole curve past warm-up, thinned to at most :data:`FIT_BINS` points."""
    assert curve.recipe is not None  # noqa: S101 - references_for has checked
    keep = np.flatnonzero((curve.fractions > max(curve.recipe.warmup_fraction or 0.0, 0.01)) & (curve.means > 0))
    if keep.size == 0:
        return None
    keep = keep[np.unique(np.linspace(0, keep.size - 1, FIT_BINS).round().astype(int))]
    return _design(curve, curve.fractions[keep], np.log(curve.means[keep]), np.full(keep.size, 1.0 / keep.size))


def _design(curve: Curve, fractions: FloatArray, y: FloatArray, weight: FloatArray) -> _Design:
    recipe = curve.recipe
    assert recipe is not None and recipe.lr is not None and curve.horizon is not None  # noqa: S101, PT018 - checked before
    warmup = recipe.warmup_fraction or 0.0
    fine = np.linspace(0.0, 1.0, 10 * DROPS + 1)
    rates = recipe.lr * np.maximum(recipe.schedule(fine, warmup), 0.0)
    area = np.concatenate(([0.0], np.cumsum(0.5 * (rates[1:] + rates[:-1]) * np.diff(fine)))) * curve.horizon
    edges = np.linspace(warmup, 1.0, DROPS + 1)
    at_edges = recipe.lr * np.maximum(recipe.schedule(edges, warmup), 0.0)
    drops = -np.diff(at_edges)
    used = np.abs(drops) > 1e-12 * recipe.lr
    middle = 0.5 * (edges[1:] + edges[:-1])[used]
    total = np.maximum(np.interp(fractions, fine, area), 1e-12)
    since = np.maximum(total[:, None] - np.interp(middle, fine, area)[None, :], 0.0)
    lr = np.maximum(0.5 * (at_edges[1:] + at_edges[:-1])[used], 1e-6 * recipe.lr)
    return _Design(total, drops[used], since, np.log(lr), y, weight)


def _has_rates(curve: Curve) -> bool:
    return (
        curve.recipe is not None
        and curve.recipe.lr is not None
        and curve.recipe.schedule.is_known
        and curve.horizon is not None
    )


def _gap(a: Curve, b: Curve, name: str) -> float:
    x, y = getattr(a.recipe, name), getattr(b.recipe, name)
    return 0.0 if x is None or y is None else abs(math.log(x / y))


def _fit(view: TaskView, references: Sequence[Curve]) -> FloatArray | None:
    return view.remember(("mpl", *names(references)), lambda: fit(references))


def _own_sd(view: TaskView, references: Sequence[Curve], prefixes: Sequence[Curve | None]) -> float:
    errors, ends = np.full(len(references), np.nan), final_levels(references)
    for out in folds(len(references), at_most=5):
        rest = [c for i, c in enumerate(references) if i not in out]
        if rest:
            fitted = _fit(view, rest)
            errors[out] = [_forecast(references[i], fitted, prefixes[i]) - ends[i] for i in out]
    return residual_sd(errors)
