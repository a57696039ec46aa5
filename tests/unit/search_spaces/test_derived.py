import pytest

from hpo.core.recipe import Recipe
from hpo.core.schedules import schedule
from search_spaces import RunContext, derive, load_space


def run(**changes):
    return RunContext(**{"n_params": 1e5, "n_tokens": 2_048_000, "seq_len": 64, "batch_sequences": 16, "lr": 0.01, **changes})


def test_the_decay_solves_tau():
    settings = derive({"lr": 0.02, "tau": 0.1}, run())
    assert settings == {"lr": 0.02, "batch_sequences": 16, "n_steps": 2000, "weight_decay": 1024 / (0.02 * 0.1 * 2_048_000)}


@pytest.mark.parametrize("n_tokens", [2_048_000, 2_048_511, 1_999_999])
def test_the_run_as_trained_has_the_tau_asked_for(n_tokens):
    got = derive({"tau": 0.3, "batch_sequences": 12}, run(n_tokens=n_tokens))
    batch = got["batch_sequences"] * 64
    trained = Recipe(
        schedule=schedule("linear"), n_tokens=got["n_steps"] * batch, batch_tokens=batch, lr=got["lr"],
        weight_decay=got["weight_decay"]
    )  # fmt: skip
    assert trained.tau == pytest.approx(0.3, rel=1e-12)
    assert trained.n_tokens == pytest.approx(n_tokens, abs=batch / 2)


def test_tau_does_not_depend_on_the_width():
    base = derive({"tau": 0.2}, run())
    for m in (1, 4, 16):  # μP and CompleteP train with η/m and λ·m
        applied = (base["lr"] / m) * (base["weight_decay"] * m)
        assert 1 / (applied * base["n_steps"]) == pytest.approx(0.2)


def test_tokens_per_parameter_set_the_number_of_steps():
    assert derive({"tpp": 20}, run())["n_steps"] == round(20 * 1e5 / (16 * 64))
    assert "tpp" not in derive({"tpp": 20}, run())


def test_a_batch_in_tokens_is_rounded_to_sequences_and_the_rounded_one_solves_the_decay():
    rounded, whole = derive({"batch_tokens": 1000, "tau": 0.1}, run()), derive({"batch_sequences": 16, "tau": 0.1}, run())
    assert rounded == whole


def test_the_batch_sweep_holds_tau():
    space = load_space("batch_fixed_tau")
    for point in space.candidates("grid"):
        got = space.derive(point, run())
        assert 1 / (got["lr"] * got["weight_decay"] * got["n_steps"]) == pytest.approx(0.2)
        assert got["batch_sequences"] == point["batch_sequences"]


def test_what_the_point_does_not_say_comes_from_the_run():
    assert derive({}, run(weight_decay=0.3)) == {"lr": 0.01, "batch_sequences": 16, "n_steps": 2000, "weight_decay": 0.3}
    assert "weight_decay" not in derive({}, run())
    assert derive({}, run(tau=0.1))["weight_decay"] == derive({"tau": 0.1}, run())["weight_decay"]
    assert derive({"weight_decay": 0.5}, run(tau=0.1))["weight_decay"] == 0.5


def test_other_settings_pass_through_and_the_input_is_untouched():
    point = {"tau": 0.1, "optimizer": "adamw", "warmup_fraction": 0.05}
    got = derive(point, run())
    assert (got["optimizer"], got["warmup_fraction"]) == ("adamw", 0.05)
    assert point == {"tau": 0.1, "optimizer": "adamw", "warmup_fraction": 0.05}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tau": 1e-4}, "tau 0.0001 over 2000 steps needs a weight decay at most 1/lr = 100; found 500"),
        ({"weight_decay": 101}, "weight_decay must be at most 1/lr = 100; found 101"),
        ({"weight_decay": -1}, "weight_decay must be finite and at least 0; found -1"),
        ({"tau": 0}, "tau must be finite and above 0; found 0"),
        ({"tau": float("nan")}, "tau must be finite and above 0; found nan"),
        ({"lr": 0}, "lr must be finite and above 0; found 0"),
        ({"tpp": -20}, "tpp must be finite and above 0; found -20"),
        ({"batch_sequences": 12.5}, "batch_sequences must be a whole number; found 12.5"),
        ({"batch_sequences": "16"}, "batch_sequences must be finite and above 0; found '16'"),
        ({"batch_tokens": 10}, "batch_tokens must be at least one sequence of 64 tokens; found 10"),
        ({"batch_tokens": 640, "batch_sequences": 10}, "expected batch_sequences or batch_tokens, not both; found both"),
        ({"tau": 0.1, "weight_decay": 0.1}, "expected tau or weight_decay, not both; found both"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        derive(settings, run())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_params": 0}, "n_params must be finite and above 0; found 0"),
        ({"seq_len": 64.5}, "seq_len must be a whole number; found 64.5"),
        ({"weight_decay": 0.1, "tau": 0.1}, "expected weight_decay or tau, not both; found both"),
    ],
)
def test_an_impossible_run_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        run(**changes)


def test_a_learning_rate_is_needed():
    with pytest.raises(ValueError, match="lr must be searched, fixed or given with the run; found none"):
        derive({}, run(lr=None))
