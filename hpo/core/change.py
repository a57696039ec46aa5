"""When did a run leave its curve? A sequential likelihood-ratio test for a change in residuals.

A healthy run's residuals d = y − s (s the family's curve, y = log L) are θ + slow(t̂) + noise: θ the run's own level, unknown;
``slow`` the wandering of healthy runs (:mod:`hpo.core.template`); noise white, with a variance per point that the run itself
shows. A change adds a *form* (step, drift, transient, spike) of unknown size from an unknown onset on. With V = LLᵀ the
covariance of slow and noise, and both sides freed of the level, the size of a form x is known through

    z = (L⁻¹x · L⁻¹d) / |L⁻¹x|  ~  N(0, 1) while healthy,

and the test takes the largest |z| over forms and onsets at every report. No window is set aside for alignment: the level is
estimated along with the change, so that a change early in training is found too, if something healthy came before it.

The alarm line |z| > :data:`ALARM_AT` lies above the Gaussian one for its false-alarm rate, because healthy residuals have
heavier tails; ``bench.monitor`` measures the rate that it gives on recorded runs.

References
----------
Lai, doi 10.1111/j.2517-6161.1995.tb02052.x (generalised likelihood ratio tests for changes in dynamical systems).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ALARM_AT = {"step": 5.4, "drift": 5.4, "transient": 5.4, "spike": 6.0}
"""|z| above which a form is an alarm; isolated outliers are the commonest harmless event, hence the higher line."""
BINS_AFTER = {"spike": 1, "step": 2, "drift": 3, "transient": 4}
"""Bins that must follow an onset, itself included, so that a single outlier is a spike and nothing else."""
MIN_BEFORE = 10
"""Bins needed before an onset, to know what healthy was."""
NOISE_FLOOR = 3e-4
"""Sd of a bin about its neighbours that no curve goes below, on the model's scale: 0.03 %."""
RECOVERY = 0.02
"""Time constant of a transient, in t̂."""
HALF_WINDOW = 4
CLIP_SD = 2.5
DOF_PER_BIN = 0.75


@dataclass(frozen=True)
class Change:
    """The likeliest change.

    Attributes
    ----------
    form : str
        "step", "drift", "transient" or "spike".
    onset : int
        Index of the first changed bin.
    z : float
        Signed test statistic; positive is worse.
    size, size_sd : float
        Size of the form on the scale of d; of a drift, at the last bin.
    level, level_sd : float
        θ with the change accounted for.
    """

    form: str
    onset: int
    z: float
    size: float
    size_sd: float
    level: float
    level_sd: float

    @property
    def is_alarm(self) -> bool:
        """True if the statistic is beyond its form's line."""
        return abs(self.z) > ALARM_AT[self.form]

    @property
    def lasts(self) -> bool:
        """True if the change stays until the end unless something is done."""
        return self.form in ("step", "drift")


def noise_per_point(d: FloatArray, counts: FloatArray) -> float:
    """Return the variance of one point of d about its surroundings; clipped, so that steps and spikes hardly raise it.

    Bins are compared with the mean of nine around them (fewer than eleven bins: with their two neighbours).

    Parameters
    ----------
    d, counts : ndarray, shape (n,), n ≥ 5
        Bin means and the points in each.
    """
    off, expected = noise_about(d, counts)
    relative = np.abs(off) / np.sqrt(expected)
    clip = CLIP_SD * float(np.median(relative)) / 0.6745
    return float(np.mean(np.minimum(relative, clip) ** 2))


def noise_about(d: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return each inner bin less the mean of those around it, and the variance that has per variance of a point."""
    half = HALF_WINDOW if d.size >= 2 * HALF_WINDOW + 3 else 1
    width = 2 * half + 1
    ones = np.ones(width)
    off = d[half:-half] - np.convolve(d, ones / width, "valid")
    shares = 1.0 / counts
    expected = shares[half:-half] * (1.0 - 2.0 / width) + np.convolve(shares, ones, "valid") / width**2
    return off, expected


def tail_corrected(z: FloatArray, dof: float) -> FloatArray:
    """Return |z| as a normal deviate of equal tail, the noise being known to ``dof`` degrees of freedom (approximately).

    References
    ----------
    Wallace, doi 10.1214/aoms/1177706361.
    """
    return np.asarray(np.sqrt(dof * np.log1p(z**2 / dof)), dtype=np.float64)


def form_values(form: str, fractions: FloatArray, onsets: IntArray) -> FloatArray:
    """Return each onset's form on the bins, shape (n, n_onsets): 0 before the onset, at most 1 from it on."""
    bins = np.arange(fractions.size)[:, None]
    after = bins >= onsets[None, :]
    if form == "step":
        return np.asarray(after, dtype=np.float64)
    if form == "spike":
        return np.asarray(bins == onsets[None, :], dtype=np.float64)
    if form == "transient":
        since = np.maximum(fractions[:, None] - fractions[onsets][None, :], 0.0)
        return np.asarray(np.where(after, np.exp(-since / RECOVERY), 0.0), dtype=np.float64)
    start = fractions[onsets - 1][None, :]
    ramp = (fractions[:, None] - start) / (fractions[-1] - start)
    return np.asarray(np.where(after, ramp, 0.0), dtype=np.float64)


@dataclass(frozen=True)
class Whitened:
    """Residuals made white and freed of their level.

    Attributes
    ----------
    factor : ndarray, shape (n, n)
        L.
    ones : ndarray, shape (n,)
        L⁻¹1.
    d : ndarray, shape (n,)
        L⁻¹d without its component along ``ones``.
    level : float
        θ̂ if nothing changed.
    """

    factor: FloatArray
    ones: FloatArray
    d: FloatArray
    level: float

    @classmethod
    def of(cls, d: FloatArray, covariance: FloatArray) -> Whitened:
        """Return d whitened by its covariance (positive definite)."""
        factor = np.asarray(np.linalg.cholesky(covariance), dtype=np.float64)
        both = solve_triangular(factor, np.column_stack((d, np.ones(d.size))), lower=True)
        white, ones = both[:, 0], both[:, 1]
        level = float(ones @ white) / float(ones @ ones)
        return cls(factor, ones, white - level * ones, level)

    def signatures(self, forms: FloatArray) -> FloatArray:
        """Return L⁻¹x of each column x without its component along ``ones``."""
        white = solve_triangular(self.factor, forms, lower=True)
        return np.asarray(white - np.outer(self.ones, self.ones @ white) / float(self.ones @ self.ones), dtype=np.float64)


def likeliest_change(d: FloatArray, covariance: FloatArray, fractions: FloatArray, dof: float | None = None) -> Change | None:
    """Return the change that is an alarm with the highest |z|, or else comes nearest to its line; None with too few bins.

    Parameters
    ----------
    dof : float, optional
        Degrees of freedom of the noise in ``covariance``; by default those of :func:`noise_per_point`.

    Complexity: one Cholesky factor and a triangular solve for four forms a bin, O(n³) with n ≤ 115 bins.
    """
    if d.size <= MIN_BEFORE:
        return None
    dof = DOF_PER_BIN * d.size if dof is None else dof
    white = Whitened.of(d, covariance)
    found: list[tuple[float, float, str, int]] = []
    for form, needed in BINS_AFTER.items():
        onsets = np.arange(MIN_BEFORE, d.size - needed + 1)
        if onsets.size == 0:
            continue
        signatures = white.signatures(form_values(form, fractions, onsets))
        z = tail_corrected(signatures.T @ white.d / np.sqrt(np.sum(signatures**2, axis=0)), dof)
        k = int(np.argmax(z))
        found.append((float(z[k]) / ALARM_AT[form], float(z[k]), form, int(onsets[k])))
    alarms = [one for one in found if one[0] > 1.0]
    _, _, form, onset = max(alarms, key=lambda one: one[1]) if alarms else max(found)
    return change_of(white, fractions, form, onset, dof)


def change_of(white: Whitened, fractions: FloatArray, form: str, onset: int, dof: float) -> Change:
    """Return one form from one onset on: its size and the level beside it, by generalised least squares."""
    x = form_values(form, fractions, np.array([onset]))
    signature = white.signatures(x)[:, 0]
    squares = float(signature @ signature)
    size, size_sd = float(signature @ white.d) / squares, 1.0 / np.sqrt(squares)
    total = float(white.ones @ white.ones)
    along = float(white.ones @ solve_triangular(white.factor, x[:, 0], lower=True)) / total  # of the level, per unit of size
    level_sd = float(np.sqrt(1.0 / total + (along * size_sd) ** 2))
    z = float(np.copysign(tail_corrected(np.array(size / size_sd), dof), size))
    return Change(form, onset, z, size, size_sd, white.level - along * size, level_sd)
