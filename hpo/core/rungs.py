"""The rule ``select`` in several looks: stop the hopeless early, look at the doubtful again.

At the first fraction all trials are judged together, as :func:`hpo.core.decision.select` does; those that may be the best train
on to the next fraction and are judged again, those stopped serving as evidence where they are. The error budget stays one for
the whole sweep: each look may spend an equal share of what the looks before it left, and what a look does not need is left to
those after it, where forecasts are sharper. ``keep_max`` says how many go to their *end*, so it cuts at the last look only.

With one look this is :func:`~hpo.core.decision.select`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpo.core.curve import Curve
from hpo.core.decision import Selection, StoppingSettings, select
from hpo.core.forecast import SweepForecast

_NOTHING = 1e-12
"""Stands for an error budget that is used up: a settings' ``alpha`` is above 0."""


def select_at_look(
    curves: Sequence[Curve],
    forecast: SweepForecast,
    settings: StoppingSettings,
    *,
    going: Sequence[int],
    error_spent: float,
    looks_left: int,
) -> Selection:
    """Return which of the trials that are still ``going`` go on from this look.

    Parameters
    ----------
    curves : sequence of Curve
        Every trial as far as it was trained, the stopped ones too.
    forecast : SweepForecast
        Of them, made together.
    going : sequence of int
        Positions of the trials to be judged; all others were stopped before.
    error_spent : float
        Sum of P(best) over those, each as it was when it was stopped.
    looks_left : int
        This look and those after it.

    Returns
    -------
    Selection
        Its positions are those in ``going``. P(best) is among these trials: the best may be stopped already, so the sum over
        all that a sweep stops is bounded from above.

    Raises
    ------
    ValueError
        ``looks_left`` below 1.
    """
    if looks_left < 1:
        raise ValueError(f"looks_left must be at least 1; found {looks_left}")
    left = max(settings.alpha - error_spent, _NOTHING)
    is_last = looks_left == 1
    here = replace(settings, alpha=left / looks_left, keep_max=settings.keep_max if is_last else None)
    positions = list(going)
    among = SweepForecast(
        tuple(forecast.forecasts[i] for i in positions), forecast.p_best[positions], forecast.draws[:, positions]
    )
    return select([curves[i] for i in positions], among, here)
