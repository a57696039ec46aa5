"""Do samplers suggest better settings when they learn from forecasts? Replays studies on recorded runs, with and without.

Each suggestion runs the recorded setting nearest to it that has not been run; the pruner stops it as it would have stopped the
run. Both arms share sampler, seed and pruner, so that they are one study until the first trial is stopped by forecast.

    python -m bench.forecast_sampler --curves DIR --sampler tpe --seeds 20
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.samplers import BaseSampler, CmaEsSampler, GPSampler, TPESampler

from bench.protocol import load_protocol
from bench.records import Record, load_records
from bench.tasks import make_tasks
from hpo.adapters.optuna_live import report
from hpo.adapters.optuna_pruner import CollapsePruner
from hpo.adapters.optuna_sampler import ForecastSampler
from hpo.core.model import CollapseModel

FloatArray = NDArray[np.float64]
STARTUP = 10
"""First suggestions left out of the score: the samplers draw them at random."""
SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "tpe": lambda seed: TPESampler(seed=seed),
    "gp": lambda seed: GPSampler(seed=seed, deterministic_objective=True),
    "cma": lambda seed: CmaEsSampler(seed=seed),
}
ADAM = ("learning_rate", "beta1", "beta2", "epsilon", "l1", "l2", "linear_decay", "exponential_decay")
OTHER_CATEGORY = 10.0
"""Distance, in widths of the box, to a recorded setting of another category."""


@dataclass(frozen=True, eq=False)
class Table:
    """Recorded runs as a search space.

    Attributes
    ----------
    settings : ndarray, shape (n_runs, n_numbers)
        Scaled to [0, 1].
    categories : tuple of str
        One a run; empty where there is no choice to make.
    truth : ndarray, shape (n_runs,)
        True final values, the lower the better; inf where a run diverged.
    model : CollapseModel or None
        Of cheaper runs.
    """

    name: str
    records: tuple[Record, ...]
    settings: FloatArray = field(repr=False)
    categories: tuple[str, ...]
    truth: FloatArray = field(repr=False)
    model: CollapseModel | None
    n_trials: int

    @property
    def ranks(self) -> FloatArray:
        """Rank of each run: 0 the best, 1 the worst."""
        return np.asarray(self.truth.argsort(kind="stable").argsort() / (self.truth.size - 1), dtype=np.float64)


def tables(folder: Path) -> list[Table]:
    """Return TaskSet's six tasks of 250 Adam settings, and a grid of rates and schedules with cheaper runs as proxies."""
    protocol = load_protocol("taskset_a_val")
    groups: dict[str, list[Record]] = {}
    for record in load_records(folder, protocol):
        groups.setdefault(str(record.fields["family"]), []).append(record)
    out = []
    for name, records in sorted(groups.items()):
        box = _scaled([[_log(key, float(r.fields[key])) for key in ADAM] for r in records])
        truth = np.array([r.truth(protocol) for r in records])
        out.append(Table(name, tuple(records), box, (), np.where(np.isfinite(truth), truth, math.inf), None, n_trials=60))
    return [*out, _grid(folder)]


def _grid(folder: Path) -> Table:
    protocol = load_protocol("schaipp_25k_grid_val")
    (task,), _ = make_tasks(protocol, load_records(folder, protocol))
    box = _scaled([[math.log(float(r.fields["lr"]))] for r in task.targets])
    schedules = tuple(str(r.fields["schedule"]) for r in task.targets)
    model = CollapseModel.fit([r.full for r in task.references])
    return Table(protocol.name, task.targets, box, schedules, task.truth, model, n_trials=24)


def _log(name: str, value: float) -> float:
    return math.log(1.0 - value) if name.startswith("beta") else math.log(value)


def _scaled(rows: Sequence[Sequence[float]]) -> FloatArray:
    x = np.array(rows, dtype=np.float64)
    return np.asarray((x - x.min(0)) / (x.max(0) - x.min(0)), dtype=np.float64)


def replayed(table: Table, sampler: BaseSampler) -> tuple[optuna.Study, list[int]]:
    """Return a study replayed on a table, and the run that each of its trials was."""
    picks: list[int] = []

    def objective(trial: optuna.Trial) -> float:
        picks.append(_pick(table, trial, picks))
        run, last = table.records[picks[-1]].run, math.nan
        trial.set_user_attr("run", picks[-1])
        for step, value in zip(run.steps.tolist(), run.values.tolist(), strict=True):
            if step > 0 and (table.model is None or math.isfinite(value)):
                last = value
                report(trial, int(step), value)
        return last

    def recorded(trial: Any) -> Record:
        return table.records[int(trial.user_attrs["run"])]

    pruner = CollapsePruner(
        table.model,
        total_steps=lambda trial: recorded(trial).run.horizon,
        recipe=lambda trial: None if table.model is None else recorded(trial).full.recipe,
        family=lambda trial: None if table.model is None else recorded(trial).full.family,
    )
    study = optuna.create_study(sampler=sampler, pruner=pruner)
    study.optimize(objective, n_trials=table.n_trials)
    return study, picks


def _pick(table: Table, trial: optuna.Trial, taken: list[int]) -> int:
    """Return the run nearest to a trial's suggestion that is not taken."""
    wanted = [trial.suggest_float(f"x{i}", 0.0, 1.0) for i in range(table.settings.shape[1])]
    distance = np.sqrt(((table.settings - wanted) ** 2).sum(axis=1))
    if table.categories:
        chosen = trial.suggest_categorical("category", sorted(set(table.categories)))
        distance += OTHER_CATEGORY * (np.array(table.categories) != chosen)
    distance[taken] = np.inf
    return int(distance.argmin())


def compared(table: Table, sampler: str, seed: int) -> dict[str, Any] | None:
    """Return what forecasts changed in one study: differences of ranks, negative is better; None if nothing was stopped."""
    ranks, rows = table.ranks, []
    for wrap in (lambda inner: inner, ForecastSampler):
        study, picks = replayed(table, wrap(SAMPLERS[sampler](seed)))
        stops = [t.number for t in study.trials if t.user_attrs.get("predicted_final") is not None]
        if not stops:
            return None
        finished = [ranks[picks[t.number]] for t in study.trials if t.state.name == "COMPLETE"]
        later = ranks[picks[max(stops[0] + 1, STARTUP) :]]
        rows.append((float(later.mean()), float(min(finished, default=1.0)), len(stops)))
    (mean, best, n), (mean_seen, best_seen, n_seen) = rows
    return {
        "table": table.name,
        "seed": seed,
        "suggestions_without": mean,
        "suggestions": mean_seen - mean,
        "best_without": best,
        "best": best_seen - best,
        "stopped": [n, n_seen],
    }


def summary(rows: Sequence[dict[str, Any]], n_resamples: int = 2000) -> dict[str, Any]:
    """Return mean differences over tables with paired 95 % intervals, by resampling seeds within each table."""
    names = sorted({row["table"] for row in rows})
    rng = np.random.default_rng(0)
    out: dict[str, Any] = {"n_studies": len(rows), "n_tables": len(names)}
    for key in ("suggestions", "best"):
        groups = [np.array([row[key] for row in rows if row["table"] == name]) for name in names]
        means = [[g[rng.integers(0, g.size, g.size)].mean() for g in groups] for _ in range(n_resamples)]
        interval = np.percentile(np.mean(means, axis=1), [2.5, 97.5])
        out[key] = {
            "without": float(np.mean([row[f"{key}_without"] for row in rows])),
            "difference": float(np.mean([g.mean() for g in groups])),
            "interval95": interval.tolist(),
            "by_table": {name: float(g.mean()) for name, g in zip(names, groups, strict=True)},
        }
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay and print one JSON document."""
    parser = argparse.ArgumentParser(prog="python -m bench.forecast_sampler", description=__doc__.splitlines()[0])
    parser.add_argument("--curves", type=Path, required=True, help="folder of recorded curves")
    parser.add_argument("--sampler", choices=sorted(SAMPLERS), default="tpe")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--tables", default="", help="only those whose name holds this")
    chosen = parser.parse_args(arguments)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    found = [compared(t, chosen.sampler, seed) for t in tables(chosen.curves) if chosen.tables in t.name for seed in seeds]
    rows = [row for row in found if row is not None]
    print(json.dumps({"sampler": chosen.sampler, "summary": summary(rows), "studies": rows}, indent=1))


if __name__ == "__main__":
    main()
