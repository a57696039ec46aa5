"""Collapse checks on runs of known spread, noise and controls."""

from __future__ import annotations

import numpy as np
import pytest

from hpo.core.check import check_curves, check_recipes, seed_groups, spread_of
from hpo.core.controls import Controls, compare_controls
from hpo.core.curve import Curve
from hpo.core.metric import Metric
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule

T = 2000
LINEAR = schedule("linear")
RECIPE = Recipe(schedule=LINEAR, n_params=1e6, n_tokens=2e7, batch_tokens=1e4, lr=1e-2, weight_decay=0.1, warmup_fraction=0.1)


def a_run(name, final=3.0, *, bend=0.0, noise=0.0, seed=None, until=1.0, recipe=RECIPE, rng=None, steps=T, shared=None):
    """ℓ = (1 + 0.3 (1 − t̂)²)·exp(bend (1 − t̂)), one point a step."""
    t = np.arange(1, steps + 1) / steps
    values = final * (1 + 0.3 * (1 - t) ** 2) * np.exp(bend * (1 - t))
    rng = rng or np.random.default_rng(sum(map(ord, name)))
    values = values * (1 + noise * (rng.standard_normal(steps) if shared is None else shared))
    seen = t <= until + 1e-12
    settings = {} if seed is None else {"seed": seed}
    return Curve.from_points(
        np.arange(1, steps + 1)[seen], values[seen], horizon=steps, recipe=recipe, run_id=name, settings=settings
    )


def test_runs_of_one_curve_collapse_whatever_their_level():
    report = check_curves([a_run("a", 2.0), a_run("b", 3.0), a_run("c", 4.0)])
    assert report.collapse is True
    assert report.mismatched == []
    assert report.spread.worst < 1e-3


def test_spread_is_the_population_standard_deviation_over_the_mean():
    spread = spread_of([a_run("a", bend=0.0), a_run("b", bend=0.05)])
    at = int(np.argmin(np.abs(spread.fractions - 0.4)))
    a, b = 1.0, np.exp(0.05 * 0.6)
    assert spread.delta[at] == pytest.approx(np.std([a, b]) / np.mean([a, b]), rel=0.02)
    assert spread.delta[-1] == 0


def test_different_curves_do_not_collapse():
    report = check_curves([a_run("a"), a_run("b", bend=0.03), a_run("c", bend=0.06)])
    assert report.collapse is False
    assert 100 * report.spread.worst > 1


def test_the_run_that_breaks_the_collapse_is_named():
    report = check_curves([*(a_run(f"good{k}", bend=0.001 * k) for k in range(4)), a_run("odd", bend=0.06)])
    assert report.collapse is False
    assert report.outliers == ("odd",)
    assert "odd" in report.reason


def test_no_run_is_blamed_where_no_minority_is_to_blame():
    assert check_curves([a_run("a"), a_run("b", bend=0.05)]).outliers == ()
    assert check_curves([a_run(f"r{k}", bend=0.03 * k) for k in range(4)]).outliers == ()


def test_noise_of_single_seeds_is_not_called_a_mismatch():
    rng = np.random.default_rng(0)
    verdicts = [check_curves([a_run(f"r{k}", noise=0.04, rng=rng) for k in range(4)]).collapse for _ in range(40)]
    assert np.mean(verdicts) > 0.9


def test_noise_does_not_hide_a_mismatch_well_above_it():
    rng = np.random.default_rng(1)
    bends = (0.0, 0.06, 0.12)
    verdicts = [check_curves([a_run(f"r{b}", bend=b, noise=0.03, rng=rng) for b in bends]).collapse for _ in range(20)]
    assert not any(verdicts)


def test_noise_is_subtracted_from_the_spread():
    rng = np.random.default_rng(2)
    true = spread_of([a_run("a"), a_run("b", bend=0.04), a_run("c", bend=0.08)]).worst
    seen = [
        spread_of([a_run(n, bend=b, noise=0.03, rng=rng) for n, b in (("a", 0), ("b", 0.04), ("c", 0.08))]) for _ in range(40)
    ]
    at = int(np.argmin(np.abs(seen[0].fractions - 0.2)))
    assert np.sqrt(np.mean([s.delta[at] ** 2 for s in seen])) == pytest.approx(true, rel=0.15)


def test_noise_shared_by_all_runs_cancels():
    common = np.random.default_rng(3).standard_normal(T)
    report = check_curves([a_run("a", 2.0, noise=0.04, shared=common), a_run("b", 3.0, noise=0.04, shared=common)])
    assert report.collapse is True
    assert report.noise_floor < 1e-4


def test_noise_floor_comes_from_seeds_where_there_are_any():
    rng = np.random.default_rng(4)
    runs = [a_run(f"s{k}", noise=0.02, seed=k, rng=rng) for k in range(4)]
    assert [len(group) for group in seed_groups(runs)] == [4]
    report = check_curves(runs)
    assert report.floor_from == "seeds"
    assert report.noise_floor == pytest.approx(0.02 / np.sqrt(2 * 20), rel=0.1)  # two bins of 20 points meet
    assert check_curves([a_run("a"), a_run("b")]).floor_from == "roughness"


def test_a_given_tolerance_decides():
    runs = [a_run("a"), a_run("b", bend=0.03)]
    assert check_curves(runs, tolerance=0.02).collapse is True
    assert check_curves(runs, tolerance=0.005).collapse is False
    with pytest.raises(ValueError, match="tolerance must be finite and above 0; found -1"):
        check_curves(runs, tolerance=-1)


def test_incomplete_and_broken_runs_are_left_out_and_said():
    broken = Curve.from_points([1, 2], [1.0, np.nan], horizon=2, run_id="nan")
    report = check_curves([a_run("a"), a_run("b"), a_run("part", until=0.5), broken])
    assert set(report.left_out) == {"part", "nan"}
    assert "part (incomplete (50% of training))" in report.reason
    with pytest.raises(ValueError, match="at least two complete runs"):
        check_curves([a_run("a"), a_run("part", until=0.5)])


def test_metrics_are_not_mixed():
    other = Curve.from_points(np.arange(1, 101), np.linspace(3, 2, 100), horizon=100, metric=Metric("val_loss"), run_id="v")
    with pytest.raises(ValueError, match="one metric; found train_loss, val_loss"):
        check_curves([a_run("a"), other])


@pytest.mark.parametrize(("ratio", "matches"), [(1.0, True), (1.24, True), (1.3, False), (0.7, False)])
def test_controls_match_within_a_quarter(ratio, matches):
    runs = [Controls("a", tpp=20, tau=0.1), Controls("b", tpp=20 * ratio, tau=0.1)]
    found = {m.name: m for m in compare_controls(runs)}
    assert found["tpp"].matches is matches
    assert found["tau"].matches is True
    assert found["schedule"].matches is None


def test_a_mismatched_control_is_named_with_its_run_and_size():
    runs = [*(Controls(f"r{k}", tpp=20, tau=0.1, schedule=LINEAR) for k in range(3)), Controls("odd", tpp=80, tau=0.1)]
    runs[-1] = Controls("odd", tpp=80, tau=0.1, schedule=schedule("cosine"))
    report = check_recipes(runs)
    assert report.collapse is None
    assert report.mismatched == ["tpp", "schedule"]
    assert report.controls["odd"]["off"] == {"tpp": 4.0, "schedule": "cosine"}
    assert report.controls["r0"]["off"] == {}
    assert "tpp 4x apart" in report.reason


def test_a_later_warmup_is_off_and_a_short_one_is_not():
    apart = {m.name: m for m in compare_controls([Controls("a", warmup_fraction=0.1), Controls("b", warmup_fraction=0.02)])}
    assert apart["warmup_fraction"].matches is False
    short = {m.name: m for m in compare_controls([Controls("a", warmup_fraction=0.006), Controls("b", warmup_fraction=0.0004)])}
    assert short["warmup_fraction"].matches is True


def test_without_batches_equal_steps_tell_of_tokens_per_parameter():
    found = compare_controls([Controls("a", n_params=25e6, steps=1e4), Controls("b", n_params=1e8, steps=1e4)])[0]
    assert found.matches is False
    assert found.ratio == pytest.approx(4)
    assert "taken as equal" in found.in_words
    assert (
        compare_controls([Controls("a", n_params=25e6, steps=1e4), Controls("b", n_params=25e6, steps=1e4)])[0].matches is None
    )


def test_the_order_of_runs_does_not_matter():
    runs = [a_run("a"), a_run("b", bend=0.03), a_run("c", bend=0.01)]
    one, other = check_curves(runs), check_curves(runs[::-1])
    assert one.spread.worst == pytest.approx(other.spread.worst)
    assert set(one.controls) == set(other.controls)
