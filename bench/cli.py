"""The commands of ``hpo bench``; what they run is imported when they run."""

from __future__ import annotations

import json
import os
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.command_line import input_errors
from bench.outlook_command import outlook_command
from bench.own_commands import own_demo_command, own_ladder_command, own_sweep_command, own_transfer_command

if TYPE_CHECKING:
    from bench.protocol import Protocol

app = typer.Typer(help="Replay recorded runs, studies and timings.", no_args_is_help=True, add_completion=False)
app.command("outlook")(outlook_command)
app.command("own-ladder")(own_ladder_command)
app.command("own-sweep")(own_sweep_command)
app.command("own-transfer")(own_transfer_command)
app.command("own-demo")(own_demo_command)


@app.callback()
def _bench() -> None:
    """Replay recorded runs, studies and timings."""


@app.command("replay")
def replay_command(
    protocol: Annotated[str, typer.Option(help="Protocol file, or the name of a built-in one.")] = "schaipp_25k_val",
    curves: Annotated[Path | None, typer.Option(help="Folder of recorded curves (default: $HPO_CURVES).")] = None,
    methods: Annotated[str, typer.Option(help="Methods, comma-separated (default: all).")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
    figure: Annotated[Path | None, typer.Option(help="Write a figure (SVG): scores against the stop fraction.")] = None,
    asynchronous: Annotated[bool, typer.Option(help="Stopping rules as trials arrive, on a simulated clock.")] = False,
    workers: Annotated[int, typer.Option(help="Simulated workers (asynchronous).")] = 4,
    seeds: Annotated[int, typer.Option(help="Orders of arrival (asynchronous).")] = 5,
    looks: Annotated[int, typer.Option(help="Reports a trial (asynchronous).")] = 20,
) -> None:
    """Judge every method on recorded runs cut at each stop fraction.

    Example: hpo bench replay --protocol schaipp_25k_val --methods current_best,transfer,hpo

    With --asynchronous every stopping rule prunes the targets as they arrive; --methods then names rules.
    """
    from bench.figure import write_figure
    from bench.protocol import load_protocol
    from bench.replay import ALL_METHODS, replay
    from bench.table import markdown_table

    with input_errors():
        made, folder = load_protocol(protocol), curves_folder(curves)
        if asynchronous:
            from bench.asynchronous import Clock, replay_asynchronously  # Optuna and Ray are imported only here

            result = replay_asynchronously(folder, made, Clock(workers, seeds, looks), _names(methods))
        else:
            result = replay(folder, made, _names(methods) or ALL_METHODS)
        if figure is not None:
            if asynchronous:
                raise ValueError("--figure goes with the stop fractions, not with --asynchronous")
            write_figure(figure, result)
    print(json.dumps(result, allow_nan=False) if as_json else markdown_table(result))


@app.command("study")
def study_command(
    storage: Annotated[str, typer.Argument(help="Optuna storage: a URL, or the path of a journal file.")],
    name: Annotated[str, typer.Argument(help="Name of the study.")],
    methods: Annotated[str, typer.Option(help="Methods, comma-separated (default: all).")] = "",
    sample: Annotated[
        int | None, typer.Option(min=1, help="Finished trials, drawn at random, that teach (default: half, at most 8).")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draw.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Judge every method on the finished trials of an Optuna study, which is only read.

    Example: hpo bench study sqlite:///study.db my-study --methods current_best,power_law,hpo
    """
    from bench.replay import ALL_METHODS
    from bench.study import open_study, replay_study
    from bench.table import markdown_table

    with input_errors():
        result = replay_study(open_study(storage, name), _names(methods) or ALL_METHODS, sample=sample, seed=seed)
    print(
        f"{result['n_trials_used']} of {result['n_trials']} trials are finished and long enough to be replayed", file=sys.stderr
    )
    print(json.dumps(result, allow_nan=False) if as_json else markdown_table(result))


@app.command("latency")
def latency_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Time the core: fit, forecast, report, joint forecast; for the pruner, python -m bench.pruner_latency.

    Example: hpo bench latency
    """
    from dataclasses import asdict

    from bench.latency import measure, table

    steps = measure()
    print(json.dumps([asdict(step) for step in steps]) if as_json else table(steps))


def curves_folder(given: Path | None) -> Path:
    """Return the folder of recorded curves.

    Raises
    ------
    ValueError
        It does not exist.
    """
    folder = given or Path(os.environ.get("HPO_CURVES") or "../shared/curves")
    if not folder.is_dir():
        raise ValueError(f"--curves {folder}: no such folder; give one, or set HPO_CURVES")
    return folder


@app.command("race")
def race_command(
    only: Annotated[str, typer.Option(help="Protocols, comma-separated, wildcards allowed, or develop or test.")] = "develop",
    curves: Annotated[Path | None, typer.Option(help="Folder of recorded curves (default: $HPO_CURVES).")] = None,
    rules: Annotated[str, typer.Option(help="Rules, comma-separated (default: all).")] = "",
    workers: Annotated[int, typer.Option(help="Simulated workers.")] = 4,
    seeds: Annotated[int, typer.Option(help="Orders of arrival.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Write the tables (Markdown) and, beside them, the means (JSON).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Count the tokens until each stopping rule has finished a trial as good as the best.

    Example: hpo bench race --only 'schaipp_25k_grid_val' --rules ray_asha,optuna_hyperband,select_20,rungs_10_20_30
    """
    from bench.asynchronous import Clock
    from bench.protocol import load_protocol
    from bench.race import race, race_table
    from bench.table import write_race

    with input_errors():
        folder, found = curves_folder(curves), []
        for name in _protocols(only):
            print(name, file=sys.stderr, flush=True)
            found.append(race(folder, load_protocol(name), Clock(workers, seeds), _names(rules)))
    if out is not None:
        write_race(out, found, [race_table(one) for one in found])
    print(json.dumps(found, allow_nan=False) if as_json else "\n\n".join(race_table(one) for one in found))


@app.command("scoreboard")
def scoreboard_command(
    out: Annotated[Path, typer.Option(help="Folder for one JSON a protocol and a README.md with tables.")],
    curves: Annotated[Path | None, typer.Option(help="Folder of recorded curves.")] = None,
    methods: Annotated[str, typer.Option(help="Methods (or rules), comma-separated (default: all).")] = "",
    only: Annotated[str, typer.Option(help="Protocols, comma-separated, wildcards allowed, or develop or test.")] = "*",
    asynchronous: Annotated[bool, typer.Option(help="Stopping rules on a simulated clock instead.")] = False,
) -> None:
    """Replay the built-in protocols and write their means as JSON and Markdown.

    Example: hpo bench scoreboard --out /tmp/board --only 'schaipp_25k_*' --methods current_best,transfer,hpo
    """
    from bench.protocol import load_protocol
    from bench.table import write_rules, write_scoreboard

    with input_errors():
        folder, chosen, results = curves_folder(curves), _names(methods), []
        for name in _protocols(only):
            print(name, file=sys.stderr, flush=True)
            results.append(_one(folder, load_protocol(name), chosen, asynchronous=asynchronous))
    (write_rules if asynchronous else write_scoreboard)(out, results)


def _one(folder: Path, protocol: Protocol, chosen: tuple[str, ...], *, asynchronous: bool) -> dict[str, Any]:
    if not asynchronous:
        from bench.replay import ALL_METHODS, replay

        return replay(folder, protocol, chosen or ALL_METHODS)
    from bench.asynchronous import replay_asynchronously

    return replay_asynchronously(folder, protocol, rules=chosen)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _protocols(only: str) -> list[str]:
    """Return the built-in protocols that match; a wildcard that matches none is an error."""
    from bench.protocol import built_in_names, load_protocol

    rules = [rule.strip() for rule in only.split(",") if rule.strip()]
    names = [n for n in built_in_names() if any(fnmatch(n, r) or load_protocol(n).role == r for r in rules)]
    if not names:
        raise ValueError(f"--only {only!r}: no built-in protocol matches; they are {', '.join(built_in_names())}")
    return names
