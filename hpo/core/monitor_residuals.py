"""Residuals of a watched run: how far it is from its template, bin by bin, and how noisy that is while it is healthy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hpo.core.bin_noise import CLIP_SD, NOISE_FLOOR, noise_about, noise_dof, noise_per_point
from hpo.core.change import likeliest_change
from hpo.core.common_noise import CommonNoise
from hpo.core.curve import BIN_EDGES, END_WINDOW_POINTS, Curve, CurveStream
from hpo.core.recipe import Recipe
from hpo.core.template import PointNoise, Template
from hpo.core.template_noise import NoisyTemplate, noisy
from hpo.core.whitened import form_values

FloatArray = NDArray[np.float64]
MIN_BINS = 7
START, START_OF_NOISY = 0.03, 0.015
"""t̂ from which a run is judged; earlier where its noise hides what runs differ in there."""
WARMUPS_SKIPPED = 1.5
NOT_SHARED = 0.5
"""Part of the common noise that is never trusted to be gone: a healthy run's misfit of shape shows once the noise is small."""
MOST_DOF = 1e6
_LEAST = 1e-16
REFERENCES_DOF = 20.0
"""What the references' own noise says of the run's, in degrees of freedom."""
SHARE_SD = 0.2
DENIED = 3.0
PACE = 0.9
"""Share of the mean distance of reports within which the next one does not come."""
MIN_SCATTERED = 4
SCATTER_DOF = 1.0
"""Degrees of freedom of one point's scatter about its bin."""
AGREE, AGREE_SD = math.log(2.0), 2.5
"""Scatter within bins and between them agree within this in the log of a variance, or so many sd of what the bins say."""
OF_BOTH = 2.0
"""Noise of a residual over that of a run, where the template's is not told from its shape."""
HIDES_UNTIL = 40
"""Bins until which a change may hide in the noise that it makes."""
HIDDEN = 0.25
"""Variance without the likeliest change over that with it, at most, for the noise to be measured without it."""
CHOSEN = 2.0
"""Degrees of freedom that a change takes: its size and its onset."""
COVERED = 0.95
MIN_COVERED = 8


def first_judged(template: Template, recipe: Recipe | None, split: NoisyTemplate | None) -> float:
    """Return t̂ from which a run is held against its template (``split``: see :func:`~hpo.core.template_noise.noisy`)."""
    warmup = (recipe.warmup_fraction or 0.0) if recipe is not None else 0.0
    return max(START if split is None else START_OF_NOISY, WARMUPS_SKIPPED * warmup, float(template.nodes[0]))


class Shared:
    """Gathers the common noise at the steps that a run reports, in the run's own bins."""

    def __init__(self, common: CommonNoise, horizon: float | None) -> None:
        self.common = common
        self._noise, self._known = CurveStream(horizon=horizon), CurveStream(horizon=horizon)

    def add(self, step: float) -> None:
        """Take the step of a finite report."""
        value = self.common.at(step)
        self._noise.add(step, math.exp(value or 0.0))
        self._known.add(step, 1.0 if value is None else 2.0)

    def bins(self) -> tuple[FloatArray, FloatArray]:
        """Return per filled bin the common noise of its mean, on the log scale, and the share of its steps that have one."""
        return np.log(self._noise.snapshot().means), self._known.snapshot().means - 1.0


@dataclass(frozen=True)
class Seen:
    """What the test sees: residuals, wandering and noise of healthy ones, the noise of a full bin and how well it is known.

    ``of_template`` is the covariance of what is left of the references' noise, None where nothing is known of it; ``n_window``
    the reports in a full bin; ``is_freed`` True if noise that the run shares with its references was taken off.
    """

    fractions: FloatArray
    mean: FloatArray
    d: FloatArray
    slow: FloatArray
    noise: FloatArray
    window_sd: float
    dof: float
    of_template: FloatArray | None = None
    n_window: float = 1.0
    is_freed: bool = False

    @classmethod
    def of(
        cls,
        curve: Curve,
        template: Template,
        start: float,
        shared: Shared | None = None,
        split: NoisyTemplate | None = None,
    ) -> Seen:
        """Return the residuals of a curve from ``start`` on, freed of the noise it shares with its references.

        ``split`` is the template, where its noise is told from its shape.
        """
        y = curve.metric.to_model(curve.means)
        use = np.isfinite(y) & (curve.fractions >= start) & (curve.fractions <= 1.0)
        if np.sum(curve.counts[use] >= 3) < MIN_SCATTERED and not _last_is_full(curve):
            use[-1:] = False  # how noisy it is while it fills is unknown
        fractions, counts = curve.fractions[use], curve.counts[use]
        mean, slow = template.at(fractions) if fractions.size else (np.zeros(0), np.zeros((0, 0)))
        if fractions.size < MIN_BINS:
            return cls(fractions, mean, y[use] - mean, slow, np.zeros(mean.size), math.nan, math.nan)
        d, of_template = y[use] - mean, None
        told = None if shared is None else _less_common(d, counts, shared, use)
        if told is None and split is not None:
            mean, of_template = split.seen_by(y[use], counts, fractions)
            d = y[use] - mean
        prior = template.noise if split is not None or template.noise is None else template.noise.times(OF_BOTH)
        off, measured, known, dof = told or _own_noise(curve, use, d, prior)
        if told is None and fractions.size < HIDES_UNTIL:
            wandering = slow if of_template is None else slow + of_template
            measured, dof = _revealed(curve, use, d, prior, fractions, wandering, measured, dof)
        measured[-1] = max(measured[-1], _partial_noise(curve, use))
        noise = measured + known + NOISE_FLOOR**2
        dof = min(dof * float(np.median(noise / measured)) ** 2, MOST_DOF)  # the rest is not estimated here (Satterthwaite)
        window_sd, n_window = float(np.sqrt(np.median(noise))), float(np.median(counts))
        return cls(fractions, mean, d - off, slow, noise, window_sd, dof, of_template, n_window, told is not None)

    def covariance(self, wandering: float = 1.0) -> FloatArray:
        """Return the covariance of healthy residuals whose wandering is c² = ``wandering`` times what the template states."""
        return wandering * self.slow + self.unexplained

    @property
    def end_sd(self) -> float:
        """Sd of the noise of the final loss: of the last 1 % of training, or of the five reports that it takes at least."""
        return self.window_sd * math.sqrt(min(self.n_window / END_WINDOW_POINTS, 1.0))

    @property
    def unexplained(self) -> FloatArray:
        """Covariance of noise, the references' included."""
        own = np.diag(self.noise)
        return own if self.of_template is None else own + self.of_template


@dataclass(frozen=True, eq=False)
class Held:
    """What a run is held against: a template, split where its noise is told from its shape, from ``start`` on.

    ``shared`` gathers the noise that the run shares with the template's references, None where nothing is known of it.
    """

    template: Template
    split: NoisyTemplate | None
    start: float
    shared: Shared | None

    @classmethod
    def of(cls, template: Template, recipe: Recipe | None, horizon: float | None, common: CommonNoise | None) -> Held:
        """Return what a run with this recipe and horizon is held against."""
        split = noisy(template)
        shared = None if common is None else Shared(common, horizon)
        return cls(template, split, first_judged(template, recipe, split), shared)

    def add(self, step: float) -> None:
        """Take the step of a finite report."""
        if self.shared is not None:
            self.shared.add(step)

    def expected(self, fraction: float) -> float:
        """Return the healthy log ℓ at t̂, up to the run's level; NaN before the run is judged."""
        if not self.start <= fraction <= 1.0:
            return math.nan
        nodes = self.template.nodes
        return float(np.interp(math.log(fraction), np.log(np.append(nodes, 1.0)), np.append(self.template.mean, 0.0)))

    def seen(self, curve: Curve) -> Seen:
        """Return what the test sees of the run."""
        return Seen.of(curve, self.template, self.start, self.shared, self.split)


def _own_noise(
    curve: Curve, use: NDArray[np.bool_], d: FloatArray, prior: PointNoise | None
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Return what :func:`_less_common` does where nothing is common: the variance of each bin is measured on the run.

    Where the scatter within bins agrees with that between them, points are independent and both are used: the scatter within
    is known almost exactly. Else (noise shared with the reference, or correlated in time) only that between bins counts.
    """
    counts = curve.counts[use]
    between, dof = max(noise_per_point(d, counts), _LEAST), noise_dof(d.size)
    several = counts >= 3
    if several.sum() >= MIN_SCATTERED:
        scatter = curve.variances[use] * curve.metric.slope(curve.means[use]) ** 2 * counts / np.maximum(counts - 1.0, 1.0)
        within = float(np.median(scatter[several]) * _median_to_mean(float(np.median(counts[several]))))
        if abs(math.log(between / max(within, _LEAST))) < max(AGREE, AGREE_SD * math.sqrt(2.0 / dof)):
            between = max(within, 0.5 * (between + within))
            dof += SCATTER_DOF * float(np.sum(counts[several] - 1.0))
    if prior is not None:
        between, dof = prior.with_seen(between, dof)
    return np.zeros(d.size), between / counts, np.zeros(d.size), dof


def _revealed(
    curve: Curve,
    use: NDArray[np.bool_],
    d: FloatArray,
    prior: PointNoise | None,
    fractions: FloatArray,
    wandering: FloatArray,
    measured: FloatArray,
    dof: float,
) -> tuple[FloatArray, float]:
    """Return the noise without the likeliest change, and its degrees of freedom, where that change makes up most of it.

    Among few bins a step is most of what bins differ by, and hides itself.
    """
    change = likeliest_change(d, wandering, measured + NOISE_FLOOR**2, fractions, dof)
    if change is None:
        return measured, dof
    form = form_values(change.form, fractions, np.array([change.onset]))[:, 0]
    _, without, _, left = _own_noise(curve, use, d - change.size * form, prior)
    return (without, max(left - CHOSEN, 1.0)) if without[0] < HIDDEN * measured[0] else (measured, dof)


def _less_common(
    d: FloatArray, counts: FloatArray, shared: Shared, use: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray, FloatArray, float] | None:
    """Return the common noise in d, the variance measured on what is left, what is known beside it, and degrees of freedom.

    None where the run does not show that noise: then it did not see the same batches, and nothing is taken off.
    """
    noise, covered = (one[use] for one in shared.bins())
    full, references = covered >= COVERED, shared.common.own_variance
    if full.sum() < MIN_COVERED:
        return None
    share = _share_of(noise[full], d[full], counts[full])
    if share == 0.0:
        return None
    left = d - share * noise
    own = max(noise_per_point(left[full], counts[full]), _LEAST)
    dof = noise_dof(int(full.sum()))
    if references is not None:
        own, dof = (dof * own + REFERENCES_DOF * references) / (dof + REFERENCES_DOF), dof + REFERENCES_DOF
    of_common = share**2 * shared.common.variance
    known = (1.0 - (1.0 - NOT_SHARED**2) * covered) * of_common / counts
    return share * noise, own / counts, known, dof


def _share_of(noise: FloatArray, d: FloatArray, counts: FloatArray) -> float:
    """Return the share of the common noise that d shows: 1 ± 0.2 before it is seen, 0 where what is seen denies that.

    A regression of fast parts with outliers clipped.
    """
    x, _ = noise_about(noise, counts)
    y, _ = noise_about(d, counts)
    share, weights = 1.0, np.ones(x.size)
    for _ in range(3):
        off = np.abs(y - share * x)
        limit = CLIP_SD * float(np.median(off)) / 0.6745
        weights = np.minimum(1.0, limit / np.maximum(off, 1e-300))
        share = float((weights * x) @ y / max(float((weights * x) @ x), 1e-300))
    error = float(weights @ (y - share * x) ** 2) / max(x.size - 2, 1) / max(float(x @ x), 1e-300)
    if abs(share - 1.0) > DENIED * math.sqrt(error + SHARE_SD**2):
        return 0.0
    return (share / error + 1.0 / SHARE_SD**2) / (1.0 / error + 1.0 / SHARE_SD**2) if error > 0 else share


def _median_to_mean(count: float) -> float:
    """Return mean over median of a variance estimated from ``count`` points (Wilson-Hilferty)."""
    return float((1.0 - 2.0 / (9.0 * (count - 1.0))) ** -3)


def _last_is_full(curve: Curve) -> bool:
    """Return True if the next report, at the run's own pace, falls into another bin."""
    if curve.fractions.size == 0 or curve.fraction_seen is None:
        return True
    end = float(BIN_EDGES[min(int(np.searchsorted(BIN_EDGES, curve.fractions[-1])), BIN_EDGES.size - 1)])
    return curve.fraction_seen + PACE * curve.mean_gap > end


def _partial_noise(curve: Curve, use: NDArray[np.bool_]) -> float:
    """Return the variance of a last bin that is still filling, 0 for a full one.

    Where noise cancels between run and reference it does so for full bins only.
    """
    counts, several = curve.counts[use], curve.counts[use] >= 3
    if several.sum() < 2 or _last_is_full(curve):
        return 0.0
    within = (curve.variances[use] * curve.metric.slope(curve.means[use]) ** 2)[several]
    return float(np.median(within)) / float(counts[-1])
