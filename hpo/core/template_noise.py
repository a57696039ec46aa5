"""Noise that a template has from its references, told from its shape, so that it is not taken for the watched run's.

A template of training losses holds the noise of the runs it was made of, and where it extrapolates from them it holds several
times as much as one of them has. In the residual that noise looks like the run's own, and hides what happens to it. A healthy
curve is smooth, so the template is split into a running cubic S·m and what that leaves, the rough part:

    y = θ + S·m + β·(m − S·m) + slow + noise.

β is what the run shows of the rough part: 0 if it is noise of other batches, 1 if the run saw the reference's batches in its
order, or if the rough part is shape after all. What remains of the template's noise in S·m is smooth too, with covariance
(1 − β)²·v·S·Sᵀ, v the variance of one node, and the test must know of it: it can look like a drift.

Where smoothing would bend the shape (kinks of a schedule) by more than the noise of a node nothing is split: the template of
a validation loss is better as it is.

References
----------
Savitzky and Golay, doi 10.1021/ac60214a047 (running cubics); Tukey, Exploratory Data Analysis, 1977 (smoothing twice shows
what smoothing bends).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.signal import savgol_filter

from hpo.core.bin_noise import CLIP_SD, noise_about
from hpo.core.template import Template

FloatArray = NDArray[np.float64]
WIDTH = 31
"""Nodes of the running cubic (about a third of training); 21 and 41 do nearly as well."""
_CUBIC = 3
BENT_AT_MOST = 1.1
"""Largest bend by smoothing, in units of a node's noise: 0.3-1.0 for published training losses, above 2 for validation ones."""
_ROUNDS = 4


@dataclass(frozen=True, eq=False)
class NoisyTemplate:
    """A template whose rough part may be noise.

    Attributes
    ----------
    smooth : Template
        Its smooth part.
    rough : ndarray, shape (n_nodes,)
        What that leaves of the mean.
    covariance : ndarray, shape (n_nodes, n_nodes)
        v·S·Sᵀ, of the smooth part.
    """

    smooth: Template = field(repr=False)
    rough: FloatArray = field(repr=False)
    covariance: FloatArray = field(repr=False)

    def seen_by(self, y: FloatArray, counts: FloatArray, fractions: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the mean that a run follows at its bins, shape (n,), and the covariance of the noise in it, shape (n, n).

        Parameters
        ----------
        y, counts, fractions : ndarray, shape (n,), n ≥ 5
            The run's bins on the model's scale, the points in each, and their t̂.
        """
        weights = self.smooth.interpolation(fractions)
        mean, rough = weights @ self.smooth.mean, weights @ self.rough
        share = shown(rough, y - mean, counts)
        return mean + share * rough, (1.0 - share) ** 2 * (weights @ self.covariance @ weights.T)


def noisy(template: Template) -> NoisyTemplate | None:
    """Return the template split, or None where that would bend its shape or it has too few nodes."""
    n = template.mean.size
    if n <= WIDTH:
        return None
    smoother = np.asarray(savgol_filter(np.eye(n), WIDTH, _CUBIC, axis=0), dtype=np.float64)
    smooth = smoother @ template.mean
    rough = template.mean - smooth
    share = 1.0 - 2.0 * np.diag(smoother) + np.sum(smoother**2, axis=1)  # of a node's variance, in the rough part
    size = np.abs(rough) / np.sqrt(share)
    variance = float(np.mean(np.minimum(size, CLIP_SD * float(np.median(size)) / 0.6745) ** 2))
    bent = np.max(np.abs(smooth - smoother @ smooth))
    if bent > BENT_AT_MOST * np.sqrt(variance):
        return None
    return NoisyTemplate(replace(template, mean=smooth), rough, variance * smoother @ smoother.T)


def shown(rough: FloatArray, d: FloatArray, counts: FloatArray) -> float:
    """Return β in [0, 1]: a regression of the fast part of d on that of ``rough``, with outliers clipped."""
    x, expected = noise_about(rough, counts)
    y, _ = noise_about(d, counts)
    x, y = x / np.sqrt(expected), y / np.sqrt(expected)
    share, weights = 1.0, np.ones(x.size)
    for _ in range(_ROUNDS):
        off = np.abs(y - share * x)
        limit = CLIP_SD * float(np.median(off)) / 0.6745
        weights = np.minimum(1.0, limit / np.maximum(off, 1e-300))
        share = float((weights * x) @ y / max(float((weights * x) @ x), 1e-300))
    return float(np.clip(share, 0.0, 1.0))
