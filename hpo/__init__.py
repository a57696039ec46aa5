"""Forecast a training run's final loss from its first 10-30 %, and stop what cannot win.

A loss curve divided by its own final loss, against the fraction of training done, is the same curve for small and large
models whose tokens per parameter, AdamW timescale and learning-rate schedule match. Cheap proxy runs teach that curve; a
prefix of an expensive run, aligned to it, gives the run's final loss with an interval.

The way through the package: a :class:`Curve` (one run's steps and losses, with its :class:`Recipe`) → a
:class:`CollapseModel` fitted on references → a :class:`Forecast` → a :class:`Decision`. :class:`CollapsePruner` does all
of it inside an Optuna study.

Names are loaded when first used (PEP 562): ``import hpo`` alone loads neither NumPy nor torch, Ray or Optuna.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpo.adapters.curve_files import RecordedRun, read_runs
    from hpo.adapters.optuna_live import attach, finish, report
    from hpo.adapters.optuna_pruner import CollapsePruner
    from hpo.adapters.optuna_sampler import ForecastSampler
    from hpo.adapters.ray_scheduler import CollapseScheduler
    from hpo.adapters.ray_search import CollapseSearch
    from hpo.adapters.smoke_alarm import SmokeAlarm
    from hpo.commands.python_api import SweepOutcome, sweep
    from hpo.core.check import check_curves
    from hpo.core.curve import Curve
    from hpo.core.decision import Decision, Selection, StoppingSettings, SweepState, decide, select
    from hpo.core.forecast import Forecast, SweepForecast
    from hpo.core.metric import Metric
    from hpo.core.model import CollapseModel
    from hpo.core.model_settings import ModelSettings
    from hpo.core.monitor import Monitor
    from hpo.core.recipe import Recipe
    from hpo.core.schedules import Schedule, schedule
    from hpo.core.session import Session, StopTraining
    from hpo.reporting.forecast_figure import plot_forecasts

    __version__: str

_HOMES = {
    "CollapseModel": "hpo.core.model",
    "CollapsePruner": "hpo.adapters.optuna_pruner",
    "CollapseScheduler": "hpo.adapters.ray_scheduler",
    "CollapseSearch": "hpo.adapters.ray_search",
    "Curve": "hpo.core.curve",
    "Decision": "hpo.core.decision",
    "Forecast": "hpo.core.forecast",
    "ForecastSampler": "hpo.adapters.optuna_sampler",
    "Metric": "hpo.core.metric",
    "Monitor": "hpo.core.monitor",
    "ModelSettings": "hpo.core.model_settings",
    "Recipe": "hpo.core.recipe",
    "RecordedRun": "hpo.adapters.curve_files",
    "Schedule": "hpo.core.schedules",
    "Selection": "hpo.core.decision",
    "Session": "hpo.core.session",
    "SmokeAlarm": "hpo.adapters.smoke_alarm",
    "StopTraining": "hpo.core.session",
    "StoppingSettings": "hpo.core.decision",
    "SweepForecast": "hpo.core.forecast",
    "SweepOutcome": "hpo.commands.python_api",
    "SweepState": "hpo.core.decision",
    "attach": "hpo.adapters.optuna_live",
    "check_curves": "hpo.core.check",
    "decide": "hpo.core.decision",
    "finish": "hpo.adapters.optuna_live",
    "plot_forecasts": "hpo.reporting.forecast_figure",
    "read_runs": "hpo.adapters.curve_files",
    "report": "hpo.adapters.optuna_live",
    "schedule": "hpo.core.schedules",
    "select": "hpo.core.decision",
    "sweep": "hpo.commands.python_api",
}

_EXTRAS = {"ray": "sweep", "torch": "sweep", "plotly": "plots"}
"""Packages beyond the core, and the extra of this distribution that installs each."""

__all__ = [
    "CollapseModel",
    "CollapsePruner",
    "CollapseScheduler",
    "CollapseSearch",
    "Curve",
    "Decision",
    "Forecast",
    "ForecastSampler",
    "Metric",
    "ModelSettings",
    "Monitor",
    "Recipe",
    "RecordedRun",
    "Schedule",
    "Selection",
    "Session",
    "SmokeAlarm",
    "StopTraining",
    "StoppingSettings",
    "SweepForecast",
    "SweepOutcome",
    "SweepState",
    "__version__",
    "attach",
    "check_curves",
    "decide",
    "finish",
    "plot_forecasts",
    "read_runs",
    "report",
    "schedule",
    "select",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _HOMES:
        value = getattr(_home_of(name), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # the next access does not come here
    return value


def _home_of(name: str) -> Any:
    """Return the module of a public name; what it needs beyond the core is named with the extra that brings it."""
    try:
        return import_module(_HOMES[name])
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        extra = f"pip install 'collapse-hpo[{_EXTRAS[package]}]'"
        raise ModuleNotFoundError(f"hpo.{name} needs {package}, which is not installed: {extra}", name=error.name) from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("collapse-hpo")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0.0.0+source"
