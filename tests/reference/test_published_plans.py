"""Published plans and laws (arXiv 2509.25087: family table, FLOPs, fits; arXiv 2505.13738: τ law)."""

from __future__ import annotations

import pytest

from hpo.commands.plan_build import build_plan
from hpo.commands.plan_spec import PlanSpec
from hpo.core.frontier import BTLM_3B, CELERITY_MODELS, PUBLISHED_MODELS, compare
from hpo.core.laws import ERROR_LAW, LOSS_LAWS, TAU_LAWS, compression, smallest_params_ratio, sqrt_batch_tokens

N = {"300M": 2.71e8, "500M": 5.03e8, "900M": 9.06e8, "1.8B": 1.81e9, "3.9B": 3.88e9}
BATCH = {"300M": 176, "500M": 240, "900M": 336, "1.8B": 464, "3.9B": 672}
TOKENS_B = {
    "300M": (5.4, 21.7, 63.4),
    "500M": (10.1, 40.2, 117.8),
    "900M": (18.1, 72.5, 212.3),
    "1.8B": (36.2, 144.8, 424.0),
    "3.9B": (77.6, 310.4, 909.2),
}
FLOPS_AT_234 = {"300M": 1.47e20, "500M": 5.15e20, "900M": 1.68e21, "1.8B": 6.54e21, "3.9B": 2.89e22}
TAU = {20.0: 0.175, 80.0: 0.087, 234.0: 0.051}


@pytest.fixture(scope="module")
def celerity():
    plan = build_plan(PlanSpec.model_validate({"family": "celerity", "tpp": [20.0, 80.0, 234.0]}))
    return plan, {recipe["name"]: recipe for recipe in plan.document()["recipes"]}


@pytest.mark.parametrize("size", N)
def test_celerity_sizes_tokens_and_batches(celerity, size):
    for tpp, tokens in zip((20, 80, 234), TOKENS_B[size], strict=True):
        recipe = celerity[1][f"{size}-{tpp}tpp"]
        assert recipe["n_params"] == pytest.approx(N[size], rel=0.01)
        assert recipe["n_tokens"] == pytest.approx(1e9 * tokens, rel=0.01)
        assert recipe["batch_sequences"] == BATCH[size]
        assert recipe["batch_tokens"] == BATCH[size] * 8192


@pytest.mark.parametrize("size", N)
def test_celerity_exact_flops(celerity, size):
    assert celerity[1][f"{size}-234tpp"]["flops"] == pytest.approx(FLOPS_AT_234[size], rel=0.01)


def test_celerity_tau_as_published_and_by_its_law(celerity):
    for recipe in celerity[1].values():
        assert recipe["tau"] == recipe["tau_published"] == TAU[recipe["tpp"]]
        assert recipe["tau_law"] == pytest.approx(recipe["tau_published"], rel=0.01)


def test_celerity_leaves_the_rate_open_and_settles_the_product(celerity):
    for recipe in celerity[1].values():
        assert (recipe["lr"], recipe["weight_decay"]) == (None, None)
        assert recipe["lr_times_weight_decay"] * recipe["tau"] * recipe["n_steps"] == pytest.approx(1)
        tau = recipe["batch_tokens"] / (recipe["lr_times_weight_decay"] * recipe["n_tokens"])
        assert tau == pytest.approx(recipe["tau"])


def test_celerity_departs_from_tight_collapse_by_its_warm_up(celerity):
    plan, recipes = celerity
    assert any("departs from tight collapse: warm-up is min(10%, 3.75e+08 tokens)" in note for note in plan.notes)
    assert recipes["3.9B-234tpp"]["warmup_fraction"] == pytest.approx(375e6 / 909.2e9, rel=0.01)


def test_celerity_batches_grow_with_the_root_of_the_size():
    for size, batch in BATCH.items():
        assert sqrt_batch_tokens(N[size]) == pytest.approx(8192 * batch, rel=0.03)


def test_celerity_batches_stay_below_the_critical_batch(celerity):
    assert not any("critical batch" in note for note in celerity[0].notes)


def test_collapse_experiment_sizes():
    plan = build_plan(PlanSpec.model_validate({"family": "collapse", "tpp": [20.0]}))
    sizes = {recipe["name"]: recipe["n_params"] for recipe in plan.document()["recipes"]}
    published = {"111M": 1.11e8, "266M": 2.66e8, "610M": 6.10e8, "1.7B": 1.7e9, "3.3B": 3.3e9}
    assert sizes == {name: pytest.approx(n, rel=0.02) for name, n in published.items()}


def test_power_lines_law():
    assert TAU_LAWS["power-lines"].at(20) == pytest.approx(0.2236, abs=1e-4)
    assert TAU_LAWS["power-lines"].at(234) == pytest.approx(0.0611, abs=1e-4)


def test_compression_at_234_tokens_per_parameter():
    one = compression(234)
    assert 1 - one.params_ratio == pytest.approx(0.62, abs=0.005)
    assert one.flops_ratio == pytest.approx(1.67, abs=0.005)
    assert smallest_params_ratio() == pytest.approx(0.138, abs=5e-4)


def test_downstream_fit_is_near_the_published_accuracies_of_the_larger_models_only():
    for model in CELERITY_MODELS[2:]:
        assert 100 - ERROR_LAW.at(model.flops) == pytest.approx(model.quality, abs=1.1)
    for model, miss in zip(CELERITY_MODELS[:2], (4.3, 2.6), strict=True):
        assert model.quality - (100 - ERROR_LAW.at(model.flops, extrapolate=True)) == pytest.approx(miss, abs=0.1)


def test_loss_law_of_celerity():
    assert LOSS_LAWS["celerity"].at(6.54e21) == pytest.approx((6.54e21 / 5.105e29) ** -0.049)


def test_published_models_have_the_tokens_their_flops_imply():
    for model in PUBLISHED_MODELS:
        assert 1.0 < model.flops / (6 * model.n_params * model.n_tokens) < 1.6


def test_three_quarters_fewer_flops_than_btlm_does_not_follow():
    one = compare(CELERITY_MODELS[3], BTLM_3B)
    assert one.flops_saved_fraction == pytest.approx(0.58, abs=0.005)
    assert one.quality_lost == pytest.approx(1.1, abs=0.01)
    assert 1 - ERROR_LAW.inverse(100 - BTLM_3B.quality) / BTLM_3B.flops == pytest.approx(0.26, abs=0.01)
