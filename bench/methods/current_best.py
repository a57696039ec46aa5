"""Current best: the lowest loss so far, what every usual pruner ranks by.

As a forecast it says that the value stays what it is; its interval comes from how wrong that is on the references.
"""

from __future__ import annotations

import numpy as np

from bench.methods.view import Prediction, TaskView, current_levels, final_levels, residual_sd


def predict(view: TaskView) -> Prediction:
    """Return the values so far (the mean over the end window for a noisy train loss) as scores and forecasts."""
    level = current_levels(view.targets)
    errors = current_levels(view.reference_prefixes) - final_levels(view.references) if view.references else np.zeros(0)
    made = Prediction.gaussian(np.where(np.isfinite(level), level, np.nan), residual_sd(errors))
    return Prediction(level, made.level, made.sd, made.dof)
