"""Noise that runs share because they saw the same batches in the same order: estimated from finished runs, and taken off.

The training loss of one batch is noisy mostly because batches differ, not runs: on the published runs of one study the fast
part of log ℓ at equal steps agrees between runs with a correlation of .97-.99, whatever their size, rate and horizon. So

    log ℓ_r(step) = shape(step/T_r) + c(step) + own noise,

c is the mean over references of what is left of each when its family's shape (smoothed, so that it holds no noise itself) and
its own slow wandering are taken off. References are freed of c too, each of what the others say, and the family is fitted
again: its template then no longer carries the references' noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.signal import savgol_filter

from hpo.core.curve import Curve
from hpo.core.model import CollapseModel
from hpo.core.references import why_not_reference
from hpo.core.template import Template, template_of_model

FloatArray = NDArray[np.float64]
SLOW_SHARE = 0.25
"""Share of a run's points over which its own wandering is smooth (a running cubic)."""
SMOOTH_NODES = 21
ROUNDS = 2
MIN_SHARED = 20
SAME_TRUNK = 0.05
"""Share of equal values at equal steps from which two runs are one run for a while."""
MOSTLY_SHARED = 0.25
"""Largest variance of a reference's own noise per variance of the common one (published training losses: 0.03 at most)."""
_CUBIC = 3


@dataclass(frozen=True, eq=False)
class Points:
    """A finished run with the raw points that its curve was made of, sorted by step."""

    curve: Curve
    steps: FloatArray = field(repr=False)
    values: FloatArray = field(repr=False)

    def with_values(self, values: FloatArray) -> Curve:
        """Return the curve with other values at the same steps."""
        about = {name: getattr(self.curve, name) for name in ("horizon", "recipe", "settings", "metric", "run_id", "family")}
        return Curve.from_points(self.steps, values, **about)


@dataclass(frozen=True, eq=False)
class CommonNoise:
    """c(step) on the log scale, at the steps that the references logged.

    Attributes
    ----------
    variance : float
        Of one point of c.
    own_variance : float or None
        Of one point of what a reference does not share with the others; None with a single reference.
    """

    steps: FloatArray = field(repr=False)
    values: FloatArray = field(repr=False)
    variance: float
    own_variance: float | None = None

    def at(self, step: float) -> float | None:
        """Return c at exactly this step, None where no reference logged it."""
        k = int(np.searchsorted(self.steps, step))
        return float(self.values[k]) if k < self.steps.size and self.steps[k] == step else None


@dataclass(frozen=True, eq=False)
class FreedTemplate:
    """The template of references freed of the noise that they share, and that noise.

    Its wandering is that of the references as they are (:meth:`~hpo.core.template.Template.wandering_as`).
    """

    template: Template
    common: CommonNoise


def shares_trunk(a: Points, b_steps: FloatArray, b_values: FloatArray) -> bool:
    """Return True if the two logs are the same run for a while (one was resumed from the other's checkpoint)."""
    _, mine, theirs = np.intersect1d(a.steps, b_steps, return_indices=True)
    return bool(mine.size and np.mean(a.values[mine] == b_values[theirs]) > SAME_TRUNK)


def fit_with_common_noise(runs: Sequence[Points]) -> tuple[CollapseModel, CommonNoise]:
    """Return the model of the runs freed of the noise that they share, and that noise.

    One run's own fast part is taken for shared noise; with several, what at least one other run shows at the same step.

    Raises
    ------
    ValueError
        No complete run with a loss on the log scale, or runs that have no steps in common, or share little of their noise.
    """
    usable = [one for one in runs if why_not_reference(one.curve) is None and one.curve.metric.transform == "log"]
    if not usable:
        raise ValueError("common noise needs complete runs with a positive loss; found none")
    tellers = [_tellers(k, usable) for k in range(len(usable))]
    if not any(tellers):
        raise ValueError(f"runs on the same batches log the same steps; found fewer than {MIN_SHARED} in common")
    model = CollapseModel.fit([one.curve for one in usable])
    for _ in range(ROUNDS):
        rough = [_rough_part(one, model) for one in usable]
        model = CollapseModel.fit([_freed(k, usable, rough, by) for k, by in enumerate(tellers)])
    noise = _mean([(one.steps, own) for one, own in zip(usable, rough, strict=True)])
    alone = [float(np.mean(left**2)) for k, by in enumerate(tellers) if (left := _own_part(k, usable, rough, by)).size]
    own = float(np.median(alone)) if alone else None
    if own is not None and own > MOSTLY_SHARED * noise.variance:
        raise ValueError(
            f"runs on the same batches share most of their noise; found {own / noise.variance:.0%} as much of their own as in "
            "common (validation losses share little)"
        )
    return model, replace(noise, own_variance=own)


def _rough_part(run: Points, model: CollapseModel) -> FloatArray:
    """Return the fast part of log ℓ at the run's points, NaN where its family's shape is unknown."""
    curve = run.curve
    rough = np.full(run.steps.size, np.nan)
    template = template_of_model(model, curve.metric, curve.recipe, curve.family)
    if template is None or curve.horizon is None:
        return rough
    fractions = run.steps / curve.horizon
    inside = (fractions >= template.nodes[0]) & (fractions <= 1.0) & (run.values > 0)
    if inside.sum() < MIN_SHARED:
        return rough
    left = np.log(run.values[inside]) - _smooth_mean(template, fractions[inside])
    width = min(max(round(SLOW_SHARE * left.size) // 2 * 2 + 1, _CUBIC + 2), (left.size - 1) // 2 * 2 + 1)
    rough[inside] = left - savgol_filter(left, width, _CUBIC)
    return rough


def _smooth_mean(template: Template, fractions: FloatArray) -> FloatArray:
    if template.nodes.size > SMOOTH_NODES:
        template = replace(template, mean=np.asarray(savgol_filter(template.mean, SMOOTH_NODES, _CUBIC), dtype=np.float64))
    return template.mean_at(fractions)


def _tellers(k: int, runs: Sequence[Points]) -> list[int]:
    """Return which runs tell the k-th of common noise: those with steps in common that are not the same run.

    A single run tells itself.
    """
    if len(runs) == 1:
        return [k]
    mine = runs[k]
    return [
        j
        for j, other in enumerate(runs)
        if j != k
        and np.intersect1d(mine.steps, other.steps).size >= MIN_SHARED
        and not shares_trunk(mine, other.steps, other.values)
    ]


def _freed(k: int, runs: Sequence[Points], rough: Sequence[FloatArray], tellers: Sequence[int]) -> Curve:
    """Return the k-th run's curve without the noise that others show; of a single run, without its own fast part."""
    c, known = _told(k, runs, rough, tellers)
    if known.sum() < MIN_SHARED:
        return runs[k].curve
    return runs[k].with_values(runs[k].values * np.exp(-_share(rough[k], c, known) * c))


def _own_part(k: int, runs: Sequence[Points], rough: Sequence[FloatArray], tellers: Sequence[int]) -> FloatArray:
    """Return what is left of the k-th run's fast part without the noise that others show; empty where none do."""
    c, known = _told(k, runs, rough, tellers)
    if len(runs) == 1 or known.sum() < MIN_SHARED:
        return np.zeros(0)
    return (rough[k] - _share(rough[k], c, known) * c)[known]


def _share(rough: FloatArray, c: FloatArray, known: NDArray[np.bool_]) -> float:
    return float(np.clip((rough[known] @ c[known]) / max(float(c @ c), 1e-300), 0.0, 1.0))


def _told(
    k: int, runs: Sequence[Points], rough: Sequence[FloatArray], tellers: Sequence[int]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the tellers' mean fast part at the k-th run's steps, 0 where it is unknown, and where it is known."""
    nothing = np.zeros(runs[k].steps.size), np.zeros(runs[k].steps.size, dtype=bool)
    if not tellers:
        return nothing
    shared = _mean([(runs[j].steps, rough[j]) for j in tellers])
    if shared.steps.size == 0:
        return nothing
    at = np.searchsorted(shared.steps, runs[k].steps).clip(0, shared.steps.size - 1)
    known = np.isfinite(rough[k]) & (shared.steps[at] == runs[k].steps)
    return np.where(known, shared.values[at], 0.0), known


def _mean(parts: Sequence[tuple[FloatArray, FloatArray]]) -> CommonNoise:
    steps = np.concatenate([x[np.isfinite(r)] for x, r in parts])
    rough = np.concatenate([r[np.isfinite(r)] for _, r in parts])
    at, where = np.unique(steps, return_inverse=True)
    values = np.bincount(where, rough, at.size) / np.maximum(np.bincount(where, minlength=at.size), 1)
    return CommonNoise(at, values, float(np.mean(values**2)) if at.size else 0.0)
