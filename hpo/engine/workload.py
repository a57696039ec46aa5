"""What is trained: the built-in model family or the user's own function, seen alike by the engine.

A :class:`Workload` turns searched values and a size into the settings of one training function, and those settings into
a :class:`~hpo.core.recipe.Recipe`. Nothing here loads torch, so a sweep is planned in a moment.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Protocol

from hpo.core.quantities import is_real
from hpo.core.recipe import Recipe
from hpo.core.schedules import unknown_schedule
from hpo.engine.config import InputError, SweepConfig
from hpo.engine.config_blocks import ModelBlock, TrainingBlock, as_schedule
from hpo.engine.user_functions import imported, recipe_of, require_call
from hpo.engine.worker import Train
from search_spaces import RunContext, SearchSpace

Settings = dict[str, Any]


class Workload(Protocol):
    """One kind of training run."""

    @property
    def trainable(self) -> str:
        """The training function, ``package.module:function``."""

    @property
    def function(self) -> Train | None:
        """The training function itself, where other processes cannot import it."""

    @property
    def family(self) -> str:
        """The label under which its curves are compared."""

    def identity(self) -> tuple[str, str | None, str]:
        """Return the names of family, data (None: unknown) and tokeniser under which a library keeps its proxies."""

    def settings(self, searched: Mapping[str, Any], size: Mapping[str, Any], replicate: int) -> Settings:
        """Return the JSON-ready settings of the run with ``searched`` values at a size (empty: the target's)."""

    def recipe(self, settings: Mapping[str, Any]) -> Recipe:
        """Return the recipe of such settings; its tokens, batch and FLOPs are known."""

    def check(self, settings: Mapping[str, Any]) -> None:
        """Raise :class:`InputError` if the run cannot work: data, or anything else that settings alone do not show."""


def workload_of(config: SweepConfig, space: SearchSpace, function: Train | None = None) -> Workload:
    """Return the workload that ``config`` describes; ``function`` stands for ``config.trainable`` where it is given.

    Raises
    ------
    InputError
        The user's function cannot be imported.
    """
    if config.model is not None and config.training is not None:
        return DecoderWorkload(config, config.model, config.training, space)
    return OwnWorkload.of(config, space, function)


@dataclass(frozen=True)
class DecoderWorkload:
    """The decoder-only family of :mod:`proxies`."""

    config: SweepConfig
    model: ModelBlock
    training: TrainingBlock
    space: SearchSpace
    trainable: str = "proxies.trainable:train"
    function: Train | None = None

    @property
    def family(self) -> str:
        """Family, feed-forward part and parameterisation: what two comparable models share."""
        return f"{self.model.family}-{self.model.ffn}-{self.model.parameterisation}"

    def identity(self) -> tuple[str, str | None, str]:
        """Return the family with what its sizes share, the data by their content, and how they are read."""
        from proxies.data import fingerprint
        from proxies.settings import DataSettings

        form = self.model.model_dump(exclude={"family", "ffn", "parameterisation", "width", "depth", "head_dim", "vocab_size"})
        shared = ", ".join(f"{key} {value}" for key, value in form.items() if value is not None)
        data = DataSettings(**self.config.data.model_dump())
        ids = "bytes" if data.format == "bytes" else f"ids below {self.model.vocab_size}"
        return f"{self.family} ({shared})", f"{fingerprint(data, self.model.vocab_size)} in sequences of {data.seq_len}", ids

    def settings(self, searched: Mapping[str, Any], size: Mapping[str, Any], replicate: int) -> Settings:
        """Return the blocks ``model``, ``data`` and ``training``; tokens follow from TPP and this size's parameters."""
        from proxies.architecture import Architecture

        for key in size:
            if key not in ModelBlock.model_fields:
                raise InputError.at(key, f"one of {', '.join(ModelBlock.model_fields)}", "an unknown key")
        model = {**self.model.model_dump(exclude={"family"}), **size}
        try:
            n_params = Architecture(**model).n_params
        except ValueError as error:
            raise restated(error) from None
        training = self._training(searched, n_params, replicate)
        return {"model": model, "data": self.config.data.model_dump(), "training": training}

    def recipe(self, settings: Mapping[str, Any]) -> Recipe:
        """Return the family's own recipe, with its exact FLOPs."""
        from proxies import trainable

        try:
            return trainable.recipe(settings)
        except ValueError as error:
            raise restated(error) from None

    def check(self, settings: Mapping[str, Any]) -> None:
        """Open the data: missing or empty text, text shorter than a batch, tokens beyond the vocabulary."""
        from proxies import trainable

        try:
            trainable.check(settings)
        except ValueError as error:
            raise restated(error) from None

    def _training(self, searched: Mapping[str, Any], n_params: int, replicate: int) -> Settings:
        t, seq_len = self.training, self.config.data.seq_len
        context = RunContext(
            n_params=n_params,
            n_tokens=t.tpp * n_params if t.tpp is not None else t.tokens or 0.0,
            seq_len=seq_len,
            batch_sequences=t.batch_sequences,
            lr=t.lr,
            weight_decay=t.weight_decay,
            tau=None if {"tau", "weight_decay"} & {*searched, *self.space.fixed} else t.tau,
        )
        fixed = t.model_dump(exclude={"tpp", "tokens", "tau", "weight_decay", "schedule"})
        schedule = as_schedule(t.schedule).to_dict()
        return {**fixed, "schedule": schedule, **_derived(self.space, searched, context), "seed": t.seed + replicate}


@dataclass(frozen=True)
class OwnWorkload:
    """The user's own training function; ``target`` holds its settings, with the sizes and searched values laid over them.

    The engine reads ``n_steps``, ``n_params``, ``batch_tokens`` (or ``batch_sequences`` and ``seq_len``), ``lr``,
    ``weight_decay``, ``schedule`` and ``warmup_fraction`` from those settings, unless a ``recipe`` function tells them.
    """

    target: Mapping[str, Any]
    space: SearchSpace
    trainable: str
    recipe_function: Callable[[Mapping[str, Any]], Recipe] | None
    function: Train | None = None

    @classmethod
    def of(cls, config: SweepConfig, space: SearchSpace, function: Train | None = None) -> OwnWorkload:
        """Return the workload of ``config.trainable``; :class:`InputError` if it cannot be imported.

        Modules in the current folder are found, as with ``python -m``; Ray passes the path on to its workers.
        """
        if (here := str(Path.cwd())) not in sys.path:
            sys.path.insert(0, here)
        functions: dict[str, Any] = {}
        for key in ("recipe",) if function is not None else ("trainable", "recipe"):
            path = getattr(config, key)
            functions[key] = None if path is None else imported(key, path)
        require_call("trainable", function or functions["trainable"], ("settings", "session"))
        if functions["recipe"] is not None:
            require_call("recipe", functions["recipe"], ("settings",))
        return cls(config.target or {}, space, str(config.trainable), functions["recipe"], function)

    @property
    def family(self) -> str:
        """The function's import path."""
        return self.trainable

    def identity(self) -> tuple[str, str | None, str]:
        """Return the function's name; its data and tokeniser are whatever the configuration calls them."""
        return self.family, None, "unnamed"

    def settings(self, searched: Mapping[str, Any], size: Mapping[str, Any], replicate: int) -> Settings:
        """Return target, size and searched values in one mapping, and what follows from them; ``seed`` + replicate."""
        merged = {**self.target, **size}
        merged = {**merged, **self._searched(searched, merged)}
        seed = merged.get("seed", 0)
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise InputError.at("target.seed", "a whole number", seed)
        return {**merged, "seed": seed + replicate}

    def recipe(self, settings: Mapping[str, Any]) -> Recipe:
        """Return what the user's ``recipe`` function says, or what the settings say by name."""
        try:
            made = _recipe_by_name(settings) if self.recipe_function is None else recipe_of(self.recipe_function, settings)
        except InputError:
            raise
        except ValueError as error:
            raise InputError(f"target: {error}") from None
        if made.n_steps is None or made.flops is None:
            raise InputError.at("target", "n_steps, n_params and batch_tokens (or a recipe that knows them)", sorted(settings))
        return made

    def check(self, settings: Mapping[str, Any]) -> None:
        """Nothing to check: only the function knows its data."""

    def _searched(self, searched: Mapping[str, Any], merged: Mapping[str, Any]) -> Settings:
        n_tokens = merged["tpp"] * merged["n_params"] if {"tpp", "n_params"} <= set(merged) else merged.get("n_tokens")
        if n_tokens is not None and {"n_params", "seq_len", "batch_sequences"} <= set(merged):
            is_searched = bool({"tau", "weight_decay"} & {*searched, *self.space.fixed})
            decay: dict[str, Any] = {} if is_searched else {key: merged.get(key) for key in ("weight_decay", "tau")}
            sizes = {key: merged[key] for key in ("n_params", "seq_len", "batch_sequences")}
            return _derived(self.space, searched, RunContext(**sizes, n_tokens=n_tokens, lr=merged.get("lr"), **decay))
        values = {**self.space.fixed, **searched}
        to_solve = sorted({"tau", "tpp", "batch_tokens"} & set(values))
        if to_solve:
            expected = f"n_params, seq_len, batch_sequences and n_tokens or tpp, to solve {to_solve[0]}"
            raise InputError.at("target", expected, sorted(merged))
        return values


def check_device(config: SweepConfig) -> None:
    """Raise :class:`InputError` if the built-in family is to train on a device that this machine lacks.

    Not part of planning: a sweep for another machine may be planned anywhere.
    """
    device = "auto" if config.training is None else config.training.device
    if config.trainable is not None or device in ("auto", "cpu"):
        return
    from proxies.runtime import find_device

    try:
        find_device(device)
    except ValueError as error:
        raise restated(error) from None


def restated(error: ValueError, prefix: str = "") -> InputError:
    """Return a lower layer's "x must be y; found z" in the form of this one, its path under ``prefix``."""
    text = " ".join(str(error).split())
    text = re.sub(r"^([\w.]+) (must|is|has) ", lambda m: f"{m[1]}: expected it {m[2]} ", text, count=1)
    return InputError(
        f"{prefix}{text.replace(': expected it must be ', ': expected ').replace(': expected it must ', ': expected to ')}"
    )


def _derived(space: SearchSpace, searched: Mapping[str, Any], context: RunContext) -> Settings:
    try:
        return space.derive(searched, context)
    except ValueError as error:
        raise restated(error, "search.space: ") from None


def _recipe_by_name(settings: Mapping[str, Any]) -> Recipe:
    n_steps, batch = _number(settings, "n_steps"), _number(settings, "batch_tokens")
    sequences, seq_len = _number(settings, "batch_sequences"), _number(settings, "seq_len")
    if batch is None and sequences is not None and seq_len is not None:
        batch = sequences * seq_len
    if batch is None or n_steps is None:
        given = sorted(key for key, value in settings.items() if value is not None)
        raise InputError.at("target", "n_steps, n_params and batch_tokens (or a recipe function)", given)
    if not (isfinite(n_steps) and n_steps >= 1 and n_steps == int(n_steps)):
        raise InputError.at("target.n_steps", "a whole number of at least 1", n_steps)
    block = settings.get("schedule")
    if not isinstance(block, Mapping | None):
        raise InputError.at("target.schedule", "a mapping with a name such as linear", block)
    known = ("n_params", "lr", "weight_decay", "warmup_fraction", "flops_exact")
    return Recipe(
        schedule=unknown_schedule("unstated") if block is None else as_schedule(block),
        n_tokens=n_steps * batch,
        batch_tokens=batch,
        **{key: settings[key] for key in known if settings.get(key) is not None},
    )


def _number(settings: Mapping[str, Any], key: str) -> Any:
    value = settings.get(key)
    if value is not None and not is_real(value):
        raise InputError.at(f"target.{key}", "a number", value)
    return value
