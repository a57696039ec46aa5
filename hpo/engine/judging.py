"""Who goes on: the forecast's choice, and what two simpler rules would have chosen at the same point.

*Current best* takes the candidate with the lowest loss so far. *Transfer* does not look at the candidates at all: it takes
the settings that were best on the proxies. A forecast that beats neither has shown nothing, so both are always reported.

A sweep is judged once, or, with rungs, once a look. Its verdicts are what ``decisions.jsonl`` holds, and a resume reads them
there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np

from hpo.adapters.blas_threads import in_one_blas_thread
from hpo.core.curve import Curve
from hpo.core.decision import StoppingSettings
from hpo.core.forecast import Forecast
from hpo.core.model import CollapseModel
from hpo.core.rungs import select_at_look
from hpo.core.usual_rise import without_usual_rise
from hpo.engine.plan import Run, distances
from hpo.engine.study_record import finite_or_none


@dataclass(frozen=True)
class Verdict:
    """What was decided about one candidate, and on what.

    Attributes
    ----------
    time : str
        When, in UTC.
    trial : int
        Its trial's number in the study.
    run : str
        Its name.
    action, reason : str
        As of :class:`hpo.core.decision.Decision`.
    numbers : dict
        What the decision rests on: fraction, forecast, interval, P(best), family, number of references.
    current_loss : float or None
        The loss so far (mean of the last 1 % of training, at least 5 points); None if it is not finite.
    forecast : dict
        Status, final loss, sd, interval, misfit, family, number of references and P(best).
    is_tied : bool
        In the smallest set that holds the best with probability at least 1 − α.
    rank : int or None
        Order among those that go on.
    look : int
        0 at the stopping fraction, k at the k-th rung beyond it.
    """

    time: str
    trial: int
    run: str
    action: str
    reason: str
    numbers: dict[str, Any]
    current_loss: float | None
    forecast: dict[str, Any]
    is_tied: bool
    rank: int | None
    look: int = 0

    @property
    def p_best(self) -> float:
        """Probability that it would have ended best; 0 where it was not judged."""
        return float(self.numbers.get("p_best") or 0.0)

    @property
    def is_by_forecast(self) -> bool:
        """True if it was stopped, and by its forecast alone."""
        return self.reason in ("not_selected", "capped")

    @property
    def told(self) -> dict[str, Any]:
        """The numbers for people: what the decision rests on, the forecast, and whether it is tied."""
        return {**self.numbers, **self.forecast, "is_tied": self.is_tied}

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return asdict(self)


@dataclass(frozen=True)
class Look:
    """One of the looks of a sweep.

    Attributes
    ----------
    number : int
        0 at the stopping fraction, k at the k-th rung.
    n_later : int
        How many looks come after it.
    going : collection of str, optional
        Names of those that are judged; None: all. The others are evidence.
    error_spent : float
        What earlier looks have spent.
    """

    number: int = 0
    n_later: int = 0
    going: Collection[str] | None = None
    error_spent: float = 0.0


@dataclass(frozen=True)
class Judgement:
    """The last verdict on each candidate, in the order of the candidates, and those that they replaced."""

    verdicts: tuple[Verdict, ...]
    earlier: tuple[Verdict, ...] = ()

    @classmethod
    def read(cls, lines: Sequence[Mapping[str, Any]]) -> Judgement:
        """Return the judgement of :meth:`to_lines`; of several verdicts on a candidate the last holds."""
        verdicts = [Verdict(**line) for line in lines]
        place = {verdict.run: i for i, verdict in enumerate(verdicts)}
        last = [verdict for i, verdict in enumerate(verdicts) if place[verdict.run] == i]
        earlier = tuple(verdict for i, verdict in enumerate(verdicts) if place[verdict.run] != i)
        return cls(tuple(sorted(last, key=lambda verdict: verdict.trial)), earlier)

    def to_lines(self) -> list[dict[str, Any]]:
        """Return one JSON-ready record a verdict, in the order in which they were made."""
        return [verdict.to_dict() for verdict in (*self.earlier, *self.verdicts)]

    @property
    def first(self) -> list[Verdict]:
        """The first verdict on each candidate: all of them at one fraction."""
        by_run = {verdict.run: verdict for verdict in reversed((*self.earlier, *self.verdicts))}
        return [by_run[verdict.run] for verdict in self.verdicts]

    @property
    def look(self) -> int:
        """The last look that was made."""
        return max((verdict.look for verdict in self.verdicts), default=0)

    @property
    def kept(self) -> list[Verdict]:
        """Those that go on, the likeliest winner first, those that could not be judged last."""
        return sorted((v for v in self.verdicts if v.rank is not None), key=lambda v: v.rank or 0)

    @property
    def reserve(self) -> list[Verdict]:
        """Those that were stopped by their forecast alone, the likeliest winner first."""
        return sorted((v for v in self.verdicts if v.is_by_forecast), key=lambda v: -v.p_best)

    @property
    def error_spent(self) -> float:
        """Sum of P(best) over the stopped candidates."""
        return sum(v.p_best for v in self.verdicts if v.action == "stop")

    def replaced(self, others: Sequence[Verdict]) -> Judgement:
        """Return the judgement with later verdicts on some of its runs in place of the earlier ones."""
        later = {verdict.run: verdict for verdict in others}
        replaced = [verdict for verdict in self.verdicts if verdict.run in later]
        return Judgement(tuple(later.get(v.run, v) for v in self.verdicts), (*self.earlier, *replaced))

    @property
    def tie_set(self) -> list[int]:
        """Numbers of the trials that the forecasts cannot tell apart."""
        return [v.trial for v in self.verdicts if v.is_tied]


@in_one_blas_thread
def judge(
    model: CollapseModel,
    curves: Sequence[Curve],
    trials: Sequence[int],
    settings: StoppingSettings,
    seed: int,
    look: Look | None = None,
) -> Judgement:
    """Return the verdicts on candidates from their ``curves``, cut where they are to be judged; deterministic in ``seed``.

    ``trials`` are their numbers in the study. Without a ``look`` it is the only one, and all are judged.
    """
    look = look or Look()
    curves = [without_usual_rise(curve, model.references) for curve in curves]
    sweep = model.forecast_many(curves, np.random.default_rng(seed))
    going = [i for i, curve in enumerate(curves) if look.going is None or curve.run_id in look.going]
    selection = select_at_look(curves, sweep, settings, going=going, error_spent=look.error_spent, looks_left=look.n_later + 1)
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    rank = {position: k for k, position in enumerate(selection.kept)}
    verdicts = []
    for k, (i, decision) in enumerate(zip(going, selection.decisions, strict=True)):
        curve, record = curves[i], _forecast_record(sweep.forecasts[i])
        verdicts.append(
            Verdict(
                time=now,
                trial=trials[i],
                run=curve.run_id,
                action=decision.action,
                reason=decision.reason,
                numbers=_finite(decision.numbers),
                current_loss=None if curve.nonfinite_step is not None else finite_or_none(curve.current_value),
                forecast=_finite({**record, "p_best": decision.numbers.get("p_best")}),
                is_tied=k in selection.tie_set,
                rank=rank.get(k),
                look=look.number,
            )
        )
    return Judgement(tuple(verdicts))


def current_best(judgement: Judgement) -> str | None:
    """Return the name of the candidate with the lowest loss at the first look, the first of equals; None if none is finite."""
    finite = [v for v in judgement.first if v.current_loss is not None]
    return min(finite, key=lambda v: v.current_loss or 0.0).run if finite else None


def transfer(candidates: Sequence[Run], proxies: Sequence[Run], final_losses: Mapping[str, float]) -> str | None:
    """Return the name of the candidate with the best :func:`transfer_scores`; None without a finished proxy."""
    scores = transfer_scores(candidates, proxies, final_losses)
    return min(scores, key=lambda name: scores[name], default=None)


def transfer_scores(
    candidates: Sequence[Run], proxies: Sequence[Run], final_losses: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """Return how good each candidate's settings were on the proxies, by name, the smaller the better; empty without proxies.

    Only proxies of the size nearest to the target count (the largest, as all are smaller). A candidate is scored by the
    final loss of the one nearest in settings (log units, scaled to each parameter's range, replicates averaged); of
    candidates with one nearest proxy, the nearest to it comes first.
    """
    finished = [run for run in proxies if run.name in final_losses]
    if not finished:
        return {}
    largest = max(run.size for run in finished)
    references = [run for run in finished if run.size == largest]
    distance = distances([run.searched for run in candidates], [run.searched for run in references])
    losses = np.array([final_losses[run.name] for run in references])
    nearest = distance.min(axis=1)
    score = [float(losses[row == row.min()].mean()) for row in distance]
    return {run.name: (score[i], float(nearest[i])) for i, run in enumerate(candidates)}


def _forecast_record(forecast: Forecast) -> dict[str, Any]:
    keys = ("status", "final_loss", "sd", "lower", "upper", "misfit", "family", "n_references")
    return {key: getattr(forecast, key) for key in keys}


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: finite_or_none(value) if isinstance(value, float) else value for key, value in values.items()}
