"""What nobody could do better: faults found, and when they began, by one who knows how noisy each healthy run is.

    python -m bench.monitor_oracle --source 'schaipp train'              # a minute or two
    python -m bench.monitor_oracle --source 'schaipp train' --order seen

Runs, templates, faults and σ are those of :mod:`bench.monitor_power`. The oracle is told what the monitor must estimate: the
variance of the run's noise, and how far this run wanders from its template (c², by its whole healthy record). It does not know
the run's level. Of a step it is told the onset, and alarms beyond the line that 1 % of healthy runs of white noise pass (and
beyond the monitor's own); of a drift it has to find the onset, with the monitor's line. Steps are told from the signal-to-noise
ratio directly, drifts from draws.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from scipy.linalg import cholesky
from scipy.stats import norm

from bench.cli import curves_folder
from bench.command_line import input_errors
from bench.monitor_power import (
    DRIFT_ONSETS,
    DRIFT_SIGMAS,
    DRIFTS,
    NEAR,
    ORDERS,
    SIGMAS,
    STEP_ONSETS,
    STEP_SIGMAS,
    UNKNOWN,
    healthy_seen,
    runs_of,
)
from bench.monitor_runs import Healthy
from hpo.core.change import ALARM_ABOVE, BINS_BEFORE, wandering_of
from hpo.core.whitened import Whitened, form_values

FloatArray = NDArray[np.float64]
SOON = 0.03
HEALTHY_DRAWS = 400
FALSE_ALARMS = 0.01
DRAWS = 30
LOOKS = 0.02


def known(one: Healthy, order: str) -> tuple[FloatArray, FloatArray]:
    """Return t̂ of a run's bins and the covariance of its healthy residuals, as one knows it who has seen the whole run."""
    seen = healthy_seen(one, order)
    counts = one.run.curve().counts
    counts = counts[np.isin(one.run.curve().fractions, seen.fractions)]
    noise = one.sigma**2 * np.median(one.run.curve().counts) / counts if order == UNKNOWN else seen.noise
    own = np.diag(noise) if seen.of_template is None else np.diag(noise) + seen.of_template
    return seen.fractions, own + wandering_of(seen.d, seen.slow, seen.unexplained) * seen.slow


def signal(covariance: FloatArray, form: FloatArray) -> float:
    """Return the expected z of a form, the level unknown."""
    white = Whitened.of(np.zeros(form.size), covariance)
    return float(np.linalg.norm(white.signatures(form[:, None])[:, 0]))


def steps(runs: Sequence[Healthy], line: float, *, order: str = UNKNOWN, sigma: str = "own") -> dict[str, float]:
    """Return per onset the mean chance that a step of 4 σ is beyond ``line`` once 3 % of training have passed."""
    about = [(one, *known(one, order)) for one in runs]
    found = {}
    for onset in STEP_ONSETS:
        chances = []
        for one, fractions, covariance in about:
            seen = fractions <= onset + SOON + 1e-9
            step = STEP_SIGMAS * SIGMAS[sigma](one) * (fractions[seen] > onset).astype(np.float64)
            if 0 < np.count_nonzero(step) < step.size:
                chances.append(norm.cdf(signal(covariance[np.ix_(seen, seen)], step) - line))
        found[f"{onset:g}"] = float(np.sum(chances)) / len(runs)
    return found


def healthy_line(n_bins: int, rng: np.random.Generator) -> float:
    """Return the z of a step that white noise of known size passes in 1 % of runs, whatever the onset, at any look."""
    sums = np.cumsum(rng.standard_normal((HEALTHY_DRAWS, n_bins)), axis=1)
    highest = np.full(HEALTHY_DRAWS, -np.inf)
    for n in range(BINS_BEFORE["step"] + 2, n_bins + 1):
        onsets = np.arange(BINS_BEFORE["step"], n - 1)
        before, after = sums[:, onsets - 1], sums[:, [n - 1]] - sums[:, onsets - 1]
        z = (after / (n - onsets) - before / onsets) / np.sqrt(1.0 / (n - onsets) + 1.0 / onsets)
        highest = np.maximum(highest, z.max(axis=1))
    return float(np.quantile(highest, 1.0 - FALSE_ALARMS))


def drifts(runs: Sequence[Healthy], rng: np.random.Generator, *, order: str = UNKNOWN) -> dict[str, dict[str, float]]:
    """Return per size how many drifts are found, how late, and how many onsets are within ±3 %, at the alarm and at the end."""
    out = {}
    for sigmas in DRIFT_SIGMAS:
        parts = [
            _drift(runs[int(k)], onset, sigmas, rng, order)
            for onset in DRIFT_ONSETS
            for k in rng.choice(len(runs), min(DRIFTS, len(runs)), replace=False)
        ]
        delay, at_alarm, at_end = (np.concatenate([part[k] for part in parts]) for k in range(3))
        found = np.isfinite(delay)
        out[f"{sigmas:g}"] = {
            "n": int(found.size),
            "found": float(found.mean()),
            "median_delay": float(np.median(delay[found])),
            "onset_at_alarm": float(at_alarm[found].mean()),
            "onset_at_end": float(at_end[found].mean()),
        }
    return out


def _drift(
    one: Healthy, onset: float, sigmas: float, rng: np.random.Generator, order: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return per draw the delay (NaN if it is not found), and 1 where the onset is near, at the alarm and at the end."""
    fractions, covariance = known(one, order)
    drift = sigmas * one.sigma * np.maximum(fractions - onset, 0.0) / (1.0 - onset)
    values = drift[:, None] + cholesky(covariance, lower=True) @ rng.standard_normal((fractions.size, DRAWS))
    delay, near, last = np.full(DRAWS, np.nan), np.zeros(DRAWS), np.zeros(DRAWS)
    for t in (*np.arange(onset + NEAR, 1.0, LOOKS), 1.0):
        n = int(np.count_nonzero(fractions <= t))
        onsets = np.arange(BINS_BEFORE["drift"], n - 2)
        if not onsets.size:
            continue
        white = Whitened.of(values[:n, 0], covariance[:n, :n])
        forms = white.signatures(form_values("drift", fractions[:n], onsets))
        z = (forms.T @ white.signatures(values[:n])) / np.linalg.norm(forms, axis=0)[:, None]
        began = fractions[onsets[np.argmax(z, axis=0)] - 1]
        last = (np.abs(began - onset) <= NEAR).astype(np.float64)
        new = np.isnan(delay) & (z.max(axis=0) > ALARM_ABOVE["drift"])
        delay[new], near[new] = t - onset, last[new]
    return delay, near, last


def oracle_command(
    source: Annotated[str, typer.Option(help="Source of the runs, as bench.monitor names them.")] = "schaipp train",
    curves: Annotated[Path | None, typer.Option(help="Folder of recorded curves (default: $HPO_CURVES).")] = None,
    role: Annotated[str, typer.Option(help="develop or test.")] = "test",
    order: Annotated[str, typer.Option(help=f"What is known of the data order, one of {', '.join(ORDERS)}.")] = UNKNOWN,
) -> None:
    """Print one JSON document: steps of 4 σ and drifts that an oracle finds, and the onsets of those drifts."""
    with input_errors():
        if order not in ORDERS:
            raise ValueError(f"--order: expected one of {', '.join(ORDERS)}; found {order}")
        runs = runs_of(curves_folder(curves), role, source, order=order)
        rng = np.random.default_rng(0)
        lines = {"healthy": healthy_line(100, rng), "monitor": ALARM_ABOVE["step"]}
        made: dict[str, Any] = {"role": role, "source": source, "order": order, "runs": len(runs), "lines": lines}
        made["steps"] = {
            sigma: {name: steps(runs, line, order=order, sigma=sigma) for name, line in lines.items()} for sigma in SIGMAS
        }
        made["drifts"] = drifts(runs, rng, order=order)
        print(json.dumps(made, indent=1))


if __name__ == "__main__":
    typer.run(oracle_command)
