from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from synthetic import LINEAR, TRUE, recipe, surrogate_curve

from hpo.core.curve import Curve
from hpo.core.metric import Metric
from hpo.core.model import CollapseModel
from hpo.core.model_settings import ModelSettings
from hpo.core.schedules import schedule, unknown_schedule
from hpo.core.shape import ShapeSettings
from hpo.core.surrogate import early_align, fit_surrogate

TAUS = (0.05, 0.1, 0.2, 0.4)
EARLY_ALIGN = ModelSettings(
    shape=ShapeSettings(
        brownian_sd=0.0,
        covariance_weight=np.inf,
        scale_weight=np.inf,
        template_sd=0.0,
        effect_sd=(),
        schedule_sd=0.0,
        schedule_effects=0.0,
        mean="surrogate",
        outlier_sd=np.inf,
    ),
    max_misfit=np.inf,
)


def references(n_params=(1e5, 3e5), **options):
    return [
        surrogate_curve(recipe(tau=tau, n_params=n), final=3.0 + tau, run_id=f"{n:g}-{tau}", **options)
        for n in n_params
        for tau in TAUS
    ]


def target(tau=0.15, until=0.2, **options):
    return surrogate_curve(recipe(tau=tau, n_params=1e6), until=until, run_id="target", **options)


def test_zero_variances_reproduce_the_surrogate_with_early_align():
    rng = np.random.default_rng(0)
    bend = lambda t: 0.02 * np.log(t)  # noqa: E731 - a shape the surrogate cannot follow
    refs = references(noise=0.01, rng=rng, bend=bend)
    model = CollapseModel.fit(refs, EARLY_ALIGN)
    surrogate = model.families[0].surrogate
    prefix = target(noise=0.01, rng=rng, bend=bend)
    shape = model.families[0].fit(())
    seen = prefix.fractions >= shape.nodes[0]
    made, t = prefix.recipe, prefix.fractions[seen]
    log_shape = np.log(surrogate.normalised(t, LINEAR(t, 0.1), 0.0, made.tau, made.tpp))
    expected = np.exp(early_align(np.log(prefix.means[seen]), log_shape, weights=prefix.counts[seen]))
    assert model.forecast(prefix).final_loss == pytest.approx(expected, rel=1e-9)


def test_zero_variances_fit_the_same_surrogate_as_the_paper():
    refs = references()
    direct = fit_surrogate(refs).surrogate
    through_model = CollapseModel.fit(refs, EARLY_ALIGN).families[0].surrogate
    t = np.linspace(0.2, 1, 9)
    for tau in TAUS:
        a, b = (s.normalised(t, LINEAR(t, 0.1), 0.0, tau, 20) for s in (direct, through_model))
        np.testing.assert_allclose(a, b, rtol=2e-4)


def test_no_template_and_a_free_walk_give_the_current_best():
    settings = ModelSettings(
        shape=ShapeSettings(
            100.0, np.inf, np.inf, 0.0, effect_sd=(), schedule_sd=0.0, schedule_effects=0.0, mean="none", outlier_sd=np.inf
        ),
        max_misfit=np.inf,
    )
    prefix = target()
    made = CollapseModel.fit(references(), settings).forecast(prefix)
    assert made.final_loss == pytest.approx(prefix.means[-1], rel=5e-4)  # to within the interpolation between bins


@pytest.mark.parametrize(("at", "within"), [(0.1, 0.01), (0.2, 0.005), (0.3, 0.003)])
def test_a_clean_prefix_of_a_new_setting_and_size_is_forecast_closely(at, within):
    made = CollapseModel.fit(references()).forecast(target(until=at))
    assert made.status == "ok"
    assert made.final_loss == pytest.approx(3.0, rel=within)
    assert made.lower < 3.0 < made.upper


def test_the_interval_narrows_as_training_goes_on():
    model = CollapseModel.fit(references())
    sds = [model.forecast(target(until=at)).sd for at in (0.1, 0.2, 0.4, 0.8)]
    assert sds == sorted(sds, reverse=True)


def test_other_schedules_tell_how_far_one_run_strays():
    """Few runs a schedule leave little to estimate that from; which curve a schedule has is still its own runs' matter."""
    named = {name: schedule(name) for name in ("linear", "cosine", "constant")}
    runs = {
        name: [surrogate_curve(recipe(tau=tau, sched=of), final=3.0 + tau, run_id=f"{name}-{tau}") for tau in TAUS]
        for name, of in named.items()
    }
    settings = ModelSettings(shape=ShapeSettings(mean="none"))
    prefix = target(tau=0.15)
    few, many = (CollapseModel.fit(rows, settings) for rows in (runs["linear"], [r for rows in runs.values() for r in rows]))
    alone, with_kin = few.forecast(prefix), many.forecast(prefix)
    assert with_kin.n_references == alone.n_references == len(TAUS)
    assert with_kin.sd < 0.8 * alone.sd
    assert with_kin.dof > alone.dof


def test_a_size_far_from_the_references_is_forecast_with_a_wider_interval():
    model = CollapseModel.fit(references())
    near, far = (model.forecast(surrogate_curve(recipe(tau=0.15, n_params=n), until=0.2)).sd for n in (6e5, 3e7))
    assert far > 1.2 * near


def test_with_one_reference_the_forecast_is_early_align_to_it():
    rng = np.random.default_rng(0)
    one = surrogate_curve(recipe(tau=0.2), final=2.0, run_id="only")
    prefix = surrogate_curve(recipe(tau=0.2), final=3.0, until=0.3, noise=0.001, rng=rng)
    made = CollapseModel.fit([one]).forecast(prefix)
    assert made.n_references == 1
    assert made.final_loss == pytest.approx(3.0, rel=0.003)


def test_one_bad_report_changes_the_forecast_by_less_than_a_tenth_of_its_sd():
    steps = np.arange(1, 31)
    values = 3 * TRUE.normalised(steps / 100, LINEAR(steps / 100, 0.1), 0.0, 0.15, 20.0)
    spiked = values.copy()
    spiked[20] *= 20
    made = recipe(tau=0.15, n_steps=100)
    model = CollapseModel.fit(references())
    clean, hit = (
        model.forecast(Curve.from_points(steps, v, horizon=100, recipe=made, metric=Metric(end="last"), family="family"))
        for v in (values, spiked)
    )
    assert hit.status == "ok"
    assert abs(hit.final_loss - clean.final_loss) < 0.1 * clean.sd


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"horizon": None}, "unknown_horizon"),
        ({"last_step": 2000.0}, "past_horizon"),
        ({"nonfinite_step": 5.0}, "non_finite"),
        ({"metric": Metric("val_loss", end="last")}, "no_family"),
        ({"family": "another"}, "no_family"),
        (
            {"fractions": np.array([]), "means": np.array([]), "variances": np.array([]), "counts": np.array([])},
            "too_few_points",
        ),
    ],
)
def test_a_run_that_cannot_be_judged_gets_no_numbers_but_a_reason(change, status):
    made = CollapseModel.fit(references()).forecast(replace(target(), **change))
    assert made.status == status
    assert made.final_loss is None
    assert made.reason


def test_without_references_nothing_is_forecast():
    assert CollapseModel.fit([]).forecast(target()).status == "no_references"


def test_a_run_of_another_shape_is_not_judged():
    rng = np.random.default_rng(0)
    model = CollapseModel.fit(references(noise=0.003, rng=rng))
    strange = target(until=0.5, bend=lambda t: 0.5 * np.sin(20 * t))
    assert model.forecast(strange).status == "bad_misfit"


def test_a_complete_run_is_its_own_forecast():
    made = CollapseModel.fit(references()).forecast(target(until=1.0))
    assert (made.status, made.sd) == ("complete", 0.0)
    assert made.final_loss == pytest.approx(3.0)


def test_a_run_whose_timescale_is_unknown_is_forecast_on_what_is_known():
    prefix = target()
    bare = replace(prefix, recipe=replace(prefix.recipe, weight_decay=None))
    made = CollapseModel.fit(references()).forecast(bare)
    assert made.status == "ok"
    assert "log_tau" not in made.controls
    assert "log_n" in made.controls


def test_incomplete_diverging_and_non_finite_runs_teach_nothing():
    good = references()
    bad = [
        target(until=0.5),
        replace(references()[0], diverging=True, run_id="d"),
        replace(references()[0], nonfinite_step=3.0, run_id="n"),
    ]
    assert len(CollapseModel.fit(good + bad).references) == len(good)


def test_the_saved_model_forecasts_bit_for_bit_the_same():
    model = CollapseModel.fit(references(), ModelSettings(shape=ShapeSettings(mean="surrogate"), max_misfit=np.inf))
    again = CollapseModel.from_dict(json.loads(json.dumps(model.to_dict(), allow_nan=False)))
    assert again.forecast(target()) == model.forecast(target())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "no schema number"),
        ({"schema": 99}, "newer than this version"),
        ({"schema": 1}, "references and settings are missing"),
        ({"schema": 1, "settings": {}, "references": []}, "settings are malformed"),
    ],
)
def test_other_content_than_a_model_is_refused(data, words):
    with pytest.raises(ValueError, match=words):
        CollapseModel.from_dict(data)


def test_p_best_sums_to_one_over_the_judged_and_is_nan_for_others():
    model = CollapseModel.fit(references())
    curves = [
        surrogate_curve(recipe(tau=0.1), final=3.0, until=0.2),
        surrogate_curve(recipe(tau=0.2), final=3.1, until=0.2),
        replace(target(), horizon=None),
    ]
    made = model.forecast_many(curves, np.random.default_rng(0))
    assert made.p_best[0] > made.p_best[1]
    assert np.nansum(made.p_best) == pytest.approx(1.0)
    assert np.isnan(made.p_best[2])


def test_trials_share_the_uncertainty_of_their_family():
    model = CollapseModel.fit(references())
    pair = [surrogate_curve(recipe(tau=0.15, n_params=1e7), final=3.0 + d, until=0.2) for d in (0.0, 0.1)]
    draws = model.forecast_many(pair, np.random.default_rng(0)).draws
    assert np.corrcoef(draws.T)[0, 1] > 0.3


def test_joint_forecasts_of_one_trial_equal_its_own():
    model = CollapseModel.fit(references())
    alone, joint = model.forecast(target()), model.forecast_many([target()], np.random.default_rng(0)).forecasts[0]
    assert joint == alone


def test_accuracies_are_forecast_on_their_own_scale():
    metric = Metric("acc", "log1m", "last", "max")

    def accuracy(tau, n, end, until=1.0):
        made = recipe(tau=tau, n_params=n)
        curve = surrogate_curve(made, final=1 - end, until=until)
        return replace(curve, metric=metric, means=1 - curve.means, current_value=1 - curve.current_value, run_id=f"{tau}{n}")

    refs = [accuracy(tau, n, 0.7) for tau in TAUS for n in (1e5, 3e5)]
    made = CollapseModel.fit(refs).forecast(accuracy(0.15, 1e6, 0.8, until=0.3))
    assert made.final_loss == pytest.approx(0.8, abs=0.003)
    assert made.lower < 0.8 < made.upper


def test_a_run_that_left_its_family_says_nothing_of_the_others():
    """What runs of a sweep share is learned from those that follow: a diverging one moved all others by 2 %."""
    rng = np.random.default_rng(0)
    references = [
        surrogate_curve(recipe(tau=float(t)), noise=0.005, rng=rng, run_id=f"r{t:g}") for t in (0.1, 0.15, 0.2, 0.3, 0.4)
    ]
    healthy = [surrogate_curve(recipe(tau=float(t)), noise=0.005, rng=rng, until=0.5) for t in (0.12, 0.25)]
    wild = surrogate_curve(recipe(tau=0.2), until=0.5, bend=lambda t: 3.0 * np.maximum(t - 0.1, 0.0))
    model = CollapseModel.fit(references)
    alone, beside = (model.forecast_many(runs, rng).forecasts for runs in (healthy, [*healthy, wild]))
    assert beside[-1].status == "bad_misfit"
    assert [f.level for f in beside[:2]] == pytest.approx([f.level for f in alone], rel=1e-12)


@pytest.mark.parametrize("sched", [schedule("cosine"), unknown_schedule("ours")])
def test_a_schedule_that_no_reference_has_is_forecast_widely(sched):
    model = CollapseModel.fit(references())
    strange = replace(target(), recipe=recipe(sched=sched))
    known, found = model.forecast(target()), model.forecast(strange)
    assert found.status == "ok"
    assert found.final_loss == pytest.approx(known.final_loss, rel=0.2)
    assert found.level_sd > 5 * known.level_sd
    assert model.family_of(strange) is None


def test_a_run_without_a_recipe_is_not_judged_by_runs_that_have_one():
    made = CollapseModel.fit(references()).forecast(replace(target(), recipe=None))
    assert made.status == "no_family"
    assert CollapseModel.fit(references(), EARLY_ALIGN).forecast(
        replace(target(), recipe=recipe(sched=schedule("cosine")))
    ).status == ("no_family")
