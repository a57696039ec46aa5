"""Models and their compute, from finished runs, from a table, or as published."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hpo.adapters.curve_column_names import Columns
from hpo.adapters.curve_files import RecordedRun, read_runs
from hpo.core.frontier import TrainedModel
from hpo.core.power_law import PowerLawFit, fit_power_law
from hpo.core.quantities import require_positive
from hpo.engine.config import InputError

_SAME_TPP = 1.05


@dataclass(frozen=True)
class Models:
    """Models to compare; their quality is an accuracy in percent or a loss."""

    models: tuple[TrainedModel, ...]
    is_accuracy: bool

    @property
    def quality_name(self) -> str:
        """``accuracy`` or ``loss``."""
        return "accuracy" if self.is_accuracy else "loss"

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return JSON-ready dicts."""
        return [
            {
                "name": m.name,
                "n_params": m.n_params,
                "n_tokens": m.n_tokens,
                "flops": m.flops,
                self.quality_name: m.quality,
                "source": m.source,
            }
            for m in self.models
        ]

    def notes(self) -> list[str]:
        """Return what is doubtful about one law through all models."""
        return [*self._tpp_notes(), *self._share_notes()]

    def _share_notes(self) -> list[str]:
        highest = max(m.quality for m in self.models)
        if not self.is_accuracy or highest > 1:
            return []
        return [f"warning: accuracies are taken as percent, and the highest is {highest:g}: shares belong times 100"]

    def _tpp_notes(self) -> list[str]:
        tpp = [m.n_tokens / m.n_params for m in self.models if m.n_tokens is not None and m.n_params is not None]
        if not tpp or max(tpp) < _SAME_TPP * min(tpp):
            return []
        pooled = f"models of {min(tpp):.3g} to {max(tpp):.3g} tpp are pooled"
        return [f"warning: {pooled}; a law of compute holds at one tpp: choose it by --tpp"]

    def at_tpp(self, tpp: float | None) -> Models:
        """Return the models trained for ``tpp`` tokens per parameter, to 5 %, all for None.

        Raises
        ------
        InputError
            None of them.
        """
        if tpp is None:
            return self
        theirs = [m.n_tokens / m.n_params if m.n_tokens and m.n_params else math.nan for m in self.models]
        chosen = tuple(m for m, own in zip(self.models, theirs, strict=True) if tpp / _SAME_TPP < own < tpp * _SAME_TPP)
        if not chosen:
            found = ", ".join(dict.fromkeys(f"{own:.3g}" for own in sorted(theirs) if own > 0)) or "not known"
            raise InputError.at("--tpp", "tokens per parameter of some models", f"{tpp:g}, where theirs are {found}")
        return Models(chosen, self.is_accuracy)

    def fit(self) -> PowerLawFit:
        """Return the power law of compute through the losses, or through 100 − accuracy.

        Raises
        ------
        InputError
            All of one quality: no law of compute.
        ValueError
            Too few models.
        """
        flops, quality = [m.flops for m in self.models], [m.quality for m in self.models]
        y = [100 - q for q in quality] if self.is_accuracy else quality
        name = "error" if self.is_accuracy else "loss"
        if len(quality) > 1 and math.isclose(min(y), max(y), rel_tol=1e-9):
            raise InputError.at("models", f"some difference in {self.quality_name} to fit", f"{quality[0]:g} of all")
        return fit_power_law(flops, y, x_name="flops", y_name=name, source=f"{len(flops)} models")


def read_models(runs: list[str] | None, table: Path | None, columns: Columns, *, default: Sequence[TrainedModel]) -> Models:
    """Return the models of curve files or of a table, or else the published ones in ``default``.

    Of runs that share size and tokens (a sweep), to 1 %, the best one counts. A metric that is maximised is an accuracy: in
    percent, or as a share where no run exceeds 1.

    Raises
    ------
    InputError
        Both given, or nothing usable in them.
    """
    if runs and table is not None:
        raise InputError("--models: expected runs or a table, not both; found both")
    if table is not None:
        return _from_table(table)
    return _from_runs(runs, columns) if runs else Models(tuple(default), is_accuracy=True)


def _from_runs(paths: list[str], columns: Columns) -> Models:
    runs = read_runs(paths, metric=columns.loss, columns=columns)
    is_accuracy = any(run.metric.mode == "max" for run in runs)
    sign = -1.0 if is_accuracy else 1.0
    best: list[TrainedModel] = []
    for model in sorted(filter(None, map(_of_run, runs)), key=lambda model: sign * model.quality):
        if not any(_is_same_size(model, other) for other in best):
            best.append(model)
    if not best:
        raise InputError.at("RUNS", "finished runs with known n_params and total_tokens", "none")
    models = tuple(sorted(best, key=lambda model: model.flops))
    return Models(_in_percent(models) if is_accuracy else models, is_accuracy)


def _of_run(run: RecordedRun) -> TrainedModel | None:
    """Return a finished run as a model, None for one that is not finished or whose size or tokens are unknown."""
    recipe, final = run.recipe, run.curve().final_loss
    if recipe is None or recipe.flops is None or recipe.n_params is None or recipe.n_tokens is None or final is None:
        return None
    sizes = {"n_params": recipe.n_params, "n_tokens": recipe.n_tokens}
    return TrainedModel(name=run.run_id, flops=recipe.flops, quality=final, source=run.family, **sizes)


def _is_same_size(one: TrainedModel, other: TrainedModel) -> bool:
    """True if parameters and tokens agree to 1 %: whole steps of another batch move the tokens by as much."""
    pairs = ((one.n_params, other.n_params), (one.n_tokens, other.n_tokens))
    return all(math.isclose(a or 0.0, b or 0.0, rel_tol=0.01) for a, b in pairs)


def _in_percent(models: tuple[TrainedModel, ...]) -> tuple[TrainedModel, ...]:
    highest = max(model.quality for model in models)
    if highest > 100 or min(model.quality for model in models) < 0:
        raise InputError.at("--metric", "an accuracy, in percent or as a share", f"{highest:g}")
    return models if highest > 1 else tuple(replace(model, quality=100 * model.quality) for model in models)


def _from_table(path: Path) -> Models:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError):
        raise InputError.at("--models", "a readable CSV file", str(path)) from None
    columns = set(rows[0]) if rows else set()
    quality = "accuracy" if "accuracy" in columns else "loss"
    if not {"name", "flops", quality} <= columns:
        raise InputError.at(
            str(path), "columns name, flops and accuracy or loss", ", ".join(sorted(map(str, columns))) or "no rows"
        )
    try:
        models = [_of_row(row, quality) for row in rows]
    except (ValueError, TypeError) as error:
        raise InputError(f"{path}: expected numbers in flops and {quality}; found {error}") from None
    is_accuracy = quality == "accuracy"
    if is_accuracy and not all(0 <= model.quality < 100 for model in models):
        wrong = next(model for model in models if not 0 <= model.quality < 100)
        raise InputError.at(
            str(path), "accuracies in percent, at least 0 and below 100", f"{wrong.name} with {wrong.quality:g}"
        )
    if not is_accuracy and not all(model.quality > 0 for model in models):
        wrong = next(model for model in models if not model.quality > 0)
        raise InputError.at(str(path), "losses above 0", f"{wrong.name} with {wrong.quality:g}")
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        raise InputError.at(str(path), "every name once", next(name for name in names if names.count(name) > 1))
    return Models(tuple(models), is_accuracy)


def _of_row(row: dict[str, str], quality: str) -> TrainedModel:
    sizes = {key: float(row[key]) for key in ("n_params", "n_tokens") if row.get(key)}
    for key in ("flops", quality, *sizes):
        if float(row[key]) != 0:  # zero and the sign are judged by what is read; here only the size
            require_positive(key, abs(float(row[key])))
    return TrainedModel(
        name=row["name"], flops=float(row["flops"]), quality=float(row[quality]), source=row.get("source") or "", **sizes
    )
