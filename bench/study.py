"""A finished Optuna study as a replay: its own trials, cut at each stop fraction, judged by every method.

Finished trials drawn with a seed teach, the others are targets. Trials that were pruned or failed have no truth and are left
out, which is said: of a study that was pruned the survivors are left, and they are the good ones.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import sqlalchemy.exc
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from bench.protocol import Protocol
from bench.replay import replay
from hpo.adapters.optuna_trials import Horizons, TrialReader
from hpo.core.recipe import Recipe

FEWEST_REPORTS = 5
MOST_TEACHERS = 8
_RECIPE_COLUMNS = ("n_params", "batch_tokens", "lr", "weight_decay", "warmup_fraction", "base_lr", "base_weight_decay")


def open_study(storage: str, name: str) -> optuna.Study:
    """Return the study called ``name`` in a storage URL or a journal file.

    Raises
    ------
    ValueError
        No such file, storage or study: one line.
    """
    where: Any = storage
    if "://" not in storage:
        if not Path(storage).is_file():
            raise ValueError(f"{storage}: no such journal file; give one, or a storage URL (sqlite:///study.db)")
    elif storage.startswith("sqlite:///") and not Path(storage.removeprefix("sqlite:///")).is_file():
        raise ValueError(f"{storage}: no such file")  # SQLite would make an empty one
    try:
        if "://" not in storage:
            where = JournalStorage(JournalFileBackend(storage))
        return optuna.load_study(study_name=name, storage=where)
    except KeyError:
        found = ", ".join(optuna.get_all_study_names(where)) or "none"
        raise ValueError(f"{storage}: no study called {name!r}; found {found}") from None
    except (sqlalchemy.exc.SQLAlchemyError, json.JSONDecodeError) as error:
        expected = "expected a journal file or a storage URL (sqlite:///study.db)"
        raise ValueError(f"{storage}: {expected}; found {str(error).splitlines()[0]}") from None


def replay_study(study: optuna.Study, methods: Sequence[str], *, sample: int | None = None, seed: int = 0) -> dict[str, Any]:
    """Return the JSON-ready result of a replay of ``study``; it is only read.

    Parameters
    ----------
    methods : sequence of str
        Names as in :func:`bench.replay.replay`.
    sample : int or None
        Finished trials that teach; None: half of them, at most :data:`MOST_TEACHERS`.

    Raises
    ------
    ValueError
        Several objectives, or too few finished trials with reports to draw from: one line.
    """
    if len(study.directions) != 1:
        raise ValueError(f"study {study.study_name!r} has {len(study.directions)} objectives; a replay needs one")
    trials = study.get_trials(deepcopy=False)
    rows = study_rows(trials)
    n_runs = len({row["run_id"] for row in rows})
    teach = max(1, min(MOST_TEACHERS, n_runs // 2)) if sample is None else sample
    if n_runs < teach + 2:
        found = _usable(trials, n_runs)
        raise ValueError(f"study {study.study_name!r}: {found}, fewer than the {teach} that teach and two to judge")
    with tempfile.TemporaryDirectory() as folder:
        pd.DataFrame(rows).to_parquet(Path(folder) / "study.parquet")
        result = replay(Path(folder), _protocol(study, teach, seed), methods)
    return result | {"n_trials": len(trials), "n_trials_used": n_runs}


def study_rows(trials: Sequence[FrozenTrial]) -> list[dict[str, Any]]:
    """Return the reports of finished trials as rows of a tidy curve file, one a report."""
    finished = _finished(trials)
    reader, horizons = TrialReader(), Horizons()
    for trial in finished:
        horizons.add(reader.stated_horizon(trial), trial)
    rows: list[dict[str, Any]] = []
    for trial in finished:
        horizon = horizons.settle(reader.stated_horizon(trial))
        about = {
            "run_id": str(trial.number),
            "family": reader.label_of(trial),
            "total_steps": horizon,
            "hp": json.dumps({name: _plain(value) for name, value in trial.params.items()}),
            **_recipe_columns(reader.recipe_of(trial)),
        }
        rows += [{**about, "step": step, "value": value} for step, value in sorted(trial.intermediate_values.items())]
    return [row for row in rows if row["total_steps"] is not None and row["step"] <= row["total_steps"]]


def _finished(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    return [t for t in trials if t.state == TrialState.COMPLETE and len(t.intermediate_values) >= FEWEST_REPORTS]


def _usable(trials: Sequence[FrozenTrial], n_runs: int) -> str:
    """Return how many trials can be replayed, in words, and why not the others."""
    n_finished = len(_finished(trials))
    told = f"{n_finished} finished trials with {FEWEST_REPORTS} reports or more"
    if n_runs == n_finished:
        return told
    return f"{n_runs} of {told} have a known length (state it: user attribute total_steps)"


def _recipe_columns(recipe: Recipe | None) -> dict[str, Any]:
    if recipe is None:
        return {}
    known = {name: getattr(recipe, name) for name in _RECIPE_COLUMNS}
    known["total_tokens"] = recipe.n_tokens
    known["schedule"] = str(recipe.schedule) if recipe.schedule.is_known else None
    return {name: value for name, value in known.items() if value is not None}


def _protocol(study: optuna.Study, sample: int, seed: int) -> Protocol:
    mode = "max" if study.direction == optuna.study.StudyDirection.MAXIMIZE else "min"
    said = {"name": study.study_name, "file": "study.parquet", "metric": "value", "mode": mode, "noise": 1e-3}
    return Protocol.model_validate(said | {"targets": {}, "references": {"sample": sample, "seed": seed}})


def _plain(value: Any) -> bool | int | float | str:
    return value if isinstance(value, bool | int | float | str) else str(value)
