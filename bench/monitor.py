"""How soon, how surely and how falsely ``hpo monitor`` alarms: faults injected into healthy recorded runs.

    python -m bench.monitor --curves DIR --json
    timeout 600 python -m bench.monitor --rows rows.jsonl        # again, until it is done: rows that are there are kept

Healthy runs are published ones and our own, each held against the model of its relatives: OLMo ladder runs of the same tokens
per parameter, MultiPowerLaw runs of the same schedule and the other size, runs of the Schaipp set with the same schedule and
another length or size, our ladder's other sizes and seed, our sweep's proxies of the same seed. Constants were chosen on the
``develop`` half (OLMo, MultiPowerLaw, our ladder, every third run of Schaipp's and our sweep); the ``test`` half is the rest.
Further healthy runs are bootstrapped: the run's slow curve plus its own noise, drawn anew in blocks from nearby. All Schaipp
runs of one batch size saw the same batches in the same order, so that the monitor can also be given what it needs to see that
by itself (bootstrapped runs then keep the noise that they share).

Sizes are in σ, the run's own noise over a 1 % window (but at least 0.03 %). Compared are z-score spike detectors
on the raw loss, the rise of the smoothed loss (1 %) above its minimum by 3 σ, and that of the loss smoothed over 5 % by more
than it ever does in 99 % of the healthy runs of the same source: a rise that means something.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.stats import beta

from bench.cli import curves_folder
from bench.command_line import input_errors
from bench.monitor_runs import Healthy, bootstrapped, healthy_runs, others_start, smoothed
from hpo.core.common_noise import FreedTemplate
from hpo.core.monitor import Monitor, Status

FloatArray = NDArray[np.float64]
MONITOR, SAME_DATA = "monitor", "monitor, order seen"
FORMS = ("step", "drift", "spike", "transient")
SIZES = (0.5, 1.0, 2.0, 4.0, 8.0)
DRIFT_SIZES = (4.0, 8.0, 16.0, 32.0)
ONSETS = (0.05, 0.15, 0.3, 0.5, 0.7, 0.9)
TARGET = ("step", 4.0)
TARGET_WEIGHT = 4
"""The fault that most is asked of, and by how many times more runs it is tried on than others."""
SPIKE_LENGTH = 0.01
RECOVERY = 0.02
SOON = 0.03
ZSCORES = ((10, 2.0), (10, 5.0), (30, 3.0), (100, 3.0), (100, 5.0))
RISE_SIGMA = 3.0
RISE = "smoothed rise"
CLEAR_RISE = "rise at 1 %"
JUDGE_EVERY = 0.005
HEALTHY_EVERY = 0.01
"""Healthy runs are asked once a bin, faulty ones from the onset on twice."""
TURN_WIDTH = 0.05


@dataclass(frozen=True)
class Outcome:
    """What each detector did on one run: t̂ of its first alarm, None without one; the monitors' onsets, as told then."""

    alarms: dict[str, float | None]
    onsets: dict[str, float | None]


def fault(form: str, fractions: FloatArray, onset: float, size: float) -> FloatArray:
    """Return log(faulty/healthy) at ``fractions``; a drift reaches ``size`` at t̂ = 1."""
    since = fractions - onset
    after = since >= 0
    if form == "step":
        return np.where(after, size, 0.0)
    if form == "drift":
        return np.where(after, size * since / (1.0 - onset), 0.0)
    if form == "spike":
        return np.where(after & (since < SPIKE_LENGTH), size, 0.0)
    return np.where(after, size * np.exp(-np.maximum(since, 0.0) / RECOVERY), 0.0)


def watch(one: Healthy, values: FloatArray, apart: FloatArray | None = None, since: float = 0.0) -> Outcome:
    """Return what every detector does on ``values`` of the run's steps, the monitor that can see the data order on ``apart``.

    Monitors are asked from ``since`` on: what they say before it they say of the healthy run.
    """
    status = _monitored(one, values, None, since)
    alarms, onsets = {MONITOR: status.detected_at}, {MONITOR: status.onset}
    if one.common is not None and one.clean is not None:
        freed = FreedTemplate(one.clean, one.common)
        status = _monitored(one, values if apart is None else apart, freed, since)
        alarms[SAME_DATA], onsets[SAME_DATA] = status.detected_at, status.onset
    return Outcome({**alarms, **_rivals(one, values)}, onsets)


def _monitored(one: Healthy, values: FloatArray, freed: FreedTemplate | None, since: float) -> Status:
    """Return the monitor's status at its first alarm, or at the end."""
    run = one.run
    monitor = Monitor(one.template, run.recipe, total=run.horizon, metric=run.metric, judge_every=np.inf, if_same_data=freed)
    for step, value, fraction in zip(run.steps.tolist(), values.tolist(), one.fractions.tolist(), strict=True):
        if fraction >= since:
            monitor.judge_every = JUDGE_EVERY if since > 0 else HEALTHY_EVERY
        if monitor.update(step, value).status == "alarm":
            return monitor.status
    return monitor.judge()


def _rivals(one: Healthy, values: FloatArray) -> dict[str, float | None]:
    fractions = one.fractions
    judged = fractions >= others_start(one)
    t, v = fractions[judged], values[judged]
    out = {f"z-score {w}/{k:g}": first(t, _zscore_hits(v, w, k)) for w, k in ZSCORES}
    out[RISE] = first(t, rise(v, max(round(0.01 * values.size), 1)) > RISE_SIGMA * one.sigma)
    if one.source in _CLEAR:
        out[CLEAR_RISE] = first(t, rise(v, _turn_points(one)) > _CLEAR[one.source] * one.sigma)
    return out


def rise(v: FloatArray, width: int) -> FloatArray:
    """Return by how much the log of the trailing mean lies above its lowest so far."""
    smooth = np.log(_trailing_mean(v, width))
    return np.asarray(smooth - np.minimum.accumulate(smooth), dtype=np.float64)


def _turn_points(one: Healthy) -> int:
    return max(round(TURN_WIDTH * one.run.values.size), 1)


def clear_rises(pool: Sequence[Healthy]) -> dict[str, float]:
    """Return per source by how many σ the loss smoothed over 5 % rises at most in 99 % of its healthy runs."""
    rises: dict[str, list[float]] = {}
    for one in pool:
        judged = one.run.values[one.fractions >= others_start(one)]
        rises.setdefault(one.source, []).append(float(np.max(rise(judged, _turn_points(one)))) / one.sigma)
    return {source: float(np.quantile(own, 0.99)) for source, own in rises.items()}


def _zscore_hits(v: FloatArray, window: int, factor: float) -> NDArray[np.bool_]:
    hits = np.zeros(v.size, dtype=bool)
    if v.size <= window:
        return hits
    past = np.lib.stride_tricks.sliding_window_view(v, window)[:-1]
    hits[window:] = v[window:] > past.mean(axis=1) + factor * past.std(axis=1, ddof=1)
    return hits


def _trailing_mean(v: FloatArray, width: int) -> FloatArray:
    sums = np.concatenate(([0.0], np.cumsum(v)))
    at = np.arange(1, v.size + 1)
    low = np.maximum(at - width, 0)
    return np.asarray((sums[at] - sums[low]) / (at - low), dtype=np.float64)


def first(t: FloatArray, hits: NDArray[np.bool_]) -> float | None:
    """Return t at the first hit, None without one."""
    return float(t[int(np.argmax(hits))]) if hits.any() else None


@dataclass(frozen=True)
class Case:
    """One run to watch: healthy (form None) or with a fault."""

    index: int
    form: str | None
    onset: float = 0.0
    sigmas: float = 0.0
    seed: int | None = None


_POOL: list[Healthy] = []
_CLEAR: dict[str, float] = {}


def _load(folder: Path) -> None:
    _POOL[:] = healthy_runs(folder)
    _CLEAR.update(clear_rises(_POOL))


def _run_case(case: Case) -> tuple[Case, Outcome, float | None]:
    one = _POOL[case.index]
    values, apart = one.run.values, None
    if case.seed is not None:
        values = bootstrapped(one, np.random.default_rng(case.seed))
        apart = bootstrapped(one, np.random.default_rng(case.seed), keep_common=True)
    if case.form is None:
        return case, watch(one, values, apart), None
    faulty = values * np.exp(fault(case.form, one.fractions, case.onset, case.sigmas * one.sigma))
    return case, watch(one, faulty, since=case.onset), _turns(one, values, faulty, case.onset)


def _turns(one: Healthy, healthy: FloatArray, values: FloatArray, onset: float) -> float | None:
    """Return t̂ where the smoothed loss has clearly turned, None if never.

    Clearly: it has risen over its lowest since the onset by 1 σ more than it ever does in the healthy run. That is hindsight
    twice over: the mean is centred, so that it is known half of :data:`TURN_WIDTH` later only, and the healthy run is known.
    """
    after = one.fractions >= onset
    rises = []
    for raw in (healthy, values):
        smooth = smoothed(np.log(raw), TURN_WIDTH)[after]
        rises.append(smooth - np.minimum.accumulate(smooth))
    return first(one.fractions[after], rises[1] > np.max(rises[0]) + one.sigma)


def cases(pool: Sequence[Healthy], role: str, bootstraps: int, repeats: int, forms: Sequence[str] = FORMS) -> list[Case]:
    """Return the healthy and faulty cases of one half; the runs of faulty ones are chosen by a fixed draw."""
    own = [k for k, one in enumerate(pool) if one.role == role]
    made = [Case(k, None) for k in own]
    made += [Case(k, None, seed=zlib.crc32(f"{k}/{b}".encode())) for k in own for b in range(bootstraps)]
    rng = np.random.default_rng(0)
    for form in forms:
        for sigmas in DRIFT_SIZES if form == "drift" else SIZES:
            for onset in ONSETS:
                some = repeats * (TARGET_WEIGHT if (form, sigmas) == TARGET else 1)
                made += [Case(int(k), form, onset, sigmas) for k in rng.choice(own, min(some, len(own)), replace=False)]
    return made


def summary(pool: Sequence[Healthy], done: Sequence[tuple[Case, Outcome, float | None]]) -> dict[str, Any]:
    """Return rates of false alarms, and per form and size how many faults were found, how late and how exactly."""
    healthy = [(case, outcome) for case, outcome, _ in done if case.form is None]
    detectors = [MONITOR, SAME_DATA, *(d for d in healthy[0][1].alarms if d not in (MONITOR, SAME_DATA))]
    out: dict[str, Any] = {"false_alarms": {}, "faults": {}, "n_sources": {}, "by_onset": {}}
    for part, chosen in (("recorded", (False,)), ("bootstrapped", (True,)), ("both", (False, True))):
        own = [o for c, o in healthy if (c.seed is not None) in chosen]
        out["false_alarms"][part] = {d: _alarm_rate([o for o in own if d in o.alarms], d) for d in detectors}
    for source in sorted({pool[c.index].source for c, _ in healthy}):
        theirs = [o for c, o in healthy if pool[c.index].source == source]
        out["n_sources"][source] = {"runs": len(theirs)} | {
            f"{d}_alarms": sum(o.alarms.get(d) is not None for o in theirs) for d in (MONITOR, SAME_DATA)
        }
    alarmed = {case.index: outcome for case, outcome, _ in done if case.form is None and case.seed is None}
    done = [(case, _fair(outcome, alarmed[case.index], case.onset), turn) for case, outcome, turn in done]
    for noise, is_train in (("train", True), ("val", False)):
        rows = [row for row in done if pool[row[0].index].source.endswith("train") == is_train]
        out["by_onset"][noise] = _by_onset([row for row in rows if (row[0].form, row[0].sigmas) == TARGET])
        for form in FORMS:
            for sigmas in DRIFT_SIZES if form == "drift" else SIZES:
                faulty = [row for row in rows if row[0].form == form and row[0].sigmas == sigmas]
                if faulty:
                    out["faults"][f"{noise} {form} {sigmas:g}σ"] = {d: _found(faulty, d) for d in detectors}
    return out


def _fair(outcome: Outcome, healthy: Outcome, onset: float) -> Outcome:
    """Return the outcome with the monitors' alarms before the onset, which they give on the healthy run as well."""
    alarms = {name: at for name, at in healthy.alarms.items() if name in (MONITOR, SAME_DATA) and at is not None and at < onset}
    return replace(outcome, alarms={**outcome.alarms, **alarms})


def _by_onset(rows: Sequence[tuple[Case, Outcome, float | None]]) -> dict[str, dict[str, float]]:
    """Return per monitor and onset the share of the target fault found in time."""
    out: dict[str, dict[str, float]] = {}
    for detector in (MONITOR, SAME_DATA):
        at = {onset: [row for row in rows if row[0].onset == onset and detector in row[1].alarms] for onset in ONSETS}
        out[detector] = {f"{onset:g}": _found(own, detector)["within_3pct"] for onset, own in at.items() if own}
    return out


def _alarm_rate(outcomes: Sequence[Outcome], detector: str) -> dict[str, Any]:
    return _rate(sum(one.alarms[detector] is not None for one in outcomes), len(outcomes))


def _rate(count: int, n: int) -> dict[str, Any]:
    """Return a rate with its exact 90 % interval."""
    low = float(beta.ppf(0.05, count, n - count + 1)) if count else 0.0
    high = float(beta.ppf(0.95, count + 1, n - count)) if count < n else 1.0
    return {"n": n, "alarms": count, "rate": count / n if n else None, "interval90": [low, high]}


def _found(rows: Sequence[tuple[Case, Outcome, float | None]], detector: str) -> dict[str, Any]:
    """Score one detector; an alarm before the onset is a false one, and such runs are counted apart.

    ``before_clear_rise``: no later than the loss smoothed over 5 % has clearly risen, found at all included.
    """
    at = [(case, outcome, turn, outcome.alarms[detector]) for case, outcome, turn in rows if detector in outcome.alarms]
    early = [row for row in at if row[3] is not None and row[3] < row[0].onset]
    fair = [row for row in at if not (row[3] is not None and row[3] < row[0].onset)]
    delays = [alarm - case.onset for case, _, _, alarm in fair if alarm is not None]
    errors = [
        abs(found - c.onset) for c, o, _, alarm in fair if alarm is not None and (found := o.onsets.get(detector)) is not None
    ]
    in_time = [a is not None and (turn is None or a <= turn) for _, _, turn, a in fair]
    before_seen = [a is not None and (turn is None or a <= turn + TURN_WIDTH / 2) for _, _, turn, a in fair]
    rises = [rise for _, o, _, _ in fair for rise in [o.alarms.get(CLEAR_RISE)]]
    before_rise = [a is not None and (rise is None or a <= rise) for (_, _, _, a), rise in zip(fair, rises, strict=True)]
    made: dict[str, Any] = {
        "n": len(fair),
        "early": len(early),
        "found": len(delays) / len(fair) if fair else None,
        "within_3pct": float(np.mean([d <= SOON for d in delays])) * len(delays) / len(fair) if fair and delays else 0.0,
        "median_delay": float(np.median(delays)) if delays else None,
        "before_loss_turns": float(np.mean(in_time)) if in_time else None,
        "before_turn_is_seen": float(np.mean(before_seen)) if before_seen else None,
        "before_clear_rise": float(np.mean(before_rise)) if before_rise else None,
    }
    if detector in (MONITOR, SAME_DATA):
        made["median_onset_error"] = float(np.median(errors)) if errors else None
        made["onset_within_3pct"] = float(np.mean([e <= SOON for e in errors])) if errors else None
    return made


Row = tuple[Case, Outcome, float | None]


def evaluate(
    folder: Path,
    role: str,
    bootstraps: int = 2,
    repeats: int = 12,
    workers: int = 2,
    forms: Sequence[str] = FORMS,
    rows: Path | None = None,
) -> dict[str, Any]:
    """Return the summary of one half; with ``rows`` every case is kept there once it is done, and not run again."""
    _load(folder)
    work = cases(_POOL, role, bootstraps, repeats, forms)
    done = {} if rows is None else _read_rows(rows)
    missing = [case for case in work if case not in done]
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:  # the workers inherit the runs
        try:
            for row in map(_run_case, missing) if workers == 1 else pool.map(_run_case, missing):
                done[row[0]] = row
                if rows is not None:
                    with rows.open("a", encoding="utf-8") as file:
                        file.write(json.dumps([asdict(row[0]), asdict(row[1]), row[2]]) + "\n")
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
    return {"role": role, **summary(_POOL, [done[case] for case in work])}


def _read_rows(path: Path) -> dict[Case, Row]:
    """Return the rows of earlier calls by their case."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("]")]
    return {Case(**case): (Case(**case), Outcome(**outcome), turn) for case, outcome, turn in rows}


def monitor_command(
    curves: Annotated[
        Path | None, typer.Option(help="Folder of recorded curves (default: $HPO_CURVES, else ../shared/curves).")
    ] = None,
    role: Annotated[str, typer.Option(help="develop or test.")] = "test",
    bootstraps: Annotated[int, typer.Option(help="Bootstrapped healthy runs per recorded one.")] = 2,
    repeats: Annotated[int, typer.Option(help="Runs per form, size and onset.")] = 12,
    workers: Annotated[int, typer.Option(help="Processes.")] = 2,
    forms: Annotated[str, typer.Option(help="Kinds of fault, comma-separated; empty for none.")] = ",".join(FORMS),
    rows: Annotated[Path | None, typer.Option(help="Where finished cases are kept; a call that was ended goes on.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")] = False,
) -> None:
    """Inject faults into healthy recorded runs and count what is found, how late, and what alarms for nothing."""
    chosen = tuple(form for form in forms.split(",") if form)
    with input_errors():
        if not set(chosen) <= set(FORMS):
            raise ValueError(f"--forms: expected any of {', '.join(FORMS)}; found {forms}")
        from bench.monitor_real import real_faults
        from bench.monitor_table import table_lines

        result = evaluate(curves_folder(curves), role, bootstraps, repeats, workers, chosen, rows)
        result["real_faults"] = real_faults()
    typer.echo(json.dumps(result, allow_nan=False) if as_json else "\n".join(table_lines(result)))


if __name__ == "__main__":
    typer.run(monitor_command)
