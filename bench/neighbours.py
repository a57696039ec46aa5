"""From which size on does a family collapse within 1 %? Pairs of sizes about four times apart, ours and recorded ones.

A pair has the same schedule, and tokens per parameter and τ within 25 %. Its gap is the widest difference of log ℓ = log L/L(T)
over t̂ ≥ 0.2, averaged over 9 % of training and over seeds, nothing subtracted. How the gap falls is fitted as

    log gap = a − b·log N + c·log TPP + error,    N = √(N₁·N₂),

to the pairs whose context is long enough to leave something to be learned from far back; where it crosses 1 % has an interval
from the fit (Fieller's: all N at which 1 % is not excluded). Pairs share runs, so that interval is rather too narrow.

    python -m bench.neighbours --out bench/results
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t

from bench.own_report import LOOSE_LR, LOOSE_TAU, SHOWN_AT, smooth_logs
from bench.records import OWN_DATA
from hpo.adapters.atomic import write_json, write_text
from hpo.adapters.curve_files import RecordedRun, read_runs
from hpo.core.check import JUDGED_FROM
from hpo.core.controls import Controls, compare_controls
from hpo.reporting.line_chart import Line, line_chart

FloatArray = NDArray[np.float64]
RECORDED = {"OLMo ladder": "olmo_ladder.parquet", "Schaipp": "lr_scheduling_schaipp.parquet"}
METRIC = "val_loss"
APART = (3.2, 4.5)
"""How far apart in parameters neighbours are."""
LONG_CONTEXT = 64
LEVEL = 0.9
GOAL_PCT = 1.0


@dataclass(frozen=True)
class Pair:
    """Two sizes at matched controls.

    Attributes
    ----------
    source : str
        Where the runs are from.
    small, large : float
        Parameters.
    context : int or None
        Tokens a sequence; None where not recorded (language models of 93M parameters and more: long).
    tpp : float
        Geometric mean of the two.
    n_steps : float
        Of the smaller size's run.
    gap_pct : float
        Widest difference over t̂ ≥ 0.2, %.
    at_pct : dict
        Signed difference (larger minus smaller) at some t̂, %.
    n_runs : int
        Runs averaged.
    """

    source: str
    small: float
    large: float
    context: int | None
    tpp: float
    n_steps: float
    schedule: str
    gap_pct: float
    at_pct: dict[str, float]
    n_runs: int

    @property
    def is_long(self) -> bool:
        """Whether the context counts as long."""
        return self.context is None or self.context >= LONG_CONTEXT


def recorded_pairs(folder: Path) -> list[Pair]:
    """Return the pairs among recorded runs of language models.

    Raises
    ------
    ValueError
        A file that is missing or cannot be read.
    """
    return [
        _pair(source, [a], [b])
        for source, name in RECORDED.items()
        for a, b in _matched(read_runs(folder / name, metric=METRIC))
    ]


def _matched(runs: Sequence[RecordedRun]) -> Iterator[tuple[RecordedRun, RecordedRun]]:
    """Yield (smaller, larger) of matched complete runs."""
    complete = [run for run in runs if run.recipe is not None and run.recipe.n_params and run.curve().is_complete]
    for a, b in combinations(sorted(complete, key=_size), 2):
        if APART[0] <= _size(b) / _size(a) <= APART[1] and _controls_match(a, b):
            yield a, b


def _controls_match(a: RecordedRun, b: RecordedRun) -> bool:
    matches = compare_controls([Controls.of(run.run_id, run.recipe, run.horizon) for run in (a, b)])
    return all(one.matches is True for one in matches if one.name != "warmup_fraction")


def own_pairs(data: Path = OWN_DATA) -> list[Pair]:
    """Return the pairs among our own runs, seeds averaged; those not trained yet are left out."""
    ladder = read_runs(data / "own_ladder.parquet", metric=METRIC)
    sweep = [run for run in read_runs(data / "own_sweep.parquet", metric=METRIC) if _setting(run) == (LOOSE_LR, LOOSE_TAU)]
    extra_path = data / "own_neighbours.parquet"
    extra = read_runs(extra_path, metric=METRIC) if extra_path.is_file() else []
    matched = [run for run in ladder if run.group == "matched"]
    middle = [run for run in matched if run.settings["width"] == 36]
    half = [run for run in extra if run.group == "half_batch"]
    families = [
        ("ours", matched, 4),
        ("ours, half the batch at 24k", [*half, *middle] if half else [], 4),
        ("ours", [run for run in extra if run.group == "context"], 5),
        ("ours", [run for run in extra if run.group == "longer"], 4),
        ("ours", sweep, 64),
    ]
    return [
        _pair(source, small, large, context)
        for source, runs, context in families
        for small, large in combinations(_by_size(runs), 2)
        if APART[0] <= _size(large[0]) / _size(small[0]) <= APART[1]
    ]


def _setting(run: RecordedRun) -> tuple[Any, Any]:
    return run.settings["lr"], run.settings["tau"]


def _by_size(runs: Sequence[RecordedRun]) -> list[list[RecordedRun]]:
    sizes = sorted({_size(run) for run in runs})
    return [[run for run in runs if _size(run) == size] for size in sizes]


def _size(run: RecordedRun) -> float:
    return float(run.recipe.n_params or 0.0) if run.recipe is not None else 0.0


def _pair(source: str, small: Sequence[RecordedRun], large: Sequence[RecordedRun], context: int | None = None) -> Pair:
    t, logs = smooth_logs([*small, *large])
    difference = 100 * (logs[len(small) :].mean(axis=0) - logs[: len(small)].mean(axis=0))
    a, b = small[0].recipe, large[0].recipe
    if a is None or b is None or a.tpp is None or b.tpp is None:
        raise ValueError(f"run {small[0].run_id}: expected its recipe's tokens per parameter; found none")
    return Pair(
        source=source,
        small=_size(small[0]),
        large=_size(large[0]),
        context=context,
        tpp=float(np.sqrt(a.tpp * b.tpp)),
        n_steps=float(small[0].horizon or np.nan),
        schedule=str(a.schedule),
        gap_pct=float(np.abs(difference[t >= JUDGED_FROM - 1e-9]).max()),
        at_pct={str(at): float(np.interp(at, t, difference)) for at in SHOWN_AT},
        n_runs=len(small) + len(large),
    )


@dataclass(frozen=True)
class Fall:
    """How the gap falls: log gap = a − b·log N + c·log TPP.

    Attributes
    ----------
    coefficients, covariance : ndarray
        Of (1, log N, log TPP), and theirs.
    sd, dof : float, int
        Of the errors of log gap.
    """

    coefficients: FloatArray
    covariance: FloatArray
    sd: float
    dof: int

    def log_gap(self, n: float, tpp: float) -> tuple[float, float]:
        """Return the fitted log gap in %, and its standard error."""
        row = np.array([1.0, np.log(n), np.log(tpp)])
        return float(row @ self.coefficients), float(np.sqrt(row @ self.covariance @ row))

    def crossing(self, tpp: float, goal_pct: float = GOAL_PCT) -> tuple[float, float, float]:
        """Return the N at which the gap is ``goal_pct``, and the ends of its interval (of what is looked at: 10⁴ to 10¹¹)."""
        sizes = np.logspace(4, 11, 2801)
        told = np.array([self.log_gap(n, tpp) for n in sizes])
        off = told[:, 0] - np.log(goal_pct)
        held = sizes[np.abs(off) <= student_t.ppf(0.5 + LEVEL / 2, self.dof) * told[:, 1]]
        return float(sizes[np.argmin(np.abs(off))]), float(held.min()), float(held.max())


def fall_of(pairs: Sequence[Pair]) -> Fall:
    """Return the least-squares fit to pairs of long contexts.

    Raises
    ------
    ValueError
        Fewer than five of them.
    """
    used = [pair for pair in pairs if pair.is_long]
    if len(used) < 5:
        raise ValueError(f"how the gap falls needs at least five pairs of long contexts; found {len(used)}")
    x = np.array([[1.0, np.log(np.sqrt(p.small * p.large)), np.log(p.tpp)] for p in used])
    y = np.log([p.gap_pct for p in used])
    coefficients = np.linalg.lstsq(x, y, rcond=None)[0]
    dof = len(used) - x.shape[1]
    variance = float(np.sum((y - x @ coefficients) ** 2) / dof)
    return Fall(coefficients, variance * np.linalg.inv(x.T @ x), float(np.sqrt(variance)), dof)


def neighbours_report(curves: Path, data: Path = OWN_DATA) -> dict[str, Any]:
    """Return, JSON-ready, every pair, the fit, and where it crosses 1 % at 10 and 20 tokens per parameter."""
    pairs = [*own_pairs(data), *recorded_pairs(curves)]
    fall = fall_of(pairs)
    crossings = {str(tpp): dict(zip(("n", "low", "high"), fall.crossing(tpp), strict=True)) for tpp in (10, 20)}
    return {
        "pairs": [asdict(pair) for pair in sorted(pairs, key=lambda p: (p.small * p.large, p.tpp))],
        "fit": {"coefficients": fall.coefficients.tolist(), "sd": fall.sd, "dof": fall.dof},
        "crossings": crossings,
    }


def neighbours_table(report: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    head = (
        "`python -m bench.neighbours`: sizes about four times apart at matched controls. Gap: widest difference of log ℓ over "
        "t̂ ≥ 0.2, averaged over 9 % of training and over seeds; then the larger size's minus the smaller's at four t̂. In %."
    )
    lines = [
        head,
        "",
        "| runs | sizes | context | TPP | steps | schedule | gap | at .2 | .3 | .5 | .7 | runs |",
        "|---" * 12 + "|",
    ]
    for p in report["pairs"]:
        at = " | ".join(f"{p['at_pct'][str(t)]:+.2f}" for t in SHOWN_AT)
        sizes = f"{_short(p['small'])} → {_short(p['large'])}"
        lines.append(
            f"| {p['source']} | {sizes} | {p['context'] or 'long'} | {p['tpp']:.0f} | {p['n_steps']:.0f} | {p['schedule']} "
            f"| {p['gap_pct']:.2f} | {at} | {p['n_runs']} |"
        )
    _, size, tpp = report["fit"]["coefficients"]
    lines += [
        "",
        f"Long contexts: gap ∝ N^{size:.2f} · TPP^{tpp:.2f}, errors of {report['fit']['sd']:.2f} in log gap. It is 1 %:",
    ]
    lines += [
        f"- at {at} tokens per parameter at N = {_short(c['n'])} (90 %: {_short(c['low'])} to {_short(c['high'])}), the "
        "geometric mean of the two sizes"
        for at, c in report["crossings"].items()
    ]
    return "\n".join([*lines, "", "![gap against size](neighbours.svg)"])


def neighbours_figure(report: dict[str, Any]) -> str:
    """Return an SVG: gap against the pair's mean size, both logarithmic, and the fit at 10 and 20 tokens per parameter."""
    pairs = [Pair(**p) for p in report["pairs"]]
    kinds = {
        "ours, context 4 or 5": [p for p in pairs if not p.is_long],
        "ours, context 64": [p for p in pairs if p.is_long and p.context is not None],
        **{source: [p for p in pairs if p.source == source] for source in RECORDED},
    }
    lines = [
        Line(name, [_log_mean(p) for p in some], np.log10([p.gap_pct for p in some]), points=True)
        for name, some in kinds.items()
        if some
    ]
    a, b, c = report["fit"]["coefficients"]
    sizes = np.linspace(4.5, 9.5, 50)
    for tpp in (10, 20):
        fitted = (a + b * np.log(10.0) * sizes + c * np.log(tpp)) / np.log(10.0)
        lines.append(Line(f"fit, {tpp} TPP", sizes, fitted, dashed=True))
    lines.append(Line("1 %", sizes[[0, -1]], [0.0, 0.0]))
    title = "Sizes four times apart: widest gap of normalised curves, t̂ ≥ 0.2"
    return line_chart(lines, title=title, x_label="parameters, √(N₁N₂)", y_label="gap, %", powers="xy")


def _log_mean(pair: Pair) -> float:
    return float(0.5 * np.log10(pair.small * pair.large))


def _short(n: float) -> str:
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if n >= unit:
            return f"{n / unit:.3g}{name}"
    return f"{n:.0f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what is missing if asked to, then write and print the table."""
    parser = argparse.ArgumentParser(prog="bench.neighbours", description="From which size on a family collapses within 1 %.")
    parser.add_argument("--curves", type=Path, default=Path(os.environ.get("HPO_CURVES", "../shared/curves")))
    parser.add_argument("--data", type=Path, default=OWN_DATA, help="folder of our own curves")
    parser.add_argument("--train", type=Path, metavar="RUNS", help="first train our further pairs in this folder (two hours)")
    parser.add_argument("--minutes", type=float, help="with --train: leave after about this long; the next call goes on")
    parser.add_argument("--out", type=Path, help="folder for neighbours.md, .svg and .json")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    try:
        if given.train is not None:
            _train(given.train, given.data, given.minutes)
        report = neighbours_report(given.curves, given.data)
    except ValueError as error:
        parser.error(str(error))
    if given.out is not None:
        write_json(given.out / "neighbours.json", report)
        write_text(given.out / "neighbours.md", neighbours_table(report) + "\n")
        write_text(given.out / "neighbours.svg", neighbours_figure(report))
    print(json.dumps(report, indent=1) if given.json else neighbours_table(report))
    return 0


def _train(runs: Path, data: Path, minutes: float | None) -> None:
    from bench.own_neighbours import neighbour_runs
    from bench.own_runs import collect, is_finished, train_missing

    every = neighbour_runs()
    train_missing(every, runs, seconds=None if minutes is None else 60 * minutes)
    finished = [run for run in every if is_finished(run, runs)]
    if finished:
        collect(finished, runs, data / "own_neighbours.parquet")


if __name__ == "__main__":
    sys.exit(main())
