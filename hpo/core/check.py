"""Do these runs collapse? The spread Δ(t̂) of their normalised curves against the noise floor, and what breaks it.

With ℓ = L/L(T), Δ(t̂) is the standard deviation over runs of ℓ over its mean (population form, as in the paper). A single
seed's noise inflates it: every run's ℓ carries the noise around t̂ and the noise of its own L(T). How much of Δ is noise is
read off the runs themselves: log ℓ_i minus its mean over runs is smooth in t̂ but for noise, so its second differences
measure exactly the part of the noise that does not cancel between the runs (runs with one data order share most of theirs).
Where that noise is large the deviations are first averaged over a few percent of training; then its variance is subtracted:

    Δ² = max(0, Δ_raw² − 2v·((w − 1/2)/w² + 1))

v is the variance of a deviation at one point of the grid, where two 1 % bins meet (2v is that of one bin), w the number of
points averaged, and the last term the noise of L(T), measured over one bin.

The **noise floor** is σ(t̂) over seeds where runs differ by their seed only (root mean square over t̂ ≥ 0.2), else what the
subtracted noise alone would leave of Δ at worst (its 99 % point, as a χ² of n − 1): a lower bound, because seeds also differ
smoothly. The report says which. Runs collapse when max Δ over t̂ ≥ 0.2 is at most the floor or 0.5 %.

References
----------
arXiv 2507.02119 (Δ, σ, "supercollapse"); arXiv 2509.25087 (the controls).

Deviations
----------
The papers compare raw spreads; with single noisy seeds that calls noise a mismatch, hence the correction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import chi2

from hpo.core.controls import NAMES, ControlMatch, Controls, comparable_controls, compare_controls, controls_record
from hpo.core.curve import Curve

FloatArray = NDArray[np.float64]
GRID: FloatArray = np.arange(2, 101) / 100.0
"""Where Δ is taken: every percent of training."""
JUDGED_FROM = 0.2
DEFAULT_TOLERANCE = 0.005
WINDOWS = (1, 3, 5, 9)
NOISE_WANTED = 0.001
NOISE_QUANTILE = 0.99


@dataclass(frozen=True)
class Spread:
    """Δ on a grid and its noise.

    Attributes
    ----------
    fractions, delta : ndarray, shape (n,)
        t̂ and Δ there, noise subtracted.
    noise : float
        Standard deviation that noise alone would show at this resolution.
    """

    fractions: FloatArray
    delta: FloatArray
    noise: float

    @property
    def worst(self) -> float:
        """The largest Δ over t̂ ≥ 0.2."""
        judged = self.delta[self.fractions >= JUDGED_FROM - 1e-9]
        return float(np.max(judged)) if judged.size else float("nan")


@dataclass(frozen=True)
class CheckReport:
    """The verdict on a set of runs.

    Attributes
    ----------
    collapse : bool or None
        None without curves.
    spread : Spread or None
    noise_floor : float or None
        Relative, as Δ.
    floor_from : str
        "seeds" or "roughness" (estimated from the runs themselves).
    allowed : float
        What max Δ is compared with.
    outliers : tuple of str
        The fewest runs without which the rest collapses; empty if they are not a minority.
    """

    collapse: bool | None
    controls: Mapping[str, Mapping[str, Any]]
    matches: tuple[ControlMatch, ...]
    reason: str
    spread: Spread | None = None
    noise_floor: float | None = None
    floor_from: str = ""
    allowed: float = DEFAULT_TOLERANCE
    outliers: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def mismatched(self) -> list[str]:
        """Names of the controls that do not match."""
        return [m.name for m in self.matches if m.matches is False]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        spread = self.spread
        pairs = [] if spread is None else zip(spread.fractions.tolist(), spread.delta.tolist(), strict=True)
        return {
            "collapse": self.collapse,
            "delta": [[round(t, 4), d] for t, d in pairs],
            "noise_floor": self.noise_floor,
            "max_delta_pct": None if spread is None else 100 * spread.worst,
            "controls": {run_id: dict(values) for run_id, values in self.controls.items()},
            "mismatched": self.mismatched,
            "outliers": list(self.outliers),
            "reason": self.reason,
        }


def check_recipes(runs: Sequence[Controls]) -> CheckReport:
    """Return the verdict on recipes alone: which controls do not match; ``collapse`` is None.

    Raises
    ------
    ValueError
        Fewer than two recipes, or no control that two of them tell.
    """
    if len(runs) < 2:
        raise ValueError(f"a check needs at least two recipes; found {len(runs)}")
    if not comparable_controls(runs):
        told = "; ".join(f"{run.run_id}: {', '.join(_told(run)) or 'none'}" for run in runs[:4])
        raise ValueError(f"a check needs a control that two recipes tell ({', '.join(NAMES)}); found {told}")
    matches = compare_controls(runs)
    return CheckReport(None, controls_record(runs, matches), matches, _controls_in_words(matches, runs))


def check_curves(
    curves: Sequence[Curve], tolerance: float | None = None, controls: Sequence[Controls] | None = None
) -> CheckReport:
    """Return the verdict on complete runs; others are left out, and said.

    Parameters
    ----------
    tolerance : float, optional
        Largest relative Δ that still counts as collapse; by default the noise floor, at least 0.5 %.
    controls : sequence of Controls, optional
        Of the runs, by ``run_id``, where they are known better than from the curves' recipes.

    Raises
    ------
    ValueError
        Fewer than two usable runs, several metrics, or a tolerance that is not positive.
    """
    if tolerance is not None and not (np.isfinite(tolerance) and tolerance > 0):
        raise ValueError(f"tolerance must be finite and above 0; found {tolerance!r}")
    left_out = {c.run_id: problem for c in curves if (problem := _unusable(c)) is not None}
    used = [c for c in curves if c.run_id not in left_out]
    _require_comparable(used, left_out)
    spread = spread_of(used)
    floor, floor_from = noise_floor_of(used, spread)
    allowed = max(floor, DEFAULT_TOLERANCE) if tolerance is None else tolerance
    collapse = bool(spread.worst <= allowed)
    given = {c.run_id: c for c in controls or ()}
    known = [given.get(c.run_id) or Controls.of(c.run_id, c.recipe, c.horizon) for c in used]
    matches = compare_controls(known)
    outliers = () if collapse else outliers_of(used, allowed)
    in_words = _controls_in_words(matches, known)
    reason = _reason(collapse, spread, (floor, floor_from), allowed, in_words, outliers, left_out)
    return CheckReport(
        collapse,
        controls_record(known, matches),
        matches,
        reason,
        spread,
        floor,
        floor_from,
        allowed,
        outliers,
        left_out,
    )


def spread_of(curves: Sequence[Curve]) -> Spread:
    """Return Δ of complete runs on the part of :data:`GRID` that all of them cover, noise subtracted."""
    fractions, table = normalised_logs(curves)
    deviations = table - table.mean(axis=0)
    at_point = float(np.mean([_roughness(row[fractions >= JUDGED_FROM - 1e-9]) for row in deviations]))
    window = next((w for w in WINDOWS if at_point / w <= NOISE_WANTED**2), WINDOWS[-1])
    smooth = np.stack([_moving_mean(row, window) for row in deviations])
    noise = 2.0 * at_point * ((window - 0.5) / window**2 + 1.0)
    raw = np.std(np.exp(smooth), axis=0) / np.mean(np.exp(smooth), axis=0)
    return Spread(fractions, np.sqrt(np.maximum(raw**2 - noise, 0.0)), float(np.sqrt(noise)))


def noise_floor_of(curves: Sequence[Curve], spread: Spread) -> tuple[float, str]:
    """Return the noise floor and where it is from: "seeds" if runs differ by their seed only, else "roughness"."""
    fractions = spread.fractions[(spread.fractions >= JUDGED_FROM - 1e-9) & (spread.fractions < 1)]
    squares = []
    for group in seed_groups(curves):
        rows = np.stack([c.metric.to_model(_loss_at(c, fractions)) for c in group])
        squares.append(float(np.mean(np.var(rows, axis=0, ddof=1))))
    if squares:
        return float(np.sqrt(np.mean(squares))), "seeds"
    n_free = len(curves) - 1
    return spread.noise * float(np.sqrt(chi2.ppf(NOISE_QUANTILE, n_free) / n_free - 1.0)), "roughness"


def seed_groups(curves: Sequence[Curve]) -> list[list[Curve]]:
    """Return groups of at least two runs with one recipe and equal settings but for seeds, which differ."""
    groups: list[list[Curve]] = []
    for curve in curves:
        home = next((g for g in groups if _same_but_seed(g[0], curve)), None)
        if home is None:
            groups.append([curve])
        elif all(_seeds(member) != _seeds(curve) for member in home):
            home.append(curve)
    return [group for group in groups if len(group) > 1 and _seeds(group[0])]


def outliers_of(curves: Sequence[Curve], allowed: float) -> tuple[str, ...]:
    """Return the runs without which the rest collapses, taken out one by one, the farthest from the median first.

    Empty if no minority of the runs is to blame.
    """
    kept, removed = list(curves), list[str]()
    while len(kept) > 2 and 2 * (len(removed) + 1) < len(curves):
        fractions, table = normalised_logs(kept)
        late = table[:, fractions >= JUDGED_FROM - 1e-9]
        distance = np.mean(np.abs(late - np.median(late, axis=0)), axis=1)
        removed.append(kept.pop(int(np.argmax(distance))).run_id)
        if spread_of(kept).worst <= allowed:
            return tuple(removed)
    return ()


def normalised_logs(curves: Sequence[Curve]) -> tuple[FloatArray, FloatArray]:
    """Return t̂, shape (n,), and log ℓ of each run, shape (n_runs, n), where all runs have points; 0 at t̂ = 1."""
    rows = []
    for curve in curves:
        end = curve.metric.to_model(np.array([curve.final_loss], dtype=np.float64))
        rows.append(np.where(GRID >= 1.0, 0.0, curve.metric.to_model(_loss_at(curve, GRID)) - end))
    table = np.stack(rows)
    covered = np.all(np.isfinite(table), axis=0)
    return GRID[covered], table[:, covered]


def _unusable(curve: Curve) -> str | None:
    if curve.nonfinite_step is not None:
        return f"a non-finite value at step {curve.nonfinite_step:g}"
    if curve.horizon is None:
        return "its total length is unknown"
    if curve.final_loss is None:
        return f"incomplete ({curve.fraction_seen or 0:.0%} of training)"
    if curve.fractions[0] > JUDGED_FROM + 0.01:
        return f"its first point is at {curve.fractions[0]:.0%} of training"
    if not np.all(np.isfinite(curve.metric.to_model(np.append(curve.means, curve.final_loss)))):
        return "values outside the metric's domain"
    return None


def _require_comparable(used: Sequence[Curve], left_out: Mapping[str, str]) -> None:
    if len(used) < 2:
        why = "".join(f"; {run_id}: {problem}" for run_id, problem in list(left_out.items())[:3])
        raise ValueError(f"a check needs at least two complete runs with a known horizon; found {len(used)}{why}")
    metrics = sorted({c.metric.name for c in used})
    if len(metrics) > 1:
        raise ValueError(f"a check compares one metric; found {', '.join(metrics)}")
    if used[0].metric.transform == "identity":
        raise ValueError(f"a check needs a loss or an accuracy that can be normalised; {metrics[0]} is neither")


def _roughness(row: FloatArray) -> float:
    """Return the variance of noise in a smooth ``row``, from second differences (robust: spikes do not raise it).

    Neighbours on the grid share a bin, so every second point is used.
    """
    bends = np.abs(row[:-5] - 2.0 * row[2:-3] + row[4:-1])
    return float((np.median(bends) / 0.6745) ** 2 / 6.0) if bends.size else 0.0


def _moving_mean(row: FloatArray, window: int) -> FloatArray:
    """Return centred means of odd ``window``, narrower (and so still centred) towards the ends."""
    sums = np.concatenate(([0.0], np.cumsum(row)))
    at = np.arange(row.size)
    half = np.minimum(np.minimum(at, row.size - 1 - at), window // 2)
    return np.asarray((sums[at + half + 1] - sums[at - half]) / (2 * half + 1), dtype=np.float64)


def _seeds(curve: Curve) -> dict[str, Any]:
    return {key: value for key, value in curve.settings.items() if "seed" in key}


def _same_but_seed(a: Curve, b: Curve) -> bool:
    rest = [{k: v for k, v in c.settings.items() if "seed" not in k and k not in ("name", "run_id")} for c in (a, b)]
    return rest[0] == rest[1] and a.recipe == b.recipe and a.family == b.family and a.horizon == b.horizon


def _told(run: Controls) -> list[str]:
    return [name for name in NAMES if getattr(run, name) is not None]


def _controls_in_words(matches: Sequence[ControlMatch], runs: Sequence[Controls]) -> str:
    off = [m.in_words for m in matches if m.matches is False]
    unknown = [m.name for m in matches if m.matches is None]
    if not off and not comparable_controls(runs):
        return f"no control could be compared: none of {', '.join(NAMES)} is known for two runs"
    words = "controls off: " + ", ".join(off) if off else "no control is off"
    return words + (f"; not known for every run: {', '.join(unknown)}" if unknown else "")


def _reason(
    collapse: bool,
    spread: Spread,
    floor: tuple[float, str],
    allowed: float,
    controls: str,
    outliers: Sequence[str],
    left_out: Mapping[str, str],
) -> str:
    source = "from seeds" if floor[1] == "seeds" else "a lower bound from the curves' roughness: no two seeds of one setting"
    verdict = "at most" if collapse else "above"
    measured = (
        f"max Δ over t̂ ≥ {JUDGED_FROM} is {spread.worst:.2%}, {verdict} the {allowed:.2%} allowed "
        f"(noise floor {floor[0]:.2%}, {source}; noise subtracted from Δ)"
    )
    words = [measured, controls]
    if outliers:
        words.append(f"the others collapse without {', '.join(outliers)}")
    if left_out:
        words.append("left out: " + ", ".join(f"{run_id} ({problem})" for run_id, problem in left_out.items()))
    return "; ".join(words)


def _loss_at(curve: Curve, fractions: ArrayLike) -> FloatArray:
    """Return the run's raw values at ``fractions``, linear in t̂ between bin means; NaN outside the points seen.

    Within a bin of either end the nearest bin mean serves.
    """
    t = np.asarray(fractions, dtype=np.float64)
    if curve.fractions.size == 0:
        return np.full_like(t, np.nan)
    slack = 0.01
    inside = (t >= curve.fractions[0] - slack) & (t <= curve.fractions[-1] + slack)
    return np.where(inside, np.interp(t, curve.fractions, curve.means), np.nan)
