from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.methods import ALIASES, METHODS, current_best, multi_power_law, power_law, random, surrogate, transfer
from bench.methods.view import TaskView
from hpo.core.curve import Curve
from hpo.core.metric import Metric
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule
from hpo.core.surrogate import Surrogate, surrogate_mean

METRIC = Metric("val_loss", end="last")
TRUE_LAW = Surrogate(b_c=0.4, b_e=-0.2, q_c=1.2, q_e=0.0)
T = np.linspace(0.01, 1.0, 100)


def recipe(lr=1e-3, *, n_params=1e6, steps=1000, name="linear", **parameters) -> Recipe:
    return Recipe(
        schedule=schedule(name, **parameters),
        n_params=n_params,
        n_tokens=100.0 * steps,
        batch_tokens=100.0,
        lr=lr,
        weight_decay=0.1,
        warmup_fraction=0.0,
    )


def made(values, about: Recipe, run_id: str, until: float = 1.0, **settings) -> Curve:
    keep = until + 1e-9 >= T
    horizon = float(about.n_steps or 1)
    return Curve.from_points(
        T[keep] * horizon,
        np.asarray(values)[keep],
        horizon=horizon,
        recipe=about,
        metric=METRIC,
        run_id=run_id,
        settings=settings,
    )


def view(targets, references, prefixes=(), stop=0.3) -> TaskView:
    return TaskView(stop, tuple(targets), tuple(references), tuple(prefixes), np.random.default_rng(0))


def surrogate_values(about: Recipe, final: float):
    return final * np.exp(surrogate_mean(TRUE_LAW, about, T))


def test_every_alias_ends_at_a_method():
    assert all(ALIASES.get(name, name) in {*METHODS, *ALIASES} for name in ALIASES.values())


def test_random_gives_equal_scores_and_no_value():
    found = random.predict(view([made(T, recipe(), "a", 0.3)] * 3, []))
    assert np.ptp(found.score) == 0
    assert np.isnan(found.level).all()


def test_the_current_best_is_the_last_value_and_a_dead_run_is_last():
    alive = made(3 - T, recipe(), "a", 0.3)
    dead = made(np.where(T > 0.2, np.nan, 1.0), recipe(), "b", 0.3)
    found = current_best.predict(view([alive, dead], []))
    assert found.score[0] == pytest.approx(np.log(2.7))
    assert found.score[1] == np.inf


def test_the_current_best_learns_its_interval_from_the_references():
    whole = [made(3 - T, recipe(), f"r{k}") for k in range(3)]
    cut = [made(3 - T, recipe(), f"r{k}", 0.3) for k in range(3)]
    found = current_best.predict(view([cut[0]], whole, cut))
    assert found.sd[0] == pytest.approx(np.log(2.7) - np.log(2.0))


def settings_of(lr, **more):
    return {"lr": lr, "optimizer": "adamw", **more}


def test_transfer_takes_the_nearest_setting_in_log_units():
    references = [made(np.full(100, 3 + k), recipe(lr), f"r{k}", **settings_of(lr)) for k, lr in enumerate((1e-4, 1e-3, 1e-2))]
    target = made(T, recipe(2e-3, steps=2000), "t", 0.3, **settings_of(2e-3))
    assert transfer.predict(view([target], references)).level[0] == pytest.approx(np.log(4))


def test_transfer_prefers_size_then_schedule_then_setting_then_horizon():
    target = made(T, recipe(1e-3, n_params=8e6), "t", 0.3, **settings_of(1e-3))
    small = made(np.full(100, 2.0), recipe(1e-3, n_params=1e6), "small", **settings_of(1e-3))
    other = made(np.full(100, 3.0), recipe(1e-3, n_params=4e6, name="constant"), "other", **settings_of(1e-3))
    far = made(np.full(100, 4.0), recipe(1e-2, n_params=4e6), "far", **settings_of(1e-2))
    short = made(np.full(100, 5.0), recipe(2e-3, n_params=4e6, steps=500), "short", **settings_of(2e-3))
    long = made(np.full(100, 6.0), recipe(2e-3, n_params=4e6), "long", **settings_of(2e-3))
    pool = [small, other, far, short, long]
    for answer, gone in ((6.0, "long"), (5.0, "short"), (4.0, "far"), (3.0, "other"), (2.0, "small")):
        assert np.exp(transfer.transferred(target, pool)) == pytest.approx(answer)
        pool = [r for r in pool if r.run_id != gone]


def test_transfer_averages_seeds_and_ignores_their_number():
    references = [made(np.full(100, v), recipe(), f"s{v}", seed=float(v), lr=1e-3) for v in (2.0, 8.0)]
    target = made(T, recipe(), "t", 0.3, seed=8.0, lr=1e-3)
    assert np.exp(transfer.transferred(target, references)) == pytest.approx(4.0)


def test_transfer_abstains_without_references():
    assert np.isnan(transfer.predict(view([made(T, recipe(), "t", 0.3)], [])).score).all()


@pytest.mark.parametrize(
    ("a", "b", "gap"),
    [
        ({"lr": 1.0}, {"lr": np.e}, 1.0),
        ({"beta2": 0.9}, {"beta2": 0.99}, np.log(10)),
        ({"act": "relu"}, {"act": "gelu"}, 1.0),
        ({"decay": 0.0}, {"decay": 0.1}, 1.0),
        ({"decay": 0.0}, {"decay": 0.0}, 0.0),
        ({"only": 1.0}, {"other": 2.0}, 0.0),
    ],
)
def test_settings_are_apart_by_their_log_ratios(a, b, gap):
    assert transfer.distance(a, b) == pytest.approx(gap)


def test_the_power_law_extrapolates_a_power_law():
    target = made(2.0 + 0.5 * T**-0.4, recipe(), "a", 0.3)
    assert np.exp(power_law.extrapolated(target)) == pytest.approx(2.5, rel=4e-3)  # early bins average a convex law


def test_the_power_law_stays_within_its_bounds_and_abstains_on_few_points():
    rising = made(2.0 + T, recipe(), "a", 0.3)
    assert np.exp(power_law.extrapolated(rising)) <= 2.3
    assert np.isnan(power_law.extrapolated(made(2.0 + T, recipe(), "a", 0.03)))


def test_the_surrogate_recovers_a_curve_made_by_itself():
    abouts = [recipe(lr) for lr in (5e-4, 1e-3, 2e-3, 4e-3)]
    references = [made(surrogate_values(a, 3.0), a, f"r{k}") for k, a in enumerate(abouts)]
    prefixes = [made(surrogate_values(a, 3.0), a, f"r{k}", 0.3) for k, a in enumerate(abouts)]
    target = recipe(1.5e-3)
    found = surrogate.predict(view([made(surrogate_values(target, 2.5), target, "t", 0.3)], references, prefixes))
    assert np.exp(found.level[0]) == pytest.approx(2.5, rel=0.004)
    assert 0 < found.sd[0] < 0.02


def test_the_surrogate_abstains_where_a_control_is_unknown():
    about = replace(recipe(), weight_decay=None)
    references = [made(surrogate_values(recipe(), 3.0), recipe(), f"r{k}") for k in range(3)]
    found = surrogate.predict(view([made(T, about, "t", 0.3)], references, references))
    assert np.isnan(found.level).all()


CONSTANTS = np.array([2.5, np.log(0.6), 0.4, np.log(200.0), np.log(1.5), 0.5, 0.6])


def law_values(about: Recipe):
    blank = made(np.ones(100), about, "x")
    return multi_power_law._law(CONSTANTS, multi_power_law._design(blank, T, np.zeros(100), np.ones(100)))


def test_the_multi_power_law_predicts_an_unseen_schedule_made_by_itself():
    known = [recipe(name="constant"), recipe(name="cosine"), recipe(name="wsd", cooldown_fraction=0.2), recipe(steps=700)]
    references = [made(law_values(a), a, f"r{k}") for k, a in enumerate(known)]
    target = recipe(name="wsd", cooldown_fraction=0.5, steps=1500)
    truth = law_values(target)[-1]
    found = multi_power_law.predict(view([made(law_values(target), target, "t", 0.3)], references))
    assert np.exp(found.level[0]) == pytest.approx(truth, rel=0.003)


def test_the_gradient_of_the_multi_power_law_is_right():
    about = recipe(name="cosine")
    design = multi_power_law._design(made(np.ones(100), about, "x"), T, np.log(law_values(about)) + 3e-3, np.full(100, 0.01))
    point = CONSTANTS + 0.01
    value, gradient = multi_power_law._objective(point, [design])
    for k in range(7):
        step = np.zeros(7)
        step[k] = 1e-6
        up, down = (multi_power_law._objective(point + s, [design])[0] for s in (step, -step))
        assert gradient[k] == pytest.approx((up - down) / 2e-6, rel=1e-3, abs=1e-7)
    assert value > 0


def test_the_multi_power_law_abstains_where_the_schedule_is_unknown():
    target = made(T + 1, replace(recipe(), lr=None), "t", 0.3)
    references = [made(T + 1, recipe(), "r")]
    assert np.isnan(multi_power_law.predict(view([target], references)).score).all()


def test_aligned_the_law_takes_its_level_from_the_prefix():
    known = [recipe(name="constant"), recipe(name="cosine"), recipe(name="wsd", cooldown_fraction=0.2)]
    references = [made(law_values(a), a, f"r{k}") for k, a in enumerate(known)]
    target = recipe(name="linear")
    seen = made(1.1 * law_values(target), target, "t", 0.3)
    level = multi_power_law.predict_aligned(view([seen], references, references)).level[0]
    assert np.exp(level) == pytest.approx(1.1 * law_values(target)[-1], rel=0.01)
