"""The pictures of ``docs/monitor.md``: one synthetic run of a family, healthy and with each kind of fault.

python -m hpo.reporting.monitor_pictures docs/monitor
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hpo.core.curve import Curve
from hpo.core.model import CollapseModel
from hpo.core.monitor import Monitor, Status, with_validation
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule
from hpo.reporting.monitor_figure import monitor_figure

FloatArray = NDArray[np.float64]
STEPS = 2000
T: FloatArray = np.arange(1, STEPS + 1) / STEPS
RECIPE = Recipe(
    schedule=schedule("linear"), n_params=1e8, n_tokens=2e9, batch_tokens=1e6, lr=1e-3, weight_decay=0.1, warmup_fraction=0.02
)
FAULTS: dict[str, FloatArray] = {
    "healthy": np.zeros(STEPS),
    "step": np.where(T >= 0.6, 0.01, 0.0),
    "drift": 0.08 * np.maximum(T - 0.6, 0.0),
    "spike": np.where((T >= 0.5) & (T < 0.508), 0.08, 0.0),
    "restart": np.where(T >= 0.5, 0.07 * np.exp(-(T - 0.5) / 0.02), 0.0),
    "wrong_lr": np.where(T >= 0.5, -0.015, 0.0),
    "repeated_data": -0.08 * np.maximum(T - 0.6, 0.0),
    "overfitting": -0.12 * np.maximum(T - 0.5, 0.0),
}


def losses(final: float, seed: int, fault: FloatArray) -> FloatArray:
    """Return the losses of a run of the family, noise 1 % a step."""
    shape = 1 + 0.25 * (1 - T) + 0.3 * np.exp(-12 * T)
    noise = 0.01 * np.random.default_rng(seed).standard_normal(STEPS)
    return np.asarray(final * shape * np.exp(noise + fault), dtype=np.float64)


def _healthy_validation(model: CollapseModel) -> Status:
    """Return the status of a loss that stays on the curve, as the validation loss of a run that overfits need not sink."""
    monitor = Monitor(model, RECIPE)
    for step, loss in enumerate(losses(2.8, 10, FAULTS["healthy"]).tolist(), start=1):
        monitor.update(step, loss)
    return monitor.judge()


def main(folder: Path) -> None:
    """Write one SVG a kind of fault into ``folder``."""
    steps = np.arange(1, STEPS + 1)
    family = [
        Curve.from_points(steps, losses(3.5 - 0.1 * k, k, FAULTS["healthy"]), horizon=STEPS, recipe=RECIPE, run_id=str(k))
        for k in range(5)
    ]
    model = CollapseModel.fit(family)
    for name, fault in FAULTS.items():
        monitor = Monitor(model, RECIPE)
        for step, loss in zip(steps.tolist(), losses(2.8, 9, fault).tolist(), strict=True):
            monitor.update(step, loss)
        status = monitor.judge()
        if name == "overfitting":
            status = with_validation(status, _healthy_validation(model))
        title = f"{name}: {status.status}" + ("" if status.size_pct is None else f", {status.size_pct:+.2f} % of the loss")
        (folder / f"{name}.svg").write_text(monitor_figure(status, title), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
