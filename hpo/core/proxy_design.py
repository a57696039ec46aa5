"""What a design of a sweep will find, and for what: P(best), regret and cost, before anything is trained.

A design says which proxies are trained to their end and at what fraction the candidates are judged. The model is linear and
Gaussian, so how well it will know the candidates follows from where the runs lie, not from what they show: the alignment's
covariance from the shape's, the landscape's from its kernel. What is left to chance is drawn: final values of candidates and
proxies from the landscape, errors of the alignment (Student-t: K's scale is a guess), the posterior that the sweep would hold,
whom it would keep by that, and who was best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpo.core.coordinates import Coordinates, coordinates_of
from hpo.core.landscape import suffice, update_gain
from hpo.core.landscape_point import Point, dimensions_of, point_of
from hpo.core.proxy_beliefs import Knowledge
from hpo.core.recipe import Recipe
from hpo.core.shape import Shape, common_controls, inverse_of, run_kernel

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
N_SWEEPS, N_DRAWS = 400, 300
"""Sweeps simulated for an outlook, and draws of the final values for each sweep's own P(best)."""
_TAIL = 7.0
_AT_ONCE = 32
_N_SEEN = 16
"""Points of the curve that stand for a prefix. Its last part says nearly all of its end."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A run to be trained: its recipe, the values searched, and the FLOPs of all of it."""

    recipe: Recipe
    settings: Mapping[str, Any]
    flops: float

    @cached_property
    def point(self) -> Point:
        """Its place in the landscape."""
        return point_of(self.recipe, self.settings)

    def point_in(self, known: Knowledge) -> Point:
        """Return its place in a landscape that may be about a response mean."""
        return self.point if known.response is None else known.point(self.recipe, self.settings)

    @cached_property
    def coordinates(self) -> Coordinates:
        """What the shape tells it apart by."""
        return coordinates_of(self.recipe)


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """Whom the sweep lets go on: the fields of :class:`hpo.core.decision.StoppingSettings` of the same names."""

    alpha: float = 0.05
    keep_min: int = 1
    keep_max: int | None = None
    margin: float = 0.0

    def count(self, p_best: FloatArray) -> IntArray:
        """Return how many trials go on, shape (n_sweeps,), of ``p_best`` sorted to fall along the last axis."""
        n = p_best.shape[-1]
        rest = p_best.sum(axis=-1, keepdims=True) - np.cumsum(p_best, axis=-1)
        needed = np.maximum(1 + np.argmax(rest <= self.alpha + 1e-12, axis=-1), self.keep_min)
        return np.asarray(np.minimum(needed, n if self.keep_max is None else min(self.keep_max, n)), dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What a design is expected to find and to cost.

    Attributes
    ----------
    p_best : float
        Probability that the best candidate is among those kept (within the margin, if there is one).
    kept : float
        Expected number that go on to the end.
    regret_pct : float
        Expected loss of the best one kept over the best there is, in %.
    p_best_of_pick, regret_of_pick_pct : float
        The same if only the likeliest one went on.
    flops_proxies, flops_candidates, flops_finishing : float
        Expected: of all proxies, of every candidate up to the stop, and of those kept beyond it.
    flops_at_most : float
        Of all, if as many go on as may (``keep_max``, or every one), the dearest ones.
    flops_full_sweep : float
        Of every candidate to its end, without proxies.
    break_even_trials : int or None
        Candidates from which on the sweep costs less than that.
    """

    p_best: float
    kept: float
    regret_pct: float
    p_best_of_pick: float
    regret_of_pick_pct: float
    flops_proxies: float
    flops_candidates: float
    flops_finishing: float
    flops_at_most: float
    flops_full_sweep: float
    break_even_trials: int | None

    @property
    def flops(self) -> float:
        """Expected FLOPs of all."""
        return self.flops_proxies + self.flops_candidates + self.flops_finishing

    @property
    def saved_fraction(self) -> float:
        """Share of the full sweep that is saved; negative where the design costs more."""
        return 1.0 - self.flops / self.flops_full_sweep

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        found = {name: getattr(self, name) for name in ("p_best", "kept", "regret_pct", "p_best_of_pick", "regret_of_pick_pct")}
        parts = {name: getattr(self, f"flops_{name}") for name in ("proxies", "candidates", "finishing")}
        return {
            **found,
            "flops": {**parts, "total": self.flops, "at_most": self.flops_at_most},
            "flops_full_sweep": self.flops_full_sweep,
            "saved_fraction": self.saved_fraction,
            "break_even_trials": self.break_even_trials,
        }


def outlook(
    candidates: Sequence[Trial],
    proxies: Sequence[Trial],
    stop: float,
    known: Knowledge,
    keeping: Keeping,
    rng: np.random.Generator,
    n_sweeps: int = N_SWEEPS,
) -> Outlook:
    """Return what is expected of judging ``candidates`` at the fraction ``stop`` by what ``proxies`` teach.

    Raises
    ------
    ValueError
        No candidate, a stop outside (0, 1), or nothing that could teach the shape.
    """
    if not candidates:
        raise ValueError("candidates must not be empty")
    if not 0 < stop < 1:
        raise ValueError(f"stop must lie inside (0, 1); found {stop!r}")
    if not proxies and not known.runs:
        raise ValueError("proxies must not be empty: without a finished run nothing is known of the curve")
    errors = alignment_covariance(candidates, proxies, stop, known)
    sweeps = _simulate(candidates, proxies, errors, known, keeping, rng, n_sweeps)
    parts = _costs(candidates, proxies, stop, float(np.mean(sweeps.kept)))
    most = min(keeping.keep_max or len(candidates), len(candidates))
    rows = np.arange(n_sweeps)
    return Outlook(
        p_best=float(np.mean(sweeps.found[rows, sweeps.kept - 1])),
        kept=float(np.mean(sweeps.kept)),
        regret_pct=100.0 * float(np.mean(np.expm1(sweeps.regret[rows, sweeps.kept - 1]))),
        p_best_of_pick=float(np.mean(sweeps.found[:, 0])),
        regret_of_pick_pct=100.0 * float(np.mean(np.expm1(sweeps.regret[:, 0]))),
        flops_at_most=float(costs_by_count(candidates, proxies, stop)[most - 1]),
        **parts,
    )


def cheapest_outcome(candidates: Sequence[Trial], proxies: Sequence[Trial], stop: float) -> float:
    """Return the FLOPs of a design that lets one candidate go on: none costs less."""
    parts = _costs(candidates, proxies, stop, 1.0)
    return float(parts["flops_proxies"] + parts["flops_candidates"] + parts["flops_finishing"])


def costs_by_count(candidates: Sequence[Trial], proxies: Sequence[Trial], stop: float) -> FloatArray:
    """Return the FLOPs of a design whose 1, 2, … n dearest candidates go on, shape (n,): no sweep of so many costs more."""
    flops = np.sort([c.flops for c in candidates])[::-1]
    return np.asarray(sum(p.flops for p in proxies) + stop * flops.sum() + (1.0 - stop) * np.cumsum(flops), dtype=np.float64)


def alignment_covariance(candidates: Sequence[Trial], proxies: Sequence[Trial], stop: float, known: Knowledge) -> FloatArray:
    """Return the covariance of the candidates' final values as their first parts will tell them, shape (n, n)."""
    own = [c.coordinates for c in candidates]
    taught = [*known.runs, *(p.coordinates for p in proxies)]
    seen = _seen(known.nodes, stop)
    shape = _shape(taught, common_controls([*taught, *own], known.settings), known, seen)
    _, loadings, share = shape.predict(own)
    noise = np.stack([_noise(c, shape.nodes, known.report_sd) for c in candidates])
    return _joint_covariance(shape.covariance, loadings, share, noise)


def _joint_covariance(k: FloatArray, loadings: FloatArray, own: FloatArray, noise: FloatArray) -> FloatArray:
    """Return the covariance of :func:`hpo.core.posterior.align_jointly` for prefixes seen at the same nodes, all at once.

    Parameters
    ----------
    k : ndarray, shape (n_nodes, n_nodes)
    loadings, own, noise : ndarray, shapes (n, p), (n,) and (n, n_nodes)
    """
    n, p = loadings.shape
    precision = np.linalg.inv(own[:, None, None] * k + noise[:, :, None] * np.eye(len(k)))
    ones = precision.sum(axis=2)
    total = ones.sum(axis=1)
    projected = precision - ones[:, :, None] * ones[:, None, :] / total[:, None, None]
    gram = np.einsum("ip,iq,iab->paqb", loadings, loadings, projected, optimize=True).reshape(p * len(k), -1)
    prior = np.kron(np.eye(p), k)
    shared = np.linalg.solve(np.eye(len(prior)) + prior @ gram, prior)
    weights = (loadings[:, :, None] * (ones / total[:, None])[:, None, :]).reshape(n, -1)
    return np.asarray(np.diag(1.0 / total) + weights @ (0.5 * (shared + shared.T)) @ weights.T, dtype=np.float64)


def _seen(nodes: FloatArray, stop: float) -> IntArray:
    """Return the positions of the nodes that stand for a prefix: the last before the stop, and fewer the earlier."""
    n = int(np.sum(nodes <= stop))
    if n == 0:
        raise ValueError(f"stop must come after the first point of the curve at {nodes[0]:.3g}; found {stop!r}")
    wanted = np.geomspace(nodes[0], nodes[n - 1], _N_SEEN)
    return np.unique(np.searchsorted(nodes[:n], wanted * (1 - 1e-9)))


def _shape(runs: Sequence[Coordinates], controls: tuple[str, ...], known: Knowledge, seen: IntArray) -> Shape:
    """Return a shape that knows where its runs lie; what they show is of no consequence to its variances."""
    centre = np.array([np.mean([run.controls[c] for run in runs]) for c in controls])
    kernel = run_kernel(runs, runs, controls, centre, known.settings)
    nothing = np.zeros((len(runs), seen.size))
    inverse, sums = inverse_of(kernel, known.settings.template_sd)
    return Shape(
        nodes=known.nodes[seen],
        controls=controls,
        covariance=known.covariance[np.ix_(seen, seen)],
        dof=_TAIL,
        settings=known.settings,
        centre=centre,
        runs=tuple(runs),
        inverse=inverse,
        sums=sums,
        solved=nothing,
        shares=np.ones(len(runs)),
        taken=nothing,
    )


def _noise(trial: Trial, nodes: FloatArray, report_sd: float) -> FloatArray:
    """Return the variance of the mean of the reports since the node before."""
    points = np.maximum(np.diff(nodes, prepend=0.0) * (trial.recipe.n_steps or 100), 1.0)
    return np.asarray(report_sd**2 / points, dtype=np.float64)


@dataclass(frozen=True)
class _Sweeps:
    """Simulated sweeps: how many each keeps, and, for any number kept, whether the best is among them and at what regret."""

    kept: IntArray
    found: NDArray[np.bool_]
    regret: FloatArray


def _simulate(
    candidates: Sequence[Trial],
    proxies: Sequence[Trial],
    errors: FloatArray,
    known: Knowledge,
    keeping: Keeping,
    rng: np.random.Generator,
    n_sweeps: int,
) -> _Sweeps:
    n = len(candidates)
    dof = min(1.0 + len(known.runs) + len(proxies), _TAIL)
    truth, prior_mean, prior = _final_values(candidates, proxies, known, rng, n_sweeps)
    aligned = truth + _student(rng, n_sweeps, errors, dof)
    learns = suffice(known.landscape_runs + len(proxies), _dimensions(proxies, known))
    gain = update_gain(errors, prior) if learns else np.zeros((n, n))
    centred = prior_mean - prior_mean.mean(axis=1, keepdims=True) + aligned.mean(axis=1, keepdims=True)
    level = aligned + (centred - aligned) @ gain.T
    margin = math.log1p(keeping.margin)
    p_best = _own_beliefs(level, _student(rng, N_DRAWS, errors - gain @ errors, dof), margin)
    order = np.lexsort((level, -p_best), axis=1)
    kept = keeping.count(np.take_along_axis(p_best, order, axis=1))
    so_far = np.minimum.accumulate(np.take_along_axis(truth, order, axis=1), axis=1)
    regret = so_far - truth.min(axis=1, keepdims=True)
    return _Sweeps(kept, regret <= margin + 1e-12, regret)


def _final_values(
    candidates: Sequence[Trial], proxies: Sequence[Trial], known: Knowledge, rng: np.random.Generator, n_sweeps: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the candidates' final values, what the proxies' make of them, and the covariance that leaves.

    Shapes (n_sweeps, n), (n_sweeps, n) and (n, n).
    """
    n = len(candidates)
    mean, joint = known.landscape.prior([t.point_in(known) for t in (*candidates, *proxies)])
    drawn = mean + rng.standard_normal((n_sweeps, mean.size)) @ _root(joint).T
    own, cross, other = joint[:n, :n], joint[:n, n:], joint[n:, n:]
    if not proxies:
        return drawn, np.broadcast_to(mean, drawn.shape), own
    weights = np.linalg.solve(other, cross.T).T
    expected = mean[:n] + (drawn[:, n:] - mean[n:]) @ weights.T
    left = own - weights @ cross.T
    return drawn[:, :n], expected, 0.5 * (left + left.T)


def _dimensions(proxies: Sequence[Trial], known: Knowledge) -> tuple[str, ...]:
    """Return the settings in which the sweep's own landscape will look for structure: those its finished runs vary."""
    if known.landscape_runs:
        return known.landscape.dimensions
    return dimensions_of([p.point for p in proxies]) if proxies else ()


def _own_beliefs(level: FloatArray, deviations: FloatArray, margin: float) -> FloatArray:
    """Return the P(best) that each sweep would hold, shape (n_sweeps, n)."""
    out = np.empty_like(level)
    for start in range(0, len(level), _AT_ONCE):
        some = level[start : start + _AT_ONCE, None, :] + deviations[None, :, :]
        out[start : start + _AT_ONCE] = np.mean(some <= some.min(axis=2, keepdims=True) + margin, axis=1)
    return out


def _student(rng: np.random.Generator, n: int, covariance: FloatArray, dof: float) -> FloatArray:
    scale = np.sqrt(dof / rng.chisquare(dof, size=(n, 1)))
    return np.asarray(scale * (rng.standard_normal((n, len(covariance))) @ _root(covariance).T), dtype=np.float64)


def _root(covariance: FloatArray) -> FloatArray:
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)


def _costs(candidates: Sequence[Trial], proxies: Sequence[Trial], stop: float, kept: float) -> dict[str, Any]:
    full = sum(c.flops for c in candidates)
    taught = sum(p.flops for p in proxies)
    finishing = kept * (1.0 - stop) * full / len(candidates)
    saving = (1.0 - stop) * full / len(candidates)
    return {
        "flops_proxies": taught,
        "flops_candidates": stop * full,
        "flops_finishing": finishing,
        "flops_full_sweep": full,
        "break_even_trials": math.floor((taught + finishing) / saving) + 1,
    }
