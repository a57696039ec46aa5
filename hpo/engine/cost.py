"""The arithmetic of a sweep's compute: what it costs, what the full sweep would have cost, and what that saves.

FLOPs are those of the steps actually trained, by the architecture's own count. Two kinds of run are left out of what a sweep
spends: ``--verify`` runs, which only check it, and steps repeated after a crash.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hpo.engine.plan import Plan, Run

_WHOLE = 1e-9
"""A number this little below a whole one is whole: powers and roots leave it so."""


@dataclass(frozen=True)
class Spending:
    """FLOPs of a sweep, in parts that add up to ``total``.

    Attributes
    ----------
    proxies : float
        All proxy runs.
    candidates : float
        Every candidate up to the stopping fraction.
    winner : float
        What the selected candidates cost beyond it, at rungs too.
    full_sweep : float
        Every candidate trained to its end, or to where it ended by itself (diverged, failed): what the sweep replaces.
    n_candidates : int
        Candidates.
    """

    proxies: float
    candidates: float
    winner: float
    full_sweep: float
    n_candidates: int

    @property
    def total(self) -> float:
        """FLOPs spent."""
        return self.proxies + self.candidates + self.winner

    @property
    def saved_fraction(self) -> float:
        """1 − total / full sweep; negative where the sweep cost more than it replaced."""
        return 1.0 - self.total / self.full_sweep

    @property
    def break_even_trials(self) -> int | None:
        """Smallest number of candidates at which the sweep is cheaper than training all of them, None if there is none.

        With n candidates the sweep costs proxies + n·c + w, the full one n·f, where c and f are the mean cost of a
        candidate up to the stopping fraction and to its end, and w what the selected ones cost beyond it; so n must
        exceed (proxies + w) / (f − c).
        """
        saving = (self.full_sweep - self.candidates) / self.n_candidates
        return math.floor((self.proxies + self.winner) / saving) + 1 if saving > 0 else None

    def to_result(self) -> dict[str, Any]:
        """Return the keys of ``result.json`` about compute."""
        return {
            "flops_spent": {
                "proxies": self.proxies,
                "candidates": self.candidates,
                "winner": self.winner,
                "total": self.total,
            },
            "flops_full_sweep": self.full_sweep,
            "saved_fraction": self.saved_fraction,
            "break_even_trials": self.break_even_trials,
        }


def spending(plan: Plan, steps: Mapping[str, int], ended: Collection[str] = ()) -> Spending:
    """Return what was spent when each run, by name, was trained for so many ``steps`` (absent: none).

    ``ended`` names the runs that ended by themselves there: a full sweep would have spent no more on them.
    """

    def trained(runs: Sequence[Run], until: float = math.inf) -> float:
        return sum(run.flops_at(min(steps.get(run.name, 0), until, run.n_steps)) for run in runs)

    up_to_stop = sum(trained([run], run.stop_step) for run in plan.candidates)
    return Spending(
        proxies=trained(plan.proxies),
        candidates=up_to_stop,
        winner=trained(plan.candidates) - up_to_stop,
        full_sweep=sum(trained([run]) if run.name in ended else run.flops for run in plan.candidates),
        n_candidates=len(plan.candidates),
    )


@dataclass(frozen=True)
class Estimate:
    """What a sweep is expected to cost.

    Attributes
    ----------
    kept : float
        How many candidates are expected to go on to their end.
    kept_at : dict
        How many are expected to go on after each look, by its fraction of training; empty under the rule ``prune``.
    hours, hours_full_sweep : float or None
        Wall-clock, with as many trials at once as allowed; None without ``resources.flops_per_s``.
    price, price_full_sweep : float or None
        At ``price_per_hour``.
    """

    spending: Spending
    kept: float
    kept_at: dict[float, float]
    n_proxies: int
    hours: float | None
    hours_full_sweep: float | None
    price: float | None
    price_full_sweep: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        numbers = {key: value for key, value in asdict(self).items() if key != "spending"}
        return {"candidates": self.spending.n_candidates, **numbers, **self.spending.to_result()}


def estimate(plan: Plan, n_at_once: int, expected_kept: float | None = None) -> Estimate:
    """Return the expected cost of ``plan`` with ``n_at_once`` trials at a time.

    So many candidates go on as are expected to (:mod:`hpo.engine.outlook`); where that is not known ``keep_max`` (or
    ``keep_min``), and under a rule without rounds the first ``n_at_once``, as there is nothing to stop them by. With rungs,
    each look is assumed to leave the same share of those before it. The dearest are assumed to go on. A number that is not
    whole costs as much as the two whole ones beside it do on average.
    """
    stopping, n = plan.config.stopping, len(plan.candidates)
    wanted = (stopping.keep_max or stopping.keep_min) if stopping.has_rounds else n_at_once
    kept = min(max(1.0, float(wanted if expected_kept is None else expected_kept)), float(n))
    looks = stopping.looks if stopping.has_rounds else ()
    kept_at = {look: n * (kept / n) ** (k / len(looks)) for k, look in enumerate(looks, start=1)}
    going = list(kept_at.values()) or [kept]
    trained = [(_all_to_the_stop(plan), 1.0), *_stages(plan, going, [*looks[1:], 1.0])]
    speed, price = plan.config.resources.flops_per_s, plan.config.price_per_hour
    hours = None if speed is None else sum(share * _hours(costs, speed, n_at_once) for costs, share in trained)
    full = None if speed is None else _hours([run.flops for run in plan.candidates], speed, n_at_once)
    until_stop = spending(plan, {run.name: run.stop_step for run in (*plan.proxies, *plan.candidates)})
    return Estimate(
        spending=replace(until_stop, winner=sum(share * sum(costs) for costs, share in trained[1:])),
        kept=kept,
        kept_at=kept_at,
        n_proxies=len(plan.proxies),
        hours=hours,
        hours_full_sweep=full,
        price=None if hours is None or price is None else hours * price,
        price_full_sweep=None if full is None or price is None else full * price,
    )


def _all_to_the_stop(plan: Plan) -> list[float]:
    return [run.flops_at(run.stop_step) for run in (*plan.proxies, *plan.candidates)]


def _stages(plan: Plan, going: Sequence[float], until: Sequence[float]) -> Iterator[tuple[list[float], float]]:
    """Yield the FLOPs of each run in each stage beyond the stop, and the stage's weight.

    ``going`` are those that train in each stage, ``until`` the fraction at which it ends. One whose number is not whole comes
    twice, with fewer and with more.
    """
    dearest = sorted(plan.candidates, key=lambda run: -run.flops)
    since = [run.stop_step for run in dearest]
    for number, fraction in zip(going, until, strict=True):
        ends = [math.floor(fraction * run.n_steps) for run in dearest]
        costs = [run.flops_at(end - begin) for run, end, begin in zip(dearest, ends, since, strict=True)]
        fewer = math.floor(number + _WHOLE)
        yield costs[:fewer], 1.0 - max(0.0, number - fewer)
        if number > fewer:
            yield costs[: fewer + 1], number - fewer
        since = ends


def _hours(costs: Sequence[float], flops_per_s: float, n_at_once: int) -> float:
    """Return the wall-clock of independent runs: their sum shared out, but no less than the longest."""
    return max(sum(costs) / n_at_once, max(costs, default=0.0)) / flops_per_s / 3600.0
