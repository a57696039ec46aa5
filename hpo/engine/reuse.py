"""A sweep and its library of proxies: what it reuses, whether that has drifted, what it keeps for later sweeps.

With ``proxies.library`` a sweep looks there, before anything is trained, for a model of its own family, data, tokeniser,
schedule and tokens per parameter. If there is one, a single cheap proxy is trained to its end instead of all of them, and that
run, with the candidates at the stopping fraction under the rule ``select``, is set against the model (:mod:`hpo.core.drift`).
Where they follow it, it judges the sweep. Where they do not, or where none could be compared, it stops nothing: the sweep
trains its own proxies, and says why. What a sweep's own proxies taught is kept as the next version.

What was found and decided is in ``library.json`` and ``drift.json`` of the run folder: a resume does not look again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hpo.adapters.atomic import write_json
from hpo.adapters.proxy_library import Entry, ProxyLibrary
from hpo.core.curve import Curve
from hpo.core.drift import Drift, drift_of
from hpo.core.model import CollapseModel
from hpo.core.proxy_key import ProxyKey, differences
from hpo.engine.config import InputError
from hpo.engine.plan import Plan, Run, distances
from hpo.engine.run_folder import RunFolder
from hpo.engine.runs_on_disk import metric_of

if TYPE_CHECKING:
    from hpo.engine.config_blocks import LibraryBlock


class Reuse:
    """One sweep's dealings with its library; without one it reuses and keeps nothing.

    Parameters
    ----------
    plan : Plan
        Whose proxies.
    folder : RunFolder
        Where what was found and decided is kept.

    Raises
    ------
    InputError
        The library cannot be read, or the entry asked for is not there or not of this sweep.
    """

    def __init__(self, plan: Plan, folder: RunFolder) -> None:
        self._plan, self._folder = plan, folder
        self.block = None if plan.config.proxies is None else plan.config.proxies.library
        if self.block is None:
            self.entry: Entry | None = None
        elif folder.library.exists():
            kept = json.loads(folder.library.read_text(encoding="utf-8"))
            self.entry, self.said = None if kept["entry"] is None else Entry.from_dict(kept["entry"]), kept["said"]
        else:
            self.entry, self.said = look_up(plan, self.block)
            write_json(folder.library, {"entry": None if self.entry is None else self.entry.to_dict(), "said": self.said})

    @property
    def drift(self) -> Drift | None:
        """What the test for drift found, None before it."""
        path = self._folder.drift
        return Drift.from_dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    @property
    def model(self) -> CollapseModel | None:
        """The library's model, once the runs have been found to follow it."""
        found = self.drift
        return self.entry.model if self.entry is not None and found is not None and found.status == "steady" else None

    @property
    def is_open(self) -> bool:
        """True while there is a model that has not been tested."""
        return self.entry is not None and self.drift is None

    @property
    def proxies(self) -> tuple[Run, ...]:
        """The proxies to train: all, or the one that tests for drift."""
        if self.entry is None or (self.drift is not None and self.model is None):
            return self._plan.proxies
        return (probe(self._plan, self.entry.model),)

    @property
    def stand_ins(self) -> tuple[tuple[Run, ...], dict[str, float]]:
        """The references of a reused model as if they were this sweep's proxies, and their final losses by name."""
        known = [] if self.model is None else [r for r in self.model.references if r.recipe is not None]
        like = self._plan.candidates[0]
        runs = tuple(
            replace(like, name=f"library/{r.run_id}", role="proxy", searched=dict(r.settings), settings={}, recipe=r.recipe)
            for r in known
            if r.recipe is not None
        )
        return runs, {run.name: r.final_loss for run, r in zip(runs, known, strict=True)}

    def test(self, curves: Sequence[Curve]) -> str:
        """Test the model on runs of this sweep, once; return what was found in words."""
        if self.entry is None or self.block is None:
            raise ValueError("there is no model to test")
        found = self.drift or drift_of(self.entry.model, curves, self.block.drift_level)
        write_json(self._folder.drift, found.to_dict())
        then = "it judges this sweep" if found.status == "steady" else "it stops nothing, and the sweep trains its own proxies"
        return f"library entry {self.entry.name}: {found.reason}; {then}"

    def keep(self, model: CollapseModel) -> str | None:
        """Keep what the sweep's own proxies taught; return a line on it, None if there is nothing to say."""
        if self.block is None or not model.references:
            return None
        now = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            key = key_of(self._plan, self.block)
            kept = ProxyLibrary(Path(self.block.path)).add(key, model, now, self._folder.path.name)
        except (OSError, ValueError) as error:
            return f"not kept in the library {self.block.path}: {error}"
        write_json(self._folder.kept, kept.name)
        return f"kept as {kept.name} in the library {self.block.path}"

    def to_result(self) -> dict[str, Any]:
        """Return what ``result.json`` says of the library."""
        kept = json.loads(self._folder.kept.read_text(encoding="utf-8")) if self._folder.kept.exists() else None
        return {
            "path": None if self.block is None else self.block.path,
            "entry": None if self.entry is None else self.entry.name,
            "is_used": self.model is not None,
            "drift": None if self.drift is None else self.drift.to_dict(),
            "said": self.said,
            "kept_as": kept,
        }


def look_up(plan: Plan, block: LibraryBlock) -> tuple[Entry | None, str]:
    """Return the library's entry for a sweep, the last made of those that match, and what there is to say of it.

    Raises
    ------
    InputError
        The library cannot be read; or the entry named in the configuration is not there, or not of this sweep's kind.
    """
    wanted = key_of(plan, block)
    try:
        library = ProxyLibrary(Path(block.path))
        if block.entry is not None:
            return _named(library, wanted, block)
        entries, unreadable = library.entries()
    except ValueError as error:
        raise InputError(f"proxies.library: {error}") from None
    matching = [entry for entry in entries if not differences(wanted, entry.key)]
    if matching:
        best = max(matching, key=lambda entry: (entry.made, entry.version))
        return best, f"entry {best.name} is of this sweep's kind: one proxy is trained, to test for drift"
    near = sorted((differences(wanted, entry.key) for entry in entries), key=len)
    why = f"; the nearest differs in: {', '.join(map(str, near[0]))}" if near else ""
    also = f" ({unreadable[0]})" if unreadable else ""
    return None, f"no entry of this sweep's kind in the library {block.path}{why}{also}"


def with_library(plan: Plan) -> tuple[Plan, dict[str, Any]]:
    """Return the plan with the proxies that train unless the library has drifted, and what to tell of it, for an estimate.

    Raises
    ------
    InputError
        As :func:`look_up`.
    """
    block = None if plan.config.proxies is None else plan.config.proxies.library
    if block is None:
        return plan, {}
    entry, said = look_up(plan, block)
    reused = plan if entry is None else replace(plan, proxies=(probe(plan, entry.model),))
    return reused, {"library": {"path": block.path, "entry": None if entry is None else entry.name, "said": said}}


def key_of(plan: Plan, block: LibraryBlock) -> ProxyKey:
    """Return what the models of a sweep's proxies are about.

    Raises
    ------
    InputError
        The data of a user's own function have no name.
    """
    family, data, tokeniser = plan.workload.identity()
    data = block.data or data
    if data is None:
        raise InputError.at("proxies.library.data", "a name of the training data, with trainable", "nothing")
    recipes = [run.recipe for run in plan.candidates]
    tokeniser, metric = block.tokeniser or tokeniser, metric_of(plan.config).name
    return ProxyKey.of(recipes, family=family, data=data, tokeniser=tokeniser, metric=metric)


def probe(plan: Plan, model: CollapseModel) -> Run:
    """Return the proxy that tests for drift: of the cheapest size, the one whose settings the model's runs are nearest to."""
    smallest = min(run.size for run in plan.proxies)
    cheap = [run for run in plan.proxies if run.size == smallest]
    if not model.references:
        return cheap[0]
    far = distances([run.searched for run in cheap], [dict(r.settings) for r in model.references])
    return cheap[int(np.argmin(far.min(axis=1)))]


def _named(library: ProxyLibrary, wanted: ProxyKey, block: LibraryBlock) -> tuple[Entry, str]:
    """Return the entry that the configuration names; it must match unless ``force``."""
    entry = library.get(str(block.entry))
    wrong = differences(wanted, entry.key)
    if wrong and not block.force:
        found = ", ".join(map(str, wrong))
        raise InputError(f"proxies.library.entry: expected an entry of this sweep's kind; found {found} (force: true uses it)")
    forced = f", although it differs in: {', '.join(map(str, wrong))}" if wrong else ""
    return entry, f"entry {entry.name} was asked for{forced}: one proxy is trained, to test for drift"
