"""The benchmark page's section on calibration: whether stated probabilities and intervals hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench.page_parts import OURS, Result, command, is_unseen_language_model, n_tasks, shown, table, weighted_mean

_GROUPS = {
    "language models": "",
    "AlgoPerf": "algoperf",
    "TaskSet": "taskset",
}
_STOPS = ("0.1", "0.2", "0.3", "0.5")
_HEAD = """## Calibration

On test protocols (validation losses of language models; AlgoPerf: vision, speech, translation; TaskSet: small networks): how
often the 90 % intervals hold the final loss, and how good the probabilities are that one trial ends better than another.
*Brier skill*: 1 is perfect, 0 is saying one half of every pair. *Slope*: of the outcomes on the log odds; below 1 the
probabilities are too sure, above 1 not sure enough; given where a protocol has a thousand pairs. Intervals that always hold are
too wide: that costs savings."""
_ENOUGH = 1000


def calibration_section(replays: Sequence[Result]) -> str:
    """Return the section, empty without results."""
    rows: list[list[str]] = []
    for title, start in _GROUPS.items():
        chosen = [one for one in replays if _belongs(one, start) and "calibration" in one]
        rows += [[title, f"{float(stop):.0%}", *_cells(chosen, stop)] for stop in _STOPS if chosen]
    if not rows:
        return ""
    head = ("studies", "seen", "tasks", "pairs", "coverage of 90 %", "Brier skill", "slope")
    return "\n\n".join([_HEAD, table(head, rows), command("hpo bench scoreboard --curves DIR --only test --out bench/results")])


def _belongs(one: Result, start: str) -> bool:
    if not start:
        return is_unseen_language_model(one)
    return one["protocol"]["role"] == "test" and str(one["protocol"]["name"]).startswith(start)


def _cells(chosen: Sequence[Result], stop: str) -> list[str]:
    found = [(_ours(one).get(stop) or {}, n_tasks(one)) for one in chosen]
    pairs = sum(int(row.get("n_pairs") or 0) for row, _ in found)
    covered = [(row["coverage90"], n) for row, n in found if row.get("coverage90") is not None]
    skill = [(row["brier_skill"], row["n_pairs"]) for row, _ in found if row.get("brier_skill") is not None]
    slopes = [(row["slope"], row["n_pairs"]) for row, _ in found if row.get("slope") is not None and row["n_pairs"] >= _ENOUGH]
    return [
        str(sum(n for _, n in found)),
        f"{pairs:,}",
        shown(weighted_mean(covered), 2),
        shown(weighted_mean(skill), 2),
        shown(weighted_mean(slopes), 2),
    ]


def _ours(one: Result) -> Mapping[str, Any]:
    calibration: Mapping[str, Any] = one["calibration"]
    found: Mapping[str, Any] = calibration.get(OURS) or calibration.get("landscape") or {}
    return found
