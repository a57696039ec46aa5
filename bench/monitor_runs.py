"""Healthy recorded runs, each with what its relatives say a healthy run looks like, and bootstrapped ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.signal import savgol_filter

from hpo.adapters.curve_files import RecordedRun, read_runs
from hpo.core.bin_noise import NOISE_FLOOR, noise_per_point
from hpo.core.common_noise import CommonNoise, Points, fit_with_common_noise, shares_trunk
from hpo.core.model import CollapseModel
from hpo.core.monitor_residuals import START, first_judged
from hpo.core.template import Template, template_of_model
from hpo.core.template_noise import NoisyTemplate, noisy, shown

FloatArray = NDArray[np.float64]
MIN_POINTS = 50
SLOW_WIDTH = 0.1
STEEP_UNTIL = 0.1
NEAR = 0.1
"""Blocks of noise come from within this share of the run: noise early in training is not that of its end."""


@dataclass(frozen=True)
class Healthy:
    """A healthy run with the template of its relatives.

    Attributes
    ----------
    sigma : float
        The run's own noise over a 1 % window, on the log scale: of its loss about a smooth curve, or of its residual where
        that is less (the shape's kinks are no noise).
    role : str
        "develop" or "test".
    same_batches : tuple of (RecordedRun, Points)
        Relatives that may have seen the same batches in the same order; empty where none has.
    """

    source: str
    role: str
    run: RecordedRun = field(repr=False)
    template: Template = field(repr=False)
    sigma: float
    same_batches: tuple[tuple[RecordedRun, Points], ...] = field(default=(), repr=False)

    @cached_property
    def split(self) -> NoisyTemplate | None:
        """The template with its noise told from its shape, None where it is not."""
        return noisy(self.template)

    @property
    def common(self) -> CommonNoise | None:
        """Noise shared with the relatives that saw the same batches in the same order, None where there are none."""
        return self._freed[1]

    @property
    def clean(self) -> Template | None:
        """Template of those relatives, freed of that noise."""
        return self._freed[0]

    @cached_property
    def _freed(self) -> tuple[Template | None, CommonNoise | None]:
        freed, common = _freed_of_common_noise(self.run, self.same_batches)
        return None if freed is None else freed.wandering_as(self.template), common

    @property
    def fractions(self) -> FloatArray:
        """t̂ of the points."""
        return self.run.steps / float(self.run.horizon or 1.0)


OWN = Path(__file__).parent / "data"


def healthy_runs(folder: Path) -> list[Healthy]:
    """Return all healthy runs that have relatives: published ones in ``folder``, and our own."""
    kinds = [
        ("olmo", "olmo_ladder.parquet", "val_loss", _olmo_relatives),
        ("multipowerlaw", "multipowerlaw.parquet", "val_loss", _multipowerlaw_relatives),
        ("schaipp val", "lr_scheduling_schaipp.parquet", "val_loss", _schaipp_relatives),
        ("schaipp train", "lr_scheduling_schaipp.parquet", "train_loss", _schaipp_relatives),
    ]
    published = [one for name, file, metric, relatives in kinds for one in _healthy_of(name, folder / file, metric, relatives)]
    own = [
        one
        for name, file, relatives in (
            ("own ladder", "own_ladder.parquet", _ladder_relatives),
            ("own sweep", "own_sweep.parquet", _sweep_relatives),
        )
        for metric in ("val_loss", "train_loss")
        for one in _healthy_of(f"{name} {metric.removesuffix('_loss')}", OWN / file, metric, relatives)
    ]
    return published + own


def _healthy_of(
    source: str, path: Path, metric: str, relatives: Callable[[RecordedRun, RecordedRun], bool]
) -> Iterator[Healthy]:
    read = [(run, Points(run.curve(), run.steps, run.values)) for run in read_runs(path, metric=metric)]
    runs = [(run, points) for run, points in read if points.curve.is_complete and run.steps.size >= MIN_POINTS]
    for index, (run, _) in enumerate(runs):
        kin = [(other, points) for other, points in runs if other is not run and relatives(run, other)]
        model = CollapseModel.fit([points.curve for _, points in kin])
        template = template_of_model(model, run.metric, run.recipe, run.family) if kin else None
        sigma = None if template is None else window_noise(run, template)
        if template is not None and sigma is not None:
            seen = source.startswith(("olmo", "multipowerlaw", "own ladder")) or index % 3 == 0
            same = tuple(kin) if source.startswith("schaipp") else ()
            yield Healthy(source, "develop" if seen else "test", run, template, sigma, same)


def _freed_of_common_noise(
    run: RecordedRun, kin: Sequence[tuple[RecordedRun, Points]]
) -> tuple[Template | None, CommonNoise | None]:
    """Return template and common noise of the relatives with the run's batches, all steps in one order (as published)."""
    batch = run.recipe.batch_tokens if run.recipe is not None else None
    points = [points for other, points in kin if other.recipe is not None and other.recipe.batch_tokens == batch]
    apart = [one for one in points if not shares_trunk(one, run.steps, run.values)]
    try:
        model, common = fit_with_common_noise(apart)
    except ValueError:
        return None, None
    return template_of_model(model, run.metric, run.recipe, run.family), common


def _olmo_relatives(run: RecordedRun, other: RecordedRun) -> bool:
    return run.run_id.split("-")[1] == other.run_id.split("-")[1]


def _multipowerlaw_relatives(run: RecordedRun, other: RecordedRun) -> bool:
    return run.run_id.split("/")[1] == other.run_id.split("/")[1]


def _schaipp_relatives(run: RecordedRun, other: RecordedRun) -> bool:
    if run.recipe is None or other.recipe is None or str(run.recipe.schedule) != str(other.recipe.schedule):
        return False
    return run.horizon != other.horizon


def _ladder_relatives(run: RecordedRun, other: RecordedRun) -> bool:
    """Of our ladder's matched runs: the other seed and the other sizes."""
    return run.group == other.group == "matched"


def _sweep_relatives(run: RecordedRun, other: RecordedRun) -> bool:
    """Of our sweep's targets: the proxies with the same seed."""
    return run.group == "target" and other.group == "proxy" and run.family == other.family


def window_noise(run: RecordedRun, template: Template) -> float | None:
    """Return σ, the run's own noise over a 1 % window, on the log scale; None with fewer than 20 bins."""
    curve = run.curve()
    use = (curve.fractions >= max(START, float(template.nodes[0]))) & (curve.fractions <= 1)
    if use.sum() < 2 * 10:
        return None
    counts = curve.counts[use]
    y = curve.metric.to_model(curve.means[use])
    own = min(
        noise_per_point(y, counts), noise_per_point(y - seen_template(run, template).mean_at(curve.fractions[use]), counts)
    )
    return float(np.sqrt(own / np.median(counts) + NOISE_FLOOR**2))


def residual_scatter(one: Healthy) -> float:
    """Return the sd of the healthy run's residual over windows of 1 %, its wandering included, from a tenth of training on."""
    curve = one.run.curve()
    use = (curve.fractions >= STEEP_UNTIL) & (curve.fractions <= 1)
    return float(np.std(curve.metric.to_model(curve.means[use]) - one.template.mean_at(curve.fractions[use])))


def seen_template(run: RecordedRun, template: Template) -> Template:
    """Return the template without that of its noise which the run does not show."""
    split, curve = noisy(template), run.curve()
    if split is None:
        return template
    use = (curve.fractions >= max(START, float(template.nodes[0]))) & (curve.fractions <= 1)
    y, weights = curve.metric.to_model(curve.means[use]), template.interpolation(curve.fractions[use])
    share = shown(weights @ split.rough, y - weights @ split.smooth.mean, curve.counts[use])
    return replace(split.smooth, mean=split.smooth.mean + share * split.rough)


def bootstrapped(one: Healthy, rng: np.random.Generator, *, keep_common: bool = False) -> FloatArray:
    """Return the run's values with its fast noise drawn anew about its slow residual from the template.

    Points before :data:`STEEP_UNTIL` stay as recorded: there, noise and the steep fall cannot be told apart. Noise is drawn in
    blocks from nearby, of eight points of a training loss; of a validation loss, whose points are windows
    already, of one. With ``keep_common`` only what the run does not share with its relatives is drawn anew.
    """
    template = one.clean if keep_common and one.clean is not None else seen_template(one.run, one.template)
    t, y = one.fractions, np.log(one.run.values)
    use = (t >= max(start_of(one), STEEP_UNTIL)) & (t <= 1.0)
    expected = template.mean_at(t[use])
    if keep_common and one.common is not None:
        expected = expected + [one.common.at(step) or 0.0 for step in one.run.steps[use].tolist()]
    slow = _running_line(y[use] - expected, SLOW_WIDTH)
    noise = y[use] - expected - slow
    values = one.run.values.copy()
    drawn = _blocks(noise, 8 if one.source.endswith("train") else 1, rng)
    values[use] = np.exp(expected + slow + drawn * rng.choice((-1.0, 1.0)))
    return values


def _running_line(y: FloatArray, width: float) -> FloatArray:
    """Return straight lines fitted over a share ``width`` of the points; at the ends they take in as many points."""
    points = min(max(round(0.5 * width * y.size), 2) * 2 + 1, (y.size - 1) // 2 * 2 + 1)
    return np.asarray(savgol_filter(y, points, 1, mode="interp"), dtype=np.float64)


def _blocks(noise: FloatArray, block: int, rng: np.random.Generator) -> FloatArray:
    """Return noise of the same length, in blocks from near each place (local block bootstrap)."""
    at = np.arange(0, noise.size, block)
    reach = max(round(NEAR * noise.size), block)
    starts = np.clip(at + rng.integers(-reach, reach + 1, size=at.size), 0, max(noise.size - block, 0))
    return np.concatenate([noise[s : s + block] for s in starts])[: noise.size]


def start_of(one: Healthy) -> float:
    """Return t̂ from which the monitor judges the run."""
    return first_judged(one.template, one.run.recipe, one.split)


def others_start(one: Healthy) -> float:
    """Return t̂ from which detectors that look at the loss itself judge the run: earlier it falls too steeply for them."""
    return first_judged(one.template, one.run.recipe, None)


def smoothed(y: FloatArray, width: float) -> FloatArray:
    """Return centred means over a share ``width`` of the points, narrower towards the ends."""
    half = max(round(0.5 * width * y.size), 1)
    sums = np.concatenate(([0.0], np.cumsum(y)))
    at = np.arange(y.size)
    reach = np.minimum(np.minimum(at, y.size - 1 - at), half)
    return np.asarray((sums[at + reach + 1] - sums[at - reach]) / (2 * reach + 1), dtype=np.float64)
