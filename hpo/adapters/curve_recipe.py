"""The recipe of a recorded run, from what its file says; what it does not say stays unknown."""

from __future__ import annotations

import math

import numpy as np

from hpo.adapters.curve_columns import Rows
from hpo.adapters.schedule_names import parse_schedule
from hpo.core.recipe import Recipe
from hpo.core.schedules import MATCH_TOLERANCE, Schedule, recorded_schedule, unknown_schedule

LOG_REACHES = 0.98
"""A logged learning rate is a schedule only if it reaches this fraction of training: a prefix says nothing of the rest."""
LOG_STARTS = 0.2
LOG_GAP = 0.05
LOG_ERRORS = 0.02
"""Share of logged rates that may be off a named schedule by more than the tolerance before the log is believed instead."""
WARMUP_AT_MOST = 0.05


def run_horizon(rows: Rows) -> float | None:
    """Return the last step of the full run in the unit of its steps, None if the file does not say.

    Raises
    ------
    ValueError
        A horizon that is not positive.
    """
    name = rows.horizon_name
    horizon = rows.number(name)
    if horizon is None and name == "total_steps":
        total, batch = rows.number("total_tokens"), rows.number("batch_tokens")
        horizon = total / batch if total and batch else None
    if horizon is not None and not (math.isfinite(horizon) and horizon > 0):
        raise ValueError(f"{rows.path}: run {rows.run_id}: {name} must be above 0; found {horizon!r}")
    return horizon


def run_recipe(rows: Rows, horizon: float | None) -> Recipe | None:
    """Return the recipe, None if the file says nothing of it.

    Raises
    ------
    ValueError
        A recorded quantity outside its range.
    """
    known = {name: rows.number(name) for name in ("n_params", "batch_tokens", "weight_decay")}
    known |= {name: rows.number(name) for name in ("base_lr", "base_weight_decay", "flops_exact")}
    known["n_tokens"] = _total_tokens(rows, horizon)
    if known["n_tokens"] is None or known["batch_tokens"] is None:
        known["total_steps"] = horizon if rows.counts_steps else None
    known["lr"] = _peak_lr(rows, horizon)
    known["warmup_fraction"] = _warmup_fraction(rows, horizon)
    schedule = _schedule(rows, horizon, known["lr"], known["warmup_fraction"] or 0.0)
    if schedule is None and all(value is None for name, value in known.items() if name != "total_steps"):
        return None
    return Recipe(schedule=schedule or unknown_schedule(""), **known)


def _total_tokens(rows: Rows, horizon: float | None) -> float | None:
    total, batch = rows.number("total_tokens"), rows.number("batch_tokens")
    if total is not None:
        return total
    return horizon * batch if horizon is not None and batch is not None and rows.counts_steps else None


def _warmup_fraction(rows: Rows, horizon: float | None) -> float | None:
    fraction, steps = rows.number("warmup_fraction"), rows.number("warmup_steps")
    if fraction is None and steps is not None and horizon is not None and rows.counts_steps:
        fraction = steps / horizon
    return fraction if fraction is None or fraction < 1 else None


def _peak_lr(rows: Rows, horizon: float | None) -> float | None:
    """Return the ``lr`` column, or the highest learning rate of a log that covers the run."""
    stated = rows.number("lr")
    if stated is not None or not _log_covers_run(rows, horizon):
        return stated
    return float(rows.lr_log[1].max())


def _schedule(rows: Rows, horizon: float | None, lr: float | None, warmup: float) -> Schedule | None:
    """Return the named schedule, unless a log of the whole run contradicts it: then what was logged."""
    label = rows.text("schedule")
    named = None if label is None else parse_schedule(label, lr)
    if named is not None and named.name in ("recorded", "unknown"):
        return named
    if _log_covers_run(rows, horizon) and (named is None or _log_contradicts(rows, horizon, named, lr, warmup)):
        steps, rates = rows.lr_log
        return recorded_schedule(steps / float(horizon or 1), rates, label=label if label and named is None else "")
    return named if named is not None or label is None else unknown_schedule(label)


def _log_contradicts(rows: Rows, horizon: float | None, named: Schedule, lr: float | None, warmup: float) -> bool:
    """Return True if more than a few of the logged rates past warm-up are off ``named`` (a single one may be a step late)."""
    steps, rates = rows.lr_log
    fractions = steps / float(horizon or 1)
    past = fractions > max(warmup, WARMUP_AT_MOST)
    off = np.abs(named(fractions[past], warmup) - rates[past] / (lr or rates.max())) > MATCH_TOLERANCE
    return bool(np.mean(off) > LOG_ERRORS)


def _log_covers_run(rows: Rows, horizon: float | None) -> bool:
    steps, rates = rows.lr_log
    if horizon is None or steps.size < 2 or rates.max() <= 0:
        return False
    fractions = steps / horizon
    gaps = np.diff(fractions)
    return bool(fractions[0] <= LOG_STARTS and fractions[-1] >= LOG_REACHES and gaps.max() <= LOG_GAP)
