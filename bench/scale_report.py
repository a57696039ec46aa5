"""What one driver carries, as a table and a figure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpo.adapters.atomic import write_json, write_text
from hpo.reporting.line_chart import Line, line_chart

Found = Sequence[Mapping[str, Any]]


def scale_lines(found: Found) -> list[str]:
    """Return a Markdown table, one row a load."""
    lines = [
        "| workers | trials | reports a trial | stopped | report ms (p50, p99, max) | first, last tenth | with a forecast "
    ]
    lines[0] += "| suggest ms | answer s (p50, p99) | kB a trial | utilisation | driver busy |"
    lines.append("|---" * 12 + "|")
    for one in found:
        load, m = one["load"], one["measured"]
        times = f"{m['report_ms']:.2f} ({m['p50_ms']:.2f}, {m['p99_ms']:.2f}, {m['max_ms']:.0f})"
        grows = f"{m['by_tenth_ms'][0]:.2f}, {m['by_tenth_ms'][-1]:.2f}"
        waits = f"{m['decided_p50_s']:.3f}, {m['decided_p99_s']:.2f}"
        ended = m.get("n_ended", load["n_trials"])
        trials = f"{load['n_trials']}" + (f" ({ended} ended)" if ended < load["n_trials"] else "")
        lines.append(
            f"| {load['n_workers']} | {trials} | {load['n_reports']} | {m['n_stopped']} | {times} | {grows} "
            f"| {m['judged_ms']:.2f} | {m['suggest_ms']:.2f} | {waits} | {m['bytes_per_trial'] / 1e3:.1f} "
            f"| {m['utilisation']:.1%} | {m['driver_busy']:.1%} |"
        )
    return lines


def actors_lines(found: Found) -> list[str]:
    """Return a Markdown table of real actors, one row a measurement."""
    lines = ["| actors | under | trials | stopped | reports | driver ms a report | answer s (p50, p99) | next start s "]
    lines[0] += "| kB a trial | utilisation |"
    lines.append("|---" * 10 + "|")
    for m in found:
        waits = f"{m['decided_p50_s']:.3f}, {m['decided_p99_s']:.3f}"
        lines.append(
            f"| {m['n_actors']} | {'Ray alone' if m['is_plain'] else 'ours'} | {m['n_trials']} | {m['n_stopped']} "
            f"| {m['n_reports']} | {m['report_ms']:.2f} | {waits} "
            f"| {m['next_start_s']:.2f} | {m['bytes_per_trial'] / 1e3:.1f} | {m['utilisation']:.1%} |"
        )
    return lines


def write_actors(folder: Path, found: Found) -> None:
    """Write ``scale_actors.json`` and ``.md``: what was found now, and of other numbers of actors before."""
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / "scale_actors.json"
    before = json.loads(known.read_text(encoding="utf-8")) if known.exists() else []
    new = {(m["n_actors"], m["is_plain"]) for m in found}
    kept = [m for m in before if (m["n_actors"], m["is_plain"]) not in new]
    ordered = sorted([*found, *kept], key=lambda m: (m["n_actors"], m["is_plain"]))
    write_json(known, ordered)
    about = (
        "`python -m bench.scale --actors … --trials … --out bench/results`, with `--plain` for Ray's scheduler and search:\n"
        "real actors, which only sleep and report recorded curves. Milliseconds are all of the driver's processor time, Ray's\n"
        "included; kB a trial is how what the driver holds grows over the second half of the trials, in pages, so few trials\n"
        "tell it badly."
    )
    write_text(folder / "scale_actors.md", "\n".join(["# Real actors", "", about, "", *actors_lines(ordered), ""]))


def scale_figure(found: Found) -> str:
    """Return an SVG: how busy the workers and the driver are, against the workers (log₁₀), of the loads most alike."""
    kinds = [tuple(one["load"][key] for key in ("trial_s", "n_reports", "n_trials")) for one in found]
    most = max(kinds, key=kinds.count)
    ordered = [one for one, kind in zip(found, kinds, strict=True) if kind == most]
    workers = [float(np.log10(one["load"]["n_workers"])) for one in ordered]
    lines = [
        Line("workers train", workers, [100 * one["measured"]["utilisation"] for one in ordered]),
        Line("driver works", workers, [100 * one["measured"]["driver_busy"] for one in ordered]),
    ]
    trial_s = ordered[0]["load"]["trial_s"]
    title = f"One driver, trials of {trial_s:g} s with {ordered[0]['load']['n_reports']} reports"
    return line_chart(lines, title=title, x_label="log10 of the workers", y_label="share of the time, %", y_range=(0, 100))


def write_scale(folder: Path, found: Found) -> None:
    """Write ``scale.json``, ``scale.md`` and ``scale.svg``: what was found now, and of other loads before."""
    folder.mkdir(parents=True, exist_ok=True)
    known = folder / "scale.json"
    before = json.loads(known.read_text(encoding="utf-8")) if known.exists() else []
    loads = [one["load"] for one in found]
    found = sorted([*found, *(one for one in before if one["load"] not in loads)], key=_size)
    write_json(known, found)
    about = (
        "`python -m bench.scale --workers … --trials … --reports … --trial-s … --out bench/results`: simulated workers,\n"
        "recorded curves; scheduler, search and study are real. Milliseconds are the driver's processor time without Ray's;\n"
        "answers and use are on the simulated clock, with 2.5 ms of Ray's added to each report."
    )
    text = "\n".join(["# What one driver carries", "", about, "", *scale_lines(found), "", "![shares](scale.svg)", ""])
    write_text(folder / "scale.md", text)
    write_text(folder / "scale.svg", scale_figure(found))


def _size(one: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(one["load"][key] for key in ("n_trials", "n_workers", "trial_s", "n_reports"))
