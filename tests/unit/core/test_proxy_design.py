"""What a design is expected to find and to cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic import recipe, surrogate_curve

from hpo.core.decision import _smallest_set
from hpo.core.model import CollapseModel
from hpo.core.posterior import align_jointly
from hpo.core.proxy_beliefs import knowledge_before, knowledge_of_model, usual_beliefs
from hpo.core.proxy_design import Keeping, Trial, _joint_covariance, cheapest_outcome, outlook
from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule
from hpo.core.standing import Prefix

RATES = np.geomspace(1e-3, 1.6e-2, 8).tolist()
KEEP_ONE = Keeping(keep_max=1)
NO_TRANSFER = {"size_reach": 1e-3, "spread": 0.1}
"""Settings whose order at one size says nothing of that at another."""


def trial(n_params, lr, tau=0.2, tpp=20.0):
    tokens = tpp * n_params
    batch = tokens / 5000
    recipe = Recipe(
        schedule=schedule("linear"),
        n_params=n_params,
        n_tokens=tokens,
        batch_tokens=batch,
        lr=lr,
        weight_decay=batch / (lr * tau * tokens),
        warmup_fraction=0.1,
    )
    return Trial(recipe=recipe, settings={"lr": lr}, flops=6 * n_params * tokens)


CANDIDATES = [trial(1e8, lr) for lr in RATES]
PROXIES = [trial(n, lr) for n in (1e7, 3e7) for lr in RATES[::2]]
BELIEFS = usual_beliefs(1e8)
POINTS = [c.point for c in CANDIDATES]


def expected(beliefs=BELIEFS, proxies=PROXIES, stop=0.2, keeping=KEEP_ONE, seed=0, n=600):
    known = knowledge_before(beliefs, POINTS)
    return outlook(CANDIDATES, proxies, stop, known, keeping, np.random.default_rng(seed), n)


def test_with_no_misfit_the_pick_is_the_best():
    made = expected(replace(BELIEFS, misfit_sd=1e-7, report_sd=1e-7))
    assert made.p_best_of_pick > 0.99
    assert made.regret_of_pick_pct < 1e-3


def test_a_misfit_that_drowns_everything_leaves_what_the_proxies_say():
    blind = replace(BELIEFS, misfit_sd=10.0)
    no_transfer = replace(blind, **NO_TRANSFER)
    assert expected(no_transfer).p_best_of_pick < 0.5
    assert expected(blind).p_best_of_pick > expected(no_transfer).p_best_of_pick + 0.2


def test_looking_longer_finds_more():
    hard = replace(BELIEFS, misfit_sd=0.05, **NO_TRANSFER)
    early, late = (expected(hard, stop=stop, n=2000) for stop in (0.1, 0.7))
    assert late.p_best_of_pick > early.p_best_of_pick + 0.03
    assert late.regret_of_pick_pct < early.regret_of_pick_pct


def test_keeping_more_finds_more_and_never_less():
    n = len(CANDIDATES)
    kept = [Keeping(alpha=1e-9, keep_max=count) for count in range(1, n + 1)]
    made = [expected(replace(BELIEFS, misfit_sd=0.02), keeping=keeping) for keeping in kept]
    assert all(np.diff([one.p_best for one in made]) >= 0)
    assert made[-1].p_best == 1.0


@pytest.mark.parametrize("alpha", [0.3, 0.05])
def test_a_kept_set_holds_the_best_as_often_as_it_says(alpha):
    made = expected(replace(BELIEFS, misfit_sd=0.02), keeping=Keeping(alpha=alpha), n=2000)
    assert made.p_best > 1 - alpha - 0.03


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.3])
def test_as_many_are_kept_as_the_decision_keeps(alpha):
    p_best = -np.sort(-np.random.default_rng(0).dirichlet(np.full(7, 0.5), size=50), axis=1)
    expected_counts = [_smallest_set(row.tolist(), alpha) for row in p_best]
    assert Keeping(alpha=alpha).count(p_best).tolist() == expected_counts


def test_a_smaller_error_budget_keeps_more():
    loose, strict = (expected(keeping=Keeping(alpha=alpha)).kept for alpha in (0.3, 0.01))
    assert strict > loose


def test_costs_are_those_of_the_steps_trained():
    made = expected(stop=0.25)
    full = sum(c.flops for c in CANDIDATES)
    assert made.flops_candidates == pytest.approx(0.25 * full)
    assert made.flops_finishing == pytest.approx(0.75 * full / len(CANDIDATES))
    assert made.flops_proxies == pytest.approx(sum(p.flops for p in PROXIES))
    assert made.flops == pytest.approx(cheapest_outcome(CANDIDATES, PROXIES, 0.25))
    assert made.saved_fraction == pytest.approx(1 - made.flops / full)


def test_the_most_it_can_cost_is_that_of_all_who_may_go_on():
    full = sum(c.flops for c in CANDIDATES)
    taught = sum(p.flops for p in PROXIES)
    assert expected(stop=0.25, keeping=Keeping()).flops_at_most == pytest.approx(taught + full)
    capped = expected(stop=0.25, keeping=Keeping(keep_max=2))
    assert capped.flops_at_most == pytest.approx(taught + 0.25 * full + 0.75 * full * 2 / len(CANDIDATES))
    assert capped.flops <= capped.flops_at_most


def test_from_the_break_even_on_a_sweep_is_cheaper_than_all_candidates():
    made = expected(stop=0.25)
    each = CANDIDATES[0].flops

    def saves(n):
        return made.flops_proxies + made.flops_finishing + n * 0.25 * each < n * each

    assert saves(made.break_even_trials)
    assert not saves(made.break_even_trials - 1)


def test_the_same_generator_gives_the_same_outlook():
    assert expected(seed=3) == expected(seed=3)


def test_the_joint_covariance_is_that_of_the_alignment():
    rng = np.random.default_rng(0)
    age = -np.log(np.array([0.02, 0.05, 0.1, 0.2]))
    k = 0.01**2 * np.minimum(age[:, None], age[None, :])
    loadings, own = rng.standard_normal((5, 2)), rng.uniform(1, 2, 5)
    noise = rng.uniform(1e-6, 1e-5, (5, 4))
    prefixes = [Prefix(np.zeros(4), np.eye(4), loadings[i], float(own[i]), noise[i]) for i in range(5)]
    found = _joint_covariance(k, loadings, own, noise)
    assert found == pytest.approx(align_jointly(prefixes, k).covariance, rel=1e-8)


def test_smaller_families_are_believed_to_stray_further():
    large, small, unknown = usual_beliefs(1e9), usual_beliefs(1e5), usual_beliefs(None)
    assert small.misfit_sd > 2 * large.misfit_sd
    assert small.seed_sd > 5 * large.seed_sd
    assert unknown.misfit_sd == pytest.approx(large.misfit_sd, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"stop": 1.0}, "stop must lie inside"),
        ({"proxies": []}, "proxies must not be empty"),
        ({"stop": 1e-9}, "stop must come after the first point"),
    ],
)
def test_what_cannot_be_judged_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        expected(**arguments)


def test_a_model_of_finished_runs_is_knowledge_and_another_schedule_is_none():
    runs = [recipe(tau=tau, n_params=n) for n in (1e6, 3e6) for tau in (0.1, 0.2, 0.4)]
    finished = [surrogate_curve(run, final=3 + run.tau, run_id=str(k)) for k, run in enumerate(runs)]
    model = CollapseModel.fit(finished)
    known = knowledge_of_model(model, [(run, {}) for run in runs])
    assert known is not None
    assert len(known.runs) == len(runs)
    assert knowledge_of_model(model, [(replace(runs[0], schedule=schedule("constant")), {})]) is None


def test_finished_runs_alone_can_carry_a_design():
    runs = [recipe(tau=tau, n_params=n) for n in (1e6, 3e6) for tau in (0.1, 0.2, 0.4)]
    model = CollapseModel.fit([surrogate_curve(run, run_id=str(k)) for k, run in enumerate(runs)])
    known = knowledge_of_model(model, [(run, {}) for run in runs])
    made = outlook(CANDIDATES, [], 0.2, known, KEEP_ONE, np.random.default_rng(0))
    assert made.flops_proxies == 0
    assert made.p_best_of_pick > 1 / len(CANDIDATES)
