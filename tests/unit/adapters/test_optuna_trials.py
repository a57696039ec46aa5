"""What a trial says of its horizon, recipe and family."""

from __future__ import annotations

from typing import Any

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from hpo import Recipe
from hpo.adapters.optuna_scale import Scale
from hpo.adapters.optuna_trials import Follower, FunctionError, Horizons, TrialReader, guess_recipe
from hpo.core.schedules import schedule, unknown_schedule


def trial(reports: dict[int, float] | None = None, **attributes: Any) -> FrozenTrial:
    return create_trial(state=TrialState.RUNNING, intermediate_values=reports or {}, user_attrs=attributes)


def test_usual_names_make_a_recipe() -> None:
    made = guess_recipe(trial(learning_rate=1e-3, wd=0.1, batch_size=8, seq_len=128, num_params=1e6, warmup_ratio=0.1), 500)
    assert made is not None
    assert (made.lr, made.weight_decay, made.n_params, made.warmup_fraction) == (1e-3, 0.1, 1e6, 0.1)
    assert (made.batch_tokens, made.n_tokens) == (1024, 512_000)
    assert made.tau == pytest.approx(1 / (1e-3 * 0.1 * 500))


def test_a_batch_size_without_a_sequence_length_is_no_number_of_tokens() -> None:
    made = guess_recipe(trial(lr=1e-3, weight_decay=0.1, batch_size=8), 500)
    assert made is not None
    assert (made.batch_tokens, made.n_tokens, made.tau) == (None, None, None)


@pytest.mark.parametrize("bad", [0, -1.0, float("nan"), float("inf"), "1e-3", True, None])
def test_values_that_cannot_be_right_are_unknown(bad: Any) -> None:
    assert guess_recipe(trial(lr=bad)) is None
    assert guess_recipe(trial(n_params=10, lr=bad, warmup_fraction=5)) == Recipe(schedule=unknown_schedule(""), n_params=10.0)


@pytest.mark.parametrize(
    ("name", "expected"), [("cosine", schedule("cosine")), ("my own", unknown_schedule("my own")), ("d2z", schedule("linear"))]
)
def test_a_named_schedule_is_understood_or_kept_as_a_label(name: str, expected: Any) -> None:
    made = guess_recipe(trial(lr_scheduler=name))
    assert made is not None
    assert made.schedule == expected


@pytest.mark.parametrize(
    ("params", "label"),
    [
        ({"step_decay": True}, "step_decay=True"),
        ({"scheduler": "cosine", "use_warm_restarts": False}, "cosine, use_warm_restarts=False"),
        ({"lr_sched": "one cycle", "cosine_annealing": "yes"}, "cosine_annealing=yes, lr_sched=one cycle"),
        ({"lr_decay": 0.5, "n_layers": 3}, None),
    ],
)
def test_a_searched_choice_that_changes_the_schedule_is_one(params: dict[str, Any], label: str | None) -> None:
    kinds = {k: FloatDistribution(0, 9) if isinstance(v, float) else CategoricalDistribution([v]) for k, v in params.items()}
    made = guess_recipe(create_trial(state=TrialState.RUNNING, params=params, distributions=kinds))
    assert made == (None if label is None else Recipe(schedule=unknown_schedule(label)))


def test_a_recipe_of_another_type_is_a_failure() -> None:
    with pytest.raises(FunctionError, match="recipe must return a Recipe or None; it returned 3 for trial"):
        TrialReader(recipe=lambda _: 3).recipe_of(trial())  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("given", "attributes", "expected"),
    [
        (100, {}, 100),
        (None, {"total_steps": 50}, 50),
        (None, {}, None),
        (None, {"total_steps": 0}, None),
        (lambda t: t.user_attrs["epochs"], {"epochs": 7}, 7),
        (lambda t: None, {}, None),
    ],
)
def test_the_stated_horizon(given: Any, attributes: dict[str, Any], expected: float | None) -> None:
    assert TrialReader(total_steps=given).stated_horizon(trial(**attributes)) == expected


def test_labels_are_texts() -> None:
    assert TrialReader().label_of(trial()) == ""
    assert TrialReader().label_of(trial(family="a")) == "a"
    assert TrialReader(family=lambda t: (1, "b")).label_of(trial()) == "(1, 'b')"


def horizons(*ends: int, stated: float | None = None, every: int = 1) -> Horizons:
    made = Horizons()
    for end in ends:
        made.add(stated, trial(dict.fromkeys(range(end % every, end + 1, every), 1.0)))
    return made


@pytest.mark.parametrize(
    ("ends", "expected"),
    [((), None), ((99,), 99), ((99, 99, 99, 99, 50), 99), ((99, 99, 50), None), ((0, 0), None)],
)
def test_the_horizon_that_finished_trials_agree_on(ends: tuple[int, ...], expected: float | None) -> None:
    assert horizons(*ends).settle(None) == expected


@pytest.mark.parametrize(("end", "every", "settled"), [(19, 1, 19), (20, 1, 20), (15, 5, 15), (12, 1, 20), (25, 1, 20)])
def test_trials_that_end_one_report_early_set_the_horizon(end: int, every: int, settled: float) -> None:
    assert horizons(end, end, end, stated=20, every=every).settle(20) == settled


def test_taking_reports_one_by_one_or_at_once_gives_one_curve() -> None:
    reports = {s: 3.0 + 1 / s for s in (*range(2, 200, 2), 51, 199)}
    scale = Scale.for_study(1.0, "log")
    at_once, stepwise = Follower(scale, 200), Follower(scale, 200)
    at_once.take(reports)
    seen: dict[int, float] = {}
    for step, value in reports.items():
        seen[step] = value
        stepwise.take(seen)
    one, other = at_once.stream.snapshot(), stepwise.stream.snapshot()
    assert one.means == pytest.approx(other.means)
    assert one.counts == pytest.approx(other.counts)
    assert at_once.furthest == stepwise.furthest == 199
