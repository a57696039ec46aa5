"""Did this run see the batches of its references, in their order? Its own reports tell.

Where it did, its loss jumps from report to report as the noise that the references share does at the same steps
(:mod:`hpo.core.common_noise`), and where it did not the two have nothing to do with one another. So the correlation of the
jumps answers, after a few dozen reports and with certainty: published runs of one data order have .9 and more.
"""

from __future__ import annotations

import math

from hpo.core.common_noise import CommonNoise

FEWEST = 12
"""Jumps before which nothing is said."""
SURE = 5.0
"""Sd of the correlation of unrelated jumps beyond which these are related: a chance of 3e-7 at a look."""
MOSTLY = 0.7
"""Least correlation: below it little is gained by taking the common noise off."""
CLIPPED = 4.0
"""Jumps are cut at so many sd of the common noise's, so that one spike does not hide the rest."""
_JUMPS = 2.0 / 3.0
"""What a jump says, each sharing a report with the next, compared with one that shares none."""


class DataOrder:
    """Compares a run's jumps from report to report with those of the noise that references share at the same steps.

    Parameters
    ----------
    common : CommonNoise
        Of references on one data order.
    """

    def __init__(self, common: CommonNoise) -> None:
        self._common = common
        self._most = CLIPPED * math.sqrt(2.0 * common.variance)
        self._last: tuple[float, float] | None = None
        self._n = 0
        self._products = self._own = self._shared = 0.0

    def add(self, step: float, loss: float) -> None:
        """Take a report, in order of steps, over what is expected there up to a factor.

        One that no reference made, or that is not finite and positive, is passed over.
        """
        noise = self._common.at(step)
        if noise is None or not 0.0 < loss < math.inf:
            return
        now = (math.log(loss), noise)
        if self._last is not None:
            own, shared = (max(-self._most, min(b - a, self._most)) for a, b in zip(self._last, now, strict=True))
            self._n += 1
            self._products += own * shared
            self._own += own**2
            self._shared += shared**2
        self._last = now

    @property
    def correlation(self) -> float:
        """Correlation of the jumps, 0 while there are none."""
        size = math.sqrt(self._own * self._shared)
        return self._products / size if size > 0 else 0.0

    @property
    def is_shared(self) -> bool:
        """True if the run has shown that it sees the references' batches in their order."""
        if self._n < FEWEST or self.correlation < MOSTLY:
            return False
        return math.atanh(min(self.correlation, 1.0 - 1e-12)) * math.sqrt(_JUMPS * self._n - 3.0) > SURE
