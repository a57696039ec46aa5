"""The product's model, driven through its public interface: fit on the references, forecast the targets jointly.

``landscape`` is the model with its default settings; ``shape`` leaves out what the references' final values say of the targets.
"""

from __future__ import annotations

import numpy as np

from bench.methods.view import Prediction, TaskView, names
from hpo.core.curve import Curve
from hpo.core.forecast import Forecast
from hpo.core.model import CollapseModel
from hpo.core.model_settings import ModelSettings

_Z90 = 1.6448536269514722


def predict_shape(view: TaskView) -> Prediction:
    """Return the joint forecasts of the shape alone; a run that it does not judge has no score."""
    return predict_with(view, "shape", ModelSettings(landscape=False))


def predict_landscape(view: TaskView) -> Prediction:
    """Return the joint forecasts of the whole model; a run that it does not judge has no score."""
    return predict_with(view, "landscape", ModelSettings())


def predict_with(view: TaskView, label: str, settings: ModelSettings) -> Prediction:
    """Return the forecasts of a collapse model with ``settings``; ``label`` names its fits within the replay."""
    model = view.remember((label, *names(view.references)), lambda: CollapseModel.fit(view.references, settings))
    sweep = model.forecast_many(view.targets, view.rng)
    laws = np.array([_law(f, c) for f, c in zip(sweep.forecasts, view.targets, strict=True)]).reshape(-1, 3)
    score = np.where([f.status == "non_finite" for f in sweep.forecasts], np.inf, laws[:, 0])
    return Prediction(score, laws[:, 0], laws[:, 1], laws[:, 2], sweep.draws)


def _law(forecast: Forecast, curve: Curve) -> tuple[float, float, float]:
    """Return location, scale and degrees of freedom on the model's scale."""
    if forecast.final_loss is None:
        return (np.nan, np.nan, np.nan)
    if forecast.level is not None and forecast.level_sd is not None:
        return (forecast.level, forecast.level_sd, np.inf if forecast.dof is None else forecast.dof)
    ends = curve.metric.to_model([forecast.final_loss, forecast.lower or np.nan, forecast.upper or np.nan])
    return (float(ends[0]), float(abs(ends[2] - ends[1])) / (2 * _Z90), np.inf)
