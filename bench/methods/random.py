"""Random choice: every target is as good as any other."""

from __future__ import annotations

import numpy as np

from bench.methods.view import Prediction, TaskView


def predict(view: TaskView) -> Prediction:
    """Return equal scores: their expected hit and regret are those of a random choice."""
    return Prediction.ranking(np.zeros(len(view.targets)))
