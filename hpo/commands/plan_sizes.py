"""The sizes of a plan: members of a published family, decoders of stated shapes, bare counts, or what a budget buys."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from hpo.commands.plan_spec import PlanSpec
from hpo.core.planning import AGREE, Size, ladder_params, params_for_budget
from hpo.core.quantities import WHOLE, require_positive
from hpo.engine.config import InputError
from hpo.engine.config_blocks import ModelBlock
from hpo.engine.workload import restated
from proxies.architecture import Architecture
from proxies.families import FAMILIES, Member
from proxies.parameterisation import role_multipliers

BARE_SEQ_LEN = 2048
"""Context assumed where only N is known: the sequences in which the batch laws count."""
WIDEST = 4096
"""Heads tried when a width is looked for."""


@dataclass(frozen=True)
class FamilySize:
    """A size and, where known, its architecture; ``model`` is what a sweep's ``model`` block says of it."""

    size: Size
    architecture: Architecture | None = None

    @property
    def model(self) -> dict[str, Any] | None:
        """The ``model`` block of a sweep, or None for a bare parameter count."""
        if self.architecture is None:
            return None
        return {name: getattr(self.architecture, name) for name in ModelBlock.model_fields if name != "family"}


def sizes_of(spec: PlanSpec, tpp: float | None, compute: float | None) -> list[FamilySize]:
    """Return the sizes of ``spec``, smallest first as given; those of a budget follow from ``compute`` and ``tpp``.

    Raises
    ------
    InputError
        An unknown size, a shape that cannot be built, a missing quantity, or a ladder whose rungs coincide.
    """
    if spec.family in ("celerity", "collapse"):
        return _published(spec, FAMILIES[spec.family])
    if spec.params:
        bare = [_bare(n, spec) for n in _laddered(spec, spec.params)]
        _check_names(bare)
        return bare
    if spec.sizes:
        return _decoders(spec)
    if compute is None or tpp is None:
        raise InputError("tpp: expected tokens per parameter, to share a compute budget between size and tokens; found nothing")
    if "depth" in spec.model:
        return _ladder(_decoder_within(spec, compute, tpp), spec)
    return [_bare(n, spec) for n in _laddered(spec, [params_for_budget(compute, tpp)])]


def _published(spec: PlanSpec, members: Mapping[str, Member]) -> list[FamilySize]:
    if spec.ladder is not None:
        raise InputError(f"ladder: expected no ladder with the published sizes of {spec.family}; found one")
    chosen = members if spec.sizes is None else [str(name) for name in spec.sizes]
    for name in chosen:
        if name not in members:
            raise InputError.at("sizes", f"one of {', '.join(members)}", name)
        if list(chosen).count(name) > 1:
            raise InputError.at("sizes", "every size once", f"{name} twice")
    return [_of(name, members[name].architecture, members[name].seq_len, members[name].batch_sequences) for name in chosen]


def _decoders(spec: PlanSpec) -> list[FamilySize]:
    sizes = []
    for k, given in enumerate(spec.sizes or []):
        block: dict[str, Any] = dict(given) if isinstance(given, Mapping) else _shape(given)
        name, batch = block.pop("name", None), block.pop("batch_sequences", None)
        n_params = _stated_params(block.pop("n_params", None), f"sizes.{k}.n_params")
        if n_params is not None and not block:
            sizes.append(_bare(n_params, spec, name, batch))
            continue
        architecture = _architecture({**spec.model, **block}, f"sizes.{k}")
        _check_agreement(n_params, architecture, f"sizes.{k}.n_params")
        sizes.append(_of(name or _name(architecture), architecture, spec.data.seq_len, batch))
    _check_names(sizes)
    _check_shape_is_used(spec.model, [one.architecture for one in sizes])
    if spec.ladder is None:
        return sizes
    if len(sizes) != 1 or sizes[0].architecture is None:
        raise InputError.at("ladder", "one size with a width and a depth below which to put rungs", f"{len(sizes)} sizes")
    return _ladder(sizes[0], spec)


def _stated_params(value: Any, path: str) -> float | None:
    if value is None:
        return None
    try:
        require_positive(path, value)
    except ValueError:
        raise InputError.at(path, "a finite number above 0", value) from None
    return float(value)


def _check_agreement(n_params: float | None, architecture: Architecture, path: str) -> None:
    """Refuse a stated N that is not that of the shape beside it."""
    if n_params is not None and not math.isclose(n_params, architecture.n_params, rel_tol=AGREE):
        raise InputError.at(path, f"the {architecture.n_params:,} parameters of {_name(architecture)}, or no shape", n_params)


def _check_shape_is_used(model: Mapping[str, Any], architectures: Sequence[Architecture | None]) -> None:
    """Refuse a key of the ``model`` block that no size takes, because each states its own or has no shape."""
    for key, value in model.items():
        states = [getattr(one, key) for one in architectures if one is not None and hasattr(one, key)]
        if value not in states and (states or key != "family"):
            own = f"one that each size states itself ({states[0]})" if states else "bare parameter counts, without a shape"
            raise InputError(f"model.{key}: expected a value for sizes that do not state their own; found {value} beside {own}")


def _check_names(sizes: Sequence[FamilySize]) -> None:
    names = [one.size.name for one in sizes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError.at("sizes", "every size once, under a name of its own", f"{twice[0]} twice")


def _ladder(top: FamilySize, spec: PlanSpec) -> list[FamilySize]:
    """Return narrower models of the same depth, their parameters nearest to factor^k of the top's."""
    full, ladder = top.architecture, spec.ladder
    if full is None or ladder is None:
        return [top]
    rungs = [_nearest_width(full, n) for n in ladder_params(full.n_params, ladder.factor, ladder.rungs)[:-1]]
    widths = [rung.width for rung in rungs] + [full.width]
    if len(set(widths)) < len(widths):
        raise InputError.at("ladder", f"rungs of different widths, multiples of head_dim {full.head_dim}", f"widths {widths}")
    return [*(_of(_name(rung), rung, spec.data.seq_len) for rung in rungs), top]


def _decoder_within(spec: PlanSpec, compute: float, tpp: float) -> FamilySize:
    """Return the widest model whose exact training FLOPs at ``tpp`` fit the budget; of a target loss, the next width up."""
    seq_len = spec.data.seq_len
    head_dim = _architecture({**spec.model, "width": spec.model.get("head_dim", 16)}, "model").head_dim
    best = None
    for heads in range(1, WIDEST):
        one = _architecture({**spec.model, "width": heads * head_dim, "head_dim": head_dim}, "model")
        flops = one.flops_per_token(seq_len) * tpp * one.n_params
        if spec.target_loss is not None and flops >= compute:
            return _of(_name(one), one, seq_len)
        if flops > compute:
            break
        best = one
    if spec.target_loss is not None:
        found = f"a target loss that takes {compute:.3g} FLOPs"
        raise InputError.at("model", f"a shape of at most {WIDEST - 1} heads of size {head_dim} that reaches it", found)
    if best is None:
        raise InputError.at("compute", f"enough for one head of size {head_dim} at tpp {tpp:g}", f"{compute:g}")
    return _of(_name(best), best, seq_len)


def _nearest_width(full: Architecture, n_params: float) -> Architecture:
    narrower = [_resized(full, heads * full.head_dim) for heads in range(1, full.n_heads + 1)]
    return min(narrower, key=lambda a: abs(math.log(a.n_params / n_params)))


def _resized(full: Architecture, width: int) -> Architecture:
    return Architecture(**{**vars(full), "width": width})


def _bare(n_params: Any, spec: PlanSpec, name: str | None = None, batch: int | None = None) -> FamilySize:
    seq_len = spec.data.seq_len if "seq_len" in spec.data.model_fields_set else BARE_SEQ_LEN
    try:
        return FamilySize(Size(name=name or f"{n_params:.3g}", n_params=n_params, seq_len=seq_len, batch_sequences=batch))
    except (ValueError, TypeError) as error:
        raise restated(ValueError(str(error))) from None


def _of(name: str, architecture: Architecture, seq_len: int, batch: int | None = None) -> FamilySize:
    size = Size(
        name=name,
        n_params=architecture.n_params,
        seq_len=seq_len,
        flops_per_token=architecture.flops_per_token(seq_len),
        batch_sequences=batch,
        hidden_lr_factor=role_multipliers(architecture, "hidden_matrix").lr,
    )
    return FamilySize(size, architecture)


def _architecture(model: Mapping[str, Any], path: str) -> Architecture:
    """Return the architecture of a ``model`` block, with the sweep's defaults."""
    try:
        block = ModelBlock.model_validate(dict(model))
        for name, value in block:
            if isinstance(value, int) and value >= WHOLE:
                raise InputError.at(f"{path}.{name}", f"a whole number below {WHOLE}", f"one of {len(str(value))} digits")
        return Architecture(**block.model_dump(exclude={"family"}))
    except ValidationError as error:
        problem = min(error.errors(include_url=False), key=lambda one: one["type"] == "missing")  # a misspelt key first
        key = f"{path}.{problem['loc'][0]}"
        if problem["type"] == "extra_forbidden":
            raise InputError.at(key, f"one of {', '.join(ModelBlock.model_fields)}", "an unknown key") from None
        if problem["type"] == "missing":
            raise InputError.at(key, "a value", "nothing") from None
        raise InputError.at(key, str(problem["msg"]).removeprefix("Input should be "), problem["input"]) from None
    except ValueError as error:
        raise restated(error) from None


def _shape(text: str) -> dict[str, int]:
    found = re.fullmatch(r"(\d+)x(\d+)", text.strip())
    if found is None:
        raise InputError.at("sizes", "WIDTHxDEPTH, such as 64x3, or the sizes of a published --family", text)
    return {"width": int(found[1]), "depth": int(found[2])}


def _laddered(spec: PlanSpec, params: Sequence[float]) -> list[float]:
    if spec.ladder is None:
        return list(params)
    if len(params) != 1:
        raise InputError.at("ladder", "one size below which to put rungs", f"{len(params)} sizes")
    return ladder_params(params[0], spec.ladder.factor, spec.ladder.rungs)


def _name(architecture: Architecture) -> str:
    return f"{architecture.width}x{architecture.depth}"
