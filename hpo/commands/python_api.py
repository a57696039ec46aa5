"""``hpo.sweep``: a sweep over a training function of one's own, from Python.

The same sweep as ``hpo sweep`` runs, with the same run folder: it can be resumed by the command too where the function can be
imported there. A function of a script or a notebook is sent to the workers as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from hpo.core.session import Session

if TYPE_CHECKING:
    from hpo.engine.config import SweepConfig

TrainingFunction = Callable[[Mapping[str, Any], Session], None]


@dataclass(frozen=True)
class SweepOutcome:
    """How a sweep ended.

    Attributes
    ----------
    winner : dict
        The searched values of the winner.
    final_loss : float
        Its final loss.
    folder : Path
        The run folder; ``winner.yaml`` in it runs the winner again.
    result : dict
        The content of ``result.json``: every trial, the forecasts, the compute.
    """

    winner: dict[str, Any]
    final_loss: float
    folder: Path
    result: dict[str, Any]


def sweep(
    train: TrainingFunction,
    space: str | Path | Mapping[str, Any],
    *,
    target: Mapping[str, Any],
    proxies: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    retry_failed: bool = False,
    verify: bool = False,
    settle: int = 0,
    **settings: Any,
) -> SweepOutcome:
    """Sweep a training function ``train(settings, session)`` and return the winner.

    Parameters
    ----------
    train : callable
        Reports every step to its :class:`hpo.Session`, offers checkpoints, and leaves when asked to.
    space : str, path or mapping
        A built-in space's name, a YAML file, a mapping of the same form, or a mapping of names to Optuna distributions.
    target : mapping
        Settings of the target run; the searched values are laid over them. ``n_steps``, ``n_params`` and ``batch_tokens`` tell
        what a run costs, or ``recipe`` names a function that does.
    proxies : mapping, optional
        ``sizes`` (settings that differ from the target's, a mapping a size) and ``settings`` (how many points each trains).
        Only with ``stopping="prune"`` can a sweep do without.
    out : path, optional
        The run folder, new; default ``runs/<name>-<time>``.
    resume : bool
        Go on with the sweep in ``out`` as it was configured there.
    retry_failed, verify, settle
        As the options of ``hpo sweep``.
    **settings
        Any other key of a configuration: ``stopping``, ``resources``, ``time_budget``, ``name``, ``seed``, ….

    Raises
    ------
    ValueError
        Something is wrong with the configuration; one line names it.
    SweepError
        No candidate could be trained to its end; or, an ``OutsideError``, Ray or the storage failed: ``resume=True`` goes on.
    """
    from hpo.commands.sweep_display import displayed
    from hpo.engine.config import InputError, check_seeds
    from hpo.engine.plan import plan_sweep
    from hpo.engine.run_folder import discard, existing_run_folder, locked, new_run_folder
    from hpo.engine.sweep import SweepError, run_sweep

    if not callable(train):
        raise ValueError(f"train must be a function train(settings, session); found {train!r}")
    if out is not None and not isinstance(out, str | PathLike):
        raise ValueError(f"out must be the path of the run folder; found {out!r}")
    if resume and out is None:
        raise ValueError("out must name the run folder to go on with; found None")
    if retry_failed and not resume:
        raise ValueError("retry_failed needs resume=True; found a new sweep")
    if settle != 0:
        check_seeds("settle", settle)
    config = _config(train, space, target, proxies, settings)
    folder = existing_run_folder(Path(out)) if resume and out is not None else None
    plan = plan_sweep(config if folder is None else folder.read_config(), None if _is_importable(train) else train)
    folder = folder or new_run_folder(None if out is None else Path(out), config)
    try:
        with locked(folder), displayed(plan, folder) as progress:
            how: dict[str, Any] = {"retry_failed": retry_failed, "verify": verify, "settle": settle}
            result = run_sweep(plan, folder, progress, resume=resume, **how)
    except InputError:  # before anything was trained: the storage, or a machine too small
        if not resume:
            discard(folder)
        raise
    if result["winner"] is None:
        raise SweepError("the sweep has no winner")
    return SweepOutcome(dict(result["winner"]), float(result["actual_final_loss"]), folder.path, result)


def _config(
    train: TrainingFunction,
    space: str | Path | Mapping[str, Any],
    target: Mapping[str, Any],
    proxies: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
) -> SweepConfig:
    from hpo.engine.config import parse_config, with_absolute_paths

    if "trainable" in settings:
        raise ValueError(f"trainable must not be given beside the function itself; found {settings['trainable']!r:.80}")
    search = {**_mapping("search", settings.get("search", {})), "space": _as_space(space)}
    given: dict[str, Any] = {
        "name": _label(train).rsplit(":", 1)[-1].replace("_", "-"),
        **{key: value for key, value in settings.items() if key != "search"},
        "trainable": _label(train),
        "target": _mapping("target", target),
        "search": search,
        "proxies": None if proxies is None else _mapping("proxies", proxies),
    }
    return with_absolute_paths(parse_config({key: _plain(key, value) for key, value in given.items()}))


def _mapping(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a mapping of names to values; found {value!r:.80}")
    return dict(value)


def _plain(name: str, value: Any) -> Any:
    """Return a value as a configuration's file holds it: NumPy's numbers as Python's, paths as text, tuples as lists.

    Raises
    ------
    ValueError
        It cannot be written to a file; its name in the configuration is told.
    """
    if isinstance(value, Mapping):
        return {key: _plain(f"{name}.{key}", one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(f"{name}.{i}", one) for i, one in enumerate(value)]
    if isinstance(value, PurePath):
        return str(value)
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return value.item()
    if "." not in name or value is None or isinstance(value, str | int | float):  # its keys are checked by their names
        return value
    raise ValueError(f"{name} must be a number, a text, or a list or mapping of such; found {value!r:.80}")


def _label(train: TrainingFunction) -> str:
    """Return ``module:function``, the label under which its curves are compared."""
    module = getattr(train, "__module__", None) or "__main__"
    name = getattr(train, "__qualname__", type(train).__qualname__).rsplit(".", 1)[-1].strip("<>")
    return f"{module}:{name}"


def _is_importable(train: TrainingFunction) -> bool:
    """Return True if another process finds this very function under its label."""
    module, _, name = _label(train).partition(":")
    return module != "__main__" and getattr(sys.modules.get(module), name, None) is train


def _as_space(space: str | Path | Mapping[str, Any]) -> str | dict[str, Any]:
    if isinstance(space, str | Path):
        return str(space)
    if not isinstance(space, Mapping):
        raise ValueError(f"space must be a name, a file, or a mapping of names to parameters; found {space!r:.80}")
    if "parameters" in space:
        return dict(space)
    return {"parameters": {name: _as_parameter(name, value) for name, value in space.items()}}


def _as_parameter(name: str, value: Any) -> dict[str, Any]:
    """Return an Optuna distribution, or a parameter's mapping, as a parameter of a space."""
    if isinstance(value, Mapping):
        return dict(value)
    kinds = {"FloatDistribution": "float", "IntDistribution": "int", "CategoricalDistribution": "categorical"}
    kind = kinds.get(type(value).__name__)
    if kind is None:
        raise ValueError(f"space.{name} must be an Optuna distribution or a mapping with a type; found {value!r}")
    if kind == "categorical":
        return {"type": kind, "choices": list(value.choices)}
    scale = {"log": True} if value.log else {} if value.step is None else {"step": value.step}
    return {"type": kind, "low": value.low, "high": value.high, **scale}
