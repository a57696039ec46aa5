"""The shape of a family's curves: what reference runs teach about y(t̂) − y(1), y = log L.

One Gaussian process over runs and time,

    R_i(t̂) = y_i(t̂) − y_i(1) = m(t̂; x_i) + s(t̂; x_i) + r_i(t̂),    s ~ GP(0, k(x, x')·K),    r_i ~ GP(0, K),

in which m is a mean curve known beforehand (zero, the papers' surrogate, or the response mean), K the covariance over t̂ of one
run's own misfit, pinned to zero at t̂ = 1, and k a kernel over runs in multiples of it:

    k(x, x') = template² + Σ_c effect_c² x_c x'_c + likeness(x, x')·(schedule² + share² Σ_c effect_c² x_c x'_c)

with x the centred logs of τ (and its square; or of the decay rate, where references cannot tell τ's effect from that of their
lengths), TPP and N (:func:`size_coordinate`), and likeness = exp(−|η − η'|²/2ℓ²) of the
two schedules' values. So a run borrows most from runs of its own schedule, something from all, and a size or τ far from the
references widens its forecast by itself. Since the covariance is a product, references cost one n × n inverse. K is shrunk
towards a Brownian motion in −log t̂ and an amplitude along the family's curve; predictions are Student-t.

Effects have a prior size of their own, not one relative to the misfit: runs that scatter widely for reasons unknown must not
be explained by τ. So where the fitted misfit is above its prior, effect and schedule sds shrink by as much. Where a
schedule is unknown, τ is not used. How K is fitted: :mod:`hpo.core.misfit`; schedules of one label share it, since few runs of
one schedule say little of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hpo.core.coordinates import Coordinates, coordinates_of
from hpo.core.curve import BIN_EDGES, Curve
from hpo.core.leave_out import LeaveOut
from hpo.core.noise import FamilyNoise
from hpo.core.recipe import Recipe
from hpo.core.remembered import Remembered

FloatArray = NDArray[np.float64]
NODES: FloatArray = 0.5 * (BIN_EDGES[:-1] + BIN_EDGES[1:])
"""All grid nodes, ascending in t̂, below 1: the bin centres."""
LARGEST = 1e5
"""Of a prior sd: more would lose all digits of what it is added to."""
MAX_SHARED = 6
NEGLIGIBLE = 1e-6
"""Trials of a sweep share at most so many deviations of the shape, each of at least this variance in units of K; what they
leave counts as each trial's own."""
REMEMBERED_BINS = 16
REMEMBERED_RUNS = 128
REMEMBERED_GROUPS = 16
CONTROLS = ("log_tau", "log_lr", "log_tpp", "log_length", "log_n")
INSTEAD = {"log_lr": "log_tau", "log_length": "log_tpp"}
"""What stands for another control that is not known, in runs whose schedule is but a name: the learning rate for τ, the number
of steps for TPP. (Runs whose schedule is known have a response mean, or are a study's: see :mod:`hpo.core.amplitude`.)"""


@dataclass(frozen=True)
class ShapeSettings:
    """Priors of the shape model.

    Attributes
    ----------
    brownian_sd : float
        Prior sd of a run's misfit, per unit of √(−log t̂), of log loss (:mod:`hpo.core.unit`).
    covariance_weight : float
        Prior weight of the Brownian covariance, in references; infinite: the references teach no covariance.
    scale_weight : float
        Prior weight of ``brownian_sd`` itself, in references; infinite: it is taken as given.
    template_sd : float
        Prior sd of the common curve about m, in multiples of a run's misfit sd; 0: the mean is m itself.
    effect_sd : tuple of (name, sd)
        Prior sd of each control's effect per unit of its log, in the same multiples as long as the misfit is as its prior
        says, less where it is larger. A control missing here is not used.
    schedule_sd, schedule_effects : float
        Prior sd of a schedule's own curve about the common one; and of its own effects, as a share of the common ones'.
    schedule_length : float
        Root mean square difference of two schedules' values over which they are alike.
    mean : {"response", "surrogate", "none"}
        m: the response mean where it can be fitted, the papers' surrogate, or none.
    tail_dof : float
        Degrees of freedom of the law of the references' own misfits: a run that follows the family badly counts less in K.
        Infinite: all count alike.
    scale_dof : float
        Degrees of freedom of the law of a run's own scale: the fewer, the more its interval follows how far it has strayed so
        far (:func:`hpo.core.standing.own_scale`). Infinite: all runs have the references' scale.
    amplitude_sd : float
        Prior scale of how much runs differ in how far they go along the family's curve, as a share of it
        (:mod:`hpo.core.amplitude`); 0: only as far as K is learned.
    outlier_sd : float
        Bins further than this many sd from what all others say (spikes) lose their weight; infinite: none does.

    Notes
    -----
    Degenerate settings give the simpler methods. With ``brownian_sd=0``, infinite weights, no effects, ``template_sd=0``,
    ``schedule_sd=0``, ``outlier_sd=inf`` and the surrogate: the papers' surrogate with early-align. The same with a
    ``brownian_sd`` above 0 that dwarfs the noise, and no mean: the last value, that is the current best.
    """

    brownian_sd: float = 0.01
    covariance_weight: float = 12.0
    scale_weight: float = 1.0
    template_sd: float = 1000.0
    effect_sd: tuple[tuple[str, float], ...] = (
        ("log_tau", 15.0),
        ("log_tau_squared", 6.0),
        ("log_tpp", 3.0),
        ("log_n", 1.0),
        ("log_rate", 3.0),
        ("log_lr", 3.0),
        ("log_length", 3.0),
    )
    schedule_sd: float = 2.0
    schedule_effects: float = 1.0
    schedule_length: float = 0.1
    mean: str = "response"
    tail_dof: float = 4.0
    scale_dof: float = 1.0
    amplitude_sd: float = 0.03
    outlier_sd: float = 4.0

    def __post_init__(self) -> None:
        for name in ("covariance_weight", "scale_weight", "outlier_sd"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0; found {getattr(self, name)!r}")
        for name in ("brownian_sd", "template_sd", "schedule_sd", "schedule_effects", "amplitude_sd"):
            if not 0 <= getattr(self, name) <= LARGEST:
                raise ValueError(f"{name} must be in [0, {LARGEST:g}]; found {getattr(self, name)!r}")
        if not 1 / LARGEST <= self.schedule_length <= LARGEST:
            raise ValueError(f"schedule_length must be in [{1 / LARGEST:g}, {LARGEST:g}]; found {self.schedule_length!r}")
        for name in ("tail_dof", "scale_dof"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0; found {getattr(self, name)!r}")
        if self.mean not in ("response", "surrogate", "none"):
            raise ValueError(f"mean must be response, surrogate or none; found {self.mean!r}")

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-ready dict."""
        return {**asdict(self), "effect_sd": dict(self.effect_sd)}


def common_controls(runs: Sequence[Coordinates], settings: ShapeSettings) -> tuple[str, ...]:
    """Return the controls that every run knows and the settings use, in a fixed order.

    Not τ where a schedule is unknown: its effect is one under a schedule, and would only explain the schedules' differences.
    """
    used = dict(settings.effect_sd)
    scheduled = all(run.is_scheduled for run in runs)
    named = scheduled and any(run.label for run in runs)
    known = [name for name in CONTROLS if used.get(name) and all(name in run.controls for run in runs)]
    known = [name for name in known if name not in INSTEAD or (named and INSTEAD[name] not in known)]
    return tuple(name for name in known if scheduled or name != "log_tau")


def residuals_at_nodes(curve: Curve, nodes: FloatArray = NODES) -> FloatArray:
    """Return y(t̂) − y(1) of a complete curve at ``nodes``; NaN before its first point.

    Linear interpolation in log t̂ between bin means.
    """
    seen = np.log(np.maximum(curve.fractions, 1e-9))  # a point at step 0 stays the first
    y = np.asarray(curve.metric.to_model(curve.means), dtype=np.float64)
    if curve.final_loss is None:
        raise ValueError(f"residuals need a complete curve; run {curve.run_id!r} is not")
    end = float(curve.metric.to_model(curve.final_loss))
    inside = np.interp(np.log(nodes), seen, y)
    reach = curve.fractions[curve.fractions > 0][0] * (1 - 1e-9)
    return np.where(nodes >= reach, inside - end, np.nan)


@dataclass(frozen=True)
class AtBins:
    """A shape at a run's n bins.

    Attributes
    ----------
    weights : ndarray, shape (n, n_nodes)
        Interpolation from the nodes.
    covariance : ndarray, shape (n, n)
        K.
    noise : ndarray, shape (n, n), or None
        Of a reference's bins, in units of its variance of a report.
    """

    weights: FloatArray
    covariance: FloatArray
    noise: FloatArray | None


@dataclass(frozen=True)
class Shape:
    """The fitted shape for one set of controls.

    Attributes
    ----------
    nodes : ndarray, shape (n_nodes,)
        t̂ ascending, all below 1.
    controls : tuple of str
        What runs are told apart by, besides their schedule.
    covariance : ndarray, shape (n_nodes, n_nodes)
        K.
    dof : float
        Degrees of freedom of the Student-t prediction.
    noise : FamilyNoise or None
        Of the references, not in K; None where there is none or it is not known.
    """

    nodes: FloatArray
    controls: tuple[str, ...]
    covariance: FloatArray
    dof: float
    settings: ShapeSettings
    centre: FloatArray
    runs: tuple[Coordinates, ...] = field(repr=False)
    inverse: FloatArray = field(repr=False)
    sums: FloatArray = field(repr=False)
    solved: FloatArray = field(repr=False)
    shares: FloatArray = field(repr=False)
    taken: FloatArray = field(repr=False)
    noise: FamilyNoise | None = field(default=None, repr=False)
    inflation: float = 1.0

    def predict(self, runs: Sequence[Coordinates]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return what is expected of new runs, m left out.

        Returns
        -------
        mean : ndarray, shape (n_runs, n_nodes)
            E s(t̂; x).
        loadings : ndarray, shape (n_runs, p)
            F with F Fᵀ ≈ covariance of s across the runs, in units of K; p ≤ :data:`MAX_SHARED`.
        own : ndarray, shape (n_runs,)
            What F leaves of each run's variance, plus 1 for its own misfit.
        """
        mean, loadings, own, _ = self._predict(runs)
        return mean, loadings, own

    def _predict(self, runs: Sequence[Coordinates]) -> _Expected:
        new = _stacked(runs, self.controls, self.centre)
        cross = _kernel(*new, *self._known, self.controls, self.settings)
        template = _template_weight(self.sums, self.settings.template_sd)
        borrowed = cross @ self.inverse + template * self.sums
        left = template * (1.0 - cross @ self.sums)  # of the template's variance, with each run
        across = self.inflation * (_kernel(*new, *new, self.controls, self.settings) + left[:, None] - borrowed @ cross.T)
        across -= (self.inflation - 1.0) * borrowed @ borrowed.T  # the references' noise counts by itself
        values, vectors = np.linalg.eigh(0.5 * (across + across.T))
        n_shared = min(max(int(np.sum(values > NEGLIGIBLE)), 1), MAX_SHARED)
        leading = slice(max(values.size - n_shared, 0), None)
        loadings = vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0.0))
        alone = np.maximum(np.diag(across) - np.sum(loadings**2, axis=1), 0.0)
        mean = cross @ self.solved + self.settings.template_sd**2 * self.solved.sum(axis=0)
        found = (mean, loadings, 1.0 + alone, borrowed)
        mean, loadings, own, weights = (np.asarray(x, dtype=np.float64) for x in found)
        return mean, loadings, own, weights

    def predict_all(self, recipes: Sequence[Recipe | None]) -> _Expected:
        """Return :meth:`predict` and H, shape (n_runs, n_references), the weights of the references in the mean.

        Remembered, as running trials are asked about again and again, by themselves and among the same rivals.
        """
        kept = self._alone if len(recipes) == 1 else self._among
        return kept.get(tuple(recipes), lambda: self._predict([coordinates_of(recipe) for recipe in recipes]))

    @cached_property
    def told(self) -> Remembered[int, Any]:
        """What curves said by themselves, by the identity of the curve, which is kept beside it (:mod:`hpo.core.prefix`)."""
        return Remembered(REMEMBERED_RUNS)

    @cached_property
    def _alone(self) -> Remembered[tuple[Recipe | None, ...], _Expected]:
        return Remembered()

    @cached_property
    def _among(self) -> Remembered[tuple[Recipe | None, ...], _Expected]:
        return Remembered(REMEMBERED_GROUPS)

    def calibration(self, fraction: float) -> float:
        """Return by what to multiply the sd of forecasts made at ``fraction``: how far off the references' own would have been.

        Each reference is forecast from the others, then each group of one size and horizon from the other groups
        (:mod:`hpo.core.leave_out`). The scale is the root mean square of the errors over their predicted sd, the larger of the
        two, drawn towards 1.
        """
        n_seen = int(np.sum(self.nodes <= fraction))
        if n_seen not in self._calibrations:
            self._calibrations[n_seen] = self._calibrate(n_seen)
        return self._calibrations[n_seen]

    @cached_property
    def _calibrations(self) -> dict[int, float]:
        return {}

    def _calibrate(self, n_seen: int) -> float:
        """Return the calibration of forecasts that have seen the first nodes."""
        if n_seen == 0 or np.isinf(self.settings.covariance_weight):
            return 1.0
        return float(np.sqrt(max(self._leave_out.scales(self._ways, n_seen), default=1.0)))

    @cached_property
    def _ways(self) -> list[list[list[int]]]:
        """The partitions of the references that are left out part by part."""
        alone = [[i] for i in range(len(self.runs))]
        sizes = [tuple(round(run.controls.get(c, 0.0), 3) for c in ("log_tpp", "log_n")) for run in self.runs]
        groups = [[i for i, size in enumerate(sizes) if size == distinct] for distinct in sorted(set(sizes))]
        return [parts for parts in (alone, groups) if len(parts) > 1]

    @cached_property
    def _leave_out(self) -> LeaveOut:
        noise = self.noise
        bins = self.covariance if noise is None else self.covariance + noise.point * noise.bins
        end = 0.0 if noise is None else noise.point * noise.end
        return LeaveOut.of(bins, self.inverse, self.shares, self.taken, self.solved, end)

    def at(self, fractions: FloatArray) -> AtBins:
        """Return the interpolation, K and the references' noise at ``fractions``, remembered: runs report on one grid."""
        return self._at.get(fractions.tobytes(), lambda: self._at_anew(fractions))

    def _at_anew(self, fractions: FloatArray) -> AtBins:
        weights = self.interpolation(fractions)
        noise = None if self.noise is None else weights @ self.noise.bins @ weights.T
        return AtBins(weights, weights @ self.covariance @ weights.T, noise)

    @cached_property
    def _at(self) -> Remembered[bytes, AtBins]:
        return Remembered(REMEMBERED_BINS)

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

    @cached_property
    def _known(self) -> tuple[FloatArray, FloatArray]:
        return _stacked(self.runs, self.controls, self.centre)


def run_kernel(
    a: Sequence[Coordinates], b: Sequence[Coordinates], controls: tuple[str, ...], centre: FloatArray, settings: ShapeSettings
) -> FloatArray:
    """Return k₀(x, x') = k(x, x') − template², shape (len(a), len(b)); see the module's equation."""
    (u, eta_u), (v, eta_v) = (_stacked(side, controls, centre) for side in (a, b))
    return _kernel(u, eta_u, v, eta_v, controls, settings)


def inverse_of(kernel: FloatArray, template_sd: float) -> tuple[FloatArray, FloatArray]:
    """Return (k + 1)⁻¹, shape (n, n), and (k₀ + 1)⁻¹1, shape (n,), for k₀ of :func:`run_kernel`.

    By Sherman and Morrison: inverted as a whole, a template of 1000 misfits would cost six digits of all differences.
    """
    alone = np.linalg.inv(kernel + np.eye(len(kernel)))
    sums = np.asarray(alone.sum(axis=1), dtype=np.float64)
    return np.asarray(alone - _template_weight(sums, template_sd) * np.outer(sums, sums), dtype=np.float64), sums


def _template_weight(sums: FloatArray, template_sd: float) -> float:
    """Return T/(1 + T 1ᵀ(k₀ + 1)⁻¹1), T the template's variance."""
    variance = template_sd**2
    return float(variance / (1.0 + variance * sums.sum()))


def _stacked(runs: Sequence[Coordinates], controls: tuple[str, ...], centre: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return centred controls, shape (n, n_controls), and schedules' values, shape (n, 20)."""
    values = np.array([[run.controls[c] for c in controls] for run in runs], dtype=np.float64).reshape(len(runs), -1)
    return values - centre, np.stack([run.place for run in runs])


def _kernel(
    u: FloatArray,
    eta_u: FloatArray,
    v: FloatArray,
    eta_v: FloatArray,
    controls: tuple[str, ...],
    settings: ShapeSettings,
) -> FloatArray:
    sds = dict(settings.effect_sd)
    effects = (u * np.array([sds.get(c, 0.0) for c in controls]) ** 2) @ v.T
    if "log_tau" in controls:
        k = controls.index("log_tau")
        effects = effects + sds.get("log_tau_squared", 0.0) ** 2 * np.outer(u[:, k], v[:, k]) ** 2
    own = settings.schedule_sd**2 + settings.schedule_effects**2 * effects
    apart = np.mean((eta_u[:, None, :] - eta_v[None, :, :]) ** 2, axis=2)
    likeness = np.exp(-0.5 * apart / settings.schedule_length**2)
    return np.asarray(effects + own * likeness, dtype=np.float64)


_Expected = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
