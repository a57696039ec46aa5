"""``hpo plan``: recipes of a family that collapses, and what they cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpo.commands.options import input_errors, number_or_text, numbers, require_other_file
from hpo.commands.output import fail, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from hpo.commands.plan_build import FamilyPlan

EXAMPLE = (
    "Examples: hpo plan --family celerity --tpp 20,80,234; "
    "hpo plan --sizes 50x3 --head-dim 10 --ladder 0.5 --tpp 20 -o plan.yaml, then: hpo sweep plan.yaml"
)


def plan(
    spec: Annotated[
        Path | None, typer.Argument(metavar="[SPEC.yaml]", help="A family of your own; options win over it.")
    ] = None,
    family: Annotated[str | None, typer.Option(help="celerity, collapse (published), or decoder (the built-in one).")] = None,
    sizes: Annotated[str | None, typer.Option(help="Sizes of the family, or WIDTHxDEPTH, comma-separated.")] = None,
    params: Annotated[str | None, typer.Option(help="Parameter counts where no shape is known, comma-separated.")] = None,
    ladder: Annotated[float | None, typer.Option(help="Smaller sizes below one: each this factor of the next.")] = None,
    rungs: Annotated[int | None, typer.Option(help="How many of them; default 2.")] = None,
    tpp: Annotated[str | None, typer.Option(help="Tokens per parameter, comma-separated.")] = None,
    tokens: Annotated[float | None, typer.Option(help="Training tokens.")] = None,
    compute: Annotated[float | None, typer.Option(help="Training FLOPs of a run.")] = None,
    target_loss: Annotated[float | None, typer.Option(help="Loss to reach: gives the compute by --loss-law.")] = None,
    loss_law: Annotated[str | None, typer.Option(help="celerity, completep, mup, or a fitted file.")] = None,
    tau: Annotated[str | None, typer.Option(help="τ: a number, power-lines, celerity, or a file of hpo fit-tau.")] = None,
    batch: Annotated[str | None, typer.Option(help="Sequences a step, or published, optimal, sqrt.")] = None,
    critical_batch: Annotated[float | None, typer.Option(help="Critical batch in tokens, where you measured it.")] = None,
    lr: Annotated[float | None, typer.Option(help="Base peak learning rate; without it only lr·λ is settled.")] = None,
    schedule: Annotated[str | None, typer.Option(help="linear, cosine, wsd, …; parameters: '{name: wsd, …}'.")] = None,
    warmup: Annotated[float | None, typer.Option(help="Warm-up as a fraction of training; lifts a published cap.")] = None,
    depth: Annotated[int | None, typer.Option(help="Blocks, where the width follows from a budget.")] = None,
    head_dim: Annotated[int | None, typer.Option(help="Size of an attention head.")] = None,
    vocab: Annotated[int | None, typer.Option(help="Vocabulary.")] = None,
    seq_len: Annotated[int | None, typer.Option(help="Context in tokens.")] = None,
    flops_per_s: Annotated[float | None, typer.Option(help="FLOPs a second that one device achieves.")] = None,
    price: Annotated[float | None, typer.Option(help="Price of a device hour.")] = None,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Use laws outside the range they were measured on.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="PLAN.yaml", help="Write recipes, or a sweep.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Plan a family of models whose loss curves collapse: sizes, tokens, batch, τ, decay, warm-up and cost."""
    from hpo.commands.plan_build import build_plan
    from hpo.commands.plan_files import write_plan
    from hpo.commands.plan_spec import read_spec

    with input_errors():
        require_other_file(output, spec)
        model = {"depth": depth, "head_dim": head_dim, "vocab_size": vocab}
        options: dict[str, Any] = {
            "family": family,
            "sizes": None if sizes is None else [part.strip() for part in sizes.split(",")],
            "params": numbers("--params", params),
            "ladder": {key: value for key, value in (("factor", ladder), ("rungs", rungs)) if value is not None} or None,
            "tpp": numbers("--tpp", tpp),
            "tokens": tokens,
            "compute": compute,
            "target_loss": target_loss,
            "loss_law": loss_law,
            "tau": number_or_text(tau),
            "batch": number_or_text(batch),
            "critical_batch": critical_batch,
            "lr": lr,
            "schedule": _schedule(schedule),
            "warmup_fraction": warmup,
            "model": {key: value for key, value in model.items() if value is not None} or None,
            "data": None if seq_len is None else {"seq_len": seq_len},
            "flops_per_s": flops_per_s,
            "price_per_hour": price,
            "extrapolate": extrapolate or None,
        }
        made = build_plan(read_spec(spec, options))
        said = None if output is None else write_plan(output, made)
    if as_json:
        print_json(made.document())
    else:
        _show(made)
    if said is not None:
        typer.echo(said, err=True)


def _schedule(text: str | None) -> Any:
    """Return the schedule's name, or the mapping that ``text`` holds as YAML."""
    if text is None or not text.lstrip().startswith("{"):
        return text
    from search_spaces.yaml_text import YamlError, parse_yaml

    try:
        return parse_yaml(text)
    except YamlError:
        fail(f"--schedule: expected a name or a mapping such as '{{name: cosine, final_ratio: 0.1}}'; found {text}", 2)


def _show(made: FamilyPlan) -> None:
    from hpo.commands.whole_tables import print_whole

    document = made.document()
    print_whole(plan_table(document["recipes"]))
    for note in document["notes"]:
        typer.echo(f"· {note}")


def plan_table(recipes: list[dict[str, Any]]) -> Table:
    """Return the recipes as a table; columns without a value anywhere are left out."""
    from rich.table import Table

    columns = {
        "run": [recipe["name"] for recipe in recipes],
        "N": [f"{recipe['n_params']:.3g}" for recipe in recipes],
        "D": [f"{recipe['n_tokens']:.4g}" for recipe in recipes],
        "TPP": [f"{recipe['tpp']:.4g}" for recipe in recipes],
        "batch": [f"{recipe['batch_sequences']} × {recipe['seq_len']}" for recipe in recipes],
        "B_opt": [_sequences(recipe, "optimal_batch_tokens") for recipe in recipes],
        "B_crit": [_sequences(recipe, "critical_batch_tokens") for recipe in recipes],
        "steps": [f"{recipe['n_steps']:,}" for recipe in recipes],
        "τ": [f"{recipe['tau']:.4g}" for recipe in recipes],
        "τ law": [_number(recipe["tau_law"]) for recipe in recipes],
        "base η": [_number(recipe["lr"]) for recipe in recipes],
        "base λ": [_number(recipe["weight_decay"]) for recipe in recipes],
        "ηλ": [f"{recipe['lr_times_weight_decay']:.3g}" for recipe in recipes],
        "warm-up": [f"{recipe['warmup_fraction']:.2%}" for recipe in recipes],
        "FLOPs": [f"{recipe['flops']:.3g}" for recipe in recipes],
        "6ND": [f"{recipe['flops_6nd']:.3g}" for recipe in recipes],
        "device h": [_number(recipe["gpu_hours"]) for recipe in recipes],
        "price": [_number(recipe["price"]) for recipe in recipes],
    }
    table = Table()
    filled = {name: values for name, values in columns.items() if any(values)}
    for name in filled:
        table.add_column(name, justify="left" if name == "run" else "right", no_wrap=True)
    for row in zip(*filled.values(), strict=True):
        table.add_row(*row)
    return table


def _sequences(recipe: dict[str, Any], key: str) -> str:
    return f"{recipe[key] / recipe['seq_len']:.4g}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
