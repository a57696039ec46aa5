"""The benchmark page of the documentation, made from ``bench/results`` alone.

Every figure stands beside the command that makes it; files that are not there are left out. The first two tables are means over
tasks of the language-model protocols that no method was tuned on (``role: test``, validation losses); after them comes every
protocol by itself, with those where the forecast is worse than a simpler rule counted and named.

``python -m bench.page`` prints it; the documentation's build calls :func:`benchmark_page`.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
STOP = "0.2"
LANGUAGE_MODELS = ("lr_scheduling_schaipp", "olmo_ladder", "multipowerlaw", "own_sweep")
OURS = "hpo"
BASELINES = ("current_best", "transfer")
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
RULES = {
    "everything": "train everything",
    "optuna_median": "Optuna Median",
    "optuna_percentile": "Optuna Percentile (25)",
    "optuna_halving": "Optuna SuccessiveHalving",
    "optuna_hyperband": "Optuna Hyperband",
    "collapse_pruner": "**this project, `CollapsePruner`** without references",
    "ray_asha": "Ray ASHA",
    "current_top1": "the best so far at 20 %, alone",
    "current_quarter": "the best quarter so far at 20 %",
    "current_as_many": "as many as `select` keeps, by the loss so far",
    "prune": "**this project, `prune`**",
    "select": "**this project, `select`**",
}
Result = Mapping[str, Any]
_REPORTS = (
    ("own_sweep", "Our own sweep", "hpo bench own-sweep"),
    ("own_ladder", "Our own ladder: what collapses", "hpo bench own-ladder"),
    ("own_transfer", "Learning rates across width and depth", "hpo bench own-transfer"),
    ("coordinate_check", "Coordinate check", "python -m proxies coordinate-check"),
    ("loop_speed", "Cost of the training loop", "python -m bench.loop_overhead"),
    ("monitor_test", "False alarms and delays of the monitor", "python -m bench.monitor"),
    ("latency", "Latency", "hpo bench latency"),
)


def benchmark_page(results: Path = RESULTS) -> str:
    """Return the page as Markdown.

    Parameters
    ----------
    results : Path
        Folder that ``hpo bench scoreboard`` and the ``own-*`` commands wrote; what is missing there is left out.
    """
    replays = [made for made in _documents(results) if "asynchronous" not in made]
    rules = _documents(results / "asynchronous")
    parts = [_INTRODUCTION, _stale(results), _headline(replays), _rules(rules), _failures(replays)]
    parts += [_report(results, *one) for one in _REPORTS]
    parts += [_protocols(replays)]
    return "\n\n".join(part for part in parts if part) + "\n"


def pictures(results: Path = RESULTS) -> dict[str, str]:
    """Return the SVG files that the page shows, by file name."""
    return {
        f"{name}.svg": (results / f"{name}.svg").read_text("utf-8") for name, *_ in _REPORTS if _has(results, f"{name}.svg")
    }


_INTRODUCTION = """# Benchmarks

Each figure stands beside the command that makes it, and this page is made from the results by the documentation's build.
Recorded runs are cut at a fraction of their training; a method sees those first parts and whole *references* (cheaper runs, or
finished trials), and says which target will end best and at what loss. What counts:

- *regret*: how much worse the pick ends than the best target, in %; *hit*: the pick is within seed noise of the best;
- *error*: of the forecast final loss, in %; *coverage*: how often the stated 90 % intervals hold the truth;
- *current best* and *transfer* are the rules to beat: they cost nothing. A forecast that beats neither has shown nothing.

The recorded curves are not part of this repository: `DIR` is their folder. Our own sweep comes with the package. Sources,
predictions made beforehand, and what went wrong are in `bench/LOG.md`."""


def _documents(folder: Path) -> list[Result]:
    """Return the replays in a folder, in order of their names."""
    read = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return [one for one in read if isinstance(one, dict) and {"protocol", "summary"} <= one.keys()]


def _stale(results: Path) -> str:
    """Return the warning that the results' own README gives below its title, if any."""
    path = results / "README.md"
    lines = path.read_text(encoding="utf-8").split("\n\n")[1:2] if path.is_file() else []
    unlinked = [re.sub(r"\[(.*?)\]\(.*?\)", r"`\1`", line) for line in lines if line.startswith("**")]
    return "".join(f"!!! warning\n\n    {' '.join(line.split())}" for line in unlinked)


def _headline(replays: Sequence[Result]) -> str:
    chosen = [one for one in replays if _is_unseen_language_model(one)]
    if not chosen:
        return ""
    rows = []
    for method, title in METHODS.items():
        cells = [_mean(chosen, method, score, digits) for score, digits in _HEADLINE]
        if any(cell != "–" for cell in cells):
            rows.append([title, *cells])
    n_tasks = sum(_n_tasks(one) for one in chosen)
    return "\n\n".join(
        [
            "## One table: picking the winner after a fifth of training",
            f"{n_tasks} tasks of {len(chosen)} protocols: language models, validation loss, none used to tune a method.",
            _table(["method", "regret, %", "hit", "error, %", "coverage of 90 %", "judged"], rows),
            _command("hpo bench scoreboard --curves DIR --only test --out bench/results"),
        ]
    )


_HEADLINE = (("regret_pct", 3), ("hit", 2), ("mae_pct", 2), ("coverage90", 2), ("decided", 2))


def _rules(documents: Sequence[Result]) -> str:
    chosen = [one for one in documents if _is_unseen_language_model(one)]
    if not chosen:
        return ""
    rows = []
    for rule in dict.fromkeys(name for one in chosen for name in one["summary"]):
        cells = [_mean(chosen, rule, score, 3, stop=None) for score in ("regret_pct", "winner_stopped", "tokens_share")]
        shares = [_score(one, rule, "tokens_all", None) or math.nan for one in chosen]
        whole = [_score(one, "everything", "tokens_all", None) or math.nan for one in chosen]
        known = [(a / b, _n_tasks(one)) for a, b, one in zip(shares, whole, chosen, strict=True) if math.isfinite(a / b)]
        rows.append([RULES.get(rule, rule), *cells, _format(_weighted_mean(known), 2)])
    return "\n\n".join(
        [
            _RULES_HEAD,
            _table(["rule", "regret, %", "winner stopped", "tokens", "tokens with references"], rows),
            _command("hpo bench scoreboard --curves DIR --only test --asynchronous --out bench/results/asynchronous"),
        ]
    )


_RULES_HEAD = """## Stopping rules as trials arrive

The same tasks on a simulated clock: trials arrive in random order on a few workers, and each rule stops them as it goes.
*Winner stopped*: every trial within seed noise of the best was stopped. Tokens are a share of training everything: those of the
targets alone, and with the references that a rule learned from."""


def _failures(replays: Sequence[Result]) -> str:
    """Return the protocols on which a simple rule picks better than the forecast by more than the seed noise."""
    lost: list[list[str]] = []
    for one in replays:
        ours = _score(one, OURS, "regret_pct")
        better = {name: _score(one, name, "regret_pct") for name in BASELINES}
        noise = 100 * one["protocol"]["noise"]
        if ours is not None and any(value is not None and ours - value > noise for value in better.values()):
            cells = [_format(value, 3) for value in (ours, *better.values())]
            lost.append([_name(one), str(one["protocol"]["role"]), str(_n_tasks(one)), *cells])
    if not replays:
        return ""
    head = f"## Where it loses\n\nOn {len(lost)} of {len(replays)} protocols, at 20 % of training, a rule that costs nothing "
    head += "picks better by more than the seed noise. Mean regret in %:"
    return f"{head}\n\n" + (_table(["protocol", "role", "tasks", "this project", *BASELINES], lost) if lost else "None.")


def _report(results: Path, name: str, title: str, command: str) -> str:
    """Return the section of a report that its own command wrote."""
    text = next(
        (p.read_text(encoding="utf-8") for ending in ("md", "txt") if (p := results / f"{name}.{ending}").is_file()), ""
    )
    if not text:
        return ""
    if (results / f"{name}.txt").is_file():
        text = f"```text\n{text.rstrip()}\n```"
    picture = f"![{title}](benchmarks/{name}.svg)" if _has(results, f"{name}.svg") else ""
    return "\n\n".join(part for part in (f"## {title}", text.rstrip(), picture, _command(command)) if part)


def _protocols(replays: Sequence[Result]) -> str:
    if not replays:
        return ""
    parts = [f"## Every protocol\n\nMean regret of the pick in %, at {float(STOP):.0%} of training."]
    rows = [
        [
            _name(one),
            str(one["protocol"]["role"]),
            str(_n_tasks(one)),
            *(_mean([one], name, "regret_pct", 3) for name in METHODS),
        ]
        for one in replays
    ]
    parts.append(_table(["protocol", "role", "tasks", *METHODS], rows))
    parts.append("All stop fractions and scores are in `bench/results`. One protocol, with a figure:")
    parts.append(_command("hpo bench replay --curves DIR --protocol NAME --figure replay.svg"))
    return "\n\n".join(parts)


def _is_unseen_language_model(one: Result) -> bool:
    protocol = one["protocol"]
    is_ours = str(protocol["file"]).startswith(LANGUAGE_MODELS)
    return is_ours and protocol["role"] == "test" and str(protocol["metric"]).startswith("val")


def _mean(documents: Sequence[Result], method: str, score: str, digits: int, stop: str | None = STOP) -> str:
    """Return the mean over the tasks of all documents, a dash where a method has no such score."""
    known = [(value, _n_tasks(one)) for one in documents if (value := _score(one, method, score, stop)) is not None]
    return _format(_weighted_mean(known), digits)


def _weighted_mean(known: Sequence[tuple[float, int]]) -> float | None:
    return sum(value * n for value, n in known) / sum(n for _, n in known) if known else None


def _format(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _score(one: Result, method: str, score: str, stop: str | None = STOP) -> float | None:
    summary = one["summary"]
    row = summary.get(method) or (summary.get("landscape") if method == OURS else None) or {}
    value = (row if stop is None else row.get(stop, {})).get(score)
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _name(one: Result) -> str:
    return f"`{one['protocol']['name']}`"


def _n_tasks(one: Result) -> int:
    return int(one["n_tasks"]) if "n_tasks" in one else len(one["tasks"])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" | ".join(head), " | ".join(["---"] * len(head)), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def _command(text: str) -> str:
    return f"```sh\n{text}\n```"


def _has(folder: Path, name: str) -> bool:
    return (folder / name).is_file()


def main(write: Callable[[str], object] = sys.stdout.write) -> None:
    """Print the page."""
    write(benchmark_page())


if __name__ == "__main__":
    main()
