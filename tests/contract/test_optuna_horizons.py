"""Where a trial's training ends, and what the pruner does where that is not known, over every storage."""

from __future__ import annotations

import optuna
import pytest
from optuna_studies import HORIZON, add, add_family, attach, curve, first_stop, frozen, steps

from hpo import CollapsePruner


def test_an_unknown_horizon_stops_nothing_and_says_so(study: optuna.Study) -> None:
    pruner = attach(study, total_steps=None)
    assert first_stop(study, curve(9.0, steps()[:5])) == 0
    assert pruner.decision(0).reason == "unknown_horizon"
    assert "no trial has finished" in pruner.decision(0).detail


def test_finished_trials_that_end_apart_leave_the_horizon_unknown(study: optuna.Study) -> None:
    pruner = attach(study, total_steps=None)
    add_family(study, 4)
    for _ in range(3):
        add(study, curve(3.0, steps(5, 50), 50))
    assert first_stop(study, curve(9.0, steps()[:-1])) == 0
    assert pruner.decision(7).reason == "unknown_horizon"
    assert "different steps" in pruner.decision(7).detail


def test_the_horizon_is_learned_from_finished_trials(study: optuna.Study) -> None:
    attach(study, total_steps=None)
    add_family(study)
    assert 10 <= first_stop(study, curve(3.8, steps())) <= 30


def test_a_horizon_per_trial_is_read_from_its_attributes(study: optuna.Study) -> None:
    attach(study, total_steps=None)
    add_family(study, total_steps=HORIZON)
    reports = {10 * s: v for s, v in curve(3.8, steps()).items()}
    assert 100 <= first_stop(study, reports, total_steps=10 * HORIZON) <= 300


def test_a_trial_past_its_horizon_is_not_judged(study: optuna.Study) -> None:
    pruner = attach(study)
    add_family(study)
    assert pruner.prune(study, frozen(99, {**curve(3.0, steps()[:4]), 120: 99.0, 130: 99.0})) is False
    assert pruner.decision(99).reason == "past_horizon"


def test_a_loop_that_counts_from_zero_has_complete_trials(study: optuna.Study) -> None:
    attach(study, total_steps=20)
    for i, final in enumerate((3.2, 3.1, 3.0, 3.05)):
        add(study, curve(final, range(20), 20, wiggle=0.002, seed=i))
    assert 2 <= first_stop(study, curve(4.2, range(20), 20)) <= 6


@pytest.mark.parametrize("stated", [1.2 * HORIZON, 9 * HORIZON])
def test_a_stated_length_that_no_finished_trial_reaches_is_said(stated: float) -> None:
    study = optuna.create_study(pruner=CollapsePruner(total_steps=stated))
    add_family(study)
    with pytest.warns(RuntimeWarning, match=f"finished trials end at step {HORIZON}, total_steps says {stated:g}"):
        assert first_stop(study, curve(3.6, steps())) == 0
    decision = study.pruner.decision(len(study.trials) - 1, study)
    assert decision.reason == "no_references"
    assert decision.detail == f"finished trials end at step {HORIZON}, total_steps says {stated:g}"
