"""``hpo fit-tau``: the best timescale of each of one's own sweeps, and the power law through them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpo.commands.options import input_errors, numbers
from hpo.commands.output import print_json
from hpo.commands.reading import LearningRate, Loss, Step, Tokens, say_notes

if TYPE_CHECKING:
    from hpo.adapters.curve_files import RecordedRun
    from hpo.core.recipe import Recipe
    from hpo.core.tau_fit import TauOptimum

EXAMPLE = "Example: hpo fit-tau runs/*/curves -o tau.json --tpp 40, then: hpo plan --tau tau.json …"
LEVEL = 0.9
STEEPEST = 10.0
"""Largest exponent of a law of τ that may be given; the published one is -0.527."""


def fit_tau(
    curves: Annotated[list[str], typer.Argument(metavar="RUNS…", help="Files, folders or wildcards with finished runs.")],
    metric: Loss = None,
    step: Step = None,
    tokens: Tokens = None,
    lr: LearningRate = None,
    schedule: Annotated[str | None, typer.Option(help="Only sweeps under this schedule, such as linear.")] = None,
    exponent: Annotated[float | None, typer.Option(help="Keep this exponent (published: -0.527) and fit the constant.")] = None,
    tpp: Annotated[str | None, typer.Option(help="Also give τ at these tokens per parameter, comma-separated.")] = None,
    extrapolate: Annotated[bool, typer.Option("--extrapolate", help="Answer --tpp outside the sweeps' range.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="TAU.json", help="Where to write the law.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Fit the optimal timescale τ against tokens per parameter from your own sweeps, with intervals."""
    from hpo.adapters.curve_column_names import Columns
    from hpo.adapters.curve_files import read_runs
    from hpo.commands.law_files import write_law
    from hpo.core.tau_fit import fit_tau_law

    with input_errors():
        asked = numbers("--tpp", tpp) or []
        if exponent is not None and not math.isfinite(exponent):
            raise ValueError(f"--exponent: expected a finite number such as -0.527; found {exponent}")
        if exponent is not None and abs(exponent) > STEEPEST:
            raise ValueError(f"--exponent: expected within -{STEEPEST:g} and {STEEPEST:g}, such as -0.527; found {exponent:g}")
        runs = read_runs(curves, metric=metric, columns=Columns(step=step, tokens=tokens, lr=lr))
        sweeps = sweeps_of(runs, schedule)
        optima = [sweep.optimum() for sweep in sweeps.sweeps]
        fit = fit_tau_law(optima, exponent=exponent)
        predictions = []
        for at in asked:
            value = fit.law.at(at, extrapolate=extrapolate)
            low, high = fit.interval(at, LEVEL)
            predictions.append({"tpp": at, "tau": value, "lower": low, "upper": high, "extrapolated": not fit.law.covers(at)})
        document: dict[str, Any] = {
            "law": fit.to_dict(LEVEL),
            "sweeps": [one.to_dict() for one in optima],
            "runs_left_out": sweeps.n_left_out,
            "predictions": predictions,
            "notes": _notes([s for s, one in zip(sweeps.sweeps, optima, strict=True) if one.sd_log_tau is not None]),
        }
        if output is not None:
            write_law(output, document)
    say_notes(runs)
    if as_json:
        print_json(document)
    else:
        typer.echo("\n".join(_lines(document)))


@dataclass(frozen=True)
class Sweep:
    """Runs of one family, size, horizon and schedule: their τ, final losses (lower is better), learning rates and decays."""

    family: str
    n_params: float
    tpp: float
    schedule: str
    points: tuple[tuple[float, float, float, float], ...]

    def optimum(self) -> TauOptimum:
        """Return the sweep's best τ."""
        from hpo.core.tau_fit import tau_optimum

        name = f"{self.family} N {self.n_params:.3g} {self.tpp:.3g} tpp {self.schedule}".strip()
        return tau_optimum([point[0] for point in self.points], [point[1] for point in self.points], tpp=self.tpp, name=name)

    @property
    def varies_lr_alone(self) -> bool:
        """True if τ moved through the learning rate, at one weight decay."""
        return len({point[3] for point in self.points}) == 1 and len({point[2] for point in self.points}) > 1


@dataclass(frozen=True)
class Sweeps:
    """Sweeps by tokens per parameter, and how many runs belong to none."""

    sweeps: tuple[Sweep, ...]
    n_left_out: int


def sweeps_of(runs: list[RecordedRun], schedule: str | None = None) -> Sweeps:
    """Return the sweeps in ``runs``.

    Left out: unfinished runs, runs whose τ or tokens per parameter are unknown (no learning rate, decay, batch, tokens or
    size), and runs under a schedule whose name does not start with ``schedule``.

    Raises
    ------
    ValueError
        No usable run.
    """
    groups: dict[tuple[str, str, str, str], list[tuple[RecordedRun, Recipe, float]]] = {}
    for run in runs:
        curve, recipe = run.curve(), run.recipe
        if recipe is None or recipe.tau is None or recipe.tpp is None or curve.final_loss is None:
            continue
        if schedule is not None and not str(recipe.schedule).startswith(schedule):
            continue
        key = (run.family, f"{recipe.n_params:.3g}", f"{recipe.tpp:.3g}", str(recipe.schedule))
        groups.setdefault(key, []).append((run, recipe, float(curve.metric.to_model(curve.final_loss))))
    if not groups:
        needs = "known lr, weight_decay, batch_tokens, total_tokens and n_params"
        under = "" if schedule is None else f" under schedule {schedule}"
        raise ValueError(f"RUNS: expected finished runs{under} with {needs}; found none among {len(runs)}")
    sweeps = [_sweep([(recipe, loss) for _, recipe, loss in group], key[0]) for key, group in groups.items()]
    n_used = sum(len(sweep.points) for sweep in sweeps)
    return Sweeps(tuple(sorted(sweeps, key=lambda sweep: sweep.tpp)), len(runs) - n_used)


def _sweep(runs: list[tuple[Recipe, float]], family: str) -> Sweep:
    points = tuple((recipe.tau or 0.0, loss, recipe.lr or 0.0, recipe.weight_decay or 0.0) for recipe, loss in runs)
    first = runs[0][0]
    return Sweep(family, first.n_params or 0.0, first.tpp or 0.0, str(first.schedule), points)


def _notes(sweeps: list[Sweep]) -> list[str]:
    """Return what is doubtful about a law through these sweeps."""
    notes = []
    schedules = sorted({sweep.schedule for sweep in sweeps})
    if len(schedules) > 1:
        notes.append(
            f"warning: the law pools {len(schedules)} schedules, and the best tau depends on it: choose one by --schedule"
        )
    by_lr = sum(sweep.varies_lr_alone for sweep in sweeps)
    if by_lr:
        notes.append(
            f"warning: in {by_lr} of {len(sweeps)} sweeps tau moved through lr at one weight decay: "
            "their best tau is that of the best lr"
        )
    return notes


def _lines(document: dict[str, Any]) -> list[str]:
    lines = []
    n_too_few = sum(sweep["status"] == "too few" for sweep in document["sweeps"])
    for sweep in document["sweeps"]:
        if sweep["status"] == "too few":
            continue
        said = {
            "interior": "" if sweep["interval"] is None else "90 % {:.3g} to {:.3g}".format(*sweep["interval"]),
            "lowest": "the lowest tau tried: the optimum may lie below; left out",
            "highest": "the highest tau tried: the optimum may lie above; left out",
        }[sweep["status"]]
        lines.append(f"{sweep['name']}: tau {sweep['tau']:.3g} ({said}; {sweep['n_runs']} runs)")
    if n_too_few:
        lines.append(f"{n_too_few} sweeps of fewer than three tau left out")
    law = document["law"]
    low, high = law["exponent_interval"]
    fitted = law["exponent_is_fitted"]
    lines.append(
        f"tau = {law['coefficient']:.4g} · tpp^{law['exponent']:.4g} on tpp {law['low']:.4g} to {law['high']:.4g}; 90 %: "
        f"coefficient {law['coefficient_interval'][0]:.3g} to {law['coefficient_interval'][1]:.3g}, "
        + (f"exponent {low:.3g} to {high:.3g}" if fitted else "exponent as given")
    )
    for one in document["predictions"]:
        mark = " (extrapolated)" if one["extrapolated"] else ""
        lines.append(f"tpp {one['tpp']:g}: tau {one['tau']:.4g}, 90 % {one['lower']:.4g} to {one['upper']:.4g}{mark}")
    if document["runs_left_out"]:
        lines.append(
            f"{document['runs_left_out']} runs left out: unfinished, without a known tau or tpp, or of other schedules"
        )
    return lines + [f"· {note}" for note in document["notes"]]
