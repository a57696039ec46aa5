"""What a reader of a plan should know beside its numbers: batches too large, laws stretched, rounding, warm-up caps.

References: arXiv 2509.25087, arXiv 2505.13738.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hpo.core.laws import TAU_LAWS, TAU_RANGE
from hpo.core.planning import AGREE, PlannedRun, Rules
from hpo.core.power_law import PowerLaw

FAR_FROM_OPTIMUM = math.log(2.0)
"""Difference in log τ from the published optimum that a plan remarks on; the two published constants differ by a quarter."""


def plan_notes(runs: Sequence[PlannedRun], rules: Rules) -> list[str]:
    """Return one line a fact; those that call for action start with ``warning:``."""
    return [*_batch_notes(runs, rules), *_tau_notes(runs, rules), *_rounding_notes(runs), *_warmup_notes(runs, rules)]


def _batch_notes(runs: Sequence[PlannedRun], rules: Rules) -> list[str]:
    source = "measured" if rules.critical_batch is not None else "0.0471·D^0.462 sequences of 2048, arXiv 2505.13738 as quoted"
    over = [run for run in runs if (run.recipe.batch_tokens or 0) > run.critical_batch_tokens]
    means = "there a fixed tau stops being optimal, and more data parallelism buys little"
    return [
        f"warning: {run.name}: batch {run.recipe.batch_tokens:.3g} tokens exceeds the critical batch of "
        f"{run.critical_batch_tokens:.3g} ({source}): {means}"
        for run in over
    ]


def _tau_notes(runs: Sequence[PlannedRun], rules: Rules) -> list[str]:
    if not isinstance(rules.tau, PowerLaw):
        return [*_strange_tau_notes(rules.tau), *_given_tau_notes(runs)]
    law = rules.tau
    notes = [f"tau = {law.coefficient:.4g}·tpp^{law.exponent:.4g} ({law.source}, measured on tpp {law.range_text})"]
    if law in TAU_LAWS.values() and rules.schedule.name != "linear":
        notes.append(
            f"warning: that law was measured under linear decay to zero; the best tau under {rules.schedule} may be another"
        )
    outside = sorted({run.tpp for run in runs if not law.covers(run.tpp)})
    if outside:
        notes.append(f"warning: tau is extrapolated at tpp {', '.join(f'{x:.4g}' for x in outside)}: outside {law.range_text}")
    return notes


def _strange_tau_notes(tau: float) -> list[str]:
    low, high = TAU_RANGE
    if low <= tau <= high:
        return []
    return [f"warning: tau {tau:.3g} is extrapolated: the published laws were measured on [{low:.3g}, {high:.3g}] at most"]


def _given_tau_notes(runs: Sequence[PlannedRun]) -> list[str]:
    """Say where a τ given as a number is far from the published optimum: it collapses as well, but costs loss."""
    far = [run for run in runs if run.tau_opt is not None and abs(math.log(run.tau / run.tau_opt)) > FAR_FROM_OPTIMUM]
    return [
        f"{run.name}: tau {run.tau:.3g} is {run.tau / run.tau_opt:.2g} times the published optimum of {run.tau_opt:.3g} at "
        f"{run.tpp:.4g} tpp: curves of one tau collapse, but only near the optimum is the compute well spent"
        for run in far
        if run.tau_opt is not None
    ]


def _rounding_notes(runs: Sequence[PlannedRun]) -> list[str]:
    off = [run for run in runs if not math.isclose(run.recipe.tpp or 0.0, run.tpp, rel_tol=AGREE)]
    return [f"{run.name}: {run.n_steps} whole steps make tpp {run.recipe.tpp:.4g} of {run.tpp:.4g}" for run in off]


def _warmup_notes(runs: Sequence[PlannedRun], rules: Rules) -> list[str]:
    fractions = [run.recipe.warmup_fraction or 0.0 for run in runs]
    if rules.warmup_max_tokens is None or min(fractions) >= rules.warmup_fraction:
        return []
    cap = f"min({rules.warmup_fraction:.0%}, {rules.warmup_max_tokens:g} tokens)"
    means = "so the schedule differs between sizes and early parts of the curves collapse loosely"
    cure = f"a fixed fraction (--warmup {rules.warmup_fraction:g}) restores it"
    low, high = f"{min(fractions):.2%}", f"{max(fractions):.2%}"
    shares = f"{low} to {high} of training" if low != high else f"{low} of training"
    return [f"departs from tight collapse: warm-up is {cap}, here {shares}, {means}; {cure}"]
