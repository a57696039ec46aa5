"""Power laws y = c·x^k, their ranges, and their fits with intervals.

Every rule of planning here is one: the optimal timescale against tokens per parameter, batch sizes against tokens, loss
against compute. A law knows the range it was measured on; outside it, it answers only if told to extrapolate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from hpo.core.out_of_range import OutsideRangeError

FloatArray = NDArray[np.float64]

LARGEST_LOG = 690.0
"""Logs beyond this have no number: e^690 is 1e299."""
EDGE = 0.01
"""Relative slack at the ends of a range: whole steps and rounded publications move tokens per parameter by as much."""


@dataclass(frozen=True, kw_only=True)
class PowerLaw:
    """y = coefficient · x^exponent.

    Parameters
    ----------
    coefficient, exponent : float
        c > 0 and k.
    x_name, y_name : str
        What x and y are, for messages.
    low, high : float, optional
        The range of x that was measured; None where it is not known.
    source : str
        Where the law comes from.
    """

    coefficient: float
    exponent: float
    x_name: str = "x"
    y_name: str = "y"
    low: float | None = None
    high: float | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.coefficient) and self.coefficient > 0 and math.isfinite(self.exponent)):
            raise ValueError(f"a power law needs a coefficient above 0; found {self.coefficient!r} and {self.exponent!r}")

    def covers(self, x: float) -> bool:
        """True if x lies in the range that was measured; an unknown end covers everything."""
        above = self.low is None or x >= self.low * (1 - EDGE)
        return above and (self.high is None or x <= self.high * (1 + EDGE))

    def at(self, x: float, *, extrapolate: bool = False) -> float:
        """Return y at x.

        Raises
        ------
        ValueError
            x not finite and positive, or a y beyond all numbers; x outside the range, as
            :class:`~hpo.core.out_of_range.OutsideRangeError`, while ``extrapolate`` is False.
        """
        if not (math.isfinite(x) and x > 0):
            raise ValueError(f"{self.x_name} must be finite and above 0; found {x!r}")
        if not (extrapolate or self.covers(x)):
            where = f"{self.range_text} for {self.y_name} by {self.source}"
            raise OutsideRangeError(f"{self.x_name} must lie in {where}; found {x:g}")
        return _number(math.log(self.coefficient) + self.exponent * math.log(x), self.y_name, self.exponent)

    def inverse(self, y: float, *, extrapolate: bool = False) -> float:
        """Return the x at which the law gives y; ``ValueError`` as in :meth:`at`, or for a flat law."""
        if not (math.isfinite(y) and y > 0):
            raise ValueError(f"{self.y_name} must be finite and above 0; found {y!r}")
        if self.exponent == 0:
            raise ValueError(f"{self.y_name} does not depend on {self.x_name}: it cannot be inverted")
        x = _number((math.log(y) - math.log(self.coefficient)) / self.exponent, self.x_name, self.exponent)
        if not (extrapolate or self.covers(x)):
            found = f"{y:g}, at {self.x_name} {x:.3g}"
            raise OutsideRangeError(
                f"{self.y_name} must be reached at {self.x_name} in {self.range_text} by {self.source}; found {found}"
            )
        return x

    @property
    def range_text(self) -> str:
        """The range as text."""
        low, high = ("?" if end is None else f"{end:.4g}" for end in (self.low, self.high))
        return f"[{low}, {high}]"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class PowerLawFit:
    """A power law fitted in logs, log y = log c + k·log x, with what its intervals need.

    Attributes
    ----------
    law : PowerLaw
        The fit, with the range of the data.
    center : float
        Weighted mean of log x.
    var_level, var_exponent : float
        Variances of log y at the centre and of k; independent of each other.
    residual_sd : float
        Standard deviation of one point around the law, in log units; 0 with known errors only.
    dof : float
        Degrees of freedom of the t quantiles; infinite where only the points' own errors speak.
    n_points : int
        Points fitted.
    exponent_is_fitted : bool
        False where the exponent was given.
    """

    law: PowerLaw
    center: float
    var_level: float
    var_exponent: float
    residual_sd: float
    dof: float
    n_points: int
    exponent_is_fitted: bool = True

    def interval(self, x: float, level: float = 0.9, *, of_a_new_point: bool = False) -> tuple[float, float]:
        """Return the interval of the law at x, or of one new point there; an end stays within e^±690."""
        variance = self.var_level + self.var_exponent * (math.log(x) - self.center) ** 2
        half = self._quantile(level) * math.sqrt(variance + (self.residual_sd**2 if of_a_new_point else 0.0))
        middle = math.log(self.law.coefficient) + self.law.exponent * math.log(x)
        low, high = (math.exp(min(LARGEST_LOG, max(-LARGEST_LOG, middle + side * half))) for side in (-1.0, 1.0))
        return low, high

    def inverse_interval(self, y: float, level: float = 0.9) -> tuple[float | None, float | None]:
        """Return the interval of the x at which the law gives y: all x whose interval holds y (Fieller's).

        An end is None where the interval is unbounded: the exponent's own interval holds 0, or nearly.
        """
        middle = math.log(self.law.inverse(y, extrapolate=True))

        def outside(log_x: float) -> bool:
            low, high = self.interval(math.exp(log_x), level)
            return not low <= y <= high

        def end(direction: float) -> float | None:
            reach = 1.0
            while not outside(middle + direction * reach):
                reach *= 2
                if reach > 100:
                    return None
            near, far = 0.0, reach
            for _ in range(60):
                half = (near + far) / 2
                near, far = (near, half) if outside(middle + direction * half) else (half, far)
            return math.exp(middle + direction * far)

        return end(-1.0), end(1.0)

    def exponent_interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return the interval of k."""
        half = self._quantile(level) * math.sqrt(self.var_exponent)
        return self.law.exponent - half, self.law.exponent + half

    def coefficient_interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return the interval of c: the law's value at x = 1."""
        return self.interval(1.0, level)

    def _quantile(self, level: float) -> float:
        return _two_sided_quantile(level, self.dof)

    def to_dict(self, level: float = 0.9) -> dict[str, Any]:
        """Return a JSON-ready dict: the law's own keys, intervals at ``level``, and the numbers behind them."""
        numbers = {k: v for k, v in asdict(self).items() if k != "law"}
        return {
            **self.law.to_dict(),
            "level": level,
            "coefficient_interval": list(self.coefficient_interval(level)),
            "exponent_interval": list(self.exponent_interval(level)),
            **numbers,
            "dof": None if math.isinf(self.dof) else self.dof,
        }


def fit_power_law(
    x: ArrayLike,
    y: ArrayLike,
    *,
    sd_log_y: ArrayLike | None = None,
    exponent: float | None = None,
    x_name: str = "x",
    y_name: str = "y",
    source: str = "this fit",
) -> PowerLawFit:
    """Return the least-squares power law through points, in logs.

    Parameters
    ----------
    x, y : array_like, shape (n,)
        Positive.
    sd_log_y : array_like, shape (n,), optional
        Standard error of each log y. Points are weighted by it, and intervals are widened where the scatter exceeds it, never
        narrowed where it does not. Without it all points weigh the same and the scatter tells the errors.
    exponent : float, optional
        Keep this exponent and fit the coefficient alone, as one sweep does.

    Raises
    ------
    ValueError
        Values that are not positive, or too few of them: two distinct x for an exponent, and one point more than there are
        constants unless ``sd_log_y`` is given; or an exponent so large that the law has no coefficient.
    """
    u, v = _logs(x_name, x), _logs(y_name, y)
    sd = np.ones_like(u) if sd_log_y is None else np.asarray(sd_log_y, dtype=np.float64)
    if u.shape != v.shape or u.shape != sd.shape or not (np.isfinite(sd) & (sd > 0)).all():
        raise ValueError("x, y and their errors must be of one length, errors above 0")
    n_constants = 2 if exponent is None else 1
    if np.unique(np.round(u, 6)).size < n_constants or (sd_log_y is None and u.size <= n_constants):
        needed = f"at least {n_constants + (sd_log_y is None)} points at {n_constants} values of {x_name}"
        raise ValueError(f"fitting {y_name} needs {needed}; found {u.size} at {np.unique(np.round(u, 6)).size}")
    weight = sd**-2
    center = float(np.average(u, weights=weight))
    spread = float(weight @ (u - center) ** 2)
    slope = exponent if exponent is not None else float(weight @ ((u - center) * v)) / spread
    level = float(np.average(v - slope * (u - center), weights=weight))
    residuals = (v - level - slope * (u - center)) / sd
    scale, residual_sd, dof = _scatter(residuals, u.size - n_constants, has_errors=sd_log_y is not None)
    law = PowerLaw(
        coefficient=_number(level - slope * center, f"coefficient of {y_name}", slope),
        exponent=slope,
        x_name=x_name,
        y_name=y_name,
        low=float(np.exp(u.min())),
        high=float(np.exp(u.max())),
        source=source,
    )
    return PowerLawFit(
        law=law,
        center=center,
        var_level=scale / float(weight.sum()),
        var_exponent=scale / spread if exponent is None else 0.0,
        residual_sd=residual_sd,
        dof=dof,
        n_points=int(u.size),
        exponent_is_fitted=exponent is None,
    )


def _number(log_value: float, name: str, exponent: float) -> float:
    """Return e^``log_value``; ``ValueError`` where that is beyond all numbers, which a law too steep or too flat leads to."""
    if abs(log_value) > LARGEST_LOG:
        raise ValueError(
            f"{name} must lie within 1e-299 and 1e299; found e^{log_value:.3g}, from an exponent of {exponent:.3g}"
        )
    return math.exp(log_value)


@lru_cache(maxsize=64)
def _two_sided_quantile(level: float, dof: float) -> float:
    """Return the half-width, in standard errors, of a central interval: Student's, or the normal's for infinite ``dof``."""
    upper = 0.5 + level / 2
    return float(stats.norm.ppf(upper) if math.isinf(dof) else stats.t.ppf(upper, dof))


def _scatter(residuals: FloatArray, dof: int, *, has_errors: bool) -> tuple[float, float, float]:
    """Return the variance of a standardised residual, the scatter of one point in log units, and degrees of freedom.

    Known errors are a floor: fewer than 30 residuals that happen to be small do not shrink them.
    """
    mean_square = float(residuals @ residuals) / dof if dof > 0 else 0.0
    if not has_errors:
        return mean_square, math.sqrt(mean_square), float(dof)
    return (mean_square, 0.0, float(dof)) if mean_square > 1 else (1.0, 0.0, math.inf)


def law_from_dict(data: Mapping[str, Any]) -> PowerLaw:
    """Return the law in a dict that :meth:`PowerLaw.to_dict` or :meth:`PowerLawFit.to_dict` made; other keys are ignored."""
    wanted = ("coefficient", "exponent", "x_name", "y_name", "low", "high", "source")
    known = {key: data[key] for key in wanted if data.get(key) is not None}
    for key in ("coefficient", "exponent"):
        if not isinstance(known.get(key), int | float) or isinstance(known.get(key), bool):
            raise ValueError(f"a power law needs a number as {key}; found {known.get(key)!r}")
    return PowerLaw(**known)


def _logs(name: str, values: ArrayLike) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or not (np.isfinite(array) & (array > 0)).all():
        raise ValueError(f"{name} must be finite and above 0; found {array.tolist()}")
    return np.asarray(np.log(array), dtype=np.float64)
