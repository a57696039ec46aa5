"""Watches one run against its family's curve, report by report.

:meth:`Monitor.update` takes a step and a loss and returns a :class:`Status`: whether the run still follows the curve, and if
not since when, in which direction, by how much, what kind of fault has that shape, and what it costs at the end of training.

    residual(t̂) = ℓ_run(t̂) − ℓ_ref(t̂)

with ℓ_run normalised by the final loss that the healthy part of the run foretells (all of it: no fixed window). The test is
:mod:`hpo.core.change`. A fault from the very start, or one that only rescales the whole run, moves the level and nothing
else: it cannot be told from a healthy run with another final loss.

Noise that run and one reference share (one data order, equal steps) cancels in the residual, and the noise is measured on the
residual: nothing needs to be declared. Where references of other lengths saw the same batches, :mod:`hpo.core.common_noise`
takes off what they share, told of it or not.

References
----------
arXiv 2509.25087 (residuals from the collapsed curve as a monitor).

Deviations
----------
There the run is aligned on t̂ in [0.25, 0.5] and judged by eye. Here the level is part of the test, which states its line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hpo.core.change import Change, likeliest_change
from hpo.core.common_noise import CommonNoise, FreedTemplate
from hpo.core.curve import Curve, CurveStream
from hpo.core.data_order import DataOrder
from hpo.core.lr_watch import LrWatch
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel
from hpo.core.monitor_residuals import MIN_BINS, Held, Seen
from hpo.core.recipe import Recipe
from hpo.core.template import Template, template_of_model, template_of_reference
from hpo.core.whitened import Whitened

JUDGE_EVERY = 0.002
PAST_TOTAL = 0.01
HUGE = 1e150
NEAR_RESTART = 0.03
Z90 = 1.6448536269514722

KINDS = {
    "step": "the loss jumped and stayed up: a change of data, precision or settings at the onset",
    "drift": "the loss leaves the curve more and more: a slow fault, such as one of numerics or of data quality",
    "spike": "the loss spiked and came back",
    "restart": "the loss jumped and is coming back, as after a restart that lost optimiser state or data order",
    "wrong_lr": "the loss left the curve as it does when the learning rate is not the scheduled one",
    "repeated_data": "the training loss sinks below the curve: repeated or leaked data, unless the learning rate fell early",
    "overfitting": "the training loss is below the curve and the validation loss is not",
    "non_finite": "the loss is not finite, or 0 or less where its references are above 0",
}
"""Every kind of fault and what it means."""


@dataclass(frozen=True)
class Status:
    """What is known of a run after a report.

    Attributes
    ----------
    status : {"ok", "alarm", "abstained"}
        Once raised, an alarm stays.
    kind : str or None
        A key of :data:`KINDS`.
    onset, detected_at : float or None
        t̂ where the fault began, and where it was first called.
    size_pct : float or None
        Its size now, in percent of the loss; negative: the run is better than its curve.
    residual : tuple of (t̂, value, sd)
        ℓ_run − ℓ_ref at each bin and the sd it has while healthy.
    final_loss, lower, upper : float or None
        Forecast with 90 % interval (of the loss that will be measured, noise included), the deviation kept where it lasts.
    cost_pct : float or None
        Part of the final loss that the deviation costs.
    reason : str
    z, size_sigma : float or None
        Test statistic, and size over the noise of a 1 % window.
    """

    status: str
    reason: str
    kind: str | None = None
    onset: float | None = None
    detected_at: float | None = None
    size_pct: float | None = None
    residual: tuple[tuple[float, float, float], ...] = field(default=(), repr=False)
    final_loss: float | None = None
    lower: float | None = None
    upper: float | None = None
    cost_pct: float | None = None
    z: float | None = None
    size_sigma: float | None = None
    fraction: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        keys = ("status", "kind", "onset", "detected_at", "size_pct", "final_loss", "lower", "upper", "cost_pct", "reason")
        return {**{key: getattr(self, key) for key in keys}, "residual": [list(row) for row in self.residual]}


class Monitor:
    """Watches one run.

    Parameters
    ----------
    model : CollapseModel or Template
        The family; or a template, for instance :func:`~hpo.core.template.template_of_reference` of one finished run.
    recipe : Recipe, optional
        The run's own; chooses its family and shape, and its schedule is what logged learning rates are held against.
    total : float, optional
        Horizon T in the unit of the steps; default: the recipe's number of steps. Without either the monitor abstains.
    metric : Metric, optional
        Default: that of the model's first reference.
    family : str, optional
        Label of the family; empty fits any.
    judge_every : float, optional
        The test runs once per this share of training at most, so that a report costs O(1) on average.
    common : CommonNoise, optional
        Noise that the references share with the run, which sees the same batches in the same order
        (:func:`~hpo.core.common_noise.fit_with_common_noise`); ``model`` is freed of it.
    if_same_data : FreedTemplate, optional
        The same where it is not known whether the run sees those batches: it is held against this as soon as its own reports
        show that it does (:mod:`hpo.core.data_order`), and against ``model`` until then.
    """

    def __init__(
        self,
        model: CollapseModel | Template,
        recipe: Recipe | None = None,
        *,
        total: float | None = None,
        metric: Metric | None = None,
        family: str = "",
        judge_every: float = JUDGE_EVERY,
        common: CommonNoise | None = None,
        if_same_data: FreedTemplate | None = None,
    ) -> None:
        if not isinstance(model, CollapseModel | Template):
            raise ValueError(f"model must be a CollapseModel (Monitor.against takes one reference run); found {model!r:.80}")
        self.recipe = recipe
        self.judge_every = judge_every
        horizon = total if total is not None or recipe is None else recipe.n_steps
        own = model.references[0].metric if isinstance(model, CollapseModel) and model.references else Metric()
        self.metric = metric or own
        is_log = self.metric.transform == "log"
        self._told = common is not None and is_log
        self.template = model if isinstance(model, Template) else template_of_model(model, self.metric, recipe, family)
        if self.template is not None and self.template is not model and self._told:
            self.template = self.template.of_freed
        self._stream = CurveStream(horizon=horizon, recipe=recipe, metric=self.metric, family=family)
        self._horizon = horizon
        self._held = None if self.template is None else Held.of(self.template, recipe, horizon, common if is_log else None)
        freed = if_same_data if is_log and not self._told else None
        self._freed = None if freed is None else Held.of(freed.template, recipe, horizon, freed.common)
        self._order = None if freed is None else DataOrder(freed.common)
        self._lr = LrWatch(recipe)
        self._last_step = -math.inf
        self._judged_at = -math.inf
        self._restarts: list[float] = []
        self._first_alarm: Status | None = None
        self.status = Status("abstained", "no report yet")

    @classmethod
    def against(cls, reference: Curve, recipe: Recipe | None = None, *, total: float | None = None) -> Monitor:
        """Return a monitor that holds a run against one complete reference run."""
        return cls(template_of_reference(reference), recipe, total=total, metric=reference.metric)

    def update(self, step: float, loss: float, *, lr: float | None = None) -> Status:
        """Take one report and return the status.

        Steps come in order; one at or before the last is a restart, and its repeated steps are not counted twice. A loss beyond
        :data:`HUGE` is not finite: its square is not. Nor is one of 0 or less on a log scale.
        """
        loss = loss if abs(loss) <= HUGE and (loss > 0 or self.metric.transform != "log") else math.nan
        if self._horizon is not None and step <= self._last_step:
            self._restarts.append(step / self._horizon)
        self._last_step = float(step)
        if not self._stream.add(step, loss):
            return self.status
        if self._horizon is None:
            self.status = Status(
                "abstained", "the total number of steps is unknown, so the fraction of training is: give --total"
            )
            return self.status
        for held in (self._held, self._freed):
            if held is not None and math.isfinite(loss):
                held.add(step)
        fraction = step / self._horizon
        if self._order is not None and self._freed is not None:
            self._order.add(step, loss * math.exp(-self._freed.expected(fraction)))
        if lr is not None and math.isfinite(lr):
            self._lr.add(fraction, lr)
        if not math.isfinite(loss) or fraction - self._judged_at >= self.judge_every or fraction >= 1.0:
            self.judge()
        return self.status

    def mark_restarts(self, steps: Iterable[float]) -> None:
        """Take note of the steps at which the run was restarted, where its log has been put in order already."""
        if self._horizon is not None:
            self._restarts.extend(step / self._horizon for step in steps)

    def judge(self) -> Status:
        """Run the test on everything taken so far and return the status."""
        curve = self._stream.snapshot()
        self._judged_at = curve.fraction_seen or 0.0
        now = self._judged(curve)
        if now.status == "alarm" and self._first_alarm is None:
            self._first_alarm = replace(now, detected_at=curve.fraction_seen)
        if self._first_alarm is not None:
            now = _latched(now, self._first_alarm)
        self.status = now
        return now

    def _judged(self, curve: Curve) -> Status:
        if curve.nonfinite_step is not None and self._horizon is not None:
            at = curve.nonfinite_step / self._horizon
            return Status("alarm", KINDS["non_finite"], "non_finite", onset=at, fraction=curve.fraction_seen)
        problem = self._cannot_judge(curve)
        if problem is not None or self._held is None:
            return Status("abstained", problem or "", fraction=curve.fraction_seen)
        seen = self._seen(curve, self._held)
        if seen.fractions.size < MIN_BINS:
            return Status(
                "abstained",
                f"too little seen: {seen.fractions.size} of {MIN_BINS} bins of training",
                fraction=curve.fraction_seen,
            )
        change = likeliest_change(seen.d, seen.slow, seen.unexplained, seen.fractions, seen.dof)
        if self._lr.off_since is not None:
            return self._wrong_lr(curve, seen, change)
        if change is None or not change.is_alarm:
            freed = ", on whose batches it was trained" if seen.is_freed and not self._told else ""
            return _described(curve, seen, None, "ok", None, f"follows {self._held.template.family}{freed}")
        kind = self._kind(change, change.began)
        return _described(curve, seen, change, "alarm", kind, KINDS[kind])

    def _seen(self, curve: Curve, held: Held) -> Seen:
        """Return what the test sees: freed of the references' noise where the run has shown that it sees their batches."""
        if self._freed is not None and self._order is not None and self._order.is_shared:
            seen = self._freed.seen(curve)
            if seen.is_freed:
                return seen
        return held.seen(curve)

    def _cannot_judge(self, curve: Curve) -> str | None:
        if self.template is None:
            return "no reference has this metric, family and schedule"
        if not self._told and not self.template.is_one_curve:  # freed of common noise, what is left of it looks like misfit
            return (
                "the references do not follow one curve, so there is none to hold the run against: take runs that match in "
                "tokens per parameter, τ and schedule (hpo check)"
            )
        if (curve.fraction_seen or 0.0) > 1.0 + PAST_TOTAL:
            return "the run has gone past its stated total"
        return None

    def _wrong_lr(self, curve: Curve, seen: Seen, change: Change | None) -> Status:
        """Return the alarm of a logged learning rate off its schedule, with the loss's own change where it shows one."""
        since, ratio = self._lr.off_since, self._lr.ratio
        words = f"the logged learning rate is {ratio:.3g} times the scheduled one" if ratio else "the learning rate is off"
        shown = change if change is not None and change.is_alarm else None
        return replace(_described(curve, seen, shown, "alarm", "wrong_lr", words), onset=since)

    def _kind(self, change: Change, onset: float) -> str:
        restarted = any(abs(onset - at) <= NEAR_RESTART for at in self._restarts)
        if change.form in ("spike", "pulse"):
            return "spike"
        if change.z > 0:
            return "restart" if change.form == "transient" or restarted else change.form
        is_training = "val" not in self.metric.name and "test" not in self.metric.name
        return "repeated_data" if is_training and change.form == "drift" and not restarted else "wrong_lr"


def with_validation(training: Status, validation: Status) -> Status:
    """Return the training loss's status, called overfitting where it sinks below its curve and the validation loss does not.

    ``validation`` is the status of the same run's validation loss against its own curve.
    """
    if training.status != "alarm" or training.onset is None or (training.size_pct or 0.0) >= 0 or not validation.residual:
        return training
    after = [(value, sd) for t, value, sd in validation.residual if t >= training.onset]
    weights = np.array([1.0 / sd**2 for _, sd in after])
    if not after or float(weights @ [value for value, _ in after]) / float(np.sqrt(weights.sum())) < -2.0:
        return training
    return replace(training, kind="overfitting", reason=KINDS["overfitting"])


def _described(curve: Curve, seen: Seen, change: Change | None, status: str, kind: str | None, reason: str) -> Status:
    """Return the status with residuals and the forecast, with and without the change."""
    if change is None:
        white = Whitened.of(seen.d, seen.covariance())
        level, level_sd, size, size_sd = white.level, 1.0 / float(np.linalg.norm(white.ones)), 0.0, 0.0
    else:
        level, level_sd, size, size_sd = change.level, change.level_sd, change.size, change.size_sd
    kept, kept_sd = (size, size_sd) if change is not None and change.lasts else (0.0, 0.0)
    raw = curve.metric.to_raw
    sd = math.hypot(level_sd, kept_sd, seen.end_sd)
    ends = sorted(float(v) for v in raw(np.array([level + kept - Z90 * sd, level + kept + Z90 * sd])))
    final, healthy = float(raw(level + kept)), float(raw(level))
    worse = final - healthy if curve.metric.mode == "min" else healthy - final
    known = change is not None
    return Status(
        status,
        reason,
        kind,
        onset=change.began if change is not None else None,
        size_pct=_percent(size, curve.metric) if known else None,
        residual=_residuals(seen, level, level_sd, curve.metric),
        final_loss=final,
        lower=ends[0],
        upper=ends[1],
        cost_pct=100.0 * worse / abs(healthy) if known and healthy != 0 else None,
        z=change.z if change is not None else None,
        size_sigma=size / seen.window_sd if known else None,
        fraction=curve.fraction_seen,
    )


def _residuals(seen: Seen, level: float, level_sd: float, metric: Metric) -> tuple[tuple[float, float, float], ...]:
    off = seen.d - level
    sd = np.sqrt(np.diag(seen.covariance()) + level_sd**2)
    if metric.transform != "identity":
        reference = np.exp(seen.mean)
        off, sd = reference * np.expm1(off), reference * sd
    return tuple(zip(seen.fractions.tolist(), off.tolist(), sd.tolist(), strict=True))


def _percent(size: float, metric: Metric) -> float:
    return 100.0 * (math.expm1(size) if metric.transform != "identity" else size)


def _latched(now: Status, first: Status) -> Status:
    """Return ``now`` as an alarm: with its own diagnosis while it is one, else with the first one's.

    It began no later than it was first called, a loss that is not finite apart.
    """
    if now.status == "alarm":
        later = now.onset is not None and first.detected_at is not None and now.onset > first.detected_at
        later = later and now.kind != "non_finite"
        return replace(now, detected_at=first.detected_at, onset=first.onset if later else now.onset)
    gone = f"{first.reason} (no longer seen)"
    diagnosis = {key: getattr(first, key) for key in ("kind", "onset", "detected_at", "size_pct", "z", "size_sigma")}
    return replace(now, status="alarm", reason=gone, cost_pct=0.0 if now.final_loss is not None else None, **diagnosis)
