"""What a plan is made from: a YAML file, options of the command line, or both; the options win.

Both are laid into one mapping and checked once, so a mistake reads the same wherever it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from hpo.core.quantities import LARGEST, SMALLEST, WHOLE
from hpo.engine.config import InputError, read_yaml
from hpo.engine.config_blocks import DataBlock, as_schedule


def _within_bounds(value: float) -> float:
    if not SMALLEST <= value <= LARGEST:
        raise ValueError(f"expected within {SMALLEST:g} and {LARGEST:g}; found {value:g}")
    return value


PositiveInt = Annotated[int, Field(gt=0, lt=WHOLE)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False), AfterValidator(_within_bounds)]
NamedBatch = Literal["published", "optimal", "sqrt"]


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Ladder(_Block):
    """Smaller sizes below the one given: ``rungs`` of them, each ``factor`` times the parameters of the next."""

    factor: Annotated[float, Field(gt=0, lt=1)]
    rungs: PositiveInt = 2


class PlanSpec(_Block):
    """A family and the rules of its plan. See ``docs/family.md`` for every key with examples."""

    name: str = "plan"
    family: Literal["decoder", "celerity", "collapse"] | None = None
    sizes: list[str | dict[str, Any]] | None = None
    params: list[PositiveFloat] | None = None
    ladder: Ladder | None = None
    model: dict[str, Any] = Field(default_factory=dict)
    data: DataBlock = Field(default_factory=DataBlock)
    tpp: list[PositiveFloat] | None = None
    tokens: PositiveFloat | None = None
    compute: PositiveFloat | None = None
    target_loss: PositiveFloat | None = None
    loss_law: str = "celerity"
    tau: PositiveFloat | str | None = None
    batch: PositiveInt | NamedBatch | None = None
    critical_batch: PositiveFloat | None = None
    lr: PositiveFloat | None = None
    schedule: dict[str, Any] = Field(default_factory=lambda: {"name": "linear"})
    warmup_fraction: Annotated[float, Field(ge=0, lt=1)] | None = None
    warmup_max_tokens: PositiveFloat | None = None
    flops_per_s: PositiveFloat | None = None
    price_per_hour: PositiveFloat | None = None
    extrapolate: bool = False

    @field_validator("tpp", "params", "sizes", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, int | float | str) and not isinstance(value, bool) else value

    @field_validator("tpp")
    @classmethod
    def _each_once(cls, value: list[float] | None) -> list[float] | None:
        if value is not None and len(set(value)) < len(value):
            twice = next(x for x in value if value.count(x) > 1)
            raise ValueError(f"expected every value once; found {twice:g} twice")
        return value

    @field_validator("schedule", mode="before")
    @classmethod
    def _schedule_is_known(cls, value: object) -> object:
        block = {"name": value} if isinstance(value, str) else value
        if isinstance(block, Mapping):
            as_schedule(block)
        return block

    @model_validator(mode="after")
    def _some_size(self) -> PlanSpec:
        budget = self.compute if self.compute is not None else self.target_loss
        if self.family in (None, "decoder") and not (self.sizes or self.params or budget):
            raise ValueError("sizes: expected a family, sizes, params, compute or target_loss; found none of them")
        if self.sizes and self.params:
            raise ValueError("params: expected sizes or params, not both; found both")
        if self.params and self.family is not None:
            raise ValueError(f"params: expected no family with bare parameter counts; found {self.family}")
        if self.model and (self.params or self.family not in (None, "decoder")):
            what = "bare parameter counts" if self.params else f"the published family {self.family}"
            raise ValueError(f"model.{next(iter(self.model))}: expected no shape beside {what}; found one")
        if self.model and not self.sizes and "depth" not in self.model:
            raise ValueError(
                f"model.{next(iter(self.model))}: expected model.depth beside it, for a shape to follow; found none"
            )
        if self.compute is not None and self.target_loss is not None:
            raise ValueError("target_loss: expected compute or target_loss, not both; found both")
        if self.price_per_hour is not None and self.flops_per_s is None:
            raise ValueError("flops_per_s: expected a value beside price_per_hour; found nothing")
        if self.data.seq_len >= WHOLE:
            raise ValueError(f"data.seq_len: expected below {WHOLE}; found {len(str(self.data.seq_len))} digits")
        return self

    @model_validator(mode="after")
    def _nothing_unused(self) -> PlanSpec:
        if self.family in ("celerity", "collapse") and "seq_len" in self.data.model_fields_set:
            found = self.data.seq_len
            raise ValueError(f"data.seq_len: expected none beside the published family {self.family}; found {found}")
        if self.target_loss is None and "loss_law" in self.model_fields_set:
            raise ValueError(f"loss_law: expected target_loss beside it; found {self.loss_law} alone")
        return self


def read_spec(path: Path | None, options: Mapping[str, Any]) -> PlanSpec:
    """Return the checked specification of a file with ``options`` laid over it; an option of None is not given.

    Raises
    ------
    InputError
        A wrong key or value: one line naming it, what was expected and what was found.
    """
    data = {} if path is None else read_yaml(path)
    for key, value in options.items():
        if value is None:
            continue
        if isinstance(value, Mapping) and isinstance(data.get(key), Mapping):
            data[key] = {**data[key], **value}
        else:
            data[key] = value
    try:
        return PlanSpec.model_validate(data)
    except ValidationError as error:
        raise _first_problem(error) from None


def _first_problem(error: ValidationError) -> InputError:
    problem = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in problem["loc"] if not _is_union_tag(part)) or "plan"
    kind, message = problem["type"], str(problem["msg"])
    if kind == "extra_forbidden":
        keys = (
            DataBlock.model_fields if path.startswith("data.") else Ladder.model_fields if path.startswith("ladder.") else None
        )
        return InputError.at(path, f"one of {', '.join(keys or PlanSpec.model_fields)}", "an unknown key")
    if kind == "missing":
        return InputError.at(path, "a value", "nothing")
    if kind == "value_error":
        inner = message.removeprefix("Value error, ")
        return InputError(inner if path == "plan" else f"{path}: {inner}")
    expected = message.removeprefix("Input should be ")
    if path == "batch":
        expected = "a whole number of sequences above 0, published, optimal or sqrt"
    return InputError.at(path, expected, problem["input"])


def _is_union_tag(part: object) -> bool:
    return isinstance(part, str) and ("[" in part or part.startswith("constrained") or part in {"int", "str", "float"})
