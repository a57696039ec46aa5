"""A sweep's configuration: one YAML file, checked before anything is spent.

Every mistake becomes one line that names the dotted path of the value, what was expected and what was found
(:class:`InputError`). What can only be checked against the text, the search space or the disk is checked by
:mod:`hpo.engine.plan` and :mod:`hpo.engine.run_folder` in the same form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from hpo.core.schedules import Schedule, schedule
from hpo.engine.rules import RULES, known_rule
from search_spaces.yaml_text import YamlError, parse_yaml

PositiveInt = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
OpenFraction = Annotated[float, Field(gt=0, lt=1)]
DEFAULT_TAU = 0.2
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class InputError(ValueError):
    """The user's input is wrong; its text is the one line to show."""

    @classmethod
    def at(cls, path: str, expected: str, found: object) -> InputError:
        """Return the error of the value at dotted ``path``."""
        return cls(f"{path}: expected {expected}; found {_shown(found)}")


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ModelBlock(_Block):
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


class DataBlock(_Block):
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


class TrainingBlock(_Block):
    """How every run is trained. Horizons come from tokens per parameter, or from one number of tokens for all sizes.

    ``lr`` and ``tau`` (or ``weight_decay``) are base values, used where the search space does not search them.
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


class SearchBlock(_Block):
    """Which settings are tried: a space (name, file or inline mapping) and how many points of it."""

    space: str | dict[str, Any]
    candidates: Literal["grid"] | PositiveInt = "grid"
    first: list[dict[str, Any]] = Field(default_factory=list)

    @field_validator("candidates", mode="before")
    @classmethod
    def _a_number_or_grid(cls, value: object) -> object:
        if value != "grid" and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise ValueError(f"expected a number above 0 or grid; found {_shown(value)}")
        return value


class ProxiesBlock(_Block):
    """The cheap runs that teach the curve: what differs from the target at each size, and how many settings each."""

    sizes: Annotated[list[dict[str, Any]], Field(min_length=1)]
    settings: PositiveInt
    replicates: PositiveInt = 1


class StoppingBlock(_Block):
    """When candidates are judged and how many may go on.

    ``select`` judges all together at the fraction ``at``; ``prune`` each as it goes from there on, against the best finished.
    """

    rule: Annotated[str, AfterValidator(known_rule)] = "select"
    at: OpenFraction = 0.2
    alpha: OpenFraction = 0.05
    keep_min: PositiveInt = 1
    keep_max: PositiveInt | None = None
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.0
    min_references: PositiveInt = 3

    @property
    def has_rounds(self) -> bool:
        """True if all candidates are judged together."""
        return RULES[self.rule].has_rounds

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> Self:
        if self.keep_max is not None and self.keep_max < self.keep_min:
            raise ValueError(f"keep_max: expected at least keep_min ({self.keep_min}); found {self.keep_max}")
        if not self.has_rounds and (self.keep_max is not None or self.keep_min != 1):
            key, found = ("keep_min", self.keep_min) if self.keep_max is None else ("keep_max", self.keep_max)
            raise ValueError(f"{key}: expected none with rule {self.rule}, which has no rounds; found {found}")
        return self


class ResourcesBlock(_Block):
    """What one trial takes, how many run at once (as many as fit, by default), and how fast one is, if known."""

    cpu: PositiveFloat = 1.0
    gpu: Annotated[float, Field(ge=0)] = 0.0
    max_concurrent: PositiveInt | None = None
    flops_per_s: PositiveFloat | None = None


class RayBlock(_Block):
    """Where Ray is: by default a private one on this machine."""

    address: str | None = None
    runtime_env: dict[str, Any] = Field(default_factory=dict)
    storage_path: str | None = None


class SweepConfig(_Block):
    """One sweep. Exactly one of ``model`` (built in) and ``trainable`` with ``target`` (the user's own) is given."""

    name: str = "sweep"
    seed: Annotated[int, Field(ge=0)] = 0
    model: ModelBlock | None = None
    data: DataBlock = Field(default_factory=DataBlock)
    training: TrainingBlock | None = None
    trainable: str | None = None
    recipe: str | None = None
    target: dict[str, Any] | None = None
    search: SearchBlock
    proxies: ProxiesBlock | None = None
    stopping: StoppingBlock = Field(default_factory=StoppingBlock)
    max_trials: PositiveInt | None = None
    time_budget: PositiveFloat | None = None
    resources: ResourcesBlock = Field(default_factory=ResourcesBlock)
    ray: RayBlock = Field(default_factory=RayBlock)
    storage: str | None = None
    retries: Annotated[int, Field(ge=0)] = 1
    hang_timeout_s: PositiveFloat | None = 1800.0
    checkpoint_every_s: PositiveFloat = 30.0
    keep_checkpoints: Literal["live", "winner", "complete", "all"] = "winner"
    price_per_hour: PositiveFloat | None = None
    log_to: list[Literal["tensorboard", "wandb"]] = Field(default_factory=list)

    @field_validator("stopping", mode="before")
    @classmethod
    def _rule_alone(cls, value: object) -> object:
        return {"rule": value} if isinstance(value, str) else value

    @field_validator("time_budget", mode="before")
    @classmethod
    def _seconds(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", value)
        if match is None:
            raise ValueError(f"expected seconds, or a time such as 90m, 12h or 3d; found {_shown(value)}")
        return float(match[1]) * _UNIT_S[match[2]]

    @field_validator("name")
    @classmethod
    def _is_a_file_name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", value):
            raise ValueError(f"expected letters, digits, dots, dashes and underscores; found {_shown(value)}")
        return value

    @field_validator("trainable", "recipe")
    @classmethod
    def _is_an_import_path(cls, value: str | None) -> str | None:
        if value is not None and not _IMPORT_PATH.fullmatch(value):
            raise ValueError(f"expected package.module:function; found {_shown(value)}")
        return value

    @model_validator(mode="after")
    def _vocabulary_fits_the_ids(self) -> Self:
        data, ids = self.data, 2 ** (16 if self.data.dtype == "uint16" else 32)
        reads_dtype = data.format == "tokens" and not str(data.path).endswith(".npy")  # a .npy tells its own
        if self.model is not None and reads_dtype and self.model.vocab_size > ids:
            expected = f"at most the {ids} ids of {data.dtype}"
            raise ValueError(f"model.vocab_size: expected {expected}; found {self.model.vocab_size}")
        return self

    @model_validator(mode="after")
    def _one_kind_of_model(self) -> Self:
        if (self.model is None) == (self.trainable is None):
            found = "neither" if self.model is None else "both"
            raise ValueError(f"expected exactly one of model and trainable; found {found}")
        if self.model is not None and self.training is None:
            raise ValueError("training: expected a block with tpp or tokens; found nothing")
        if self.trainable is not None and self.target is None:
            raise ValueError("target: expected the settings of the target run for trainable; found nothing")
        if self.trainable is not None and self.training is not None:
            raise ValueError("training: expected no such block with trainable (its settings go to target); found one")
        if self.model is not None and (self.target is not None or self.recipe is not None):
            raise ValueError("target: expected no target or recipe with model (the model block is the target); found one")
        return self


def load_config(path: Path, overrides: Sequence[str] = ()) -> SweepConfig:
    """Return the configuration of a YAML file with ``key=value`` overrides (dotted keys, YAML values) applied.

    Raises
    ------
    InputError
        The file is missing, is not YAML, or holds a wrong key or value.
    """
    data = read_yaml(path)
    for override in overrides:
        _apply_override(data, override)
    return parse_config(data)


def parse_config(data: Mapping[str, Any]) -> SweepConfig:
    """Return the checked configuration of a plain mapping; :class:`InputError` names the first thing that is wrong."""
    try:
        return SweepConfig.model_validate(data)
    except ValidationError as error:
        raise InputError(_first_problem(error)) from None


def with_absolute_paths(config: SweepConfig) -> SweepConfig:
    """Return ``config`` with its files' paths, relative to the current folder, made absolute: a resume may start elsewhere."""
    changed: dict[str, Any] = {}
    if config.data.path is not None:
        changed["data"] = config.data.model_copy(update={"path": str(Path(config.data.path).expanduser().absolute())})
    space = config.search.space
    if isinstance(space, str) and Path(space).is_file():
        changed["search"] = config.search.model_copy(update={"space": str(Path(space).absolute())})
    return config.model_copy(update=changed)


def dump_config(config: SweepConfig) -> str:
    """Return the resolved configuration as YAML: every default written out; reads back as the same configuration."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def as_schedule(block: Mapping[str, Any]) -> Schedule:
    """Return the schedule of a ``{name: …, parameter: …}`` block; ``ValueError`` if there is none such."""
    name = block.get("name")
    if not isinstance(name, str):
        raise ValueError(f"expected a mapping with a name such as linear; found {_shown(dict(block))}")
    return schedule(name, **{key: value for key, value in block.items() if key != "name"})


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file; numbers such as ``1e-3`` are read as numbers."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError.at(str(path), "a readable YAML file", reason) from None
    data = _parse_yaml(text, str(path))
    if not isinstance(data, dict):
        raise InputError.at(str(path), "a mapping of keys to values", type(data).__name__ if data else "an empty file")
    return data


def _parse_yaml(text: str, where: str) -> Any:
    try:
        return parse_yaml(text)
    except YamlError as error:
        raise InputError.at(where, "YAML", str(error)) from None


def _apply_override(data: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not (equals and key.strip()):
        raise InputError.at("--set", "key=value", override)
    *parents, last = key.strip().split(".")
    block = data
    for name in parents:
        inner = block.get(name)
        block[name] = block = {} if inner is None else inner
        if not isinstance(block, dict):
            raise InputError.at("--set", f"{name} to be a block of keys", override)
    block[last] = _parse_yaml(text, f"--set {key}")


def _first_problem(error: ValidationError) -> str:
    problems = error.errors(include_url=False)
    first = min(problems, key=lambda p: p["type"] == "missing")  # a misspelt key before the one it leaves missing
    loc = [str(part) for part in first["loc"] if not _is_union_tag(part)]
    more = f" (and {len(problems) - 1} more)" if len({p["loc"] for p in problems}) > 1 else ""
    if first["type"] == "extra_forbidden":
        return f"{'.'.join(loc)}: expected {_known_keys(loc)}; found an unknown key{more}"
    return f"{_problem_text('.'.join(loc) or 'config', first)}{more}"


def _problem_text(path: str, problem: Any) -> str:
    kind, message = problem["type"], str(problem["msg"])
    if kind == "missing":
        return f"{path}: expected a value; found nothing"
    if kind == "value_error":
        inner = message.removeprefix("Value error, ")
        nested = re.match(r"([\w.]+): (expected .*)", inner)
        if nested:
            return f"{nested[1] if path == 'config' else f'{path}.{nested[1]}'}: {nested[2]}"
        return f"{path}: {inner}"
    expected = re.sub(r"^(Input|String|List|Dictionary) should (be )?", "", message).replace("have at least", "at least")
    expected = re.sub(r"^a valid dictionary or instance of \w+$", "a block of keys and values", expected)
    expected = re.sub(r" after validation, not \d+$", "", expected)
    return f"{path}: expected {expected}; found {_shown(problem['input'])}"


def _known_keys(loc: Sequence[str]) -> str:
    block: Any = SweepConfig
    for name in loc[:-1]:
        annotation = str(block.model_fields[name].annotation)
        block = next(cls for cls in _Block.__subclasses__() if cls.__name__ in annotation)
    return "one of " + ", ".join(block.model_fields)


def _is_union_tag(part: object) -> bool:
    return isinstance(part, str) and ("[" in part or part in {"int", "str", "float"})


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, str) or not value.strip() else value
    text = " ".join(text.split())
    return text if len(text) <= 160 else f"{text[:157]}..."
