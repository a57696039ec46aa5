"""What a healthy run of a family looks like: log ℓ at the bins of the grid, and how healthy runs wander from it.

A template comes from a fitted model (the family's shape at the run's own controls) or from one complete reference run. It is
the yardstick of :mod:`hpo.core.monitor`. Healthy runs leave it slowly, in two ways:

- their own misfit of shape, smooth in log t̂, a share of the sd that the model states, which is at most its prior's (the
  model's misfit is Brownian, hence rougher and larger than what whole healthy runs show);
- a *gain*: the run falls faster or slower than the template by a factor 1 + γ(t̂), γ slowly varying. That covers a τ or TPP
  that is a little off, and a cooldown that gains a little more or less; it is large where the template is steep.

Both vanish at t̂ = 1, where log ℓ is 0 by definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hpo.core.coordinates import coordinates_of
from hpo.core.curve import Curve
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel
from hpo.core.recipe import Recipe
from hpo.core.references import Reference
from hpo.core.shape import Shape

FloatArray = NDArray[np.float64]
REFERENCE_SD = 0.015
"""Wandering of a run about a single reference, per unit of √(−log t̂): the model's own prior."""
SMOOTH_SHARE = 0.3
SMOOTH_LENGTH = 0.5
GAIN_SD = 0.1
GAIN_LENGTH = 0.3
FULL_UNTIL, FADES_BY = 0.2, 0.5
"""t̂ until which healthy runs wander as much as their references state, and the power of t̂ by which the sd of it fades then."""
SCALE_AT: FloatArray = np.array([0.1, 0.2, 0.3, 0.45, 0.6, 0.75, 0.9])
SCALE_WEIGHT = 0.5
SCALES = (0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0)
LOOSE = 4.0
"""Largest of these at which a family is taken to keep to its curve as others do: published ones that collapse have no more."""
ONE_CURVE = 16.0
"""Largest for references that are one family at all, if a loose one; random settings have 256."""
TELLING_REFERENCES = 4
"""References without which nothing says that they are not one family."""
SCALE_NOISE = 5e-4
APART = 0.5
"""Sd of the log of a report's variance between runs of a family, before they are seen, and how many references that weighs."""
APART_WEIGHT = 2.0
DENIED = 3.0
BELIEVED_FROM = 20.0


@dataclass(frozen=True)
class PointNoise:
    """The noise of one report as the references have it: its variance, and what that says of a run's in degrees of freedom."""

    variance: float
    dof: float

    @classmethod
    def of(cls, variances: Sequence[float]) -> PointNoise | None:
        """Return what the references' variances say, None without any; how far they differ says how much that is."""
        logs = np.log([one for one in variances if one > 0])
        if not logs.size:
            return None
        apart = APART_WEIGHT * APART**2 + float(np.sum((logs - logs.mean()) ** 2))
        apart /= APART_WEIGHT + max(logs.size - 1, 0)
        return cls(float(np.exp(np.median(logs))), 2.0 / apart)

    def times(self, factor: float) -> PointNoise:
        """Return the same of a variance that is ``factor`` times this one."""
        return replace(self, variance=factor * self.variance)

    def with_seen(self, variance: float, dof: float) -> tuple[float, float]:
        """Return the run's variance and degrees of freedom with these; unchanged where the run denies what they say.

        That it is less noisy is believed from :data:`BELIEVED_FROM` degrees of freedom on: few bins are often close together.
        """
        off = np.log(variance / self.variance)
        if (off > 0 or dof >= BELIEVED_FROM) and abs(off) > DENIED * np.sqrt(2.0 / dof + 2.0 / self.dof):
            return variance, dof
        return (dof * variance + self.dof * self.variance) / (dof + self.dof), dof + self.dof


@dataclass(frozen=True)
class Template:
    """The healthy curve.

    Attributes
    ----------
    nodes : ndarray, shape (n_nodes,)
        t̂ ascending, below 1.
    mean : ndarray, shape (n_nodes,)
        y(t̂) − y(1) expected there.
    covariance : ndarray, shape (n_nodes, n_nodes)
        Of a healthy run's slow deviation.
    family : str
        In words, for reports.
    n_references : int
    spread : float
        Variance of the references' wandering about one another, in units of what healthy runs of a family do at most (in steps
        of 4, by likelihood; 1 or less: no more than that).
    """

    nodes: FloatArray = field(repr=False)
    mean: FloatArray = field(repr=False)
    covariance: FloatArray = field(repr=False)
    family: str = ""
    n_references: int = 1
    spread: float = 1.0
    noise: PointNoise | None = None

    @property
    def scale(self) -> float:
        """The variance of the wandering that ``covariance`` stands for, in the units of ``spread``."""
        return min(self.spread, 1.0) if self.spread <= LOOSE else self.spread

    def wandering_as(self, other: Template) -> Template:
        """Return this template with no more wandering than a family that keeps to its curve has, if ``other`` does.

        ``other`` is the template of the same references as they are, this one of the references freed of the noise that they
        share: what is left of it looks like wandering.
        """
        most = 1.0 if other.spread <= LOOSE else other.spread
        return replace(self.of_freed, covariance=self.of_freed.covariance * min(most / self.scale, 1.0))

    @property
    def of_freed(self) -> Template:
        """The same template where noise that run and references share is taken off: what is left of that does not fade."""
        return replace(self, covariance=self.covariance / _faded(self.nodes))

    @property
    def is_one_curve(self) -> bool:
        """False if the references differ too much in shape to be one family: nothing can be held against them."""
        return self.spread <= ONE_CURVE or self.n_references < TELLING_REFERENCES

    def at(self, fractions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return mean, shape (n,), and covariance, shape (n, n), at fractions not before the first node."""
        weights = self.interpolation(fractions)
        return weights @ self.mean, weights @ self.covariance @ weights.T

    def mean_at(self, fractions: FloatArray) -> FloatArray:
        """Return the mean, shape (n,), at fractions not before the first node."""
        return self.interpolation(fractions) @ self.mean

    def interpolation(self, fractions: FloatArray) -> FloatArray:
        """Return W, shape (n, n_nodes), that takes values at the nodes to fractions: linear in log t̂, 0 at t̂ = 1."""
        grid = np.log(np.append(self.nodes, 1.0))
        where = np.clip(np.log(fractions), grid[0], 0.0)
        left = np.clip(np.searchsorted(grid, where, side="right") - 1, 0, grid.size - 2)
        share = (where - grid[left]) / (grid[left + 1] - grid[left])
        weights = np.zeros((fractions.size, grid.size))
        rows = np.arange(fractions.size)
        weights[rows, left] = 1.0 - share
        weights[rows, left + 1] += share
        return np.asarray(weights[:, :-1], dtype=np.float64)


def template_of_reference(reference: Curve) -> Template:
    """Return the template of one complete run, at its own bins: noise that a run shares with it then cancels exactly.

    Raises
    ------
    ValueError
        The run is not complete, or has values outside the metric's domain.
    """
    if reference.final_loss is None:
        raise ValueError(f"a reference must be complete; run {reference.run_id!r} is not")
    inside = (reference.fractions > 0) & (reference.fractions < 1)
    levels = reference.metric.to_model(np.append(reference.means[inside], reference.final_loss))
    residuals = levels[:-1] - levels[-1]
    known = np.isfinite(residuals)
    if not known.size or not known[-1]:
        raise ValueError(f"a reference must have values in its metric's domain; run {reference.run_id!r} has not")
    first = 0 if known.all() else int(np.flatnonzero(~known)[-1]) + 1
    nodes, mean = reference.fractions[inside][first:], residuals[first:]
    covariance = wandering(nodes, mean, REFERENCE_SD * np.sqrt(-np.log(nodes)))
    return Template(nodes, mean, covariance, reference.run_id or "the reference")


def template_of_model(model: CollapseModel, metric: Metric, recipe: Recipe | None, family: str = "") -> Template | None:
    """Return the template of the model's family for a run with ``recipe``; None if no family has it."""
    probe = Curve.from_points([], [], horizon=1.0, recipe=recipe, metric=metric, family=family)
    home = model.family_of(probe)
    if home is None:
        return None
    where = coordinates_of(recipe)
    shape = home.shape_for([where])
    expected, loadings, own = shape.predict([where])
    mean = expected[0] + home.mean_curve(recipe, shape.nodes)
    scale = float(own[0]) + float(loadings[0] @ loadings[0])  # 1, and what is unknown at the run's own controls
    noisy = shape.covariance if shape.noise is None else shape.covariance + shape.noise.point * shape.noise.rows
    stated = np.sqrt(np.diag(noisy))  # of noisy references: their noise too, hence the cap
    covariance = wandering(shape.nodes, mean, np.minimum(stated, REFERENCE_SD * np.sqrt(-np.log(shape.nodes))))
    spread = _learned_scale(shape, covariance)
    noise = PointNoise.of([one.noise.point * _batches(one, recipe, metric) for one in home.references])
    made = Template(shape.nodes, mean, covariance, home.name, len(home.references), spread, noise)
    return replace(made, covariance=made.scale * scale * covariance)


def _batches(reference: Reference, recipe: Recipe | None, metric: Metric) -> float:
    """Return the reference's batch over the run's, which the noise of a training loss goes by; 1 where they are unknown."""
    theirs = None if reference.recipe is None else reference.recipe.batch_tokens
    own = None if recipe is None else recipe.batch_tokens
    return theirs / own if theirs and own and metric.end == "window" else 1.0


def _learned_scale(shape: Shape, covariance: FloatArray) -> float:
    """Return the variance of the references' own wandering in units of ``covariance``: the likeliest on a grid.

    Each reference is held against what the others say of it (leave-one-out errors of the shape's regression), at a few
    nodes: neighbouring nodes say the same thing. The errors hold the noise of single bins, measured from neighbours, and
    that of the end value. A prior of :data:`SCALE_WEIGHT` references says 1.
    """
    left_out = shape.solved / np.diag(shape.inverse)[:, None]
    if len(left_out) < 3 or shape.nodes.size < 2 * SCALE_AT.size:
        return 1.0
    columns = np.unique(np.searchsorted(shape.nodes, SCALE_AT).clip(0, shape.nodes.size - 1))
    late = left_out[:, shape.nodes >= SCALE_AT[0]]
    noise = float(np.mean(np.median(np.abs(np.diff(late, 2, axis=1)), axis=1) / 0.6745) ** 2) / 6.0 + SCALE_NOISE**2
    rows, own = left_out[:, columns], covariance[np.ix_(columns, columns)]
    fits = [_log_likelihood(rows, scale * own + noise * (1.0 + np.eye(columns.size))) for scale in SCALES]
    prior = [-0.5 * SCALE_WEIGHT * columns.size * (np.log(scale) + 1.0 / scale) for scale in SCALES]
    return float(SCALES[int(np.argmax(np.add(fits, prior)))])


def _log_likelihood(rows: FloatArray, covariance: FloatArray) -> float:
    _, logdet = np.linalg.slogdet(covariance)
    return float(-0.5 * (len(rows) * logdet + np.sum(rows * np.linalg.solve(covariance, rows.T).T)))


def wandering(nodes: FloatArray, mean: FloatArray, sd: FloatArray) -> FloatArray:
    """Return the covariance of a healthy run's slow deviation at ``nodes``: misfit of shape, and gain."""
    u = np.log(nodes)
    apart = np.abs(u[:, None] - u[None, :])
    misfit = SMOOTH_SHARE**2 * np.outer(sd, sd) * _matern(apart / SMOOTH_LENGTH)
    drops = -np.diff(np.append(mean, 0.0))  # from each node to the next; a deviation is what is still to fall, times γ
    to_fall = np.triu(np.ones((nodes.size, nodes.size))) * drops
    gain = GAIN_SD**2 * to_fall @ _matern(apart / GAIN_LENGTH) @ to_fall.T
    return np.asarray(_faded(nodes) * (misfit + gain), dtype=np.float64)


def _faded(nodes: FloatArray) -> FloatArray:
    """Return the share of the early wandering's covariance that there is at each pair of nodes."""
    sd = np.minimum(1.0, (nodes / FULL_UNTIL) ** -FADES_BY)
    return np.outer(sd, sd)


def _matern(distance: FloatArray) -> FloatArray:
    """Matérn correlation of smoothness 5/2."""
    r = np.sqrt(5.0) * distance
    return np.asarray((1.0 + r + r**2 / 3.0) * np.exp(-r), dtype=np.float64)
