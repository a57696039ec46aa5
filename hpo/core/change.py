"""When did a run leave its curve? A sequential likelihood-ratio test for a change in residuals.

A healthy run's residuals d = y − s (s the family's curve, y = log L) are θ + slow(t̂) + noise: θ the run's own level, unknown;
``slow`` the wandering of healthy runs (:mod:`hpo.core.template`), of a size c² that is known roughly; noise white, with a
variance per point that the run itself shows. A change adds a *form* (step, drift, transient, spike, pulse) of unknown size from
an unknown onset on. With V_c = c²·slow + noise = LLᵀ, and both sides freed of the level, the size of a form x is known through

    z_c = (L⁻¹x · L⁻¹d) / |L⁻¹x|  ~  N(0, 1) while healthy,

and with ℓ_c the log-likelihood of d without a change plus the log prior of c, the likelihood ratio of a change is

    z²/2 = max_c (ℓ_c + z_c²/2) − max_c ℓ_c.

So a run that has wandered little so far is judged strictly, and one that wanders is not taken for faulty: a change must
explain d better than more wandering does. The test takes the largest z over forms and onsets at every report. No window is
set aside for alignment: the level is estimated along with the change, so that a change early in training is found too, if
something healthy came before it.

Lines lie above the Gaussian ones for their false-alarm rate, because healthy residuals have heavier tails. They are higher
for a loss that sinks below its curve: healthy runs do that more often than they rise above it, and most faults do not. A loss
that falls and comes back is no fault. ``bench.monitor`` measures the rates that they give.

References
----------
Lai, doi 10.1111/j.2517-6161.1995.tb02052.x (generalised likelihood ratio tests for changes in dynamical systems).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.special import logsumexp

from hpo.core.bin_noise import noise_dof
from hpo.core.whitened import Whitened, form_values

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

ALARM_ABOVE = {"step": 4.4, "drift": 4.5, "transient": 4.7, "spike": 5.2, "pulse": 5.2}
"""z above which a form is an alarm; isolated outliers are the commonest harmless event, hence the higher line."""
ALARM_BELOW = {"step": 6.5, "drift": 6.5}
"""−z above which a loss below its curve is an alarm; forms not named here never are."""
WANDERING: FloatArray = np.array([1 / 64, 1 / 16, 1 / 4, 1.0])
"""c², the size of a run's wandering in units of what its template states at most."""
WANDERING_SD = 1.5
"""Prior sd of log c²."""
BINS_AFTER = {"spike": 1, "step": 2, "drift": 3, "transient": 4, "pulse": 3}
"""Bins that an onset needs, itself included: a single outlier is a spike and nothing else, a pulse has ended."""
OUTLIERS = 6
"""Spikes that are looked beside, the tallest first."""
_LENGTHS = {"spike": 1, "pulse": 2}
"""Bins of what comes back at once."""
BINS_BEFORE = {"step": 3, "transient": 5, "drift": 8, "spike": 8, "pulse": 8}
"""Bins that are needed before an onset, to know what healthy was: most before a drift, which wandering early on looks like."""
EXCURSIONS = (1, 2, 3, 4, 6, 8, 11, 16, 22)
"""Bins that a jump may need to come back to what stays of it."""
LEFT_AFTER = 3
"""Bins after such an excursion without which nothing is said of what stays."""
EARLIER = 3
"""Bins by which it may have begun before the onset of the likeliest form."""
BACK = 2.0
"""z of what stays at most where the loss has come back."""


@dataclass(frozen=True)
class Change:
    """The likeliest change.

    Attributes
    ----------
    form : str
        "step", "drift", "transient", "spike" (one bin) or "pulse" (two).
    onset : int
        Index of the first changed bin.
    z : float
        Signed test statistic; positive is worse.
    size, size_sd : float
        Size of the form on the scale of d; of a drift, at the last bin.
    level, level_sd : float
        θ with the change accounted for.
    wandering : float
        c² under which the change is likeliest.
    began : float
        t̂ where it began: of a step or a drift, on the evidence of both forms.
    """

    form: str
    onset: int
    z: float
    size: float
    size_sd: float
    level: float
    level_sd: float
    wandering: float = 1.0
    began: float = np.nan

    @property
    def is_alarm(self) -> bool:
        """True if the statistic is beyond its form's line."""
        return abs(self.z) > (ALARM_ABOVE if self.z > 0 else ALARM_BELOW).get(self.form, np.inf)

    @property
    def lasts(self) -> bool:
        """True if the change stays until the end unless something is done."""
        return self.form in ("step", "drift")


def tail_corrected(z: FloatArray, dof: float) -> FloatArray:
    """Return |z| as a normal deviate of equal tail, the noise being known to ``dof`` degrees of freedom (approximately).

    References
    ----------
    Wallace, doi 10.1214/aoms/1177706361.
    """
    return np.asarray(np.sqrt(dof * np.log1p(z**2 / dof)), dtype=np.float64)


@dataclass(frozen=True)
class _Candidate:
    """A form at an onset: its statistic, over its line, and the c² under which it is likeliest."""

    over_line: float
    z: float
    form: str
    onset: int
    wandering: float


def likeliest_change(
    d: FloatArray,
    slow: FloatArray,
    noise: FloatArray,
    fractions: FloatArray,
    dof: float | None = None,
    *,
    outliers: int = OUTLIERS,
) -> Change | None:
    """Return the change that is an alarm with the highest |z|, or else comes nearest to its line; None with too few bins.

    Parameters
    ----------
    d, fractions : ndarray, shape (n,)
        Residuals and their t̂.
    slow : ndarray, shape (n, n)
        Covariance of the wandering at c = 1.
    noise : ndarray, shape (n,) or (n, n)
        Variances, above 0, or a covariance (positive definite).
    dof : float, optional
        Degrees of freedom of the noise; by default those of :func:`~hpo.core.bin_noise.noise_dof`.
    outliers : int, optional
        So many spikes may explain more than any other change and still have one told beside them; one downwards is no fault.

    Complexity: one eigendecomposition and one product with five forms a bin, O(n³) with n ≤ 115 bins.
    """
    if d.size < min(BINS_BEFORE[form] + needed for form, needed in BINS_AFTER.items()):
        return None
    dof = noise_dof(d.size) if dof is None else dof
    rotated = _Rotated.of(d, slow, noise)
    likelihoods = rotated.log_likelihoods()
    onsets = {form: np.arange(BINS_BEFORE[form], d.size - needed + 1) for form, needed in BINS_AFTER.items()}
    seen = {form: rotated.statistics(form_values(form, fractions, at)) for form, at in onsets.items() if at.size}
    found = [candidate for form in seen for candidate in _candidates(form, onsets[form], seen[form], likelihoods, dof)]
    alarms = [one for one in found if one.over_line > 1.0]
    best = _likeliest(alarms, d.size) or max(found, key=lambda one: one.over_line)
    bins = _outlier(seen, likelihoods, found, dof, d.size) if outliers else None
    rest = None if bins is None else _beside(bins, d, slow, noise, fractions, dof, outliers)
    if rest is not None and (best.form not in _LENGTHS or (rest.is_alarm and rest.lasts)):
        return rest
    covariance = best.wandering * slow + (noise if noise.ndim == 2 else np.diag(noise))
    change = change_of(Whitened.of(d, covariance), fractions, best.form, best.onset, dof)
    if rest is not None:
        change = replace(change, level=rest.level, level_sd=rest.level_sd)
    elif alarms and best.z > 0 and best.form != "drift":
        change = _what_stays(change, d, covariance, fractions, dof)
    is_earlier = change.onset < best.onset
    began = _between(fractions, change.onset) if is_earlier else _beginning(seen, fractions, best, likelihoods, dof)
    return replace(change, z=best.z, wandering=best.wandering, began=began)


def wandering_of(d: FloatArray, slow: FloatArray, noise: FloatArray) -> float:
    """Return the likeliest c² of residuals that hold no change (arguments as of :func:`likeliest_change`)."""
    return float(WANDERING[int(np.argmax(_Rotated.of(d, slow, noise).log_likelihoods()))])


def _beginning(
    seen: Mapping[str, FloatArray], fractions: FloatArray, best: _Candidate, likelihoods: FloatArray, dof: float
) -> float:
    """Return t̂ where the change began: between two bins, or at the one from which a drift leaves the curve.

    When it is called, a drift is often as well a step later on. So the form of the likelier half of the evidence (all onsets of
    steps and drifts weighed by their likelihood) says where it began. ``seen`` has the statistics of each form's onsets.
    """
    if best.form not in ("step", "drift") or best.onset + BINS_AFTER["step"] > fractions.size or "drift" not in seen:
        return _between(fractions, best.onset)
    weights = {}
    for form in ("step", "drift"):
        z = seen[form]
        together = likelihoods[:, None] + 0.5 * tail_corrected(z, dof) ** 2 * (np.sign(z) == np.sign(best.z))
        weights[form] = together.max(axis=0)
    step, drift = (BINS_BEFORE[form] + int(np.argmax(weights[form])) for form in ("step", "drift"))
    is_drift = logsumexp(weights["drift"]) >= logsumexp(weights["step"])
    return float(fractions[drift - 1]) if is_drift else _between(fractions, step)


def _between(fractions: FloatArray, onset: int) -> float:
    """Return the middle between a bin and the one before it."""
    return float(0.5 * (fractions[onset - 1] + fractions[onset]))


def _likeliest(alarms: list[_Candidate], n: int) -> _Candidate | None:
    """Return the alarm with the highest |z|, None without any; what has jumped in the last of n bins is called a step."""
    best = max(alarms, key=lambda one: abs(one.z), default=None)
    if best is not None and best.onset + _LENGTHS.get(best.form, 0) >= n and best.form in _LENGTHS:
        return replace(best, form="step")
    return best


def _outlier(
    seen: Mapping[str, FloatArray], likelihoods: FloatArray, found: list[_Candidate], dof: float, n: int
) -> tuple[int, int] | None:
    """Return the bins from … to of a spike that explains more than all else, None without any; one up has to have ended."""
    best, bins = max(abs(one.z) for one in found), None
    for form, length in _LENGTHS.items():
        if form in seen:
            z = np.sqrt(_explained(seen[form], likelihoods, dof))
            onset = BINS_BEFORE[form] + int(np.argmax(z))
            is_up = seen[form][-1, onset - BINS_BEFORE[form]] > 0
            if z.max() >= max(best, ALARM_ABOVE[form]) and onset + length < n + (not is_up):
                best, bins = float(z.max()), (onset, onset + length)
    return bins


def _beside(
    bins: tuple[int, int], d: FloatArray, slow: FloatArray, noise: FloatArray, fractions: FloatArray, dof: float, outliers: int
) -> Change | None:
    """Return the likeliest change of what is left without an outlier's bins, None with too few."""
    kept = np.delete(np.arange(d.size), np.s_[bins[0] : bins[1]])
    block = np.ix_(kept, kept)
    own = noise[kept] if noise.ndim == 1 else noise[block]
    change = likeliest_change(d[kept], slow[block], own, fractions[kept], dof, outliers=outliers - 1)
    if change is None or change.onset < bins[0]:
        return change
    return replace(change, onset=change.onset + bins[1] - bins[0])


def _explained(statistics: FloatArray, likelihoods: FloatArray, dof: float) -> FloatArray:
    """Return z² of each onset, shape (n_onsets,): twice the log likelihood ratio, the size of the wandering profiled."""
    together = likelihoods[:, None] + 0.5 * tail_corrected(statistics, dof) ** 2
    return np.asarray(2.0 * np.maximum(together.max(axis=0) - likelihoods.max(), 0.0), dtype=np.float64)


def _candidates(
    form: str, onsets: IntArray, statistics: FloatArray, likelihoods: FloatArray, dof: float
) -> Iterator[_Candidate]:
    """Yield the best onset of a form upwards, and downwards where that can be a fault."""
    which = np.argmax(likelihoods[:, None] + 0.5 * tail_corrected(statistics, dof) ** 2, axis=0)
    z = np.copysign(np.sqrt(_explained(statistics, likelihoods, dof)), statistics[which, np.arange(onsets.size)])
    for lines, sign in ((ALARM_ABOVE, 1.0), (ALARM_BELOW, -1.0)):
        if form in lines:
            k = int(np.argmax(sign * z))
            yield _Candidate(float(sign * z[k]) / lines[form], float(z[k]), form, int(onsets[k]), float(WANDERING[which[k]]))


@dataclass(frozen=True)
class _Rotated:
    """Residuals in the basis in which c²·slow + noise is diagonal for every c: eigenvectors of slow with the noise made white.

    Attributes
    ----------
    basis : ndarray, shape (n, n)
        What bins are multiplied by.
    precisions : ndarray, shape (n_c, n)
        1 / (1 + c²λ).
    """

    basis: FloatArray
    d: FloatArray
    ones: FloatArray
    precisions: FloatArray

    @classmethod
    def of(cls, d: FloatArray, slow: FloatArray, noise: FloatArray) -> _Rotated:
        if noise.ndim == 1:
            sd = np.sqrt(noise)
            values, vectors = np.linalg.eigh(slow / np.outer(sd, sd))
            basis = np.asarray(vectors.T / sd, dtype=np.float64)
        else:
            root = cholesky(noise, lower=True)
            half = solve_triangular(root, slow, lower=True)
            values, vectors = np.linalg.eigh(solve_triangular(root, half.T, lower=True))
            basis = np.asarray(solve_triangular(root, vectors, lower=True, trans="T").T, dtype=np.float64)
        precisions = 1.0 / (1.0 + WANDERING[:, None] * np.maximum(values, 0.0))
        return cls(basis, basis @ d, basis @ np.ones(d.size), precisions)

    def log_likelihoods(self) -> FloatArray:
        """Return ℓ_c of each c, shape (n_c,), but for a constant; the level integrated out."""
        ones, along = self.precisions @ self.ones**2, self.precisions @ (self.ones * self.d)
        squares = self.precisions @ self.d**2 - along**2 / ones
        prior = -0.5 * (np.log(WANDERING) / WANDERING_SD) ** 2
        return np.asarray(0.5 * (np.sum(np.log(self.precisions), axis=1) - np.log(ones) - squares) + prior, dtype=np.float64)

    def statistics(self, forms: FloatArray) -> FloatArray:
        """Return z_c of each c and each column of ``forms``, shape (n_c, n_forms)."""
        x = self.basis @ forms
        ones, along = self.precisions @ self.ones**2, self.precisions @ (self.ones * self.d)
        x_ones = (self.precisions * self.ones) @ x
        x_d = (self.precisions * self.d) @ x - x_ones * (along / ones)[:, None]
        squares = self.precisions @ x**2 - x_ones**2 / ones[:, None]
        return np.asarray(x_d / np.sqrt(np.maximum(squares, 1e-300)), dtype=np.float64)


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


def _what_stays(alone: Change, d: FloatArray, covariance: FloatArray, fractions: FloatArray, dof: float) -> Change:
    """Return the step that stays after an excursion of any shape, or the excursion beside the level that it came back to.

    The bins of the excursion are left out, as if each had a size of its own; where it began (no form may have its shape) and
    how long it was is what the others are likeliest with (Bayes' information criterion). Without any the change is as it is
    ``alone``.
    """

    def without(first: int, end: int) -> tuple[float, Whitened, Change]:
        kept = np.delete(np.arange(d.size), np.s_[first:end])
        white = Whitened.of(d[kept], covariance[np.ix_(kept, kept)])
        rest = change_of(white, fractions[kept], "step", first, dof)
        left = float(white.d @ white.d) - (rest.size / rest.size_sd) ** 2
        return left + (end - first) * float(np.log(d.size)), white, rest

    first = alone.onset
    ends = [first, *(first + n_out for n_out in EXCURSIONS if first + n_out + LEFT_AFTER <= d.size)]
    end = min(ends, key=lambda one: without(first, one)[0])
    if end == first:
        return alone
    _, white, rest = min((without(one, end) for one in range(max(first - EARLIER, 1), first + 1)), key=lambda fit: fit[0])
    if rest.z > ALARM_ABOVE["step"]:
        return rest
    if rest.z > BACK or alone.lasts:
        return alone
    return replace(alone, onset=rest.onset, level=white.level, level_sd=1.0 / float(np.linalg.norm(white.ones)))
