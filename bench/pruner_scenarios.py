"""What pruners do where the truth is known: synthetic studies, our pruner and Optuna's, one table.

Each scenario is a study of trials whose final values are fixed beforehand; a pruner sees their reports one trial after the
other. The curve family of a study is drawn from its seed (:func:`family_curve`); ``--seeds`` says how many studies, and
``--first-seed`` moves on to others than those that anything was tuned on.

    python -m bench.pruner_scenarios --first-seed 3000 --seeds 200 --rows bench/results/pruner_scenarios.jsonl
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import optuna
from numpy.typing import NDArray

from hpo.adapters.json_line import json_object
from hpo.adapters.optuna_pruner import CollapsePruner

FloatArray = NDArray[np.float64]
Row = dict[str, Any]
"""One pruner's indicators on the studies of one seed."""
N_REPORTS = 100


@dataclass(frozen=True)
class Scenario:
    """A study whose outcome is known.

    Attributes
    ----------
    values : ndarray, shape (n_trials, n_reports)
        What each trial reports at steps 1 … n_reports.
    finals : ndarray, shape (n_trials,)
        True final values, without noise; inf where a trial diverges.
    families : tuple of str
        Label of each trial, told to pruners that take one.
    watched : tuple of int
        The trials the scenario is about.
    onset : int
        Report from which a watched trial goes wrong.
    """

    values: FloatArray
    finals: FloatArray
    families: tuple[str, ...] = ()
    watched: tuple[int, ...] = ()
    onset: int = 0

    @property
    def best(self) -> int:
        """Trial with the lowest true final value."""
        return int(np.argmin(self.finals))


def family_curve(rng: np.random.Generator, n_reports: int = N_REPORTS) -> FloatArray:
    """Return a normalised curve ℓ(t̂), 1 at t̂ = 1, drawn from power laws with and without a late fall, shape (n_reports,)."""
    t = np.arange(1, n_reports + 1) / n_reports
    height, decay, late = rng.uniform(0.2, 0.6), rng.uniform(0.2, 0.5), rng.uniform(0.0, 0.15)
    curve: FloatArray = 1.0 + height * (t**-decay - 1.0) / 2.0 + late * (1.0 - t)
    return curve


def noisy(clean: FloatArray, noise: float, rng: np.random.Generator) -> FloatArray:
    """Return curves with multiplicative noise of relative sd ``noise``."""
    return np.asarray(clean * np.exp(noise * rng.standard_normal(clean.shape)))


def spread_finals(seed: int, noise: float = 0.02, spread: float = 0.06, n_trials: int = 20) -> Scenario:
    """Return a study of one family whose finals spread evenly over ``spread``."""
    rng = np.random.default_rng([1, seed])
    finals = 3.0 * (1.0 + spread * rng.random(n_trials))
    return Scenario(noisy(np.outer(finals, family_curve(rng)), noise, rng), finals)


def much_worse(seed: int, noise: float = 0.02) -> Scenario:
    """Return :func:`spread_finals` with a last trial 15 % worse than the best."""
    rng = np.random.default_rng([2, seed])
    finals = 3.0 * (1.0 + 0.06 * rng.random(16))
    finals = np.append(finals, 1.15 * finals.min())
    return Scenario(noisy(np.outer(finals, family_curve(rng)), noise, rng), finals, watched=(16,))


def five_percent(seed: int, noise: float = 0.005) -> Scenario:
    """Return a study over 20 % with a last trial 5 % worse than the best and better than the median."""
    rng = np.random.default_rng([3, seed])
    finals = 3.0 * np.append(rng.permutation(np.linspace(1.0, 1.2, 16)), 1.05)
    return Scenario(noisy(np.outer(finals, family_curve(rng)), noise, rng), finals, watched=(16,))


def late_bloomers(seed: int, noise: float = 0.005) -> Scenario:
    """Return two families: one decays all along, one stays high and falls in the last fifth to the better final values."""
    rng = np.random.default_rng([4, seed])
    n = 24
    late = np.zeros(n, dtype=bool)
    late[rng.choice(np.arange(8, n), 4, replace=False)] = True
    finals = 3.0 * rng.uniform(1.0, 1.2, n)
    finals[late] = 3.0 * np.array([0.98, 0.97, 0.96, 0.95])  # each the best so far
    t = np.arange(1, N_REPORTS + 1) / N_REPORTS
    blooming = 1.0 + 0.25 * np.minimum(1.0, (1.0 - t) / 0.2) + 0.15 * (t**-0.3 - 1.0)
    clean = finals[:, None] * np.where(late[:, None], blooming, family_curve(rng))
    families = tuple("constant with cooldown" if x else "decay" for x in late)
    return Scenario(noisy(clean, noise, rng), finals, families, tuple(np.flatnonzero(late).tolist()))


def diverging(seed: int, noise: float = 0.02, rise: float = 0.8, over: int = 2) -> Scenario:
    """Return a study whose last trial, the best until then, rises by ``rise`` over the reports after 10 %, and stays there."""
    rng = np.random.default_rng([5, seed])
    finals = 3.0 * (1.0 + 0.06 * rng.random(8))
    finals[-1] = 0.97 * finals.min()
    clean = np.outer(finals, family_curve(rng))
    onset = 10
    clean[-1, onset:] *= 1.0 + rise * np.minimum(1.0, np.arange(1, N_REPORTS - onset + 1) / over)
    values = noisy(clean, noise, rng)
    values[-1, 4] *= 0.7  # a lucky early value
    finals[-1] = np.inf
    return Scenario(values, finals, watched=(7,), onset=onset)


Make = Callable[[Scenario], optuna.pruners.BasePruner]


def ours(scenario: Scenario, **settings: Any) -> CollapsePruner:
    """Return our pruner, told the horizon only."""
    return CollapsePruner(total_steps=scenario.values.shape[1], **settings)


PRUNERS: dict[str, Make] = {
    "collapse": ours,
    "median": lambda _: optuna.pruners.MedianPruner(),
    "percentile 25": lambda _: optuna.pruners.PercentilePruner(25.0),
    "asha": lambda _: optuna.pruners.SuccessiveHalvingPruner(),
    "hyperband": lambda s: optuna.pruners.HyperbandPruner(max_resource=s.values.shape[1]),
    "wilcoxon": lambda _: optuna.pruners.WilcoxonPruner(),
}


@dataclass(frozen=True)
class Outcome:
    """Where each trial was stopped (report number; 0 = not), and what the study cost."""

    stopped_at: tuple[int, ...]
    reports: int = field(default=0)


def play(pruner: optuna.pruners.BasePruner, scenario: Scenario) -> Outcome:
    """Return what a pruner does in a study whose trials run one after the other."""
    study = optuna.create_study(pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=0))
    stopped, reports = [], 0
    for number, values in enumerate(scenario.values):
        trial = study.ask()
        if scenario.families:
            trial.set_user_attr("family", scenario.families[number])
        at = _run_trial(trial, values)
        reports += at or values.size
        study.tell(trial, None if at else float(values[-1]), state=_PRUNED if at else None)
        stopped.append(at)
    return Outcome(tuple(stopped), reports)


def _run_trial(trial: optuna.Trial, values: FloatArray) -> int:
    for step, value in enumerate(values.tolist(), start=1):
        trial.report(value, step)
        if trial.should_prune():
            return step
    return 0


_PRUNED = optuna.trial.TrialState.PRUNED


def _spread(make: Make, seed: int) -> dict[str, float]:
    scenario = spread_finals(seed)
    result = play(make(scenario), scenario)
    stopped = float(result.stopped_at[scenario.best] > 0)
    return {"best stopped at 2 % noise": stopped, "reports spent there": result.reports / scenario.values.size}


def _much_worse(make: Make, seed: int) -> dict[str, float]:
    scenario = much_worse(seed)
    return {"15 % worse stopped by 30 %": float(0 < play(make(scenario), scenario).stopped_at[16] <= 30)}


def _five_percent(make: Make, seed: int) -> dict[str, float]:
    out = {}
    for name, noise in (("5 % worse stopped at 10-30 %", 0.005), ("the same at 2 % noise", 0.02)):
        scenario = five_percent(seed, noise)
        out[name] = float(10 <= play(make(scenario), scenario).stopped_at[16] <= 30)
    return out


def _diverging(make: Make, seed: int) -> dict[str, float]:
    out = {}
    for name, rise, over in (("divergence", 0.8, 2), ("slower divergence", 0.5, 3)):
        scenario = diverging(seed, rise=rise, over=over)
        at = play(make(scenario), scenario).stopped_at[7]
        out[f"{name} stopped within 5"] = float(scenario.onset < at <= scenario.onset + 5)
    return out


def _late_bloomers(make: Make, seed: int) -> dict[str, float]:
    scenario = late_bloomers(seed)
    result = play(make(scenario), scenario)
    late = np.zeros(scenario.finals.size, dtype=bool)
    late[list(scenario.watched)] = True
    stopped = np.array(result.stopped_at) > 0
    so_far = np.minimum.accumulate(np.append(np.inf, scenario.finals[:-1]))
    worse = ~late & (scenario.finals > 1.05 * so_far)
    worse[:4] = False  # too early in the study for anyone
    return {
        "late bloomers stopped": float(stopped[late].mean()),
        "truly worse stopped there": float(stopped[worse].mean()) if worse.any() else math.nan,
    }


SCENARIOS: dict[str, Callable[[Make, int], dict[str, float]]] = {
    "spread": _spread,
    "much_worse": _much_worse,
    "five_percent": _five_percent,
    "late_bloomers": _late_bloomers,
    "diverging": _diverging,
}


def measure(pruner: str, scenario: str, seed: int) -> dict[str, float]:
    """Return what one pruner does in one seed's studies of a scenario, as indicators to be averaged."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return SCENARIOS[scenario](PRUNERS[pruner], seed)


def play_all(
    pruners: Sequence[str], scenarios: Sequence[str], seeds: Sequence[int], jobs: int = 1, rows: Path | None = None
) -> list[Row]:
    """Return a row for each seed, scenario and pruner; those in the file ``rows`` are not played again, new ones appended."""
    known = [] if rows is None or not rows.exists() else read_rows(rows)
    wanted = [(pruner, scenario, seed) for seed in seeds for scenario in scenarios for pruner in pruners]
    done = {_place(row) for row in known}
    todo = [one for one in wanted if one not in done]
    with ExitStack() as stack:
        play = map if jobs == 1 else stack.enter_context(ProcessPoolExecutor(jobs)).map
        file = None if rows is None else stack.enter_context(_to_append(rows))
        for (pruner, scenario, seed), found in zip(todo, play(measure, *zip(*todo, strict=True)) if todo else (), strict=True):
            known.append({"pruner": pruner, "scenario": scenario, "seed": seed, "found": found})
            if file is not None:
                print(json.dumps(known[-1]), file=file, flush=True)
    return [row for row in known if _place(row) in set(wanted)]


def _place(row: Row) -> tuple[str, str, int]:
    return row["pruner"], row["scenario"], row["seed"]


def _to_append(path: Path) -> TextIO:
    """Return the file open at its end, a torn last line closed."""
    file = path.open("a+", encoding="utf-8")
    file.seek(0)
    if file.read()[-1:] not in ("", "\n"):
        file.write("\n")
    return file


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file that an earlier run wrote; a last line that was cut short is left out."""
    found = (json_object(line) for line in path.read_text(encoding="utf-8").splitlines())
    return [row for row in found if row is not None]


def table(rows: Sequence[Row]) -> dict[str, dict[str, tuple[float, int]]]:
    """Return the mean of each indicator and the number of studies it is of, by pruner; a NaN counts as no study."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for column, value in row["found"].items():
            values.setdefault(row["pruner"], {}).setdefault(column, []).extend([] if math.isnan(value) else [value])
    return {
        pruner: {column: (float(np.mean(v)) if v else math.nan, len(v)) for column, v in columns.items()}
        for pruner, columns in values.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenarios and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.pruner_scenarios", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="studies of each scenario")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--pruners", nargs="+", default=list(PRUNERS), choices=list(PRUNERS), metavar="NAME")
    parser.add_argument("--scenarios", nargs="+", default=list(SCENARIOS), choices=list(SCENARIOS), metavar="NAME")
    parser.add_argument("--rows", type=Path, help="JSONL file of what was played, a line a study; an ended run goes on there")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    options = parser.parse_args(arguments)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    found = table(play_all(options.pruners, options.scenarios, seeds, options.jobs, options.rows))
    if options.json:
        print(json.dumps({"seeds": options.seeds, "first_seed": options.first_seed, "pruners": found}, indent=2))
        return 0
    columns = list(next(iter(found.values())))
    print("| pruner | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for name, row in found.items():
        print(f"| {name} | " + " | ".join(f"{100 * row[c][0]:.1f} % ({row[c][1]})" for c in columns) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
