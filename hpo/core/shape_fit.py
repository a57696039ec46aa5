"""The fit of a shape to references: its regression, K, and how large effects may be.

Effects and K are found together. From no effects at all the scale of the misfit follows, from that the share of their prior
that effects have (see :mod:`hpo.core.shape`), and so on until it stands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hpo.core.amplitude import BURN_IN, travelled
from hpo.core.coordinates import Coordinates
from hpo.core.misfit import JUDGED_FROM, MisfitPrior, RowNoise, fit_misfit, fit_scale, noise_modes
from hpo.core.noise import CurveNoise, FamilyNoise
from hpo.core.shape import NODES, Shape, ShapeSettings, inverse_of, run_kernel

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Kin:
    """Regression errors of related references, which share K.

    Attributes
    ----------
    errors : ndarray, shape (n_runs, N_BINS)
        At :data:`NODES`; NaN where their own fit has none.
    amounts : ndarray, shape (n_runs,)
        Of noise in them, as of :class:`hpo.core.misfit.RowNoise`.
    n_free : float
        Degrees of freedom that their fits have left.
    """

    errors: FloatArray
    amounts: FloatArray
    n_free: float

    @classmethod
    def none(cls) -> Kin:
        """Return no errors at all."""
        return cls(np.zeros((0, NODES.size)), np.zeros(0), 0.0)

    @classmethod
    def of(cls, shapes: Sequence[Shape]) -> Kin:
        """Return the errors of fitted shapes."""
        parts = [np.full((len(shape.runs), NODES.size), np.nan) for shape in shapes]
        for part, shape in zip(parts, shapes, strict=True):
            part[:, np.isin(NODES, shape.nodes)] = shape.solved
        amounts = [_noise_amounts(shape.inverse, shape.noise) for shape in shapes]
        free = sum(float(np.trace(shape.inverse)) for shape in shapes)
        return cls(np.concatenate([cls.none().errors, *parts]), np.concatenate([np.zeros(0), *amounts]), free)

    def at(self, keep: NDArray[np.bool_]) -> Kin:
        """Return the errors at the nodes in ``keep``, of the runs that have them all."""
        part = self.errors[:, keep]
        whole = np.all(np.isfinite(part), axis=1)
        return Kin(part[whole], self.amounts[whole], self.n_free * float(whole.mean()) if whole.size else 0.0)


def fit_shape(
    residuals: FloatArray,
    runs: Sequence[Coordinates],
    controls: tuple[str, ...],
    settings: ShapeSettings,
    means: FloatArray | None = None,
    noises: Sequence[CurveNoise] = (),
    kin: Kin | None = None,
    unit: float = 1.0,
) -> Shape:
    """Return the shape fitted to references.

    Parameters
    ----------
    residuals : ndarray, shape (n_runs, N_BINS)
        Rows of :func:`residuals_at_nodes`; nodes that a run lacks are left out, unless few do and much would be lost.
    runs : sequence of Coordinates
        Of each reference.
    controls : tuple of str
        The controls to use, of :func:`common_controls`.
    means : ndarray, shape (n_runs, N_BINS), optional
        m(t̂; x_i).
    noises : sequence of CurveNoise, optional
        Of each reference.
    kin : Kin, optional
        What the same model's other schedules say of one run's misfit: it helps to estimate K, nothing else.
    unit : float
        Of the model's scale (:mod:`hpo.core.unit`): that of the prior sd of a misfit.
    """
    keep = _used_nodes(_known_to_the_end(residuals))
    nodes = NODES[keep]
    expected = np.zeros((len(runs), nodes.size)) if means is None else means[:, keep]
    target = with_late_starts(residuals[:, keep] - expected)
    centre = np.array([np.mean([run.controls[c] for run in runs]) for c in controls])
    brownian_sd = settings.brownian_sd * unit
    prior = MisfitPrior(
        brownian_sd,
        settings.scale_weight,
        settings.covariance_weight,
        settings.tail_dof,
        settings.scale_dof,
        settings.amplitude_sd,
        KNOWN_DOF if controls else 0.0,
    )
    effects = run_kernel(runs, runs, controls, centre, settings)
    noise = FamilyNoise.of(noises, nodes)
    modes = None if noise is None else noise_modes(nodes, RowNoise(noise.rows, noise.points))
    share, inflation = (0.0 if brownian_sd > 0 else 1.0), 1.0
    others = (kin or Kin.none()).at(keep)
    for _ in range(_SHARE_PASSES):  # from no effects at all: two runs that scatter widely stay unexplained
        inverse, sums = inverse_of(share**2 / inflation * effects, settings.template_sd)
        solved, n_free = inverse @ target, float(np.trace(inverse))  # also the regression errors: R − k(k + 1)⁻¹R
        amounts = _noise_amounts(inverse, noise)
        rows = None if noise is None else RowNoise(noise.rows, np.concatenate((amounts, others.amounts)))
        errors, n_free = np.concatenate((solved, others.errors)), n_free + others.n_free
        scale = float(np.sqrt(fit_scale(errors, n_free, nodes, prior, rows, modes).variance))
        last, share = (share, inflation), min(1.0, brownian_sd / max(scale, 1e-300))
        inflation = 1.0 if noise is None else _inflation(solved, float(np.trace(inverse)), noise, nodes, scale**2)
        if brownian_sd == 0 or max(abs(share - last[0]), abs(last[1] / inflation - 1.0)) < 1e-3:
            break
    curve = None if controls else travelled(target + expected, nodes)
    misfit = fit_misfit(errors, n_free, nodes, prior, rows, modes, curve)
    used = _with_effects(settings, last[0] / math.sqrt(last[1]))
    own = slice(len(runs))
    solution = (centre, tuple(runs), inverse, sums, solved, misfit.shares[own], misfit.taken[own])
    return Shape(nodes, controls, misfit.covariance, misfit.dof, used, *solution, noise=noise, inflation=last[1])


_SHARE_PASSES = 8
KNOWN_DOF = 1.0
"""Degrees of freedom that the prior scale has where controls are known: it is that of language models, whose controls are."""
MOST_LATE = 0.25
"""Share of the references that may begin after a node: their rows are carried back to it."""


def _used_nodes(known: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which nodes to use: those that all runs have, if these begin early, else those that most have."""
    common: NDArray[np.bool_] = np.asarray(known.all(axis=0), dtype=np.bool_)
    begins_early = bool(common.any()) and NODES[int(np.argmax(common))] <= BURN_IN
    return common if begins_early else np.asarray(known.mean(axis=0) >= 1.0 - MOST_LATE, dtype=np.bool_)


def _known_to_the_end(rows: FloatArray) -> NDArray[np.bool_]:
    """Return for each run and node whether it is known there and from there on."""
    return np.asarray(np.flip(np.logical_and.accumulate(np.flip(np.isfinite(rows), axis=1), axis=1), axis=1), dtype=np.bool_)


def with_late_starts(rows: FloatArray) -> FloatArray:
    """Return the rows, shape (n_runs, n_nodes), with what a run lacks at first carried back from where it is known to its end.

    A run that is logged later than the others keeps its distance from their mean, as a Brownian motion in −log t̂ would.
    """
    known = _known_to_the_end(rows)
    whole = known.all(axis=1)
    if whole.all() or not whole.any():
        return rows
    mean, filled = np.mean(rows[whole], axis=0), rows.copy()
    for i in np.flatnonzero(~whole):
        first = int(np.sum(~known[i]))
        apart = rows[i, first] - mean[first] if first < mean.size else 0.0
        filled[i, :first] = mean[:first] + apart
    return filled


def _inflation(errors: FloatArray, n_free: float, noise: FamilyNoise, nodes: FloatArray, variance: float) -> float:
    """Return by how much noise of the references' final values raises the variance that their regression leaves.

    That noise is one for all nodes of a run, and would be taken for effects. Compared are means over the nodes. What runs share
    of it (one order of data) is in their common curve and leaves no errors: the errors bound it.
    """
    judged = nodes >= JUDGED_FROM
    age = -np.log(nodes[judged])
    expected = variance * float(np.mean(np.minimum(age[:, None], age[None, :]))) if age.size else 0.0
    if expected <= 0:
        return 1.0
    told = float(np.median(noise.points)) * noise.end
    seen = float(np.sum(np.mean(errors[:, judged], axis=1) ** 2)) / max(n_free, 1e-12)
    return max(1.0, min(1.0 + told / expected, seen / expected))


def _noise_amounts(inverse: FloatArray, noise: FamilyNoise | None) -> FloatArray:
    """Return how much of the noise's unit each regression error has, for a run whose share in the free ones is 1."""
    return np.zeros(len(inverse)) if noise is None else np.asarray(inverse**2 @ noise.points / np.diag(inverse))


def _with_effects(settings: ShapeSettings, share: float) -> ShapeSettings:
    """Return the settings with the effects' and schedules' sds times ``share``."""
    effects = tuple((name, sd * share) for name, sd in settings.effect_sd)
    return replace(settings, effect_sd=effects, schedule_sd=settings.schedule_sd * share)
