"""What a sweep will run, and what that costs, worked out before anything is spent.

:func:`plan_sweep` draws the candidates, picks the settings that the proxies are trained at, gives every run its settings
and recipe, and refuses what cannot work. The same configuration always gives the same plan, so a resume plans again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hpo.core.recipe import Recipe
from hpo.engine.config import InputError, SweepConfig
from hpo.engine.worker import Train
from hpo.engine.workload import Settings, Workload, restated, workload_of
from search_spaces import SearchSpace, load_space

MOST_RUNS = 10_000
"""Candidates, or proxies, of one sweep."""
DATA_SETTINGS = frozenset({"data", "datapath", "dataset", "corpus", "text", "tokeniser", "tokenizer", "vocab", "vocabsize"})
"""Settings, underscores and capitals aside, that say what is trained on: the same for a proxy as for the target."""
Role = Literal["proxy", "candidate"]


@dataclass(frozen=True)
class Run:
    """One training run of the sweep.

    Attributes
    ----------
    name : str
        ``trial-03``, or ``proxy-1-02`` (size 1, settings of trial 2; ``-r1`` for the first replicate).
    role : {"proxy", "candidate"}
        What it is for.
    searched : dict
        The point of the search space: what runs of different sizes are matched by.
    settings : dict
        What its training function is given.
    recipe : Recipe
        With known steps and FLOPs.
    n_steps, stop_step : int
        The whole run, and where it is judged (the end, for a proxy).
    """

    name: str
    role: Role
    searched: dict[str, Any]
    settings: Settings
    recipe: Recipe
    n_steps: int
    stop_step: int

    @property
    def flops(self) -> float:
        """Training FLOPs of the whole run."""
        return float(self.recipe.flops or 0.0)

    @property
    def size(self) -> float:
        """What sizes are told apart by: parameters, or FLOPs where their number is unknown."""
        return float(self.recipe.n_params or self.flops)

    def flops_at(self, step: float) -> float:
        """Training FLOPs of the first ``step`` steps."""
        return self.flops * step / self.n_steps

    def step_at(self, fraction: float) -> int:
        """Return the step of a share of the training."""
        return step_at(fraction, self.n_steps)


@dataclass(frozen=True)
class Plan:
    """A sweep, ready to run."""

    config: SweepConfig
    space: SearchSpace
    workload: Workload
    proxies: tuple[Run, ...]
    candidates: tuple[Run, ...]


def plan_sweep(config: SweepConfig, function: Train | None = None) -> Plan:
    """Return the plan of ``config``; ``function`` stands for its ``trainable`` where other processes cannot import that.

    Raises
    ------
    InputError
        A search space, size, setting or text that cannot work.
    """
    space = _space(config)
    points = _candidates(config, space)
    _check_proxies(config, len(points))
    workload = workload_of(config, space, function)
    candidates = tuple(
        _run(workload, f"trial-{i:0{_digits(points)}d}", "candidate", point, {}, 0, config.stopping.at)
        for i, point in enumerate(points)
    )
    proxies = _proxies(config, workload, points, candidates[0])
    workload.check(max(candidates, key=lambda run: run.recipe.batch_tokens or 0.0).settings)
    return Plan(config, space, workload, proxies, candidates)


def well_spread(points: Sequence[Mapping[str, Any]], n: int) -> list[int]:
    """Return the positions of ``n`` points that lie far from each other, corners of the space first.

    Greedy: the point farthest from the middle, then always the one whose nearest chosen point is farthest. Distances are
    in log units for positive numbers, each parameter scaled to its range; other values differ by 1 or not at all.
    O(n · number of points).
    """
    position = coordinates(points)
    chosen = [int(np.argmax(_rounded(np.linalg.norm(position - position.mean(axis=0), axis=1))))]
    nearest = np.linalg.norm(position - position[chosen[0]], axis=1)
    while len(chosen) < n:
        nearest[chosen] = -1.0
        chosen.append(int(np.argmax(_rounded(nearest))))
        nearest = np.minimum(nearest, np.linalg.norm(position - position[chosen[-1]], axis=1))
    return sorted(chosen)


def coordinates(points: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """Return points as coordinates, shape (n_points, n_dimensions), in which Euclidean distances mean something.

    A positive number becomes its log, a number of any sign itself, both divided by their range over ``points``; any other
    value becomes indicators; a parameter that a point does not have is far from every value of it.
    """
    names = list(dict.fromkeys(name for point in points for name in point))
    columns = [column for name in names for column in _columns([point.get(name) for point in points])]
    return np.array(columns, dtype=np.float64).reshape(len(columns), len(points)).T


def step_at(fraction: float, n_steps: int) -> int:
    """Return the step of a share of training: the nearest, as evaluations are placed, so that one that is due is seen there."""
    return max(1, round(fraction * n_steps))


def distances(here: Sequence[Mapping[str, Any]], there: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """Return how far points lie from others in :func:`coordinates` of both, shape (n_here, n_there), rounded to be compared."""
    position = coordinates([*here, *there])
    return _rounded(np.linalg.norm(position[: len(here), None, :] - position[None, len(here) :, :], axis=2))


def _columns(values: Sequence[Any]) -> list[NDArray[np.float64]]:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) < len(values):
        kinds = list(dict.fromkeys(map(repr, values)))
        return [np.array([repr(value) == kind for value in values]) / math.sqrt(2) for kind in kinds]
    column = np.array(numbers, dtype=np.float64)
    column = np.log(column) if np.all(column > 0) else column
    return [(column - column.min()) / (np.ptp(column) or 1.0)]


def _rounded(distances: NDArray[np.float64]) -> NDArray[np.float64]:
    """Equal distances must compare equal, so that the first of them is taken on every machine."""
    return np.round(distances, 9)


def _space(config: SweepConfig) -> SearchSpace:
    try:
        return load_space(config.search.space)
    except ValueError as error:
        raise restated(error, "search.space: ") from None


def _candidates(config: SweepConfig, space: SearchSpace) -> list[dict[str, Any]]:
    try:
        first = [space.checked(point, f"first.{k}") for k, point in enumerate(config.search.first)]
        drawn = space.candidates(config.search.candidates, config.seed)
    except ValueError as error:
        raise restated(error, "search.") from None
    if len(drawn) > MOST_RUNS:
        raise InputError.at("search.space", f"at most {MOST_RUNS} candidates (search.candidates takes fewer)", len(drawn))
    distinct: dict[str, dict[str, Any]] = {}
    for point in (*first, *drawn):
        distinct.setdefault(repr(sorted(point.items())), point)
    points = list(distinct.values())
    if config.search.candidates != "grid":
        points = points[: config.search.candidates]
    if config.max_trials is None or len(points) <= config.max_trials:
        return points
    n_first = min(len(first), config.max_trials)
    spread = well_spread(points[n_first:], config.max_trials - n_first) if config.max_trials > n_first else []
    return [*points[:n_first], *(points[n_first + i] for i in spread)]


def _check_proxies(config: SweepConfig, n_candidates: int) -> None:
    """Refuse more settings than candidates, and a selection that nothing could forecast."""
    if config.proxies is None:
        if config.stopping.has_rounds and n_candidates > 1:
            raise InputError.at(
                "proxies", "sizes and settings (only stopping: prune, or one candidate, goes without)", "nothing"
            )
    elif config.proxies.settings > n_candidates:
        raise InputError.at("proxies.settings", f"at most the {n_candidates} candidates", config.proxies.settings)


def _proxies(config: SweepConfig, workload: Workload, points: list[dict[str, Any]], target: Run) -> tuple[Run, ...]:
    if config.proxies is None:
        return ()
    n_runs = len(config.proxies.sizes) * config.proxies.settings * config.proxies.replicates
    if n_runs > MOST_RUNS:
        raise InputError.at("proxies", f"at most {MOST_RUNS} runs of sizes × settings × replicates", n_runs)
    chosen = well_spread(points, config.proxies.settings)
    runs = []
    for k, size in enumerate(config.proxies.sizes):
        for i in chosen:
            for replicate in range(config.proxies.replicates):
                name = f"proxy-{k}-{i:0{_digits(points)}d}" + (f"-r{replicate}" if replicate else "")
                try:
                    runs.append(_run(workload, name, "proxy", points[i], size, replicate, 1.0))
                except InputError as error:
                    raise InputError(f"proxies.sizes.{k}: {error}") from None
                if not config.proxies.other_data:
                    _require_same_data(k, runs[-1].settings, workload.settings(points[i], {}, replicate))
        if runs[-1].flops >= target.flops:
            raise InputError.at(f"proxies.sizes.{k}", "a size cheaper to train than the target", dict(size))
    return tuple(sorted(runs, key=lambda run: -run.flops))


def _require_same_data(k: int, proxy: Mapping[str, Any], target: Mapping[str, Any]) -> None:
    """Refuse a proxy whose settings name other data, or another tokeniser, than the target's."""
    mine, theirs = (dict(_data_settings(settings)) for settings in (proxy, target))
    for name in dict.fromkeys((*theirs, *mine)):
        if mine.get(name) != theirs.get(name):
            raise InputError.at(
                f"proxies.sizes.{k}.{name.removeprefix('model.')}",
                f"the target's {theirs.get(name)!r} (proxies.other_data: true takes another)",
                repr(mine.get(name)),
            )


def _data_settings(settings: Mapping[str, Any], block: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if name.lower().replace("_", "") in DATA_SETTINGS:
            yield f"{block}{name}", value
        elif isinstance(value, Mapping):
            yield from _data_settings(value, f"{block}{name}.")


def _run(
    workload: Workload, name: str, role: Role, point: dict[str, Any], size: Mapping[str, Any], replicate: int, stop_at: float
) -> Run:
    try:
        settings = workload.settings(point, size, replicate)
        recipe = workload.recipe(settings)
    except InputError:
        raise
    except ValueError as error:  # a number out of all bounds
        raise InputError(f"{name}: {error}") from None
    n_steps = recipe.n_steps or 1
    return Run(name, role, point, settings, recipe, n_steps, step_at(stop_at, n_steps))


def _digits(points: Sequence[object]) -> int:
    return max(2, len(str(len(points) - 1)))
