"""Do the forecasts hold? A share of the trials that would be stopped goes on to the end, and what comes out is compared.

Each audited trial makes two claims when it would have been stopped: that it will not beat the incumbent (but with the small
probability it was given), and that it ends above its 5 % quantile. The audit contradicts the forecasts when either fails more
often than its probability allows, at a level of 1 %.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

LEVEL = 0.01
LOWER_TAIL = 0.05


@dataclass(frozen=True)
class Claim:
    """What was said of an audited trial; levels are the model's, smaller being better.

    Attributes
    ----------
    p_best : float
        Probability of ending below ``incumbent``.
    incumbent, lower : float
        Best final level then, and the 5 % quantile of the trial's own.
    """

    p_best: float
    incumbent: float
    lower: float


@dataclass
class Audit:
    """The audited trials of one study.

    Parameters
    ----------
    share : float
        Share of would-be-stopped trials to audit, in [0, 1).
    """

    share: float
    claims: dict[int, Claim] = field(default_factory=dict)
    outcomes: dict[int, tuple[bool, bool]] = field(default_factory=dict)

    def chooses(self, study: str, number: int) -> bool:
        """Return True if a trial belongs to the audited share: the same answer in every process."""
        if self.share == 0:
            return False
        return bool(np.random.default_rng([zlib.crc32(study.encode()), number]).random() < self.share)

    def settle(self, number: int, final_level: float) -> None:
        """Compare an audited trial's final level with what was claimed; others are ignored."""
        claim = self.claims.get(number)
        if claim is not None and np.isfinite(final_level):
            self.outcomes[number] = (final_level < claim.incumbent, final_level < claim.lower)

    @property
    def contradicts(self) -> bool:
        """True if the finished ones failed more often than their probabilities allow."""
        n = len(self.outcomes)
        if n == 0:
            return False
        expected = sum(self.claims[number].p_best for number in self.outcomes)
        beaten = sum(beat for beat, _ in self.outcomes.values())
        below = sum(low for _, low in self.outcomes.values())
        tails = stats.poisson.sf(beaten - 1, max(expected, 1e-9)), stats.binom.sf(below - 1, n, LOWER_TAIL)
        return bool((beaten > 0 and tails[0] < LEVEL) or (below > 0 and tails[1] < LEVEL))

    def __str__(self) -> str:
        beaten = sum(beat for beat, _ in self.outcomes.values())
        below = sum(low for _, low in self.outcomes.values())
        return f"of {len(self.outcomes)} audited trials {beaten} beat the incumbent, {below} ended below their 90 % interval"
