"""Which proxies for this target: the sizes, settings and stopping fraction that find the best candidate for the least compute.

Every design is judged by :func:`hpo.core.proxy_design.outlook`. Those that could not be cheaper than the best one found so far
even if only one candidate went on are left out. What looks best is judged once more with fresh draws: the best of many noisy
estimates is too good.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpo.core.coordinates import Coordinates, size_coordinate
from hpo.core.proxy_beliefs import Knowledge
from hpo.core.proxy_design import N_SWEEPS, Keeping, Outlook, Trial, cheapest_outcome, costs_by_count, outlook

STOPS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
COUNTS = (3, 4, 6, 8, 12, 16, 24, 32)
N_SEARCH = (30, 100)
"""Sweeps simulated for each design while searching: fewest, with hundreds of candidates, and most."""
FAR = 6.0
"""Largest distance of the nearest proxy size from the target, in e-folds of :func:`hpo.core.coordinates.size_coordinate`.

The variances do not know of families that have hardly begun to collapse. On our own models the right setting was found from 3
e-folds away (48k and 100k parameters for 171k), and not from 8 (28k and 48k): ``bench/LOG.md``.
"""
FAR_CONTROL = math.log(2.0)
"""Largest distance of a finished run's TPP and τ from the candidates' in logs. On our own models a factor of four in τ bent the
curve by 4 %, and one in TPP by 1.6 %, where matched runs agree within 1 %."""
SHORT = 0.02
"""A simulated P(best) this much below the wanted one may be chance, and counts as reached.

It is two standard errors of a P(best) of 0.95 over :data:`hpo.core.proxy_design.N_SWEEPS` sweeps.
"""


@dataclass(frozen=True, kw_only=True)
class Design:
    """What a sweep would train.

    Attributes
    ----------
    sizes : tuple of int
        Positions of the proxy sizes.
    settings : int
        Settings that each size is trained at.
    stop : float
        Fraction at which candidates are judged.
    outlook : Outlook
        What that finds and costs.
    keep_max : int or None
        Cap on those that go on: the sweep's own, or fewer where the budget asks for it.
    """

    sizes: tuple[int, ...]
    settings: int
    stop: float
    outlook: Outlook
    keep_max: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict without the sizes, whose names are the caller's."""
        return {"settings": self.settings, "stop_at": self.stop, "keep_max": self.keep_max, **self.outlook.to_dict()}


@dataclass(frozen=True, kw_only=True)
class Space:
    """What designs can be made of.

    Attributes
    ----------
    candidates : tuple of Trial
    sizes : tuple of tuple of Trial
        Each size's runs, one a candidate, in the candidates' order.
    spread : callable
        Positions of a given number of candidates that proxies are trained at.
    known : Knowledge
    keeping : Keeping
        ``alpha`` is 1 minus the wanted P(best).
    groups : tuple of tuple of int
        Sizes that a design may train together.
    min_proxies : int
        Fewer proxies (finished runs included) judge nobody.
    earliest : float
        No stop before this fraction.
    budget : float, optional
        FLOPs that no sweep may exceed, whatever its candidates show: each design is capped at those that may go on for so much.
    """

    candidates: tuple[Trial, ...]
    sizes: tuple[tuple[Trial, ...], ...]
    spread: Callable[[int], Sequence[int]]
    known: Knowledge
    keeping: Keeping
    groups: tuple[tuple[int, ...], ...]
    min_proxies: int = 3
    earliest: float = 0.0
    budget: float | None = None

    @property
    def wanted(self) -> float:
        """The wanted P(best)."""
        return round(1.0 - self.keeping.alpha, 9)

    def stops(self, wanted: Sequence[float]) -> list[float]:
        """Return the stops that come after the warm-up; one halfway to the end if all of them come too early."""
        return [stop for stop in wanted if stop > self.earliest] or [0.5 * (1.0 + self.earliest)]

    @property
    def n_search(self) -> int:
        """Sweeps simulated for each design while searching."""
        fewest, most = N_SEARCH
        return max(fewest, min(most, 64 * most // len(self.candidates)))

    def keeping_of(self, sizes: Sequence[int], settings: int, stop: float) -> Keeping | None:
        """Return whom a design lets go on within the budget, None if that does not pay for ``keep_min`` of the dearest."""
        if self.budget is None:
            return self.keeping
        costs = costs_by_count(self.candidates, self.proxies(sizes, settings), stop)
        paid = int(np.searchsorted(costs, self.budget * (1 + 1e-9), side="right"))
        if paid < self.keeping.keep_min:
            return None
        if paid == len(costs):
            return self.keeping
        return replace(self.keeping, keep_max=min(paid, self.keeping.keep_max or paid))

    def proxies(self, sizes: Sequence[int], settings: int) -> list[Trial]:
        """Return the proxies of a design."""
        return [self.sizes[k][i] for k in sizes for i in self.spread(settings)]

    def is_near(self, sizes: Sequence[int]) -> bool:
        """True if the nearest of the sizes has collapsed with the target, as far as sizes are known."""
        target = self.candidates[0].recipe.n_params
        known = [self.sizes[k][0].recipe.n_params for k in sizes]
        near = [size_coordinate(target) - size_coordinate(n) for n in known if n is not None and target is not None]
        return not near or min(near) <= FAR

    def plans(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield sizes and settings of every design."""
        counts = sorted({c for c in COUNTS if c < len(self.candidates)} | {len(self.candidates)})
        for group in self.groups:
            for count in counts:
                if self.is_near(group) and len(group) * count + len(self.known.runs) >= self.min_proxies:
                    yield group, count
        if len(self.known.runs) >= self.min_proxies:
            yield (), 0  # the finished runs alone


def smallest_proxy(n_params: float) -> float:
    """Return the parameters of the smallest proxy that lies no further than :data:`FAR` from a target of ``n_params``."""
    low, high = 1.0, n_params
    for _ in range(60):  # the coordinate rises with the size
        middle = math.sqrt(low * high)
        low, high = (low, middle) if size_coordinate(n_params) - size_coordinate(middle) <= FAR else (middle, high)
    return high


def far_controls(run: Coordinates, candidates: Sequence[Coordinates]) -> tuple[str, ...]:
    """Return those of ``log_n``, ``log_tpp`` and ``log_tau`` in which a finished run is too far from all candidates to teach.

    A size is too far more than :data:`FAR` below; TPP and τ more than :data:`FAR_CONTROL` off the candidates' range. What is
    unknown of either counts as near.
    """
    far = []
    for name, below, above in (
        ("log_n", FAR, math.inf),
        ("log_tpp", FAR_CONTROL, FAR_CONTROL),
        ("log_tau", FAR_CONTROL, FAR_CONTROL),
    ):
        own, theirs = run.controls.get(name), [c.controls[name] for c in candidates if name in c.controls]
        if own is not None and theirs and not min(theirs) - below - 1e-9 <= own <= max(theirs) + above + 1e-9:
            far.append(name)
    return tuple(far)


def cheapest_designs(space: Space, seed: int, stops: Sequence[float] = STOPS) -> list[Design]:
    """Return for each stop the cheapest design that reaches the wanted P(best), cheapest first; stops without one left out."""
    found = [_cheapest_at(space, stop, seed) for stop in space.stops(stops)]
    return sorted((d for d in found if d is not None), key=lambda d: d.outlook.flops)


def best_within(space: Space, seed: int, stops: Sequence[float] = STOPS) -> Design | None:
    """Return the design of the highest P(best) within the budget of ``space``, None if it is too small for any."""
    best: Design | None = None
    for stop in space.stops(stops):
        for sizes, settings in space.plans():
            made = _judge(space, sizes, settings, stop, seed, space.n_search)
            if made is not None and (best is None or _finds_more(made, best)):
                best = made
    return None if best is None else judged(space, best.sizes, best.settings, best.stop, seed + 1)


def judged(space: Space, sizes: Sequence[int], settings: int, stop: float, seed: int) -> Design | None:
    """Return one design with its outlook, None if the budget is too small for it."""
    return _judge(space, sizes, settings, stop, seed, N_SWEEPS)


def _finds_more(one: Design, other: Design) -> bool:
    return (one.outlook.p_best, -one.outlook.flops) > (other.outlook.p_best, -other.outlook.flops)


def _cheapest_at(space: Space, stop: float, seed: int) -> Design | None:
    bounds = [
        (cheapest_outcome(space.candidates, space.proxies(sizes, settings), stop), sizes, settings)
        for sizes, settings in space.plans()
    ]
    best: Design | None = None
    for bound, sizes, settings in sorted(bounds):
        if best is not None and bound >= best.outlook.flops:
            break
        if _is_better(space, _judge(space, sizes, settings, stop, seed, space.n_search), best):
            found = judged(space, sizes, settings, stop, seed + 1)  # afresh: the best of many noisy estimates is too good
            best = found if _is_better(space, found, best) else best
    return best


def _is_better(space: Space, design: Design | None, best: Design | None) -> bool:
    """True if a design within the budget reaches the wanted P(best) for less than the best one so far."""
    if design is None or design.outlook.p_best < space.wanted - SHORT:
        return False
    return best is None or design.outlook.flops < best.outlook.flops


def _judge(space: Space, sizes: Sequence[int], settings: int, stop: float, seed: int, n_sweeps: int) -> Design | None:
    keeping = space.keeping_of(sizes, settings, stop)
    if keeping is None:
        return None
    proxies = space.proxies(sizes, settings)
    made = outlook(space.candidates, proxies, stop, space.known, keeping, np.random.default_rng(seed), n_sweeps)
    return Design(sizes=tuple(sizes), settings=settings, stop=stop, outlook=made, keep_max=keeping.keep_max)
