"""``hpo efficiency``: what more tokens per parameter cost and save, scaling fits, and the Pareto frontier."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpo.commands.options import input_errors, numbers, require_svg
from hpo.commands.output import print_json
from hpo.commands.reading import LearningRate, Loss, Step, Tokens

if TYPE_CHECKING:
    from rich.table import Table

    from hpo.adapters.curve_column_names import Columns
    from hpo.commands.trained_models import Models
    from hpo.core.power_law import PowerLaw, PowerLawFit

app = typer.Typer(
    help="What compute buys: compression, scaling fits, Pareto frontier.", no_args_is_help=True, add_completion=False
)

LEVEL = 0.9
USUAL_TPP = (10.0, 20.0, 40.0, 80.0, 160.0, 234.0, 500.0, 1000.0)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Runs = Annotated[list[str] | None, typer.Argument(metavar="[RUNS…]", help="Curve files of finished runs; the loss counts.")]
Table_ = Annotated[
    Path | None,
    typer.Option("--models", metavar="FILE.csv", help="Columns name, flops and accuracy (%) or loss instead of runs."),
]
Figure = Annotated[Path | None, typer.Option("--figure", metavar="FILE.svg", help="Draw it as an SVG file.")]


@app.command("compression", epilog="Example: hpo efficiency compression --tpp 20,80,234")
def compression_command(
    tpp: Annotated[str | None, typer.Option(help="Tokens per parameter, comma-separated.")] = None,
    params: Annotated[float | None, typer.Option(help="Parameters of the compute-optimal model, for absolute numbers.")] = None,
    exponent: Annotated[float | None, typer.Option(help="a of L = E + A·N^-a + B·D^-a; default 0.35.")] = None,
    optimal_tpp: Annotated[float | None, typer.Option(help="Where compute buys the lowest loss; default 20.")] = None,
    figure: Figure = None,
    as_json: Json = False,
) -> None:
    """Show what training at other tokens per parameter than the optimum does, at equal loss and at equal compute."""
    from dataclasses import asdict

    import numpy as np

    from hpo.core.laws import LOSS_EXPONENT, OPTIMAL_TPP, compression, smallest_params_ratio

    a, best = exponent or LOSS_EXPONENT, optimal_tpp or OPTIMAL_TPP
    with input_errors():
        _require_positive({"params": params, "exponent": exponent, "optimal_tpp": optimal_tpp})
        asked = numbers("--tpp", tpp) or USUAL_TPP
        dense = np.geomspace(min(5.0, *asked), max(1000.0, *asked), 100).tolist()
        rows, curve = ([asdict(compression(x, exponent=a, optimal_tpp=best)) for x in xs] for xs in (asked, dense))
        if params is not None:
            rows = [{**row, **_absolute(row, params, best)} for row in rows]
        if figure is not None:
            from hpo.reporting.efficiency_figure import compression_figure

            _write_figure(figure, compression_figure(rows, curve))
    bound = smallest_params_ratio(a)
    document = {"exponent": a, "optimal_tpp": best, "smallest_params_ratio": bound, "rows": rows}
    if as_json:
        print_json(document)
        return
    _print_table(compression_table(rows))
    source = "given" if exponent is not None else "arXiv 2203.15556"
    typer.echo(f"· relative to {best:g} tpp; L = E + A·N^-a + B·D^-a with a = {a:g} ({source})")
    typer.echo(f"· at equal loss a model cannot have less than {bound:.3f} of the parameters, whatever its tokens")


@app.command("scaling", epilog="Example: hpo efficiency scaling runs/*/curves --at 1e18 -o loss.json")
def scaling_command(
    runs: Runs = None,
    models: Table_ = None,
    metric: Loss = None,
    step: Step = None,
    tokens: Tokens = None,
    lr: LearningRate = None,
    tpp: Annotated[float | None, typer.Option(help="Only models of these tokens per parameter, to 5 %.")] = None,
    at: Annotated[str | None, typer.Option(help="FLOPs to predict the loss (or accuracy) at, comma-separated.")] = None,
    extrapolate: Annotated[bool, typer.Option("--extrapolate", help="Answer --at outside the range of the models.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="LAW.json", help="Write the law for hpo plan.")
    ] = None,
    figure: Figure = None,
    as_json: Json = False,
) -> None:
    """Fit loss, or 100 − accuracy, to a power of compute, with intervals; without models, the published Celerity family."""
    from hpo.commands.law_files import write_law
    from hpo.commands.trained_models import read_models
    from hpo.core.frontier import CELERITY_MODELS

    with input_errors():
        read = read_models(runs, models, _columns(metric, step, tokens, lr), default=CELERITY_MODELS).at_tpp(tpp)
        fit = read.fit()
        document: dict[str, Any] = {
            "law": fit.to_dict(LEVEL),
            "scale": _scale(fit.law),
            "models": read.to_dicts(),
            "notes": [*_exponent_notes(fit), *read.notes()],
            "predictions": [_prediction(read, fit, x, extrapolate=extrapolate) for x in numbers("--at", at) or []],
        }
        if figure is not None:
            from hpo.reporting.efficiency_figure import scaling_figure

            interval = partial(fit.interval, level=LEVEL, of_a_new_point=True)
            law = partial(fit.law.at, extrapolate=True)
            _write_figure(figure, scaling_figure(document["models"], read.quality_name, law, interval))
        if output is not None:
            write_law(output, document)
    if as_json:
        print_json(document)
    else:
        typer.echo("\n".join(_scaling_lines(document)))


@app.command("frontier", epilog="Example: hpo efficiency frontier · hpo efficiency frontier --models models.csv")
def frontier_command(
    runs: Runs = None,
    models: Table_ = None,
    metric: Loss = None,
    step: Step = None,
    tokens: Tokens = None,
    lr: LearningRate = None,
    figure: Figure = None,
    as_json: Json = False,
) -> None:
    """Show which models nothing cheaper beats; without models, the published Celerity family and BTLM-3B."""
    from hpo.commands.trained_models import read_models
    from hpo.core.frontier import PUBLISHED_MODELS, beaten_by

    with input_errors():
        read = read_models(runs, models, _columns(metric, step, tokens, lr), default=PUBLISHED_MODELS)
        better = [by and by.name for by in beaten_by(read.models, higher_is_better=read.is_accuracy)]
        rows = [{**row, "on_frontier": by is None, "beaten_by": by} for row, by in zip(read.to_dicts(), better, strict=True)]
        if figure is not None:
            from hpo.reporting.efficiency_figure import frontier_figure

            _write_figure(figure, frontier_figure(rows, read.quality_name))
    published = not runs and models is None
    comparison = _published_comparison() if published else None
    document: dict[str, Any] = {"models": rows, "notes": _comparison_lines(comparison) if comparison else []}
    if comparison:
        document["comparison"] = comparison
    if as_json:
        print_json(document)
        return
    _print_table(_frontier_table(rows, read.quality_name))
    for note in document["notes"]:
        typer.echo(f"· {note}")


def _columns(loss: str | None, step: str | None, tokens: str | None, lr: str | None) -> Columns:
    from hpo.adapters.curve_column_names import Columns

    return Columns(step=step, loss=loss, tokens=tokens, lr=lr)


def compression_table(rows: list[dict[str, Any]]) -> Table:
    """Return the rows of :func:`compression_command` as a table."""
    from rich.table import Table

    table = Table()
    for name in ("TPP", "equal loss: N", "D", "FLOPs", "equal FLOPs: N", "D", "L − E"):
        table.add_column(name, justify="right", no_wrap=True)
    names = {"n_params": "equal loss: N", "n_tokens": "D", "flops": "6ND"}
    names |= {"iso_flop_n_params": "equal FLOPs: N", "iso_flop_n_tokens": "D"}
    absolute = [key for key in names if all(key in row for row in rows)]
    for key in absolute:
        table.add_column(names[key], justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            f"{row['tpp']:g}",
            *(f"{row[key] - 1:+.0%}" for key in ("params_ratio", "tokens_ratio", "flops_ratio")),
            *(f"{row[key] - 1:+.0%}" for key in ("iso_flop_params_ratio", "iso_flop_tokens_ratio")),
            f"{row['iso_flop_reducible_loss_ratio'] - 1:+.1%}",
            *(f"{row[key]:.3g}" for key in absolute),
        )
    return table


def _require_positive(values: dict[str, float | None]) -> None:
    from hpo.core.quantities import require_positive

    for name, value in values.items():
        if value is not None:
            require_positive(name, value)


def _absolute(row: dict[str, Any], params: float, optimal_tpp: float) -> dict[str, float]:
    """Return N, D and FLOPs at the loss, and N and D at the compute, of the compute-optimal model of ``params``."""
    n, d = params * row["params_ratio"], params * optimal_tpp * row["tokens_ratio"]
    iso = {
        "iso_flop_n_params": params * row["iso_flop_params_ratio"],
        "iso_flop_n_tokens": params * optimal_tpp * row["iso_flop_tokens_ratio"],
    }
    return {"n_params": n, "n_tokens": d, "flops": 6.0 * n * d, **iso}


def _scale(law: PowerLaw) -> float | None:
    """Return C₀ of (C / C₀)^k, None for a law so flat that it is beyond all numbers."""
    from hpo.core.power_law import LARGEST_LOG

    if abs(math.log(law.coefficient)) >= LARGEST_LOG * abs(law.exponent):
        return None
    return math.exp(-math.log(law.coefficient) / law.exponent)


def _exponent_notes(fit: PowerLawFit) -> list[str]:
    """Say where the models do not show that compute helps."""
    if fit.law.exponent >= 0:
        return ["warning: quality falls as compute rises (exponent above 0): hpo plan does not take such a law"]
    if fit.exponent_interval(LEVEL)[1] >= 0:
        return ["warning: the interval of the exponent holds 0: these models do not show that compute helps"]
    return []


def _prediction(read: Models, fit: PowerLawFit, flops: float, *, extrapolate: bool) -> dict[str, Any]:
    middle = fit.law.at(flops, extrapolate=extrapolate)
    low, high = fit.interval(flops, LEVEL, of_a_new_point=True)
    value, lower, upper = (100 - middle, 100 - high, 100 - low) if read.is_accuracy else (middle, low, high)
    said = {"flops": flops, read.quality_name: value, "lower": lower, "upper": upper}
    return {**said, "extrapolated": not fit.law.covers(flops)}


def _published_comparison() -> dict[str, Any]:
    """Return what the published table says about Celerity against BTLM-3B: the models, and the fits at BTLM's accuracy."""
    from hpo.core.frontier import BTLM_3B, CELERITY_MODELS, compare
    from hpo.core.laws import ERROR_LAW
    from hpo.core.power_law import fit_power_law

    nearest = min(CELERITY_MODELS, key=lambda model: abs(model.quality - BTLM_3B.quality))
    one = compare(nearest, BTLM_3B)
    error = 100 - BTLM_3B.quality
    fit = fit_power_law(
        [m.flops for m in CELERITY_MODELS], [100 - m.quality for m in CELERITY_MODELS], x_name="flops", y_name="error"
    )
    least, most = fit.inverse_interval(error, LEVEL)
    return {
        "model": one.name,
        "against": one.against,
        "flops_saved_fraction": one.flops_saved_fraction,
        "accuracy_lost": one.quality_lost,
        "flops_saved_fraction_by_published_fit": 1 - ERROR_LAW.inverse(error) / BTLM_3B.flops,
        "flops_saved_fraction_by_refit": 1 - fit.law.inverse(error) / BTLM_3B.flops,
        "flops_saved_fraction_by_refit_interval": [
            None if most is None else 1 - most / BTLM_3B.flops,
            None if least is None else 1 - least / BTLM_3B.flops,
        ],
        "claimed_flops_saved_fraction": 0.75,
    }


def _comparison_lines(found: dict[str, Any]) -> list[str]:
    low, high = found["flops_saved_fraction_by_refit_interval"]
    interval = "unbounded" if low is None or high is None else f"{low:.0%} to {high:.0%}"
    less = found["flops_saved_fraction_by_published_fit"]
    saved, lost = f"{found['flops_saved_fraction']:.0%} fewer FLOPs", f"{found['accuracy_lost']:.1f} points less accuracy"
    refit = f"refitted to the five models {found['flops_saved_fraction_by_refit']:.0%} (90 % {interval})"
    return [
        f"{found['model']} takes {saved} than {found['against']} at {lost}: not the same accuracy for less",
        f"the published fit reaches {found['against']}'s accuracy at {less:.0%} fewer FLOPs; {refit}",
        f"the claim of {found['claimed_flops_saved_fraction']:.0%} fewer FLOPs does not follow from this table",
        f"{found['against']} is on the frontier for want of a model of the family at its compute or just below",
        "numbers are those of arXiv 2509.25087, the other model's too; no model here was measured again",
    ]


def _scaling_lines(document: dict[str, Any]) -> list[str]:
    law = document["law"]
    name = "loss" if law["y_name"] == "loss" else "100 − accuracy"
    low, high = law["exponent_interval"]
    source = f"{law['n_points']} models of {law['low']:.3g} to {law['high']:.3g} FLOPs"
    scale, power = document["scale"], f"{law['exponent']:.4g}"
    formula = f"{law['coefficient']:.4g} · C^{power}" if scale is None else f"(C / {scale:.4g})^{power}"
    lines = [f"{name} = {formula} from {source}"]
    lines.append(f"exponent {low:.4g} to {high:.4g} (90 %); scatter of a model around it {law['residual_sd']:.2%}")
    for one in document["predictions"]:
        value = one["loss"] if "loss" in one else one["accuracy"]
        mark = " (extrapolated)" if one["extrapolated"] else ""
        quality = "loss" if "loss" in one else "accuracy"
        lines.append(f"{one['flops']:.3g} FLOPs: {quality} {value:.4g}, 90 % {one['lower']:.4g} to {one['upper']:.4g}{mark}")
    return lines + [f"· {note}" for note in document["notes"]]


def _frontier_table(rows: list[dict[str, Any]], quality: str) -> Table:
    from rich.table import Table

    table = Table()
    for name in ("model", "N", "D", "FLOPs", quality, "frontier"):
        table.add_column(name, justify="left" if name == "model" else "right", no_wrap=True)
    for row in sorted(rows, key=lambda row: float(row["flops"])):
        sizes = ("" if row[key] is None else f"{row[key]:.3g}" for key in ("n_params", "n_tokens"))
        table.add_row(
            row["name"],
            *sizes,
            f"{row['flops']:.3g}",
            f"{row[quality]:.4g}",
            "yes" if row["on_frontier"] else f"no: {row['beaten_by']}",
        )
    return table


def _write_figure(path: Path, svg: str) -> None:
    from hpo.adapters.atomic import write_text
    from hpo.engine.config import InputError

    require_svg(path)
    try:
        write_text(path, svg)
    except OSError as error:
        raise InputError.at("--figure", "a file that can be written", f"{path}: {error.strerror}") from None


def _print_table(table: Table) -> None:
    from hpo.commands.whole_tables import print_whole

    print_whole(table)
