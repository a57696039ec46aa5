"""When audited trials contradict the forecasts."""

from __future__ import annotations

import numpy as np

from hpo.adapters.optuna_audit import Audit, Claim


def test_the_share_chosen_is_the_share_asked_for_and_the_same_everywhere() -> None:
    audit = Audit(0.1)
    chosen = [audit.chooses("study", n) for n in range(5000)]
    assert 0.08 < np.mean(chosen) < 0.12
    assert chosen == [Audit(0.1).chooses("study", n) for n in range(5000)]
    assert not any(Audit(0.0).chooses("study", n) for n in range(100))


def test_one_improbable_winner_contradicts() -> None:
    audit = Audit(0.1, {1: Claim(p_best=0.001, incumbent=0.0, lower=0.1)})
    assert not audit.contradicts
    audit.settle(1, -0.5)
    assert audit.contradicts
    assert "1 beat the incumbent" in str(audit)


def test_true_claims_do_not_contradict() -> None:
    rng = np.random.default_rng(0)
    contradicted = 0
    for _ in range(200):
        audit = Audit(0.1)
        for n in range(40):  # final ~ N(0, 1), incumbent at −3.09 (p .001), lower at −1.645
            audit.claims[n] = Claim(0.001, -3.09, -1.645)
            audit.settle(n, float(rng.standard_normal()))
        contradicted += audit.contradicts
    assert contradicted <= 12


def test_finals_below_the_interval_too_often_contradict() -> None:
    audit = Audit(0.1, {n: Claim(0.001, -9.0, -1.0) for n in range(4)})
    for n in range(4):
        audit.settle(n, -2.0 if n < 3 else 0.0)
    assert audit.contradicts


def test_an_unknown_trial_and_a_non_finite_final_are_ignored() -> None:
    audit = Audit(0.1, {1: Claim(0.001, 0.0, 0.1)})
    audit.settle(2, -5.0)
    audit.settle(1, float("nan"))
    assert not audit.outcomes
