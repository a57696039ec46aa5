"""The benchmark page of the documentation, made from ``bench/results`` alone.

Every figure stands beside the command that makes it; files that are not there are left out. The first tables are means over
tasks of the language-model protocols that no method was tuned on (``role: test``, validation losses); after them come
calibration, latency, the protocols where the forecast is worse than a simpler rule, our own runs, and every protocol by itself.

``python -m bench.page`` prints it; the documentation's build calls :func:`benchmark_page`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.page_calibration import calibration_section
from bench.page_monitor import monitor_section
from bench.page_parts import (
    METHODS,
    OURS,
    STOP,
    Result,
    command,
    documents,
    is_unseen_language_model,
    mean,
    n_tasks,
    score_of,
    shown,
    table,
)
from bench.page_rules import rules_section
from bench.page_scenarios import scenarios_section

RESULTS = Path(__file__).parent / "results"
BASELINES = ("current_best", "transfer")
_REPORTS = (
    ("own_sweep", "Our own sweep", "hpo bench own-sweep"),
    ("own_demo", "The demo, seed by seed", "hpo bench own-demo"),
    ("live_race", "The demo's candidates, trained live by every rule", "python -m bench.live_race --out bench/results"),
    ("own_ladder", "Our own ladder: what collapses", "hpo bench own-ladder"),
    ("neighbours", "From which size on neighbours collapse", "python -m bench.neighbours --out bench/results"),
    ("own_transfer", "Learning rates across width and depth", "hpo bench own-transfer"),
    ("outlook", "What a dry run expects, and what comes", "hpo bench outlook --curves DIR"),
    ("coordinate_check", "Coordinate check", "python -m proxies coordinate-check"),
    ("loop_speed", "Cost of the training loop", "python -m bench.loop_overhead"),
)
_LATENCY = (
    ("latency", "Latency of the core", "hpo bench latency"),
    ("pruner_latency", "Latency of `should_prune`", "python -m bench.pruner_latency"),
    ("decision_latency", "Latency of the Ray scheduler", "python -m bench.decision_latency"),
    ("scale", "Ten thousand trials on a thousand workers", "python -m bench.scale"),
    ("scale_actors", "Real Ray actors", "python -m bench.scale --actors 32 --trials 128 --out bench/results"),
    ("overhead", "A sweep against its training alone", "python -m bench.overhead --together --out bench/results"),
    ("soak", "Ten thousand trials in one study", "python -m bench.soak"),
)


def benchmark_page(results: Path = RESULTS) -> str:
    """Return the page as Markdown.

    Parameters
    ----------
    results : Path
        Folder that ``hpo bench scoreboard`` and the ``own-*`` commands wrote; what is missing there is left out.
    """
    replays = [made for made in documents(results) if "asynchronous" not in made]
    rules = documents(results / "asynchronous")
    parts = [_INTRODUCTION, _stale(results), rules_section(rules, replays), scenarios_section(results), _headline(replays)]
    parts += [calibration_section(replays)]
    parts += [_report(results, *one) for one in _LATENCY]
    parts += [_failures(replays), _race(results), *(_report(results, *one) for one in _REPORTS)]
    parts += [monitor_section(results), _protocols(replays)]
    return "\n\n".join(part for part in parts if part) + "\n"


def pictures(results: Path = RESULTS) -> dict[str, str]:
    """Return the SVG files that the page shows, by file name."""
    return {
        f"{name}.svg": (results / f"{name}.svg").read_text("utf-8")
        for name, *_ in (*_LATENCY, *_REPORTS)
        if _has(results, f"{name}.svg")
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


_RACE = """How many tokens a sweep spends, in shares of training everything, until it has finished a trial as good as the best,
within noise, .5 or 1 %. `current_quarter` finishes the best quarter at 20 % by the loss so far; `select_10` looks at 10 % of
training, and `rungs_10_20_30` at three points."""


def _stale(results: Path) -> str:
    """Return the warning that the results' own README gives below its title, if any."""
    path = results / "README.md"
    lines = path.read_text(encoding="utf-8").split("\n\n")[1:2] if path.is_file() else []
    unlinked = [re.sub(r"\[(.*?)\]\(.*?\)", r"`\1`", line) for line in lines if line.startswith("**")]
    return "".join(f"!!! warning\n\n    {' '.join(line.split())}" for line in unlinked)


def _headline(replays: Sequence[Result]) -> str:
    chosen = [one for one in replays if is_unseen_language_model(one)]
    if not chosen:
        return ""
    rows = []
    for method, title in METHODS.items():
        cells = [mean(chosen, method, score, digits) for score, digits in _HEADLINE]
        if any(cell != "–" for cell in cells):
            rows.append([title, *cells])
    total = sum(n_tasks(one) for one in chosen)
    return "\n\n".join(
        [
            "## Forecasts after a fifth of training",
            f"{total} tasks of {len(chosen)} protocols: language models, validation loss, none used to tune a method.",
            table(["method", "regret, %", "hit", "error, %", "coverage of 90 %", "judged"], rows),
            command("hpo bench scoreboard --curves DIR --only test --out bench/results"),
        ]
    )


_HEADLINE = (("regret_pct", 3), ("hit", 2), ("mae_pct", 2), ("coverage90", 2), ("decided", 2))


def _failures(replays: Sequence[Result]) -> str:
    """Return the protocols on which a simple rule picks better than the forecast by more than the seed noise."""
    lost: list[list[str]] = []
    for one in replays:
        ours = score_of(one, OURS, "regret_pct")
        better = {name: score_of(one, name, "regret_pct") for name in BASELINES}
        noise = 100 * one["protocol"]["noise"]
        if ours is not None and any(value is not None and ours - value > noise for value in better.values()):
            cells = [shown(value, 3) for value in (ours, *better.values())]
            lost.append([_name(one), str(one["protocol"]["role"]), str(n_tasks(one)), *cells])
    if not replays:
        return ""
    head = f"## Where it loses\n\nOn {len(lost)} of {len(replays)} protocols, at 20 % of training, a rule that costs nothing "
    head += "picks better by more than the seed noise. Mean regret in %:"
    return f"{head}\n\n" + (table(["protocol", "role", "tasks", "this project", *BASELINES], lost) if lost else "None.")


def _race(results: Path) -> str:
    """Return the section of the race: its tables folded, its command with the orders and protocols that were run."""
    path = results / "race.json"
    if not path.is_file():
        return ""
    races = json.loads(path.read_text(encoding="utf-8"))
    names, seeds = ",".join(one["protocol"]["name"] for one in races), races[0]["race"]["n_seeds"]
    text = path.with_suffix(".md").read_text(encoding="utf-8").partition("\n\n")[2].strip()
    said, _, tables = text.partition("\n\n")
    line = f"hpo bench race --curves DIR --seeds {seeds} --only {names} --out bench/results/race.md"
    return "\n\n".join(
        [f"## Tokens to the same final loss\n\n{_RACE} {said}", _folded("The race, by protocol", tables), command(line)]
    )


def _folded(title: str, text: str) -> str:
    """Return Markdown that the site shows only when its title is clicked."""
    return f'??? note "{title}"\n\n' + "\n".join(f"    {line}".rstrip() for line in text.splitlines())


def _report(results: Path, name: str, title: str, line: str) -> str:
    """Return the section of a report that its own command wrote."""
    text = next(
        (p.read_text(encoding="utf-8") for ending in ("md", "txt") if (p := results / f"{name}.{ending}").is_file()), ""
    )
    text = re.sub(r"^# .*\n+", "", text)  # the section has its own title
    if not text:
        return ""
    text = re.sub(r"^!\[.*?\]\(.*?\)\n*", "", text, flags=re.MULTILINE)  # and its own picture
    if (results / f"{name}.txt").is_file():
        text = f"```text\n{text.rstrip()}\n```"
    picture = f"![{title}](benchmarks/{name}.svg)" if _has(results, f"{name}.svg") else ""
    return "\n\n".join(part for part in (f"## {title}", text.rstrip(), picture, command(line)) if part)


def _protocols(replays: Sequence[Result]) -> str:
    if not replays:
        return ""
    parts = [f"## Every protocol\n\nMean regret of the pick in %, at {float(STOP):.0%} of training."]
    rows = [
        [
            _name(one),
            str(one["protocol"]["role"]),
            str(n_tasks(one)),
            *(mean([one], name, "regret_pct", 3) for name in METHODS),
        ]
        for one in replays
    ]
    parts.append(table(["protocol", "role", "tasks", *METHODS], rows))
    parts.append("All stop fractions and scores are in `bench/results`. One protocol, with a figure:")
    parts.append(command("hpo bench replay --curves DIR --protocol NAME --figure replay.svg"))
    return "\n\n".join(parts)


def _name(one: Result) -> str:
    return f"`{one['protocol']['name']}`"


def _has(folder: Path, name: str) -> bool:
    return (folder / name).is_file()


def main(write: Callable[[str], object] = sys.stdout.write) -> None:
    """Print the page."""
    write(benchmark_page())


if __name__ == "__main__":
    main()
