"""The blocks of a sweep's configuration, each checked by itself; :mod:`hpo.engine.config` puts them together."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from hpo.core.drift import DRIFT_LEVEL
from hpo.core.schedules import Schedule, schedule
from hpo.engine.rules import RULES, known_rule

PositiveInt = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
OpenFraction = Annotated[float, Field(gt=0, lt=1)]
DEFAULT_TAU = 0.2


class Block(BaseModel):
    """Keys that are known, values that are what they should be, nothing changed afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ModelBlock(Block):
    """The built-in decoder-only family and the target's size in it."""

    family: Literal["decoder"] = "decoder"
    width: PositiveInt
    depth: PositiveInt
    head_dim: PositiveInt = 16
    ffn: Literal["relu2", "swiglu"] = "relu2"
    ffn_ratio: PositiveFloat | None = None
    tied: bool = False
    bias: bool = False
    parameterisation: Literal["completep", "mup", "sp"] = "completep"
    base_width: PositiveInt = 32
    base_depth: PositiveInt = 3
    vocab_size: PositiveInt = 256
    init_std: PositiveFloat = 0.05


class DataBlock(Block):
    """The training text; without a path, the Python standard library's own sources."""

    path: str | None = None
    format: Literal["bytes", "tokens"] = "bytes"
    dtype: Literal["uint16", "uint32"] = "uint16"
    seq_len: PositiveInt = 64

    @model_validator(mode="after")
    def _tokens_need_a_path(self) -> Self:
        if self.format == "tokens" and self.path is None:
            raise ValueError("path: expected a file or folder of tokens for format tokens; found nothing")
        return self


class TrainingBlock(Block):
    """How every run is trained. Horizons come from tokens per parameter, or from one number of tokens for all sizes.

    ``lr`` and ``tau`` (or ``weight_decay``) are base values, used where the search space does not search them. The held-out
    loss is taken ``evaluations`` times a run, on so many ``held_out_sequences``.
    """

    tpp: PositiveFloat | None = None
    tokens: PositiveFloat | None = None
    batch_sequences: PositiveInt = 16
    lr: PositiveFloat = 1e-2
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    tau: PositiveFloat | None = None
    schedule: dict[str, Any] = Field(default_factory=lambda: {"name": "linear"})
    warmup_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    clip: PositiveFloat = 1.0
    beta1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    beta2: Annotated[float, Field(ge=0, lt=1)] = 0.95
    eps: PositiveFloat = 1e-8
    seed: int = 0
    data_seed: int = 0
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: bool = False
    threads: PositiveInt = 1
    evaluations: PositiveInt = 1
    held_out_sequences: PositiveInt | None = None

    @model_validator(mode="before")
    @classmethod
    def _tau_unless_decay(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("tau") is None and data.get("weight_decay") is None:
            return {**data, "tau": DEFAULT_TAU}
        return data

    @model_validator(mode="after")
    def _one_decay(self) -> Self:
        if self.tau is not None and self.weight_decay is not None:
            raise ValueError("expected at most one of tau and weight_decay; found both")
        return self

    @model_validator(mode="after")
    def _one_horizon(self) -> Self:
        if (self.tpp is None) == (self.tokens is None):
            found = "neither" if self.tpp is None else "both"
            raise ValueError(f"expected exactly one of tpp and tokens; found {found}")
        return self

    @field_validator("schedule")
    @classmethod
    def _schedule_is_known(cls, value: dict[str, Any]) -> dict[str, Any]:
        as_schedule(value)
        return value


class SearchBlock(Block):
    """Which settings are tried: a space (name, file or inline mapping) and how many points of it."""

    space: str | dict[str, Any]
    candidates: Literal["grid"] | PositiveInt = "grid"
    first: list[dict[str, Any]] = Field(default_factory=list)

    @field_validator("space", mode="before")
    @classmethod
    def _a_name_or_mapping(cls, value: object) -> object:
        if not isinstance(value, str | dict):
            raise ValueError(f"expected the name of a space, a file, or a mapping with parameters; found {shown(value)}")
        return value

    @field_validator("candidates", mode="before")
    @classmethod
    def _a_number_or_grid(cls, value: object) -> object:
        if value != "grid" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ValueError(f"expected a number above 0 or grid; found {shown(value)}")
        return value


class TrialResources(Block):
    """What each process of a trial takes, and how many processes train it together."""

    cpu: PositiveFloat = 1.0
    gpu: Annotated[float, Field(ge=0)] = 0.0
    workers: PositiveInt = 1


class LibraryBlock(Block):
    """Where fitted models of proxies are kept and reused, and what their training data and tokeniser are called.

    ``entry`` names one, which must be of this sweep's kind unless ``force``; ``drift_level`` is how often a model that still
    fits may be called drifted.
    """

    path: Annotated[str, Field(min_length=1)]
    data: Annotated[str, Field(min_length=1)] | None = None
    tokeniser: Annotated[str, Field(min_length=1)] | None = None
    entry: Annotated[str, Field(min_length=1)] | None = None
    force: bool = False
    drift_level: OpenFraction = DRIFT_LEVEL


class ProxiesBlock(Block):
    """The cheap runs that teach the curve: what differs from the target at each size, and how many settings each.

    ``other_data`` accepts sizes that train on other data, or with another tokeniser, than the target.
    """

    sizes: Annotated[list[dict[str, Any]], Field(min_length=1)]
    settings: PositiveInt
    replicates: PositiveInt = 1
    resources: TrialResources | None = None
    library: LibraryBlock | None = None
    other_data: bool = False

    @field_validator("library", mode="before")
    @classmethod
    def _path_alone(cls, value: object) -> object:
        return {"path": value} if isinstance(value, str) else value


class StoppingBlock(Block):
    """When candidates are judged and how many may go on.

    ``select`` judges all together at the fraction ``at``, and those that go on again at each of the ``rungs`` beyond it;
    ``prune`` judges each as it goes from there on, against the best finished.
    """

    rule: Annotated[str, AfterValidator(known_rule)] = "select"
    at: OpenFraction = 0.2
    rungs: list[OpenFraction] = Field(default_factory=list)
    alpha: OpenFraction = 0.05
    keep_min: PositiveInt = 1
    keep_max: PositiveInt | None = None
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.0
    min_references: PositiveInt = 3

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> Self:
        if self.keep_max is not None and self.keep_max < self.keep_min:
            raise ValueError(f"keep_max: expected at least keep_min ({self.keep_min}); found {self.keep_max}")
        if not self.has_rounds and (self.keep_max is not None or self.keep_min != 1):
            key, found = ("keep_min", self.keep_min) if self.keep_max is None else ("keep_max", self.keep_max)
            raise ValueError(f"{key}: expected none with rule {self.rule}, which has no rounds; found {found}")
        return self

    @model_validator(mode="after")
    def _rungs_rise(self) -> Self:
        if self.rungs and not self.has_rounds:
            raise ValueError(f"rungs: expected none with rule {self.rule}, which has no rounds; found {self.rungs}")
        if any(later <= earlier for earlier, later in pairwise([self.at, *self.rungs])):
            raise ValueError(f"rungs: expected rising fractions above at ({self.at}); found {self.rungs}")
        return self

    @property
    def has_rounds(self) -> bool:
        """True if all candidates are judged together."""
        return RULES[self.rule].has_rounds

    @property
    def looks(self) -> tuple[float, ...]:
        """Every fraction at which all are judged together."""
        return (self.at, *self.rungs)


class ResourcesBlock(TrialResources):
    """What one trial takes, how many run at once (as many as fit, by default), and how fast one is, if known."""

    max_concurrent: PositiveInt | None = None
    flops_per_s: PositiveFloat | None = None


class RayBlock(Block):
    """Where Ray is: by default a private one on this machine."""

    address: str | None = None
    runtime_env: dict[str, Any] = Field(default_factory=dict)
    storage_path: str | None = None


def as_schedule(block: Mapping[str, Any]) -> Schedule:
    """Return the schedule of a ``{name: …, parameter: …}`` block; ``ValueError`` if there is none such."""
    name = block.get("name")
    if not isinstance(name, str):
        raise ValueError(f"expected a mapping with a name such as linear; found {shown(dict(block))}")
    return schedule(name, **{key: value for key, value in block.items() if key != "name"})


def shown(value: object) -> str:
    """Return a value as an error message shows it: one line, not too long."""
    text = repr(value) if not isinstance(value, str) or not value.strip() else value
    text = " ".join(text.split())
    return text if len(text) <= 160 else f"{text[:157]}..."
