import optuna
import pytest

from search_spaces import load_space

OPTIMISERS = {
    "lr": {"type": "float", "low": 1e-3, "high": 1e-1, "log": True, "points": 3},
    "optimizer": {"type": "categorical", "choices": ["adamw", "sgd", "lion"]},
    "weight_decay": {"type": "float", "low": 0.0, "high": 0.4, "points": 3, "when": {"optimizer": ["adamw", "lion"]}},
    "momentum": {"type": "float", "grid": [0.8, 0.9], "when": {"optimizer": "sgd"}},
    "nesterov": {"type": "categorical", "choices": [True, False], "when": {"optimizer": "sgd"}},
}


@pytest.fixture
def conditional():
    return load_space({"parameters": OPTIMISERS})


def small(**extra):
    parameters = {"a": {"type": "int", "low": 0, "high": 4}, "b": {"type": "categorical", "choices": ["x", "y", None]}}
    return load_space({"parameters": parameters, **extra})


def distinct(points):
    return len({tuple(sorted(point.items(), key=str)) for point in points}) == len(points)


def test_distributions_are_optunas():
    made = load_space({"parameters": {**OPTIMISERS, "depth": {"type": "int", "low": 2, "high": 7, "step": 2}}}).distributions()
    assert made["lr"] == optuna.distributions.FloatDistribution(1e-3, 1e-1, log=True)
    assert made["optimizer"] == optuna.distributions.CategoricalDistribution(["adamw", "sgd", "lion"])
    assert made["depth"] == optuna.distributions.IntDistribution(2, 6, step=2)
    assert set(made) == {*OPTIMISERS, "depth"}


def test_optuna_draws_points_of_the_space(conditional):
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    for _ in range(30):
        trial = study.ask()
        point = conditional.suggest(trial)
        assert conditional.checked(point) == point
        assert trial.params == point
        assert trial.distributions.items() <= conditional.distributions().items()


def test_points_enqueued_by_optuna_come_out_as_they_went_in(conditional):
    study = optuna.create_study()
    for point in conditional.grid():
        study.enqueue_trial(point)
    assert [conditional.suggest(study.ask()) for _ in conditional.grid()] == conditional.grid()


def test_a_full_grid_leaves_out_what_does_not_apply(conditional):
    grid = conditional.grid()
    assert len(grid) == 3 * (3 + 3 + 4)  # lr × (adamw λ + lion λ + sgd momentum × nesterov)
    assert distinct(grid)
    assert all(("momentum" in point) == (point["optimizer"] == "sgd") for point in grid)
    assert grid[0] == {"lr": 0.001, "optimizer": "adamw", "weight_decay": 0.0}


def test_log_points_are_evenly_spaced_in_the_log():
    values = [point["lr"] for point in load_space({"parameters": {"lr": OPTIMISERS["lr"]}}).grid()]
    assert values == pytest.approx([0.001, 0.01, 0.1], rel=1e-12)
    assert (values[0], values[-1]) == (0.001, 0.1)


def test_a_parameter_without_grid_values_has_no_full_grid():
    made = load_space({"parameters": {"lr": {"type": "float", "low": 1, "high": 2}}})
    with pytest.raises(
        ValueError, match=r"parameters\.lr: a full grid expected grid values or points, or search.candidates; found neither"
    ):
        made.candidates("grid")


def test_size_counts_points(conditional):
    assert conditional.size is None
    assert small().size == 15
    discrete = {name: one for name, one in OPTIMISERS.items() if name in ("optimizer", "nesterov")}
    assert load_space({"parameters": discrete}).size == 4
    assert load_space({"parameters": {"x": {"type": "float", "low": 0, "high": 1, "step": 0.1}}}).size == 11


def test_candidates_use_up_a_finite_space_and_not_more():
    every = small().candidates(15)
    assert len(every) == 15
    assert distinct(every)
    with pytest.raises(ValueError, match="candidates must be at most the 15 points of the space; found 16"):
        small().candidates(16)


@pytest.mark.parametrize("n", [0, -1, True, 2.5, "all"])
def test_candidates_need_a_count(n):
    with pytest.raises(ValueError, match="candidates must be a whole number of at least 1, or 'grid'"):
        small().candidates(n)


def test_first_points_come_first_and_once():
    made = small(first=[{"a": 3.0, "b": None}, {"a": 1, "b": "x"}, {"a": 3, "b": None}])
    assert made.first[0] == {"a": 3, "b": None}
    assert made.candidates(5)[:2] == [{"a": 3, "b": None}, {"a": 1, "b": "x"}]
    assert distinct(made.candidates(15))


def test_candidates_cover_the_log_scale():
    values = sorted(point["lr"] for point in load_space("lr").candidates(16, seed=1))
    per_octile = [sum(10 ** (-3 + k / 4) <= v < 10 ** (-3 + (k + 1) / 4) for v in values) for k in range(8)]
    assert per_octile == [2] * 8


def test_an_inactive_parameter_in_a_point_is_refused(conditional):
    with pytest.raises(ValueError, match=r"settings\.momentum: expected none unless optimizer is sgd; found 0.9"):
        conditional.checked({"lr": 0.01, "optimizer": "adamw", "weight_decay": 0.1, "momentum": 0.9})
    with pytest.raises(ValueError, match=r"settings\.nesterov: expected one of True, False; found 1"):
        conditional.checked({"lr": 0.01, "optimizer": "sgd", "momentum": 0.9, "nesterov": 1})
