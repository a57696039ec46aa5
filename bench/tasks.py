"""Tasks of a protocol: target runs at one scale and horizon, and the runs they may learn from.

Policies, so that every comparison is fair for any folder of curves:

- a target needs a known horizon, at least one finite value and a known truth; a diverged run is a target whose truth is the
  worst there is;
- references are other runs than the targets, complete, and none dearer than the dearest target (6·N·D where both are known,
  else steps × size, tokens or steps); where some are of a target's family, only those;
- drawn references come from the complete runs of the task itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bench.protocol import Protocol, matches
from bench.records import Record
from bench.sharing import common_until, union_cost

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Task:
    """One task.

    Attributes
    ----------
    key : str
        The values of the protocol's ``task_by`` fields (``"all"`` without any).
    targets, references : tuple of Record
    truth : ndarray, shape (n_targets,)
        What decides the winner, raw; ±inf for diverged runs.
    n_dearer : int
        References left out because they cost more than any target.
    """

    key: str
    targets: tuple[Record, ...]
    references: tuple[Record, ...]
    truth: FloatArray = field(repr=False)
    n_dearer: int = 0

    @cached_property
    def common(self) -> FloatArray:
        """Step up to which each pair of targets, then references, is one trajectory, shape (n, n)."""
        return common_until([*self.targets, *self.references])

    @cached_property
    def cost_per_step(self) -> FloatArray:
        """Tokens a step of targets, then references; 1 for all where any is unknown. Shape (n,)."""
        per_step = [r.batch_tokens for r in [*self.targets, *self.references]]
        return np.array([1.0 if b is None else b for b in per_step]) if None not in per_step else np.ones(len(per_step))

    @property
    def horizons(self) -> FloatArray:
        """Steps of the full targets, shape (n_targets,)."""
        return np.array([float(r.run.horizon or 0.0) for r in self.targets])

    def steps(self, reach: FloatArray, *, with_references: bool = False) -> FloatArray:
        """Return the steps trained of targets, at fractions ``reach`` of theirs, then of references, whole or not at all."""
        whole = np.diag(self.common)[len(self.targets) :]
        return np.concatenate([reach * self.horizons, whole if with_references else np.zeros_like(whole)])

    def tokens(self, reach: FloatArray, *, with_references: bool = False) -> float:
        """Return the tokens that :meth:`steps` take, shared trajectories counted once."""
        return union_cost(self.common, self.steps(reach, with_references=with_references), self.cost_per_step)

    @property
    def shared_fraction(self) -> float:
        """Largest share of its training that a target has in common with another target."""
        n = len(self.targets)
        common = self.common[:n, :n] - np.diag(np.diag(self.common)[:n])
        return float((common / self.horizons[:, None]).max(initial=0.0))

    def leaks(self, stop: float = 0.0) -> list[tuple[str, str, float]]:
        """Return (target, reference, fraction) where a reference holds the target's own trajectory past ``stop``."""
        n = len(self.targets)
        fraction = self.common[:n, n:] / self.horizons[:, None]
        pairs = zip(*np.nonzero(fraction > stop + 1e-9), strict=True)
        return [(self.targets[i].run_id, self.references[j].run_id, float(fraction[i, j])) for i, j in pairs]


def make_tasks(protocol: Protocol, records: Sequence[Record]) -> tuple[list[Task], list[dict[str, object]]]:
    """Return the protocol's tasks, in order of their keys, and what was left out and why.

    Raises
    ------
    ValueError
        No run meets the targets' filter, a field of a filter is unknown to all runs, or a ``task_by`` field to one that does.
    """
    records = sorted(records, key=lambda r: r.run_id)  # nothing depends on the order of a file's rows
    _require_known(protocol, records)
    chosen = [r for r in records if matches(protocol.targets, r.fields)]
    if not chosen:
        raise ValueError(f"protocol {protocol.name}: no run of {protocol.file} meets targets; found {len(records)} runs")
    groups: dict[str, list[Record]] = {}
    for record in chosen:
        groups.setdefault(_key(protocol, record), []).append(record)
    pool = [r for r in records if protocol.sample is None and matches(protocol.reference_filter, r.fields)]
    tasks: list[Task] = []
    left_out: list[dict[str, object]] = []
    for key, members in _studies(protocol, groups):
        task = _task(protocol, key, members, pool)
        if isinstance(task, str):
            left_out.append({"key": key, "reason": task})
        else:
            tasks.append(task)
    return tasks, left_out


def _require_known(protocol: Protocol, records: Sequence[Record]) -> None:
    known = sorted({name for record in records for name in record.fields})
    for part, rules in (("targets", protocol.targets), ("references", protocol.reference_filter)):
        for name in (name for name in rules if name not in known):
            raise ValueError(
                f"protocol {protocol.name}: {part}: no run of {protocol.file} has {name!r}; found {', '.join(known)}"
            )


def _key(protocol: Protocol, record: Record) -> str:
    missing = [name for name in protocol.task_by if name not in record.fields]
    if missing:
        raise ValueError(f"protocol {protocol.name}: task_by {missing[0]!r} is unknown of run {record.run_id!r}")
    return ", ".join(f"{name}={_short(record.fields[name])}" for name in protocol.task_by) or "all"


def _studies(protocol: Protocol, groups: dict[str, list[Record]]) -> list[tuple[str, list[Record]]]:
    """Return the groups by key, each split into studies if the protocol says so."""
    if protocol.study_size is None:
        return sorted(groups.items())
    out = []
    for key, members in sorted(groups.items()):
        order = np.random.default_rng([protocol.seed, zlib.crc32(key.encode()), 1]).permutation(len(members))
        for number, start in enumerate(range(0, len(members) - protocol.study_size + 1, protocol.study_size)):
            picked = sorted(order[start : start + protocol.study_size].tolist())
            out.append((f"{key}, study={number}", [members[i] for i in picked]))
    return out


def _short(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _task(protocol: Protocol, key: str, members: list[Record], pool: list[Record]) -> Task | str:
    """Return a task, or why there is none."""
    usable = [r for r in members if r.run.horizon is not None and np.isfinite(r.run.values).any()]
    truth = {r.run_id: r.truth(protocol) for r in usable}
    drawn: list[Record] = []
    if protocol.sample is not None:
        drawn = _draw(protocol, key, usable)
        if len(drawn) < protocol.sample:
            return f"only {len(drawn)} finished runs to draw {protocol.sample} references from"
    taken = {r.run_id for r in drawn}
    targets = tuple(r for r in usable if r.run_id not in taken and not np.isnan(truth[r.run_id]))
    if len(targets) < protocol.min_targets:
        return f"{_known_truths(usable, len(targets))}, fewer than min_targets {protocol.min_targets}"
    values = np.array([truth[r.run_id] for r in targets])
    if not np.isfinite(values).any():
        return "every target diverged"
    if protocol.sample is not None:
        return Task(key, targets, tuple(drawn), values)
    references, n_dearer = _affordable(targets, pool)
    return Task(key, targets, references, values, n_dearer)


def _known_truths(usable: list[Record], n_known: int) -> str:
    """Return how many targets have a known truth, in words, and whether logs end too early."""
    n_short = sum(not r.diverged and not r.full.is_complete for r in usable)
    early = f" ({n_short} logs end before their total_steps)" if n_short else ""
    return f"{n_known} targets with a known truth{early}"


def _draw(protocol: Protocol, key: str, runs: list[Record]) -> list[Record]:
    """Return the drawn references of a task."""
    finished = [r for r in runs if r.full.is_complete and matches(protocol.reference_filter, r.fields)]
    rng = np.random.default_rng([protocol.seed, zlib.crc32(key.encode())])
    picked = rng.permutation(len(finished))[: protocol.sample]
    return [finished[i] for i in sorted(picked.tolist())]


def _affordable(targets: tuple[Record, ...], pool: list[Record]) -> tuple[tuple[Record, ...], int]:
    ids = {r.run_id for r in targets}
    references = [r for r in pool if r.run_id not in ids and not r.diverged and r.full.is_complete]
    families = {r.run.family for r in targets}
    kin = [r for r in references if r.run.family in families]
    references = kin or references
    everyone = [*targets, *references]
    price = _prices(everyone)
    dearest = max(price[: len(targets)])
    kept = tuple(r for r, cost in zip(references, price[len(targets) :], strict=True) if cost <= dearest * (1 + 1e-9))
    return kept, len(references) - len(kept)


def _prices(records: Sequence[Record]) -> list[float]:
    """Return what each run costs, all in one unit: parameters × tokens, as far as all runs know them."""
    price = [float(r.run.horizon or r.run.steps[-1]) for r in records]
    for name in ("batch_tokens", "n_params"):
        factors = [None if r.run.recipe is None else getattr(r.run.recipe, name) for r in records]
        known = [float(f) for f in factors if f is not None]
        if len(known) == len(price):
            price = [p * f for p, f in zip(price, known, strict=True)]
    return price
