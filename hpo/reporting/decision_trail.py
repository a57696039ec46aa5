"""What happened to one trial and why, in order, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from hpo.adapters.optuna_record import PRUNER_REASONS
from hpo.adapters.progress_log import Event
from hpo.core.decision import REASONS
from hpo.reporting.sweep_words import share_text

_MORE_REASONS = {
    "time_budget": "the sweep's time was up",
    "out_of_memory": "memory ran out",
    "in_reserve": "those that were selected had failed",
}


@dataclass(frozen=True)
class TrailLine:
    """One event: seconds since 1970 (None where unknown), what happened, and whether it is a decision."""

    time: float | None
    text: str
    is_decision: bool = False


def reason_text(code: str) -> str:
    """Return what a reason code says; an unknown one as it is."""
    return REASONS.get(code) or PRUNER_REASONS.get(code) or _MORE_REASONS.get(code) or code.replace("_", " ")


def trail_of(
    name: str,
    *,
    events: Sequence[Event],
    decisions: Sequence[Mapping[str, Any]],
    of_rule: Sequence[Mapping[str, Any]],
    commands: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]],
) -> list[TrailLine]:
    """Return the trail of the candidate ``name``.

    Parameters
    ----------
    events : sequence
        Of the progress log, about it and its further runs; empty in a run folder of an older version.
    decisions : sequence
        Its lines in ``decisions.jsonl``; used where ``events`` hold no decision.
    of_rule : sequence
        Its decisions in ``events.jsonl``; likewise.
    commands : sequence of (command, answer)
        What people asked about it.
    """
    lines = [line for event in _without_repeats(events) for line in [_line(name, event)] if line is not None]
    if not any(line.is_decision for line in lines):
        if of_rule:
            lines += [_decided({**one, "time": None}, count) for one, count in _grouped(of_rule)]
        else:
            lines += [_decided({**one.get("numbers", {}), **one, **_flat(one)}, 1) for one in decisions]
    lines += [line for command, answer in commands for line in _asked(command, answer)]
    return sorted(lines, key=lambda line: (line.time is None, line.time or 0.0))


def _line(name: str, event: Event) -> TrailLine | None:
    kind, other = event["event"], str(event["name"])
    which = "" if other == name else "verification: " if other.startswith("verify-") else f"{other.removesuffix(f'-{name}')}: "
    if kind == "started":
        again = "its worker has died; starts again" if event.get("again") else "trains"
        return TrailLine(event["time"], f"{which}{again}, up to step {event['until']}")
    if kind == "ended":
        return TrailLine(event["time"], which + _ended(event))
    if kind == "suspected":
        since = "" if event.get("onset") is None else f" from {share_text(event['onset'])} of its training on"
        return TrailLine(event["time"], f"{which}suspect: it left the proxies' curve{since}; {event.get('reason', '')}")
    return _decided(event, int(event.get("count", 1))) if kind == "decided" else None


def _ended(event: Event) -> str:
    step, n_steps = int(event["step"]), int(event["n_steps"])
    if event["status"] == "reached":
        return f"reached step {step}" + (", its end" if step >= n_steps else f", {share_text(step / n_steps)} of its training")
    why = f": {reason_text(str(event['message']))}" if event.get("message") else ""
    return f"{str(event['status']).replace('_', ' ')} at step {step}{why}"


def _decided(event: Mapping[str, Any], count: int) -> TrailLine:
    if event.get("reason") == "complete" and event.get("forecast") is not None:  # that "forecast" is its measured end
        return TrailLine(_seconds(event.get("time")), f"is complete, with a final loss of {event['forecast']:.4f}")
    goes = "stop" if event.get("action") == "stop" else "go on"
    parts = [f"{goes}: {reason_text(str(event.get('reason', '')))}"]
    if event.get("fraction") is not None:
        at = f"at {share_text(event['fraction'])}"
        parts.append(f"judged {at}" if count == 1 else f"judged {count} times, last {at}")
    if event.get("forecast") is not None:
        interval = ""
        if event.get("lower") is not None and event.get("upper") is not None:
            interval = f" (90 %: {event['lower']:.4f} to {event['upper']:.4f})"
        parts.append(f"forecast {event['forecast']:.4f}{interval}")
    if event.get("p_best") is not None:
        parts.append(f"P(best) {event['p_best']:.3g}")
    if event.get("misfit") is not None:
        parts.append(f"misfit {event['misfit']:.2f}")
    if event.get("n_references"):
        parts.append(f"{event['n_references']} references")
    return TrailLine(_seconds(event.get("time")), ", ".join(parts), is_decision=True)


def _flat(decision: Mapping[str, Any]) -> dict[str, Any]:
    said = decision.get("forecast") or {}
    return {"forecast": said.get("final_loss"), **{key: said.get(key) for key in ("lower", "upper", "p_best", "misfit")}}


def _without_repeats(events: Sequence[Event]) -> list[Event]:
    """Return the events, of several decisions in a row for one reason only the last, with their count."""
    kept: list[Event] = []
    last: Event | None = None
    for event in (e for e in events if e["event"] in ("started", "ended", "decided", "suspected")):
        if last is not None and event["event"] == "decided" and (last["action"], last["reason"]) == _of(event):
            last = kept[-1] = {**event, "count": int(kept[-1].get("count", 1)) + 1}
        elif event["event"] != "suspected" or all(one["event"] != "suspected" for one in kept):  # a resumed driver tells again
            is_again = bool(kept) and event["event"] == kept[-1]["event"] == "started" and event["name"] == kept[-1]["name"]
            kept.append({**event, "again": True} if is_again else event)
            last = event if event["event"] == "decided" else None
    return kept


def _grouped(decisions: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], int]]:
    """Return decisions with how many of one kind came in a row, the last of each."""
    found: list[tuple[Mapping[str, Any], int]] = []
    for one in decisions:
        if found and _of(found[-1][0]) == _of(one):
            found[-1] = (one, found[-1][1] + 1)
        else:
            found.append((one, 1))
    return found


def _of(event: Mapping[str, Any]) -> tuple[Any, Any]:
    return event.get("action"), event.get("reason")


def _asked(command: Mapping[str, Any], answer: Mapping[str, Any] | None) -> list[TrailLine]:
    time = _seconds(command.get("time"))
    until = command.get("until")
    to = "" if until is None else f" to {share_text(until)}"
    said = "not answered yet" if answer is None else str(answer.get("text", ""))
    return [TrailLine(time, f"by hand: {command.get('action')}{to} — {said}")]


def _seconds(time: Any) -> float | None:
    if isinstance(time, int | float):
        return float(time)
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return None


def clock(time: float | None) -> str:
    """Return a time as ``2026-11-30 08:23:16`` in UTC; "" for None."""
    return "" if time is None else datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%S")
