"""Plans: horizons, batches, decay, notes."""

from __future__ import annotations

import pytest

from hpo.core.laws import critical_batch_tokens
from hpo.core.out_of_range import OutsideRangeError
from hpo.core.plan_notes import plan_notes
from hpo.core.planning import Rules, Size, horizon_tokens, ladder_params, params_for_budget, plan_run
from hpo.core.power_law import PowerLaw

SIZE = Size(name="one", n_params=1e9, seq_len=2048)


def test_tau_of_the_planned_recipe_is_the_one_asked_for():
    run = plan_run(SIZE, Rules(tau=0.2, batch=256, lr=0.01), tpp=20)
    assert run.recipe.tau == pytest.approx(0.2, rel=1e-12)
    assert run.recipe.base_lr * run.recipe.base_weight_decay == pytest.approx(run.lr_times_weight_decay, rel=1e-12)


def test_width_scaling_moves_rate_and_decay_but_not_their_product():
    narrow = Size(name="narrow", n_params=1e9, seq_len=2048, hidden_lr_factor=0.25)
    run = plan_run(narrow, Rules(tau=0.2, batch=256, lr=0.01), tpp=20)
    assert run.recipe.lr == pytest.approx(0.0025)
    assert run.recipe.lr * run.recipe.weight_decay == pytest.approx(run.lr_times_weight_decay)


def test_without_a_learning_rate_only_the_product_is_settled():
    run = plan_run(SIZE, Rules(tau=0.2, batch=256), tpp=20)
    said = run.to_dict()
    assert (said["lr"], said["weight_decay"]) == (None, None)
    assert said["lr_times_weight_decay"] == pytest.approx(1 / (0.2 * said["n_steps"]))


def test_tokens_are_those_of_whole_steps():
    run = plan_run(SIZE, Rules(tau=0.2, batch=256), tpp=20)
    assert run.recipe.n_tokens == run.n_steps * 256 * 2048
    assert run.recipe.n_steps == run.n_steps


def test_horizons_that_agree_are_one_horizon():
    assert horizon_tokens(SIZE, tpp=20, n_tokens=20e9, flops=6 * 1e9 * 20e9) == 20e9


def test_horizons_that_disagree_are_named():
    with pytest.raises(ValueError, match=r"tpp and tokens must agree .*tpp 30 means 3e\+10 tokens; tokens 2e\+10"):
        plan_run(SIZE, Rules(tau=0.2, batch=256), tpp=30, n_tokens=20e9)


def test_no_horizon_is_an_error():
    with pytest.raises(ValueError, match="needs a horizon: tpp, tokens or compute"):
        plan_run(SIZE, Rules(tau=0.2, batch=256))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), True])
def test_quantities_must_be_positive(value):
    with pytest.raises(ValueError, match="tpp must be finite and above 0"):
        plan_run(SIZE, Rules(tau=0.2, batch=256), tpp=value)


def test_a_decay_above_one_over_the_rate_is_refused():
    with pytest.raises(ValueError, match=r"above 1 \(a weight decay above 1/lr"):
        plan_run(SIZE, Rules(tau=1e-6, batch=256, extrapolate=True), tpp=20)


@pytest.mark.parametrize("tau", [0.01, 5.0])
def test_a_tau_far_from_all_that_was_measured_is_refused_unless_asked_for(tau):
    with pytest.raises(OutsideRangeError, match=r"tau must lie in \[0.0256, 0.447\]"):
        Rules(tau=tau, batch=256)
    rules = Rules(tau=tau, batch=256, extrapolate=True)
    assert any("warning: tau" in note for note in plan_notes([plan_run(SIZE, rules, tpp=20)], rules))


def test_compute_shared_by_the_exact_count_where_it_is_known():
    exact = Size(name="exact", n_params=1e9, seq_len=2048, flops_per_token=9e9)
    run = plan_run(exact, Rules(tau=0.2, batch=16), flops=9e9 * 2e10)
    assert run.tpp == pytest.approx(20)
    assert run.recipe.flops == pytest.approx(1.8e20, rel=1e-3)


def test_budget_and_tpp_give_a_size():
    n = params_for_budget(1.2e20, 20)
    assert 6 * n * 20 * n == pytest.approx(1.2e20)


def test_ladder_descends_by_its_factor():
    assert ladder_params(1e9, 0.25, 2) == pytest.approx([6.25e7, 2.5e8, 1e9])


def test_a_tau_law_is_not_extrapolated_silently():
    law = PowerLaw(coefficient=1.0, exponent=-0.5, x_name="tpp", y_name="tau", low=20, high=80, source="a test")
    with pytest.raises(ValueError, match=r"tpp must lie in \[20, 80\] for tau by a test; found 100"):
        plan_run(SIZE, Rules(tau=law, batch=256), tpp=100)
    rules = Rules(tau=law, batch=256, extrapolate=True)
    run = plan_run(SIZE, rules, tpp=100)
    assert run.tau == pytest.approx(0.1)
    assert any("warning: tau is extrapolated at tpp 100" in note for note in plan_notes([run], rules))


def test_a_batch_above_the_critical_one_is_warned_about():
    critical = critical_batch_tokens(20e9)
    below, above = int(0.9 * critical / 2048), int(1.1 * critical / 2048)
    for batch, n_warnings in ((below, 0), (above, 1)):
        rules = Rules(tau=0.2, batch=batch)
        notes = plan_notes([plan_run(SIZE, rules, tpp=20)], rules)
        assert sum("exceeds the critical batch" in note for note in notes) == n_warnings


def test_a_measured_critical_batch_replaces_the_law():
    rules = Rules(tau=0.2, batch=256, critical_batch=1e5)
    assert "measured" in " ".join(plan_notes([plan_run(SIZE, rules, tpp=20)], rules))


def test_a_binding_warmup_cap_is_named_as_a_departure_from_collapse():
    rules = Rules(tau=0.2, batch=256, warmup_max_tokens=375e6)
    run = plan_run(SIZE, rules, tpp=20)
    assert run.recipe.warmup_fraction == pytest.approx(375e6 / run.recipe.n_tokens)
    assert "departs from tight collapse" in plan_notes([run], rules)[-1]


def test_batch_of_a_size_that_has_none_is_an_error():
    with pytest.raises(ValueError, match="which has no batch of its own"):
        plan_run(SIZE, Rules(tau=0.2, batch="published"), tpp=20)


def test_square_root_batch_grows_with_the_root_of_the_size():
    four = Size(name="four", n_params=4e9, seq_len=2048)
    rules = Rules(tau=0.2, batch="sqrt")
    small, large = (plan_run(size, rules, tpp=20).batch_sequences for size in (SIZE, four))
    assert large / small == pytest.approx(2, rel=0.01)


def test_rounding_of_a_very_short_run_is_said():
    tiny = Size(name="tiny", n_params=1000, seq_len=64)
    rules = Rules(tau=0.5, batch=100, extrapolate=True)
    assert any("3 whole steps" in note for note in plan_notes([plan_run(tiny, rules, tpp=20)], rules))
