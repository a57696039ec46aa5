"""What the sections of the benchmark page share: reading results, means over tasks, tables."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

STOP = "0.2"
OURS = "hpo"
LANGUAGE_MODELS = ("lr_scheduling_schaipp", "olmo_ladder", "multipowerlaw", "own_sweep")
METHODS = {
    "random": "random",
    "current_best": "current best: the loss so far",
    "transfer": "transfer: the nearest reference's final loss, no look",
    "power_law": "power law, per run",
    "multi_power_law": "multi-power law",
    "multi_power_law_aligned": "multi-power law, aligned to the run",
    "surrogate": "the papers' surrogate with early-align",
    OURS: "**this project**",
}
Result = Mapping[str, Any]
_LARGE = 1e4
"""What is beyond it, as the regret of a pick that diverged, is told as that."""


def documents(folder: Path) -> list[Result]:
    """Return the replays in a folder, in order of their names; a file by another name than its protocol's is no replay."""
    read = [(path.stem, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]
    replays = [(stem, one) for stem, one in read if isinstance(one, dict) and {"protocol", "summary"} <= one.keys()]
    return [one for stem, one in replays if one["protocol"]["name"] == stem]


def is_unseen_language_model(one: Result) -> bool:
    """True for validation losses of language models in a protocol that no method was tuned on."""
    protocol = one["protocol"]
    is_ours = str(protocol["file"]).startswith(LANGUAGE_MODELS)
    return is_ours and protocol["role"] == "test" and str(protocol["metric"]).startswith("val")


def mean(documents: Sequence[Result], method: str, score: str, digits: int, stop: str | None = STOP) -> str:
    """Return the mean over the tasks of all documents, a dash where a method has no such score."""
    known = [(value, n_tasks(one)) for one in documents if (value := score_of(one, method, score, stop)) is not None]
    return shown(weighted_mean(known), digits)


def weighted_mean(known: Sequence[tuple[float, int]]) -> float | None:
    """Return the mean of values with their weights, None without any."""
    return sum(value * n for value, n in known) / sum(n for _, n in known) if known else None


def shown(value: float | None, digits: int) -> str:
    """Return a number as text, a dash for None."""
    if value is None:
        return "–"
    return f"> {_LARGE:,.0f}" if value > _LARGE else f"{value:.{digits}f}"


def score_of(one: Result, method: str, score: str, stop: str | None = STOP) -> float | None:
    """Return a method's score at a stop (or a rule's, for None), None where there is none or it is not finite."""
    summary = one["summary"]
    row = summary.get(method) or (summary.get("landscape") if method == OURS else None) or {}
    value = (row if stop is None else row.get(stop, {})).get(score)
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def n_tasks(one: Result) -> int:
    """Return how many tasks a replay has."""
    return int(one["n_tasks"]) if "n_tasks" in one else len(one["tasks"])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [" | ".join(head), " | ".join(["---"] * len(head)), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def command(text: str) -> str:
    """Return a command as a block of its own."""
    return f"```sh\n{text}\n```"
