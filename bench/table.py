"""Results of a replay as Markdown tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpo.adapters.atomic import write_text

COLUMNS = ("hit", "regret_pct", "rho", "mae_pct", "coverage90", "crps", "decided")
RULE_COLUMNS = ("regret_pct", "regret_capped_pct", "winner_stopped", "tokens_share", "completed_share", "hit")
_TITLES = {
    "regret_pct": "Regret of the pick, %",
    "hit": "Picks within the seed noise of the best",
    "rho": "Rank correlation with the truth",
    "mae_pct": "Error of the final value, %",
    "coverage90": "Coverage of 90 % intervals",
    "crps": "CRPS, relative",
    "decided": "Share of targets judged",
}
HUGE = 1e7
_DIGITS = {"regret_pct": 3, "mae_pct": 2, "crps": 4, "regret_capped_pct": 3, "winner_stopped": 3, "tokens_share": 3}


def markdown_table(result: Mapping[str, Any], columns: tuple[str, ...] = COLUMNS) -> str:
    """Return one row a method and stop fraction: means over tasks, standard errors after ±."""
    if "asynchronous" in result:
        return rules_table(result)
    protocol = result["protocol"]
    head = f"{protocol['name']} ({protocol['role']}): {len(result['tasks'])} tasks, {protocol['metric']}"
    lines = [head, "", "| stop | method | " + " | ".join(columns) + " |", "|---|---|" + "---|" * len(columns)]
    stops = list(dict.fromkeys(stop for by_stop in result["summary"].values() for stop in by_stop))
    for stop in stops:
        for method, by_stop in result["summary"].items():
            row = by_stop[stop]
            lines.append(f"| {stop} | {method} | " + " | ".join(_cell(row, name) for name in columns) + " |")
    return "\n".join([*lines, *_left_out(result)])


def _left_out(result: Mapping[str, Any]) -> list[str]:
    """Return a line a reason for which tasks were left out, with how many and one of them."""
    keys: dict[str, list[str]] = {}
    for one in result.get("left_out", []):
        keys.setdefault(one["reason"], []).append(one["key"])
    return [line for why, those in keys.items() for line in ("", f"left out: {len(those)} ({those[0]}): {why}")]


def rules_table(result: Mapping[str, Any]) -> str:
    """Return one row a stopping rule of an asynchronous replay."""
    protocol, clock = result["protocol"], result["asynchronous"]
    head = f"{protocol['name']} ({protocol['role']}): {len(result['tasks'])} tasks, {protocol['metric']}, asynchronous: "
    head += f"{clock['n_workers']} workers, {clock['n_seeds']} orders, {clock['n_looks']} reports a trial"
    lines = [head, "", "| rule | " + " | ".join(RULE_COLUMNS) + " |", "|---|" + "---|" * len(RULE_COLUMNS)]
    for rule, row in result["summary"].items():
        lines.append(f"| {rule} | " + " | ".join(_cell(row, name) for name in RULE_COLUMNS) + " |")
    return "\n".join(lines)


def _cell(row: Mapping[str, Any], name: str) -> str:
    value, error = row.get(name), row.get(name + "_se")
    if value is None:
        return "–"
    digits = _DIGITS.get(name, 2)
    return _number(value, digits) + ("" if error is None else f" ± {_number(error, digits)}")


def _number(value: float, digits: int) -> str:
    """Return a number with ``digits`` decimals, a huge one (relative to a final value of almost nothing) in three digits."""
    return f"{value:.{digits}f}" if abs(value) < HUGE else f"{value:.2e}"


def scoreboard(results: Sequence[Mapping[str, Any]], score: str) -> str:
    """Return one row a protocol and stop fraction, one column a method: the mean over tasks of one score.

    For ``regret_pct`` and ``mae_pct`` of studies with exploding values the median over tasks follows in brackets.
    """
    methods = list(results[0]["summary"]) if results else []
    lines = ["| protocol | role | tasks | stop | " + " | ".join(methods) + " |", "|---|---|---|---|" + "---|" * len(methods)]
    for result in results:
        protocol = result["protocol"]
        for stop in protocol["stop_at"]:
            rows = [result["summary"][method].get(str(stop), {}) for method in methods]
            if all(row.get(score) is None for row in rows):
                continue
            cells = " | ".join(_with_median(row, score) for row in rows)
            lines.append(f"| {protocol['name']} | {protocol['role']} | {rows[0]['n_tasks']} | {stop} | {cells} |")
    return "\n".join(lines)


def _with_median(row: Mapping[str, Any], score: str) -> str:
    value, median = row.get(score), row.get(score + "_median")
    if value is None:
        return "–"
    digits = _DIGITS.get(score, 2)
    text = f"{value:.{digits}f}" if abs(value) < 1e4 else f"{value:.1e}"
    return text if median is None or value <= max(3 * abs(median), 1.0) else f"{text} [{median:.{digits}f}]"


def write_scoreboard(folder: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Write the means of each result as ``NAME.json`` (tasks left out) and the tables as ``README.md``."""
    for result in results:
        kept = ("protocol", "summary", "summary_without_leaks", "paired", "calibration")
        _write_json(folder, {"n_tasks": len(result["tasks"]), **{name: result[name] for name in kept}})
    parts = ["# Replay of recorded runs: means over tasks\n\nMedians over tasks in brackets where few tasks carry the mean.\n"]
    for score, title in _TITLES.items():
        parts.append(f"## {title}\n\n{scoreboard(results, score)}\n")
    (folder / "README.md").write_text("\n".join(parts), encoding="utf-8")


def write_rules(folder: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Write the means of each asynchronous result as ``NAME.json`` and their tables as ``README.md``."""
    for result in results:
        kept = ("protocol", "asynchronous", "summary")
        _write_json(folder, {"n_tasks": len(result["tasks"]), **{name: result[name] for name in kept}})
    tables = "\n\n".join(rules_table(result) for result in results if result["tasks"])
    (folder / "README.md").write_text(
        f"# Stopping rules on a simulated clock: means over tasks\n\n{tables}\n", encoding="utf-8"
    )


def write_race(path: Path, results: Sequence[Mapping[str, Any]], tables: Sequence[str]) -> None:
    """Write the tables of a race as ``path`` and its means (tasks left out) as JSON beside it."""
    means = [{name: result[name] for name in ("protocol", "race", "n_tasks", "summary")} for result in results]
    text = json.dumps(_rounded(means), indent=1, allow_nan=False, ensure_ascii=False)
    title = "# Tokens until a sweep has finished a trial as good as the best, in shares of training everything"
    missed = "A rule that stops all such trials has missed, and is charged what it spent and the whole sweep besides."
    write_text(path.with_suffix(".json"), text + "\n")
    write_text(path, "\n\n".join([title, missed, *tables]) + "\n")


def _write_json(folder: Path, result: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_rounded(result), indent=1, allow_nan=False, ensure_ascii=False)
    (folder / f"{result['protocol']['name']}.json").write_text(text + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    """Round floats to six significant digits, at any depth."""
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
