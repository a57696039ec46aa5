"""What a sweep's report says in words: what won and by how much, what it cost, what else to know."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpo.reporting.decision_trail import reason_text
from hpo.reporting.stopping_points import picked_regret
from hpo.reporting.sweep_files import SweepRecord, TrialRecord
from hpo.reporting.sweep_words import count_text, settings_text, share_text, span_text

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LARGE_MISFIT = 3.0
_LISTED = 12
_ENDED_BADLY = ("diverged", "out of memory", "failed", "not started")


@dataclass(frozen=True)
class Card:
    """One number to see first: a label, the number, what it means, and whether that is "good" or "bad" ("": neither)."""

    label: str
    value: str
    detail: str
    tone: str = ""


@dataclass(frozen=True)
class Pick:
    """What one rule would have picked: the loss it leads to and how far that is from the best, where known."""

    rule: str
    how: str
    settings: str
    final_loss: float | None
    regret_pct: float | None
    is_ours: bool = False


@dataclass(frozen=True)
class Notice:
    """Something a reader should know: ``alarm`` or ``note``."""

    level: str
    text: str


def flops_text(flops: float) -> str:
    """Return FLOPs as ``1.27 × 10¹³``."""
    mantissa, _, exponent = f"{flops:.2e}".partition("e")
    return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPTS)}" if flops else "0"


def headline(sweep: SweepRecord) -> str:
    """Return the one sentence to take away."""
    winner = sweep.winner
    if winner is not None and winner.final_loss is not None:
        return f"{settings_text(winner.settings)} won, with a final loss of {winner.final_loss:.4f}"
    if sweep.state.finished is not None and sweep.state.finished.get("error"):
        return "This sweep has no winner"
    best = max(sweep.trials, key=lambda t: t.forecast.get("p_best") or 0.0, default=None)
    if best is None or not best.forecast.get("p_best"):
        return "No forecast yet"
    return f"{settings_text(best.settings)} is likeliest to win so far, P(best) {best.forecast['p_best']:.2f}"


def opening(sweep: SweepRecord) -> list[str]:
    """Return the paragraph under the headline, sentence by sentence."""
    winner = sweep.winner
    if winner is None:
        return [*_unfinished(sweep)]
    return [*_how_forecast(sweep, winner), *_by_how_much(sweep, winner), *_verified(sweep)]


def _unfinished(sweep: SweepRecord) -> Iterator[str]:
    finished = sweep.state.finished
    if finished is not None and finished.get("error"):
        yield f"It ended with: {finished['error']}."
        return
    counts = ", ".join(f"{n} {state}" for state, n in sweep.state.counts.most_common())
    yield f"It has not come to its end: {share_text(sweep.state.fraction)} of the work is done" + (
        f" ({counts})." if counts else "."
    )
    yield "While it runs, hpo report shows where it stands; after an interruption hpo sweep --resume goes on."


def _how_forecast(sweep: SweepRecord, winner: TrialRecord) -> Iterator[str]:
    told = (sweep.result or {}).get("forecast") or {}
    f, final = winner.forecast, winner.final_loss
    if f.get("final_loss") is None or final is None:
        yield "It was not forecast: it went to its end because nothing could judge it."
        return
    fraction = told.get("at_fraction", sweep.at)
    error = 100 * (f["final_loss"] - final) / abs(final) if final else 0.0
    interval = "" if f.get("lower") is None else f" (90 % interval {f['lower']:.4f} to {f['upper']:.4f})"
    off = "as it came out" if abs(error) < 0.005 else f"{abs(error):.2g} % too {'high' if error > 0 else 'low'}"
    forecast = f"it was forecast to end at {f['final_loss']:.4f}{interval}"
    yield f"From the first {share_text(fraction)} of its training {forecast}: {off}."


def _by_how_much(sweep: SweepRecord, winner: TrialRecord) -> Iterator[str]:
    tied = [t for t in sweep.trials if t.is_tied]
    others = [t for t in sweep.trials if t.name != winner.name and t.forecast.get("final_loss") is not None]
    second = min(others, key=lambda t: float(t.forecast["final_loss"]), default=None)
    p_best = winner.forecast.get("p_best")
    if len(tied) > 1:
        names = ", ".join(str(t.number) for t in tied)
        likely = "" if p_best is None or not winner.is_tied else f"; the winner was best with probability {p_best:.2f}"
        yield f"At the stopping point {count_text(len(tied))} candidates could not be told apart (trials {names}){likely}."
    elif second is not None and winner.forecast.get("final_loss"):
        gap = 100 * (float(second.forecast["final_loss"]) / float(winner.forecast["final_loss"]) - 1)
        yield (
            f"The next best forecast, trial {second.number}, was {gap:.2g} % worse."
            if gap >= 0
            else (f"Trial {second.number} had a forecast {-gap:.2g} % lower.")
        )


def _verified(sweep: SweepRecord) -> Iterator[str]:
    regret = picked_regret(sweep.result, "ours")
    if regret is None:
        return
    finals = [t for t in sweep.trials if t.final_loss is not None]
    best = min(finals, key=lambda t: t.final_loss or 0.0)
    then = f"Afterwards the stopped candidates were trained to their end too: of the {len(finals)} measured"
    if regret <= 0:
        yield f"{then}, the winner is the best."
    else:
        yield f"{then}, trial {best.number} ends lowest ({best.final_loss:.4f}), so the pick is {regret:.2g} % off."


def cards(sweep: SweepRecord) -> list[Card]:
    """Return the numbers to see first."""
    result = sweep.result
    return [*_result_cards(sweep, result)] if result is not None and result.get("flops_spent") else [*_running_cards(sweep)]


def _result_cards(sweep: SweepRecord, result: Mapping[str, Any]) -> Iterator[Card]:
    spent, full = float(result["flops_spent"]["total"]), float(result["flops_full_sweep"])
    saved = float(result["saved_fraction"])
    word, tone = ("compute saved", "good") if saved >= 0 else ("compute lost", "bad")
    yield Card(word, share_text(abs(saved)), f"{flops_text(spent)} of {flops_text(full)} FLOPs, proxies counted", tone)
    seconds = float(result["seconds"])
    if spent > 0:
        yield Card("time", span_text(seconds), f"all candidates to their end: about {span_text(seconds * full / spent)}")
    price = result.get("price")
    if price is not None and spent > 0:
        yield Card(
            "money saved",
            f"{price * full / spent - price:.2f}",
            f"{price:.2f} spent; all to their end: about {price * full / spent:.2f}",
        )
    error = result.get("forecast_error_pct")
    if error is not None:
        inside = _is_inside(result)
        yield Card("forecast error", f"{error:+.2g} %", f"of the winner; {'inside' if inside else 'outside'} its 90 % interval")
    if result.get("break_even_trials") is not None:
        yield Card("pays from", str(result["break_even_trials"]), f"candidates on; this sweep had {len(sweep.trials)}")


def _is_inside(result: Mapping[str, Any]) -> bool:
    f, final = result["forecast"], result["actual_final_loss"]
    return f["lower"] is not None and f["lower"] <= final <= f["upper"]


def _running_cards(sweep: SweepRecord) -> Iterator[Card]:
    state = sweep.state
    if state.runs:
        yield Card(
            "work done", share_text(state.fraction), f"{flops_text(state.done_flops)} of {flops_text(state.total_flops)} FLOPs"
        )
    saved = state.saved_fraction
    if saved is not None and saved > 0:
        yield Card("saved so far", share_text(saved), "of a full sweep, proxies counted")
    yield Card(
        "candidates", str(len(sweep.trials)), f"{sum(t.final_loss is not None for t in sweep.trials)} trained to their end"
    )


def picks(sweep: SweepRecord) -> list[Pick]:
    """Return what this sweep, the loss so far and plain transfer would have picked; empty while there is no result."""
    result = sweep.result
    if result is None or result.get("winner") is None:
        return []
    rules = (
        ("this sweep", "by forecast, then by what was measured", result["winner"], "ours"),
        (
            "current best",
            f"by the lowest loss so far, at {share_text(sweep.at)}",
            result.get("current_best_pick"),
            "current_best",
        ),
        ("transfer", "the settings that were best on the proxies", result.get("transfer_pick"), "transfer"),
    )
    return [
        Pick(name, how, settings_text(settings), _final_of(sweep, settings), picked_regret(result, key), key == "ours")
        for name, how, settings, key in rules
        if settings is not None
    ]


def _final_of(sweep: SweepRecord, settings: Mapping[str, Any]) -> float | None:
    return next((t.final_loss for t in sweep.trials if t.settings == settings), None)


def compute_parts(sweep: SweepRecord) -> list[tuple[str, float, str]]:
    """Return (name, share of the full sweep, FLOPs) of what was spent and saved; empty without a result."""
    result = sweep.result
    if result is None or not result.get("flops_spent"):
        return []
    full, spent = float(result["flops_full_sweep"]), result["flops_spent"]
    parts = [
        ("proxies", spent["proxies"]),
        ("candidates to the stopping point", spent["candidates"]),
        ("finishing", spent["winner"]),
    ]
    saved = full - float(spent["total"])
    return [(name, value / full, flops_text(value)) for name, value in [*parts, ("saved", max(0.0, saved))]]


def notices(sweep: SweepRecord, watched: Sequence[Notice] = ()) -> list[Notice]:
    """Return what went wrong or needs a second look, alarms first; ``watched`` are alarms of the monitor."""
    found = [*_bad_endings(sweep), *watched, *_spent(sweep), *_unjudged(sweep), *_settled(sweep), *_reused(sweep)]
    found += [Notice("note", text) for text in sweep.notes]
    if sweep.n_interruptions:
        times = "once" if sweep.n_interruptions == 1 else f"{sweep.n_interruptions} times"
        found.append(Notice("note", f"It was interrupted and resumed {times}; no finished work was lost."))
    return sorted(found, key=lambda notice: notice.level != "alarm")


def _bad_endings(sweep: SweepRecord) -> Iterator[Notice]:
    ended: dict[tuple[str, str, str], list[str]] = {}
    for trial in sweep.trials:
        if trial.state in _ENDED_BADLY:
            ended.setdefault(("candidate", trial.state, reason_text(trial.reason)), []).append(str(trial.number))
    for run in sweep.state.proxies:
        if (state := run.state.replace("_", " ")) in _ENDED_BADLY:
            ended.setdefault(("proxy", state, _without_step(run.message)), []).append(run.name)
    for (kind, state, why), names in ended.items():
        level = "note" if state == "not started" else "alarm"
        yield Notice(level, f"{_many(kind, names)} {_ended_words(state, len(names))}{f': {why}' if why else ''}.")


def _many(kind: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
    if kind == "candidate":
        return f"Trial {shown}" if len(names) == 1 else f"Trials {shown}"
    return f"Proxy {shown}" if len(names) == 1 else f"Proxies {shown}"


def _without_step(message: str) -> str:
    return re.sub(r" at step \d+$", "", message)


def _ended_words(state: str, count: int) -> str:
    be = "was" if count == 1 else "were"
    return {"out of memory": "ran out of memory", "not started": f"{be} not started"}.get(state, state)


def _spent(sweep: SweepRecord) -> Iterator[Notice]:
    spent, alpha = (sweep.result or {}).get("error_spent"), sweep.stopping.get("alpha", 0.05)
    if spent is not None and spent > alpha:
        keep = sweep.stopping.get("keep_max")
        cap = "" if keep is None else f", because keep_max let only {keep} go on"
        yield Notice(
            "alarm",
            f"With probability {spent:.2f} a stopped candidate was the best{cap}; without a cap it would be {alpha:g} at most.",
        )


def _unjudged(sweep: SweepRecord) -> Iterator[Notice]:
    unknown: dict[str, list[str]] = {}
    for trial in sweep.trials:
        status = trial.forecast.get("status")
        if status not in (None, "ok", "complete") and trial.state not in _ENDED_BADLY:
            unknown.setdefault(reason_text(str(status)), []).append(str(trial.number))
    for why, names in unknown.items():
        yield Notice("note", f"{_many('candidate', names)} could not be forecast: {why}.")
    misfits = [str(t.number) for t in sweep.trials if (t.forecast.get("misfit") or 0.0) > LARGE_MISFIT]
    if misfits:
        doubt = f"the proxies' curve badly (misfit above {LARGE_MISFIT:g}): their forecasts deserve doubt"
        yield Notice("note", f"{_many('candidate', misfits)} followed {doubt}.")


def _settled(sweep: SweepRecord) -> Iterator[Notice]:
    settled = (sweep.result or {}).get("settled")
    if not settled or not settled.get("trials"):
        return
    means = [t for t in settled["trials"] if t.get("mean") is not None]
    told = "; ".join(
        f"trial {t['number']} {t['mean']:.4f}"
        + (f" ± {t['standard_error']:.4f}" if t.get("standard_error") is not None else "")
        for t in sorted(means, key=lambda t: t["mean"])
    )
    yield Notice("note", f"The tie was settled with {settled['seeds']} seeds each (mean and standard error): {told}.")


def _reused(sweep: SweepRecord) -> Iterator[Notice]:
    library = (sweep.result or {}).get("library") or {}
    drift = library.get("drift")
    if not drift:
        return
    used = "judged this sweep" if library.get("is_used") else "was not used, and proxies were trained"
    yield Notice("note", f"Entry {library.get('entry')} of the proxy library {used}: {drift.get('reason')}.")
