"""How far off a shape's forecasts of its own references would have been: each forecast from the others.

Leaving references out is closed form in both halves of a forecast. The regression: e₋g = [A⁻¹]gg⁻¹ (A⁻¹R)g. The alignment, by
a K without what those left out put into it (weights that suit the very errors they are judged by would look far too good):
with E what they gave K and D their shares of it, (K − EᵀDE)⁻¹1 = K⁻¹1 + K⁻¹Eᵀ(D⁻¹ − EK⁻¹Eᵀ)⁻¹EK⁻¹1, so that one factorisation
of K serves all. The first rows of a Cholesky factor are those of the first nodes' own: it serves every fraction of training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

FloatArray = NDArray[np.float64]
Parts = Sequence[Sequence[int]]
WEIGHT = 4.0
"""Errors as large as predicted, counted besides those that were made."""


@dataclass(frozen=True)
class _Seen:
    """What some first nodes give, whitened: 1ᵀK⁻¹1, the runs' rows of K and their errors, and EK⁻¹1, RK⁻¹1 of both."""

    total: float
    taken: FloatArray
    errors: FloatArray
    sums: FloatArray
    missed: FloatArray


@dataclass(frozen=True)
class LeaveOut:
    """References as targets of each other.

    Attributes
    ----------
    inverse : ndarray, shape (n_runs, n_runs)
        A⁻¹, of the kernel over runs and one run's own misfit.
    shares : ndarray, shape (n_runs,)
        D.
    end : float
        Variance of the noise of a final value.
    ones, taken, errors : ndarray, shapes (n_nodes,), (n_nodes, n_runs), (n_nodes, n_runs)
        L⁻¹ of 1, of Eᵀ and of (A⁻¹R)ᵀ, with LLᵀ the covariance of a run's bins.
    """

    inverse: FloatArray
    shares: FloatArray
    end: float
    ones: FloatArray
    taken: FloatArray
    errors: FloatArray

    @classmethod
    def of(
        cls,
        covariance: FloatArray,
        inverse: FloatArray,
        shares: FloatArray,
        taken: FloatArray,
        errors: FloatArray,
        end: float = 0.0,
    ) -> LeaveOut:
        """Return the references of a shape.

        Parameters
        ----------
        covariance : ndarray, shape (n_nodes, n_nodes)
            Of a run's bins: K and their noise.
        taken, errors : ndarray, shape (n_runs, n_nodes)
            E and A⁻¹R.
        """
        ridge = 1e-6 * np.mean(np.diag(covariance)) * np.eye(len(covariance))
        sides = np.column_stack((np.ones(len(covariance)), taken.T, errors.T))
        found = solve_triangular(np.linalg.cholesky(covariance + ridge), sides, lower=True, check_finite=False)
        n = len(inverse)
        return cls(inverse, shares, end, found[:, 0], found[:, 1 : 1 + n], found[:, 1 + n :])

    def scales(self, ways: Sequence[Parts], n_seen: int) -> list[float]:
        """Return the mean square error over predicted variance of each way of leaving runs out, drawn towards 1.

        Parameters
        ----------
        ways : sequence of sequences of sequences of int
            Each way a partition of the runs; the runs of a part are left out together.
        n_seen : int
            Nodes that the forecasts have seen, at least 1.
        """
        ones, taken, errors = self.ones[:n_seen], self.taken[:n_seen], self.errors[:n_seen]
        seen = _Seen(float(ones @ ones), taken, errors, taken.T @ ones, errors.T @ ones)
        out = []
        for parts in ways:
            alone = all(len(part) == 1 for part in parts)
            squares = self._alone(seen) if alone else np.array([self._together(seen, part) for part in parts])
            out.append(float((WEIGHT + squares.sum()) / (WEIGHT + squares.size)))
        return out

    def _together(self, seen: _Seen, part: Sequence[int]) -> float:
        """Return the mean square error over predicted variance of the runs of ``part``, all left out."""
        among = seen.taken[:, part]
        pulled = np.linalg.solve(np.diag(1.0 / self.shares[part]) - among.T @ among, seen.sums[part])
        weight = seen.total + seen.sums[part] @ pulled
        found = (seen.missed[part] + seen.errors[:, part].T @ (among @ pulled)) / weight
        block = np.linalg.inv(self.inverse[np.ix_(part, part)])
        return float(np.mean((block @ found) ** 2 / (np.diag(block) * (1.0 / seen.total + self.end))))

    def _alone(self, seen: _Seen) -> FloatArray:
        """Return :meth:`_together` of each run by itself, shape (n_runs,)."""
        pulled = seen.sums / (1.0 / self.shares - np.sum(seen.taken**2, axis=0))
        weight = seen.total + seen.sums * pulled
        found = (seen.missed + np.sum(seen.errors * seen.taken, axis=0) * pulled) / weight
        return np.asarray(found**2 / (np.diag(self.inverse) * (1.0 / seen.total + self.end)), dtype=np.float64)
