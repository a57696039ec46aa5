"""The benchmark page's section on pruners where the truth is known, from the rows of :mod:`bench.pruner_scenarios`."""

from __future__ import annotations

from pathlib import Path

from bench.page_parts import command, table
from bench.pruner_scenarios import read_rows
from bench.pruner_scenarios import table as means_of

PRUNERS = {
    "collapse": "**`CollapsePruner`**",
    "median": "Optuna Median",
    "percentile 25": "Optuna Percentile (25)",
    "asha": "Optuna SuccessiveHalving",
    "hyperband": "Optuna Hyperband",
    "wilcoxon": "Optuna Wilcoxon",
}
_HEAD = """## Pruners where the truth is known

Synthetic studies in Optuna, a report every per cent of training, none of which anything was tuned on; the number of studies
in brackets. *Best stopped*: 20 trials, whose final values spread over 6 %, with 2 % of noise on each report. *Late bloomers*
belong to a family that is told, which the first pruner alone can use. A divergence counts where it is stopped within five
reports."""


def scenarios_section(results: Path) -> str:
    """Return the section, empty without ``pruner_scenarios.jsonl``."""
    path = results / "pruner_scenarios.jsonl"
    if not path.is_file():
        return ""
    rows = read_rows(path)
    means = means_of(rows)
    columns = list(dict.fromkeys(column for one in means.values() for column in one))
    cells = [[PRUNERS.get(name, name), *(_cell(means[name].get(c)) for c in columns)] for name in PRUNERS if name in means]
    seeds = [row["seed"] for row in rows]
    said = f"python -m bench.pruner_scenarios --first-seed {min(seeds)} --seeds {max(seeds) - min(seeds) + 1}"
    return "\n\n".join([_HEAD, table(["pruner", *columns], cells), command(f"{said} --rows {path.name}")])


def _cell(found: tuple[float, int] | None) -> str:
    return "–" if found is None or not found[1] else f"{found[0]:.0%} ({found[1]})"
