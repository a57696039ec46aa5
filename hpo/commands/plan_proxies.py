"""``hpo plan-proxies``: which proxies, at how many settings, stopped where, find the best candidate for the least."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpo.commands.options import input_errors, require_other_file
from hpo.commands.output import print_json

if TYPE_CHECKING:
    from rich.table import Table

    from hpo.engine.config import SweepConfig

EXAMPLE = "Example: hpo plan-proxies sweep.yaml --p-best 0.9 -o better.yaml, then: hpo sweep better.yaml"


def plan_proxies(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A sweep: its target, search space, and stopping.")],
    p_best: Annotated[
        float | None,
        typer.Option(help="Wanted probability that the best candidate goes to the end; default 1 − stopping.alpha."),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="FLOPS", help="FLOPs that the sweep never exceeds, proxies included.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(metavar="MODEL.json", help="Finished runs of the family, of hpo fit or a sweep.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value of CONFIG.")] = None,
    seed: Annotated[int, typer.Option(help="Of the simulated sweeps.", min=0)] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="SWEEP.yaml", help="Write CONFIG with the best design.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Choose a sweep's proxies: the sizes, settings and stopping fraction of the lowest expected cost for a wanted P(best)."""
    from hpo.adapters.model_files import read_model
    from hpo.core.quantities import require_positive
    from hpo.engine.config import load_config, with_absolute_paths
    from hpo.engine.outlook import advice
    from hpo.engine.plan import plan_sweep

    with input_errors():
        if budget is not None:
            require_positive("--budget", budget)
        require_other_file(output, config)
        loaded = with_absolute_paths(load_config(config, set_ or []))
        plan = plan_sweep(_with_proxies(loaded))
        known = None if model is None else read_model(model)
        document = advice(plan, known, p_best=p_best, budget=budget, rule=loaded.stopping.rule, seed=seed)
        said = None if output is None else _write(output, loaded, document)
    if as_json:
        print_json(document)
    else:
        _show(document)
    if said is not None:
        typer.echo(said, err=True)


def _with_proxies(config: SweepConfig) -> SweepConfig:
    """Return ``config`` so that it can be planned: a selection without proxies yet is what this command is asked about."""
    if config.proxies is not None or config.stopping.rule == "prune":
        return config
    return config.model_copy(update={"stopping": config.stopping.model_copy(update={"rule": "prune"})})


def _write(path: Path, config: SweepConfig, document: dict[str, Any]) -> str:
    """Write the configuration with the best design in it and return what was done."""
    from hpo.adapters.atomic import write_text
    from hpo.engine.config import InputError, dump_config, parse_config
    from hpo.engine.tables import design_text

    best = document["best"]
    data = config.model_dump(mode="json")
    data["proxies"] = {"sizes": best["sizes"], "settings": best["settings"]} if best["sizes"] else None
    data["stopping"] |= {"rule": "select", "at": best["stop_at"], "rungs": [], "keep_max": best["keep_max"]}
    data["stopping"]["alpha"] = round(1.0 - document["wanted_p_best"], 9)
    if not best["sizes"]:
        raise InputError.at("--output", "a design with proxies: a sweep does not read --model", "one without")
    text = dump_config(parse_config(data))
    try:
        write_text(path, f"# {design_text(best)}\n{text}")
    except OSError as error:
        raise InputError.at("--output", "a file that can be written", f"{path}: {error.strerror}") from None
    return f"{path}: go on with: hpo sweep {path}"


def _show(document: dict[str, Any]) -> None:
    from hpo.commands.whole_tables import print_whole
    from hpo.engine.tables import design_text

    print_whole(designs_table(document))
    typer.echo(f"best              {design_text(document['best'])}")
    saved, even = document["best"]["saved_fraction"], document["best"]["break_even_trials"]
    typer.echo(
        f"against           a full sweep of {document['best']['flops_full_sweep']:.2e} FLOPs: {saved:.0%} saved expected"
    )
    if document["budget"] is not None:
        besides = (
            "" if document["configured"] is None else f"; as configured up to {document['configured']['flops']['at_most']:.2e}"
        )
        typer.echo(f"budget            {document['budget']:.2e} FLOPs, which no sweep so designed exceeds{besides}")
    typer.echo(f"break-even        from {even} candidates on")
    typer.echo(f"assuming          {document['assumes']}")
    for note in document["notes"]:
        typer.echo(f"· {note}")


def designs_table(document: dict[str, Any]) -> Table:
    """Return the cheapest design at each stop, and the configured one, as a table; the best is bold."""
    from rich.table import Table

    from hpo.engine.tables import size_text

    table = Table(title=f"cheapest designs for P(best) {document['wanted_p_best']:g}", title_justify="left")
    for name in (
        "judged at",
        "proxies",
        "settings",
        "P(best)",
        "kept",
        "regret %",
        "P of one",
        "FLOPs",
        "at most",
        "saved",
        "pays from",
    ):
        table.add_column(name, justify="left" if name in ("judged at", "proxies") else "right", no_wrap=True)
    rows = [("best" if one == document["best"] else "", one) for one in document["by_stop"]]
    if not any(mark for mark, _ in rows):
        rows.append(("best", document["best"]))
    if document["configured"] is not None:
        rows.append(("as configured", document["configured"]))
    for mark, one in rows:
        even = "" if one["break_even_trials"] is None else str(one["break_even_trials"])
        table.add_row(
            f"{one['stop_at']:.0%} {mark}".strip(),
            " ".join(size_text(size) for size in one["sizes"]) or "those of the model",
            str(one["settings"]),
            f"{one['p_best']:.2f}",
            f"{one['kept']:.1f}",
            f"{one['regret_pct']:.2f}",
            f"{one['p_best_of_pick']:.2f}",
            f"{one['flops']['total']:.2e}",
            f"{one['flops']['at_most']:.2e}",
            f"{one['saved_fraction']:.0%}",
            even,
            style="bold" if mark == "best" else None,
        )
    return table
