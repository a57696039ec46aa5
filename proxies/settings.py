"""The settings of one run, three frozen blocks read from a JSON-ready mapping and checked.

Every mistake is one ``ValueError`` that names the path of the value (``training.n_steps``), what was expected and what was
found. ``model`` becomes an :class:`~proxies.architecture.Architecture`; data files are opened, and checked, in ``data``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, TypeVar, cast

from hpo.core.schedules import Schedule, schedule, schedule_from_dict
from proxies.architecture import Architecture

Block = TypeVar("Block", "Architecture", "DataSettings", "TrainingSettings")

FORMATS = ("bytes", "tokens")
TOKEN_DTYPES = ("uint16", "uint32")
PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """Where tokens come from.

    Parameters
    ----------
    path : str, optional
        A file or a folder; None means the Python standard library's own sources.
    format : {"bytes", "tokens"}
        Text read byte by byte, or token ids of a tokeniser (``.npy``, or raw ``.bin``).
    dtype : {"uint16", "uint32"}
        Type of the ids in a ``.bin`` file; a ``.npy`` file tells its own.
    seq_len : int
        Context S in tokens.
    """

    path: str | None = None
    format: str = "bytes"
    dtype: str = "uint16"
    seq_len: int = 64

    def __post_init__(self) -> None:
        if self.path is not None and not (isinstance(self.path, str) and self.path):
            raise ValueError(f"data.path must be the path of a file or folder, or null; found {self.path!r}")
        _require("data.format", self.format, lambda x: x in FORMATS, f"one of {', '.join(FORMATS)}")
        _require("data.dtype", self.dtype, lambda x: x in TOKEN_DTYPES, f"one of {', '.join(TOKEN_DTYPES)}")
        _require_whole("data.seq_len", self.seq_len, 1)
        if self.path is None and self.format != "bytes":
            raise ValueError("data.format must be bytes where data.path is null (the default text); found 'tokens'")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How a model is trained.

    Parameters
    ----------
    lr, weight_decay : float
        Base peak learning rate η and base decay λ; the parameterisation scales them by role.
    n_steps : int
        Optimiser steps T.
    batch_sequences : int
        Sequences a step.
    schedule : Schedule
        Shape of the learning rate; a mapping ``{"name": …, "parameters": …}`` in settings.
    warmup_fraction : float
        Share of the steps that warm up linearly, in [0, 1).
    clip : float, optional
        Largest global gradient norm; None for no clipping.
    beta1, beta2, eps : float
        AdamW's; ε is the base value.
    seed, data_seed : int
        Initial weights; order of the data. The data order does not depend on ``seed`` or on the model.
    device : str
        ``auto`` (a GPU where there is one), ``cpu``, ``cuda``, ``cuda:1``, …
    dtype : {"auto", "float32", "bfloat16"}
        Precision of the forward pass (autocast); ``auto`` is bfloat16 on GPUs that have it, float32 elsewhere.
    compile : bool
        Whether to use ``torch.compile`` (needs a compiler; ignored on the CPU).
    threads : int
        Torch threads on the CPU.
    evaluations : int
        How often the held-out loss is taken, evenly over the steps, the last time at the end.
    held_out_sequences : int, optional
        Held-out sequences it is taken on, spread evenly over the held-out data: the same ones for every run on these data and
        this context. None: the first 32 batches of this run's own order.
    """

    lr: float
    n_steps: int
    weight_decay: float = 0.1
    batch_sequences: int = 16
    schedule: Schedule = field(default_factory=lambda: schedule("linear"))
    warmup_fraction: float = 0.1
    clip: float | None = 1.0
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    seed: int = 0
    data_seed: int = 0
    device: str = "auto"
    dtype: str = "auto"
    compile: bool = False
    threads: int = 1
    evaluations: int = 1
    held_out_sequences: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("n_steps", 1), ("batch_sequences", 1), ("seed", 0), ("data_seed", 0), ("threads", 1)):
            _require_whole(f"training.{name}", getattr(self, name), least)
        _require_whole("training.evaluations", self.evaluations, 1)
        if self.held_out_sequences is not None:
            _require_whole("training.held_out_sequences", self.held_out_sequences, 1)
        for name in ("lr", "eps"):
            _require_number(f"training.{name}", getattr(self, name), lambda x: x > 0, "above 0")
        _require_number("training.weight_decay", self.weight_decay, lambda x: x >= 0, "at least 0")
        for name in ("warmup_fraction", "beta1", "beta2"):
            _require_number(f"training.{name}", getattr(self, name), lambda x: 0 <= x < 1, "in [0, 1)")
        if self.clip is not None:
            _require_number("training.clip", self.clip, lambda x: x > 0, "above 0")
        _require("training.schedule", self.schedule, lambda x: isinstance(x, Schedule) and x.is_known, "a schedule with values")
        _require("training.device", self.device, lambda x: isinstance(x, str) and x, "auto or the name of a torch device")
        _require("training.dtype", self.dtype, lambda x: x in PRECISIONS, f"one of {', '.join(PRECISIONS)}")
        _require("training.compile", self.compile, lambda x: isinstance(x, bool), "true or false")


@dataclass(frozen=True)
class RunSettings:
    """All settings of one run."""

    model: Architecture
    data: DataSettings
    training: TrainingSettings

    @property
    def batch_tokens(self) -> int:
        """Batch size B in tokens."""
        return self.training.batch_sequences * self.data.seq_len

    def identity(self) -> dict[str, Any]:
        """Return what a checkpoint must agree on to be resumed: everything that decides how the model is trained."""
        training = {**asdict(self.training), "schedule": self.training.schedule.to_dict()}
        for place in ("device", "compile", "threads", "evaluations", "held_out_sequences"):
            del training[place]
        return {"model": asdict(self.model), "data": asdict(self.data), "training": training}


def read_settings(settings: Mapping[str, Any]) -> RunSettings:
    """Return ``settings`` checked; missing values take their defaults.

    Parameters
    ----------
    settings : mapping
        Blocks ``model`` (needs ``width`` and ``depth``), ``data`` (optional) and ``training`` (needs ``lr`` and ``n_steps``).

    Raises
    ------
    ValueError
        An unknown block or key, a missing value, a wrong type or a value outside its range.
    """
    known = ("model", "data", "training")
    unknown = [key for key in settings if key not in known]
    if unknown:
        raise ValueError(f"settings has the blocks {', '.join(known)}; found {unknown[0]!r}")
    training = dict(_mapping(settings, "training"))
    if "schedule" in training:
        training["schedule"] = _read_schedule(training["schedule"])
    return RunSettings(
        _read_block("model", Architecture, _mapping(settings, "model")),
        _read_block("data", DataSettings, _mapping(settings, "data")),
        _read_block("training", TrainingSettings, training),
    )


def _mapping(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    block = settings.get(name, {})
    if not isinstance(block, Mapping):
        raise ValueError(f"{name} must be a mapping; found {block!r}")
    return cast(Mapping[str, Any], block)


def _read_block(name: str, kind: type[Block], values: Mapping[str, Any]) -> Block:
    known = {f.name: f for f in fields(kind)}
    for key in values:
        if key not in known:
            raise ValueError(f"{name} has no key {key!r}; it takes {', '.join(known)}")
    for key, spec in known.items():
        if key not in values and spec.default is MISSING and spec.default_factory is MISSING:
            raise ValueError(f"{name}.{key} is required; found nothing")
    return kind(**values)


def _read_schedule(value: Any) -> Schedule:
    if isinstance(value, Schedule):
        return value
    if not isinstance(value, Mapping) or set(value) - {"name", "parameters", "points"}:
        raise ValueError(f"training.schedule must be a mapping of name, parameters or points; found {value!r}")
    try:
        return schedule_from_dict(value)
    except (ValueError, TypeError) as error:
        raise ValueError(f"training.schedule: {error}") from error


def _require(path: str, value: Any, rule: Callable[[Any], object], expected: str) -> None:
    if not rule(value):
        raise ValueError(f"{path} must be {expected}; found {value!r}")


def _require_whole(path: str, value: Any, least: int) -> None:
    _require(path, value, lambda x: type(x) is int and x >= least, f"a whole number of at least {least}")


def _require_number(path: str, value: Any, rule: Callable[[float], bool], expected: str) -> None:
    _require(path, value, lambda x: type(x) in (int, float) and math.isfinite(x) and rule(x), f"a finite number {expected}")
