"""The controls of collapse, run by run, and which of them do not match.

Curves of different sizes fall onto one another when tokens per parameter, the AdamW timescale τ and the learning-rate
schedule (its warm-up fraction included) are the same. A control is compared only where it is known; what is unknown is
named, not guessed. One thing can be said without the batch size: over equal numbers of steps, tokens per parameter differ
as the parameters do, unless the batch differs too.

References
----------
arXiv 2509.25087.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpo.core.recipe import Recipe
from hpo.core.schedules import Schedule, schedules_match

MATCH_WITHIN = 0.25
"""Two values of a control match when they differ by at most this share."""
WARMUP_SLACK = 0.07
"""Warm-ups that end within 7 % of training of one another match too. Collapse is judged from 20 % on; Celerity, published as
collapsing, caps its warm-up in tokens and so spreads it from 0.5 to 7 % of training across sizes."""
NAMES = ("tpp", "tau", "schedule", "warmup_fraction")


@dataclass(frozen=True)
class Controls:
    """What one run says of its controls; None is unknown.

    Attributes
    ----------
    steps : float or None
        Length of the run in the unit of its log, which is all that is known of its tokens where the batch is not.
    """

    run_id: str
    n_params: float | None = None
    tpp: float | None = None
    tau: float | None = None
    schedule: Schedule | None = None
    warmup_fraction: float | None = None
    steps: float | None = None

    @classmethod
    def of(cls, run_id: str, recipe: Recipe | None, steps: float | None = None) -> Controls:
        """Return the controls of a recipe, all unknown without one."""
        if recipe is None:
            return cls(run_id, steps=steps)
        known = recipe.schedule if recipe.schedule.is_known or recipe.schedule.label else None
        return cls(run_id, recipe.n_params, recipe.tpp, recipe.tau, known, recipe.warmup_fraction, steps)


@dataclass(frozen=True)
class ControlMatch:
    """How one control compares across runs.

    Attributes
    ----------
    matches : bool or None
        None if it is unknown for a run, unless the known ones already differ.
    ratio : float or None
        Largest over smallest known value; None for schedules and unknown values.
    off : dict
        Per run that does not match the middle one: its value over the middle value, or the schedule's name.
    assumption : str
        What a verdict rests on beyond what was recorded; empty if on nothing.
    """

    name: str
    matches: bool | None
    ratio: float | None = None
    off: Mapping[str, float | str] | None = None
    assumption: str = ""

    @property
    def in_words(self) -> str:
        """The finding in a few words."""
        if self.matches is None:
            return f"{self.name} unknown"
        if self.matches:
            return f"{self.name} matches"
        apart = "differs" if self.ratio is None else f"{self.ratio:.3g}x apart"
        return f"{self.name} {apart}" + (f" ({self.assumption})" if self.assumption else "")


def compare_controls(runs: Sequence[Controls]) -> tuple[ControlMatch, ...]:
    """Return one :class:`ControlMatch` for each of :data:`NAMES`, in that order."""
    return (
        _compare_tpp(runs),
        _compare_values("tau", {r.run_id: r.tau for r in runs}),
        _compare_schedules(runs),
        _compare_values("warmup_fraction", {r.run_id: r.warmup_fraction for r in runs}, slack=WARMUP_SLACK),
    )


def comparable_controls(runs: Sequence[Controls]) -> list[str]:
    """Return the names of the controls that at least two runs tell."""
    return [name for name in NAMES if sum(getattr(run, name) is not None for run in runs) > 1]


def controls_record(runs: Sequence[Controls], matches: Sequence[ControlMatch]) -> dict[str, dict[str, Any]]:
    """Return, JSON-ready, each run's controls and by how much it is off: ``{run_id: {"tpp": …, "off": {…}}}``."""
    return {
        run.run_id: {
            "n_params": run.n_params,
            "tpp": run.tpp,
            "tau": run.tau,
            "schedule": None if run.schedule is None else str(run.schedule),
            "warmup_fraction": run.warmup_fraction,
            "off": {m.name: m.off[run.run_id] for m in matches if m.off and run.run_id in m.off},
        }
        for run in runs
    }


def _compare_tpp(runs: Sequence[Controls]) -> ControlMatch:
    """Compare tokens per parameter; where no run knows its tokens, steps per parameter stand in, and it is said."""
    if any(run.tpp is not None for run in runs):
        return _compare_values("tpp", {run.run_id: run.tpp for run in runs})
    stand_in = {run.run_id: run.steps / run.n_params if run.steps and run.n_params else None for run in runs}
    found = _compare_values("tpp", stand_in)
    if found.matches is False:
        return ControlMatch("tpp", False, found.ratio, found.off, "batch sizes are unknown and taken as equal")
    return ControlMatch("tpp", None)


def _compare_values(name: str, values: Mapping[str, float | None], slack: float = 0.0) -> ControlMatch:
    known = {run_id: value for run_id, value in values.items() if value is not None}
    if not known:
        return ControlMatch(name, None)
    low, high = min(known.values()), max(known.values())
    ratio = high / low if low > 0 else None
    if _close(low, high, slack):
        return ControlMatch(name, True if len(known) == len(values) else None, ratio)
    middle = _middle(list(known.values()), slack)
    off = {
        run_id: value / middle if middle > 0 else value for run_id, value in known.items() if not _close(value, middle, slack)
    }
    return ControlMatch(name, False, ratio, off)


def _close(a: float, b: float, slack: float) -> bool:
    low, high = min(a, b), max(a, b)
    return high - low <= slack or high <= low * (1 + MATCH_WITHIN) * (1 + 1e-9)


def _middle(values: list[float], slack: float) -> float:
    """Return the median of the largest group that matches one of its values; the median of all where none match."""
    groups = [[other for other in values if _close(value, other, slack)] for value in values]
    largest = max(groups, key=len)
    chosen = sorted(largest if len(largest) > 1 else values)
    return chosen[(len(chosen) - 1) // 2]


def _compare_schedules(runs: Sequence[Controls]) -> ControlMatch:
    known = [run for run in runs if run.schedule is not None]
    if not known:
        return ControlMatch("schedule", None)
    agreeing = {run.run_id: [other.run_id for other in known if _same_schedule(run, other)] for run in known}
    most = max(agreeing.values(), key=len)
    off: dict[str, float | str] = {run.run_id: str(run.schedule) for run in known if run.run_id not in most}
    if off:
        return ControlMatch("schedule", False, None, off)
    return ControlMatch("schedule", True if len(known) == len(runs) else None)


def _same_schedule(a: Controls, b: Controls) -> bool:
    if a.schedule is None or b.schedule is None:
        return False
    return schedules_match(a.schedule, b.schedule, (a.warmup_fraction or 0.0, b.warmup_fraction or 0.0))
