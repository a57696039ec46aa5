"""The shape of a family's curves: what reference runs teach about y(t̂) − y(1), y = log L.

One Bayesian linear model over references and time,

    R_i(t̂) = y_i(t̂) − y_i(1) = m(t̂; x_i) + φ(x_i)ᵀ β(t̂) + r_i(t̂),    r_i ~ N(0, K),    β_k ~ N(0, π_k² K),

in which m is zero or the papers' surrogate, φ holds an intercept and the logs of τ, TPP and N, and K is the covariance over
t̂ of a single run's misfit, pinned to zero at t̂ = 1. Its conjugate form (matrix normal, inverse Wishart) costs one p × p
inverse; the prediction at new controls x₀ is Student-t with covariance (1 + φ₀ᵀ P φ₀)·K, so that a size or τ far from the
references widens the forecast by itself. K is shrunk towards a Brownian motion in −log t̂.

Every node of the grid is a bin centre of :mod:`hpo.core.curve`.

Deviations
----------
A textbook inverse Wishart counts n references whatever the number of coefficients; with few references that makes K too
small. The degrees of freedom used here are n minus the effective number of coefficients, Σ(1 − h_i).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpo.core.curve import BIN_EDGES, Curve
from hpo.core.surrogate import Surrogate

FloatArray = NDArray[np.float64]
NODES: FloatArray = 0.5 * (BIN_EDGES[:-1] + BIN_EDGES[1:])
"""All grid nodes, ascending in t̂, below 1."""


@dataclass(frozen=True)
class ShapeSettings:
    """Priors of the shape model.

    Attributes
    ----------
    brownian_sd : float
        Prior sd of a run's misfit, per unit of √(−log t̂), on the model's scale (log loss).
    covariance_weight : float
        Prior weight of the Brownian covariance, in references; infinite: the references teach no covariance.
    scale_weight : float
        Prior weight of ``brownian_sd`` itself, in references; infinite: it is taken as given.
    template_sd : float
        Prior sd of the family's mean curve about m, in multiples of a run's misfit sd; 0: the mean is m itself.
    effect_sd : tuple of (name, π)
        Prior sd of each control's effect per unit of its log, in multiples of a run's misfit sd. A control missing
        here is not used.
    surrogate_mean : bool
        Let the papers' surrogate, fitted to the references, be the prior mean m.
    outlier_sd : float
        Bins further than this many sd from what all others say (spikes) lose their weight; infinite: none does.

    Notes
    -----
    Degenerate settings give the simpler methods. With ``brownian_sd=0``, infinite weights, no effects, ``template_sd=0`` and
    ``outlier_sd=inf``: the papers' surrogate with early-align (``surrogate_mean=True``). The same with a ``brownian_sd``
    above 0 that dwarfs the noise, and no surrogate: the last value, that is the current best.
    """

    brownian_sd: float = 0.015
    covariance_weight: float = 6.0
    scale_weight: float = 2.0
    template_sd: float = 1000.0
    effect_sd: tuple[tuple[str, float], ...] = (("log_tau", 10.0), ("log_tau_squared", 4.0), ("log_tpp", 6.0), ("log_n", 2.0))
    surrogate_mean: bool = False
    outlier_sd: float = 4.0

    def __post_init__(self) -> None:
        for name in ("brownian_sd", "covariance_weight", "scale_weight", "template_sd", "outlier_sd"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0; found {getattr(self, name)!r}")

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-ready dict."""
        return {**asdict(self), "effect_sd": dict(self.effect_sd)}


@dataclass(frozen=True)
class Shape:
    """The fitted shape for one set of controls.

    Attributes
    ----------
    nodes : ndarray, shape (n_nodes,)
        t̂ ascending, all below 1.
    controls : tuple of str
        Names of the features after the intercept.
    centre : ndarray, shape (n_controls,)
        Mean of each control over the references, subtracted before use.
    coefficients : ndarray, shape (1 + n_controls, n_nodes)
        Posterior mean of β.
    uncertainty : ndarray, shape (1 + n_controls, 1 + n_controls)
        P, the covariance of β across features in units of K.
    covariance : ndarray, shape (n_nodes, n_nodes)
        K.
    dof : float
        Degrees of freedom of the Student-t prediction.
    """

    nodes: FloatArray
    controls: tuple[str, ...]
    centre: FloatArray
    coefficients: FloatArray
    uncertainty: FloatArray
    covariance: FloatArray
    dof: float
    surrogate: Surrogate | None = None
    has_template: bool = True
    outlier_sd: float = 4.0

    def features(self, controls: dict[str, float]) -> FloatArray:
        """Return φ(x₀), shape (1 + n_controls,), of a run's controls by name."""
        row: FloatArray = _features(self.controls, self.centre, [controls])[0]
        row[0] = float(self.has_template)
        return row

    def interpolation(self, fractions: FloatArray) -> FloatArray:
        """Return W, shape (n, n_nodes): values at ``fractions`` are W @ (values at the nodes), 0 at t̂ = 1.

        Linear in log t̂; the fractions must not lie before the first node.
        """
        grid = np.log(np.append(self.nodes, 1.0))
        where = np.minimum(np.log(fractions), 0.0)
        left = np.clip(np.searchsorted(grid, where, side="right") - 1, 0, grid.size - 2)
        share = (where - grid[left]) / (grid[left + 1] - grid[left])
        weights = np.zeros((fractions.size, grid.size))
        rows = np.arange(fractions.size)
        weights[rows, left] = 1.0 - share
        weights[rows, left + 1] = share
        return np.asarray(weights[:, :-1], dtype=np.float64)


def controls_of(curve: Curve) -> dict[str, float]:
    """Return the logs of a run's known controls: ``log_tau``, ``log_tpp``, ``log_n``."""
    recipe = curve.recipe
    if recipe is None:
        return {}
    known = {"log_tau": recipe.tau, "log_tpp": recipe.tpp, "log_n": recipe.n_params}
    return {name: float(np.log(value)) for name, value in known.items() if value is not None}


def common_controls(runs: Sequence[dict[str, float]], settings: ShapeSettings) -> tuple[str, ...]:
    """Return the controls that every run knows and the settings use, in a fixed order."""
    if not runs:
        return ()
    used = dict(settings.effect_sd)
    chosen: list[str] = []
    for name in ("log_tau", "log_tpp", "log_n"):
        if used.get(name) and all(name in run for run in runs):
            chosen.append(name)
            if used.get(name + "_squared"):
                chosen.append(name + "_squared")
    return tuple(chosen)


def residuals_at_nodes(curve: Curve, nodes: FloatArray = NODES) -> FloatArray:
    """Return y(t̂) − y(1) of a complete curve at ``nodes``; NaN before its first point.

    Linear interpolation in log t̂ between bin means.
    """
    y = curve.metric.to_model(curve.means)
    if curve.final_loss is None:
        raise ValueError(f"residuals need a complete curve; run {curve.run_id!r} is not")
    end = float(curve.metric.to_model(curve.final_loss))
    seen = np.maximum(curve.fractions, 1e-9)  # a point at step 0 stays the first
    inside = np.interp(np.log(nodes), np.log(seen), y)
    reach = curve.fractions[curve.fractions > 0][0] * (1 - 1e-9)
    return np.where(nodes >= reach, inside - end, np.nan)


def fit_shape(
    residuals: FloatArray,
    runs: Sequence[dict[str, float]],
    controls: tuple[str, ...],
    settings: ShapeSettings,
    means: FloatArray | None = None,
    surrogate: Surrogate | None = None,
) -> Shape:
    """Return the shape fitted to references.

    Parameters
    ----------
    residuals : ndarray, shape (n_runs, N_BINS)
        Rows of :func:`residuals_at_nodes`; nodes that any run lacks are left out.
    runs : sequence of dict
        Controls of each reference.
    controls : tuple of str
        The controls to use, of :func:`common_controls`.
    means : ndarray, shape (n_runs, N_BINS), optional
        m(t̂; x_i), for instance the log of the surrogate.
    """
    keep = np.all(np.isfinite(residuals), axis=0)
    nodes = NODES[keep]
    target = residuals[:, keep] - (0.0 if means is None else means[:, keep])
    centre = np.array([np.mean([run[_plain(name)] for run in runs]) for name in controls])
    phi = _features(controls, centre, runs)
    phi[:, 0] *= settings.template_sd > 0
    sds = [settings.template_sd or 1.0, *(dict(settings.effect_sd)[name] for name in controls)]
    prior = np.array(sds) ** -2.0
    uncertainty: FloatArray = np.asarray(np.linalg.inv(phi.T @ phi + np.diag(prior)), dtype=np.float64)
    coefficients = uncertainty @ phi.T @ target
    error = target - phi @ coefficients
    n_free = max(len(runs) - float(np.sum((phi @ uncertainty) * phi)), 0.0)
    covariance, dof = _misfit_covariance(error, n_free, nodes, settings)
    return Shape(
        nodes,
        controls,
        centre,
        coefficients,
        uncertainty,
        covariance,
        dof,
        surrogate,
        has_template=settings.template_sd > 0,
        outlier_sd=settings.outlier_sd,
    )


def _misfit_covariance(
    error: FloatArray, n_free: float, nodes: FloatArray, settings: ShapeSettings
) -> tuple[FloatArray, float]:
    """Return K and its degrees of freedom from regression errors, shrunk to a Brownian motion of fitted scale."""
    age = -np.log(nodes)
    judged = nodes >= 0.1
    squares = float(np.sum(np.mean(error[:, judged] ** 2 / age[judged], axis=1))) if judged.any() else 0.0
    scale = _pooled(settings.brownian_sd**2, settings.scale_weight, squares, n_free)
    prior = scale * np.minimum(age[:, None], age[None, :])
    covariance = _pooled(prior, settings.covariance_weight, error.T @ error, n_free)
    return np.asarray(covariance, dtype=np.float64), max(settings.covariance_weight + n_free, 1.0)


def _pooled(prior: Any, weight: float, sum_of_squares: Any, n: float) -> Any:
    """Return (weight · prior + sum of squares) / (weight + n), the prior itself where its weight is infinite."""
    return prior if np.isinf(weight) else (weight * prior + sum_of_squares) / max(weight + n, 1e-12)


def _plain(name: str) -> str:
    return name.removesuffix("_squared")


def _features(controls: tuple[str, ...], centre: FloatArray, runs: Sequence[dict[str, float]]) -> FloatArray:
    columns = [np.ones(len(runs))]
    for name, middle in zip(controls, centre, strict=True):
        offset = np.array([run[_plain(name)] for run in runs]) - middle
        columns.append(offset**2 if name.endswith("_squared") else offset)
    return np.column_stack(columns)
