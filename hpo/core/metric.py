"""What a curve measures, and the scale on which the model works.

Everything inside the core is *minimised* on a scale where differences are comparable along a curve: the log of a positive
loss, the log of 1 − x for an accuracy, or the value itself. :class:`Metric` is the only place that knows the direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
Transform = Literal["log", "log1m", "identity"]


@dataclass(frozen=True)
class Metric:
    """A metric's name, scale, direction and meaning of "final".

    Parameters
    ----------
    name : str
        Column or key under which it is reported; templates are kept per metric.
    transform : {"log", "log1m", "identity"}
        ``"log"`` for positive losses, ``"log1m"`` for accuracies in [0, 1) (works on log(1 − x)), ``"identity"`` else.
    end : str
        ``"window"``: the final value is the mean of the last 1 % of training, at least 5 points (noisy train losses);
        ``"last"``: the last value (evaluated metrics); any other word names an end value given with the curve.
    mode : {"min", "max"}
        Direction of the raw metric. ``"log1m"`` is always maximised, ``"log"`` always minimised.
    """

    name: str = "train_loss"
    transform: Transform = "log"
    end: str = "window"
    mode: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        if self.transform not in ("log", "log1m", "identity"):
            raise ValueError(f"metric transform must be log, log1m or identity; found {self.transform!r}")
        if self.mode not in ("min", "max"):
            raise ValueError(f"metric mode must be min or max; found {self.mode!r}")
        if self.transform != "identity" and (self.mode == "max") != (self.transform == "log1m"):
            raise ValueError(f"metric transform {self.transform!r} does not go with mode {self.mode!r}")

    def to_loss(self, value: Any) -> Any:
        """Return a raw value (or array) turned so that smaller is better, in raw units: x, 1 − x for ``log1m``, or −x."""
        if self.mode == "min":
            return value
        return 1.0 - value if self.transform == "log1m" else -value

    def to_model(self, values: ArrayLike) -> FloatArray:
        """Return y, smaller is better, of the raw ``values``; outside the transform's domain y is NaN."""
        raw = np.asarray(values, dtype=np.float64)
        if self.transform == "identity":
            return raw if self.mode == "min" else -raw
        inside = raw if self.transform == "log" else 1.0 - raw
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(inside > 0, np.log(inside), np.nan)

    def to_raw(self, y: ArrayLike) -> FloatArray:
        """Return raw values of model-scale ``y``; the inverse of :meth:`to_model`."""
        model = np.asarray(y, dtype=np.float64)
        if self.transform == "identity":
            return model if self.mode == "min" else -model
        return np.exp(model) if self.transform == "log" else 1.0 - np.exp(model)

    def slope(self, values: ArrayLike) -> FloatArray:
        """Return |dy/dvalue| at the raw ``values``: turns standard deviations into those of y."""
        raw = np.asarray(values, dtype=np.float64)
        if self.transform == "identity":
            return np.ones_like(raw)
        return 1.0 / np.abs(raw if self.transform == "log" else 1.0 - raw)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Metric:
        """Return the metric of :meth:`to_dict`; ``ValueError`` on unknown keys."""
        try:
            return cls(**data)
        except TypeError as error:
            raise ValueError(f"metric has unknown or missing keys: {sorted(data)}") from error
