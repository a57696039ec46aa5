"""The papers' parametric surrogate of a normalised loss curve, its fit, and early-align.

    g(t̂) = ((1 + ε1) / (t̂ + ε1))^m + b·(η(t̂) + ε2)^q          (eq. 4)
    ℓ̂(t̂) = g(t̂) / g(1),   b = b_c·τ^b_e,   q = q_c·TPP^q_e     (eq. 5)

The four constants are not published: :func:`fit_surrogate` finds them by alternating grids over (b_c, b_e) and
(q_c, q_e), minimising the unweighted mean over curves of the mean absolute error of ℓ̂ over t̂ ≥ 0.2.

References
----------
arXiv 2509.25087, section 5 and its appendix on the fit.

Deviations
----------
Curves enter as bin means (1 % of the training data) where the paper smooths over 12,288 sequences. The paper's grids are
not published: ours start wide and zoom, and are moved when the optimum lies at an edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hpo.core.curve import Curve
from hpo.core.recipe import Recipe

FloatArray = NDArray[np.float64]
Pair = tuple[float, float]
Sample = tuple[FloatArray, FloatArray, Recipe]
"""t̂ (n,), ℓ(t̂) (n,) and the recipe of one complete curve."""
FIT_FROM = 0.2
_GRID = 13
_ZOOM = 0.55
_ROUNDS = 16


@dataclass(frozen=True)
class Surrogate:
    """The constants of eqs. 4-5; callable on t̂."""

    b_c: float
    b_e: float
    q_c: float
    q_e: float
    m: float = 0.05
    eps1: float = 0.001
    eps2: float = 0.1

    def __call__(self, fraction: ArrayLike, lr_multiplier: ArrayLike, tau: float, tpp: float) -> FloatArray:
        """Return ℓ̂(t̂), which is 1 at t̂ = 1.

        Parameters
        ----------
        fraction, lr_multiplier : array_like, shape (n,)
            t̂ in (0, 1] and η(t̂) scaled to a peak of 1. η(1) is the last element's where t̂ = 1 is included;
            otherwise use :meth:`normalised`, which takes η(1) apart.
        tau, tpp : float
            Timescale and tokens per parameter.
        """
        eta = np.asarray(lr_multiplier, dtype=np.float64)
        return self.normalised(fraction, eta, float(eta[-1]), tau, tpp)

    def normalised(
        self, fraction: ArrayLike, lr_multiplier: ArrayLike, final_multiplier: float, tau: float, tpp: float
    ) -> FloatArray:
        """Return ℓ̂(t̂) = g(t̂)/g(1) with η(1) given as ``final_multiplier``."""
        b, q = self.b_c * tau**self.b_e, self.q_c * tpp**self.q_e
        at_end = 1.0 + b * (final_multiplier + self.eps2) ** q
        power = self._power(np.asarray(fraction, dtype=np.float64))
        drop = b * (np.asarray(lr_multiplier, dtype=np.float64) + self.eps2) ** q
        return np.asarray((power + drop) / at_end, dtype=np.float64)

    def _power(self, fraction: FloatArray) -> FloatArray:
        return np.asarray(((1.0 + self.eps1) / (fraction + self.eps1)) ** self.m)

    def to_dict(self) -> dict[str, float]:
        """Return a JSON-ready dict of the constants."""
        return asdict(self)


@dataclass(frozen=True)
class SurrogateFit:
    """Result of :func:`fit_surrogate`.

    ``status`` is ``"converged"``, ``"at_bound"`` (the data do not fix a constant: it ran to the widest value tried) or
    ``"no_data"`` (no complete curve with τ, TPP and schedule; ``surrogate`` is then None). ``mae`` is the objective.
    """

    surrogate: Surrogate | None
    status: Literal["converged", "at_bound", "no_data"]
    mae: float
    n_curves: int


@dataclass(frozen=True)
class _Samples:
    """Complete curves stacked as (n_curves, n_bins), padded with weight 0."""

    power: FloatArray
    eta: FloatArray
    final_eta: FloatArray
    target: FloatArray
    weight: FloatArray
    tau: FloatArray
    tpp: FloatArray


def early_align(y: ArrayLike, log_shape: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Return log L̂(T), the log of the divisor that best aligns a prefix with the same segment of ℓ̂.

    Log least squares: the weighted mean of log L − log ℓ̂.

    Parameters
    ----------
    y, log_shape : array_like, shape (n,)
        log L and log ℓ̂ at the same t̂.
    weights : array_like, shape (n,), optional
        For instance the points in each bin; equal by default.
    """
    offset = np.asarray(y, dtype=np.float64) - np.asarray(log_shape, dtype=np.float64)
    return float(np.average(offset, weights=None if weights is None else np.asarray(weights, dtype=np.float64)))


def fit_surrogate(curves: Sequence[Curve], start: Surrogate | None = None) -> SurrogateFit:
    """Return the surrogate's constants fitted to complete curves of known τ, TPP and schedule.

    Parameters
    ----------
    curves : sequence of Curve
        Others than complete ones with a known recipe are left out.
    start : Surrogate, optional
        Where the grids are first centred, and the fixed m, ε1, ε2.
    """
    return fit_surrogate_to([_sample(c) for c in curves if usable_for_surrogate(c)], start)


def fit_surrogate_to(samples: Sequence[Sample], start: Surrogate | None = None) -> SurrogateFit:
    """Return the constants fitted to ``(t̂, ℓ, recipe)`` samples; t̂ < 0.2 is ignored. See :func:`fit_surrogate`."""
    begin = start or Surrogate(b_c=0.3, b_e=0.0, q_c=1.0, q_e=0.0)
    data = _stack(samples, begin)
    if data is None:
        return SurrogateFit(None, "no_data", float("nan"), 0)
    best, widths, edge = begin, _start_widths(data), False
    mae = float("inf")
    for _ in range(_ROUNDS):
        best, _, edge_b = _grid_step(data, best, ("b_c", "b_e"), widths[0])
        best, new, edge_q = _grid_step(data, best, ("q_c", "q_e"), widths[1])
        widths = (_zoomed(widths[0], edge_b), _zoomed(widths[1], edge_q))
        edge = edge_b or edge_q
        if not edge and mae - new < 1e-9 and max(*widths[0], *widths[1]) < 1e-3:
            break
        mae = min(mae, new)
    return SurrogateFit(best, "at_bound" if edge else "converged", mae, data.tau.size)


def _zoomed(width: Pair, at_edge: bool) -> Pair:
    """Return the next grid's half-widths: narrower, unless the optimum lay at the edge."""
    return width if at_edge else (width[0] * _ZOOM, width[1] * _ZOOM)


def _start_widths(data: _Samples) -> tuple[Pair, Pair]:
    """Half-widths of the first grids: (log of the constant, exponent); a control that does not vary fixes no exponent."""
    b_e = 1.5 if np.ptp(np.log(data.tau)) > 1e-6 else 0.0
    q_e = 1.0 if np.ptp(np.log(data.tpp)) > 1e-6 else 0.0
    return (3.0, b_e), (2.5, q_e)


def _grid_step(data: _Samples, at: Surrogate, names: tuple[str, str], width: Pair) -> tuple[Surrogate, float, bool]:
    """Return the best surrogate on a grid around ``at`` for one pair, its MAE, and whether it lies at the edge."""
    constant, exponent = names
    control = data.tau if constant == "b_c" else data.tpp
    centre = np.exp(np.mean(np.log(control)))  # exponents turn about the mean control, else the pair is collinear
    level0 = np.log(getattr(at, constant)) + getattr(at, exponent) * np.log(centre)
    levels = level0 + width[0] * np.linspace(-1, 1, _GRID)
    slopes = getattr(at, exponent) + width[1] * np.linspace(-1, 1, _GRID if width[1] else 1)
    level, slope = (grid.ravel() for grid in np.meshgrid(levels, slopes, indexing="ij"))
    values = np.exp(level[:, None] + slope[:, None] * (np.log(control) - np.log(centre)))  # (n_grid, n_curves)
    errors = _errors(data, at, values, varies=constant)
    k = int(np.argmin(errors))
    found = replace(at, **{constant: float(np.exp(level[k] - slope[k] * np.log(centre))), exponent: float(slope[k])})
    edge = level[k] in (levels[0], levels[-1]) or (width[1] > 0 and slope[k] in (slopes[0], slopes[-1]))
    return found, float(errors[k]), bool(edge)


def _errors(data: _Samples, at: Surrogate, values: FloatArray, varies: str) -> FloatArray:
    """Return the objective for each grid row of ``values`` (b or q per curve), the other of b, q as in ``at``."""
    if varies == "b_c":
        q = (at.q_c * data.tpp**at.q_e)[:, None]
        drop, drop_end = (data.eta + at.eps2) ** q, (data.final_eta + at.eps2) ** q[:, 0]
        return _mean_absolute_error(data, values, lambda _row: (drop, drop_end))
    b = at.b_c * data.tau**at.b_e
    log_eta, log_end = np.log(data.eta + at.eps2), np.log(data.final_eta + at.eps2)
    return _mean_absolute_error(
        data,
        np.broadcast_to(b, values.shape),
        lambda row: (np.exp(log_eta * values[row][:, None]), np.exp(log_end * values[row])),
    )


def _mean_absolute_error(data: _Samples, b: FloatArray, lr_term: Callable[[int], tuple[FloatArray, FloatArray]]) -> FloatArray:
    out = np.empty(len(b))
    for row, b_row in enumerate(b):
        drop, drop_end = lr_term(row)
        shape = (data.power + b_row[:, None] * drop) / (1.0 + b_row * drop_end)[:, None]
        out[row] = np.mean(np.sum(np.abs(shape - data.target) * data.weight, axis=1))
    return out


def usable_for_surrogate(curve: Curve) -> bool:
    """True if a curve is complete and its τ, TPP and schedule are known."""
    return curve.is_complete and curve.recipe is not None and _has_controls(curve.recipe)


def surrogate_mean(surrogate: Surrogate, recipe: Recipe | None, fractions: FloatArray) -> FloatArray:
    """Return log ℓ̂ of a run at ``fractions``; zero where its τ, TPP or schedule is unknown."""
    if recipe is None or recipe.tau is None or recipe.tpp is None or not recipe.schedule.is_known:
        return np.zeros_like(fractions)
    warmup = recipe.warmup_fraction or 0.0
    eta = recipe.schedule(fractions, warmup)
    return np.log(surrogate.normalised(fractions, eta, float(recipe.schedule(1.0, warmup)), recipe.tau, recipe.tpp))


def _has_controls(recipe: Recipe) -> bool:
    return recipe.tau is not None and recipe.tpp is not None and recipe.schedule.is_known


def _sample(curve: Curve) -> Sample:
    assert curve.recipe is not None  # noqa: S101 - usable_for_surrogate has checked
    assert curve.final_loss is not None  # noqa: S101 - the same
    return curve.fractions, curve.means / curve.final_loss, curve.recipe


def _stack(samples: Sequence[Sample], at: Surrogate) -> _Samples | None:
    used = [s for s in samples if _has_controls(s[2]) and np.any(s[0] >= FIT_FROM)]
    if not used:
        return None
    width = max(int(np.sum(fractions >= FIT_FROM)) for fractions, _, _ in used)
    power, eta, target, weight = (np.zeros((len(used), width)) for _ in range(4))
    final_eta, tau, tpp = np.zeros(len(used)), np.zeros(len(used)), np.zeros(len(used))
    for i, (fractions, normalised, recipe) in enumerate(used):
        keep, warmup = fractions >= FIT_FROM, recipe.warmup_fraction or 0.0
        t, n = fractions[keep], int(keep.sum())
        power[i, :n], eta[i, :n] = at._power(t), recipe.schedule(t, warmup)
        target[i, :n], weight[i, :n] = normalised[keep], 1.0 / n
        final_eta[i], tau[i], tpp[i] = recipe.schedule(1.0, warmup), recipe.tau, recipe.tpp
    return _Samples(power, eta, final_eta, target, weight, tau, tpp)
