"""A sweep's configuration: one YAML file, checked before anything is spent.

Every mistake becomes one line that names the dotted path of the value, what was expected and what was found
(:class:`InputError`). What can only be checked against the text, the search space or the disk is checked by
:mod:`hpo.engine.plan` and :mod:`hpo.engine.run_folder` in the same form.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from hpo.engine.config_blocks import (
    Block,
    DataBlock,
    ModelBlock,
    PositiveFloat,
    PositiveInt,
    ProxiesBlock,
    RayBlock,
    ResourcesBlock,
    SearchBlock,
    StoppingBlock,
    TrainingBlock,
    shown,
)
from search_spaces.yaml_text import YamlError, parse_yaml

MIN_EVALUATIONS = 4
"""Of a held-out loss before candidates are judged by it."""
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_IMPORT_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class InputError(ValueError):
    """The user's input is wrong; its text is the one line to show."""

    @classmethod
    def at(cls, path: str, expected: str, found: object) -> InputError:
        """Return the error of the value at dotted ``path``."""
        return cls(f"{path}: expected {expected}; found {shown(found)}")


class SweepConfig(Block):
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
    metric: str = "loss"
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
            raise ValueError(f"expected seconds, or a time such as 90m, 12h or 3d; found {shown(value)}")
        return float(match[1]) * _UNIT_S[match[2]]

    @field_validator("name")
    @classmethod
    def _is_a_file_name(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", value):
            raise ValueError(f"expected letters, digits, dots, dashes and underscores; found {shown(value)}")
        return value

    @field_validator("metric")
    @classmethod
    def _is_a_column(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z_][\w.-]*", value) or value in ("step", "tokens", "lr"):
            raise ValueError(f"expected loss, or the name of another loss that is reported with it; found {shown(value)}")
        return value

    @model_validator(mode="after")
    def _metric_can_judge(self) -> Self:
        if self.metric == "loss":
            return self
        if not self.stopping.has_rounds:
            raise ValueError(f"metric: expected loss with rule {self.stopping.rule}, which judges reports; found {self.metric}")
        if self.training is None:
            return self
        if self.metric != "val_loss":
            raise ValueError(f"metric: expected loss or val_loss with model; found {shown(self.metric)}")
        least = math.ceil(MIN_EVALUATIONS / self.stopping.at)
        if self.training.evaluations < least:
            raise ValueError(
                f"training.evaluations: expected at least {least} with metric val_loss, {MIN_EVALUATIONS} of them up to "
                f"stopping.at ({self.stopping.at:g}); found {self.training.evaluations}"
            )
        return self

    @field_validator("trainable", "recipe")
    @classmethod
    def _is_an_import_path(cls, value: str | None) -> str | None:
        if value is not None and not _IMPORT_PATH.fullmatch(value):
            raise ValueError(f"expected package.module:function; found {shown(value)}")
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
        if self.model is not None and self.resources.workers > 1:
            raise ValueError(
                f"resources.workers: expected 1 with model; found {self.resources.workers} (trainable takes several)"
            )
        if self.model is not None and self.proxies is not None and (self.proxies.resources or self.resources).workers > 1:
            raise ValueError("proxies.resources.workers: expected 1 with model; found several")
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
    if config.proxies is not None and config.proxies.library is not None:
        library = config.proxies.library
        absolute = library.model_copy(update={"path": str(Path(library.path).expanduser().absolute())})
        changed["proxies"] = config.proxies.model_copy(update={"library": absolute})
    storage = config.ray.storage_path
    if storage is not None and "://" not in storage:
        changed["ray"] = config.ray.model_copy(update={"storage_path": str(Path(storage).expanduser().absolute())})
    space = config.search.space
    if isinstance(space, str) and Path(space).is_file():
        changed["search"] = config.search.model_copy(update={"space": str(Path(space).absolute())})
    return config.model_copy(update=changed)


def check_seeds(name: str, seeds: object) -> None:
    """Raise :class:`InputError` unless ``seeds``, called ``name``, is a number of seeds that can settle a tie."""
    if not isinstance(seeds, int) or isinstance(seeds, bool) or seeds < 2:
        raise InputError.at(name, "at least 2 seeds each (one cannot settle a tie)", seeds)


def dump_config(config: SweepConfig) -> str:
    """Return the resolved configuration as YAML: every default written out; reads back as the same configuration."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


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
    return f"{path}: expected {expected}; found {shown(problem['input'])}"


def _known_keys(loc: Sequence[str]) -> str:
    block: Any = SweepConfig
    for name in loc[:-1]:
        annotation = str(block.model_fields[name].annotation)
        kinds: list[type[Block]] = [*Block.__subclasses__(), ResourcesBlock]
        block = next(cls for cls in kinds if cls.__name__ in annotation)
    return "one of " + ", ".join(block.model_fields)


def _is_union_tag(part: object) -> bool:
    return isinstance(part, str) and ("[" in part or part in {"int", "str", "float"})
