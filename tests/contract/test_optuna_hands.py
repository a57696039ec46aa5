"""Orders by hand and shadow mode: whoever says so, not the forecast, over every storage."""

from __future__ import annotations

import pickle
from typing import Any

import optuna
import pytest
from optuna_studies import add_family, attach, curve, first_stop, steps

from hpo import CollapsePruner


def test_shadow_mode_says_what_it_would_do_and_stops_nothing(study: optuna.Study) -> None:
    pruner = attach(study, mode="shadow")
    add_family(study)
    assert first_stop(study, curve(4.0, steps()[:-1])) == 0
    assert pruner.decision(6).action == "stop"
    assert pruner.decision(6).pruned is False


def test_a_hand_overrules_the_forecast(study: optuna.Study) -> None:
    pruner = attach(study)
    add_family(study)
    pruner.keep(6)
    assert first_stop(study, curve(4.0, steps()[:-1])) == 0
    pruner.stop(7)
    assert first_stop(study, curve(2.5, steps())) == 5
    assert pruner.decision(7).reason == "stopped_by_hand"


@pytest.mark.parametrize("order", ["keep", "stop"])
def test_in_shadow_mode_a_hand_still_stops_and_keeps(study: optuna.Study, order: str) -> None:
    pruner = attach(study, mode="shadow")
    add_family(study)
    getattr(pruner, order)(6)
    assert first_stop(study, curve(4.0, steps()[:-1])) == (5 if order == "stop" else 0)
    assert pruner.decision(6).reason == ("stopped_by_hand" if order == "stop" else "kept_by_hand")


def test_an_order_is_for_one_trial_of_one_study(storage: optuna.storages.BaseStorage) -> None:
    first, second = (optuna.create_study(storage=storage) for _ in range(2))
    pruner = second.pruner = attach(first)
    pruner.stop(0)  # before any study: for the first that is served
    assert first_stop(first, curve(3.0, steps())) == 5
    assert first_stop(second, curve(3.0, steps())) == 0
    with pytest.raises(ValueError, match="study must be given where one pruner serves several"):
        pruner.stop(1)
    pruner.stop(1, first)
    assert first_stop(first, curve(3.0, steps())) == 5
    assert first_stop(second, curve(3.0, steps())) == 0


def test_an_order_outlives_pickling(study: optuna.Study) -> None:
    pruner = attach(study)
    pruner.stop(0)
    study.pruner = pickle.loads(pickle.dumps(pruner))
    assert first_stop(study, curve(3.0, steps())) == 5


@pytest.mark.parametrize("number", ["3", -1, 2.0, None, True])
@pytest.mark.parametrize("order", ["keep", "stop"])
def test_an_order_for_what_is_no_trial_number_is_refused(order: str, number: Any) -> None:
    with pytest.raises(ValueError, match="trial_number must be a whole number from 0 on; found"):
        getattr(CollapsePruner(), order)(number)
