"""What the pruner promises about one decision, over every storage."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from optuna_studies import HORIZON, add, add_family, attach, curve, first_stop, frozen, running, steps

from hpo import CollapseModel, CollapsePruner, Curve, Metric, Recipe
from hpo.core.schedules import schedule

NAN, INF = float("nan"), float("inf")


def scaled(reports: dict[int, float], factor: float) -> dict[int, float]:
    return {s: factor * v for s, v in reports.items()}


def test_a_hopeless_trial_is_stopped_and_a_better_one_goes_on(study: optuna.Study) -> None:
    attach(study)
    add_family(study)
    assert 10 <= first_stop(study, curve(3.6, steps())) <= 30
    assert first_stop(study, curve(2.9, steps())) == 0


@pytest.mark.parametrize(
    "reports",
    [{}, {5: 9.0}, curve(4.5, steps()[:4]), curve(2.9, steps()[:4]), {5: NAN}, {5: INF}, {5: -INF}, {5: NAN, 10: 3.0}],
)
def test_the_answer_is_a_builtin_bool_in_every_branch(study: optuna.Study, reports: dict[int, float]) -> None:
    pruner = attach(study)
    for filled in (False, True):
        if filled:
            add_family(study)
        assert type(pruner.prune(study, frozen(99, reports))) is bool
    study.pruner = CollapsePruner()
    assert type(study.pruner.prune(study, frozen(99, reports))) is bool


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_non_finite_report_stops_at_that_report_without_a_warning(study: optuna.Study, bad: float) -> None:
    pruner = attach(study)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert first_stop(study, {**curve(3.0, [1, 2]), 3: bad, 4: 3.0}) == 3
    assert pruner.decision(0).reason == "non_finite"


def test_a_trial_of_nothing_but_nan_is_stopped_at_its_first_report(study: optuna.Study) -> None:
    attach(study)
    assert first_stop(study, dict.fromkeys(range(1, 10), NAN)) == 1


def test_non_finite_trials_never_become_references_nor_change_a_decision(storage: optuna.storages.BaseStorage) -> None:
    answers = []
    for with_bad in (False, True):
        study = optuna.create_study(storage=storage)
        pruner = attach(study)
        add_family(study)
        if with_bad:
            add(study, {**curve(2.0, steps()), 50: NAN}, value=2.0, state=TrialState.PRUNED)
            add(study, {**curve(3.1, steps()), 5: INF}, value=3.1)
            add(study, dict.fromkeys(steps(), NAN), state=TrialState.FAIL)
            add(study, {5: 1.0}, value=-INF)
        pruner.prune(study, frozen(99, curve(3.25, steps()[:5])))
        answers.append(pruner.decision(99))
    assert answers[0] == answers[1]
    assert answers[0].n_references == 6


def test_a_multi_objective_study_gets_no_decision_and_no_crash(storage: optuna.storages.BaseStorage) -> None:
    study = optuna.create_study(storage=storage, directions=["minimize", "maximize"], pruner=CollapsePruner())
    assert study.pruner.prune(study, frozen(0, {1: 1.0})) is False
    assert study.pruner.decision(0).reason == "multi_objective"


def test_the_first_value_of_a_step_counts(study: optuna.Study) -> None:
    pruner = attach(study)
    add_family(study)
    trial = running(study, curve(2.95, steps()[:5]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trial.report(99.0, 25)
    assert trial.should_prune() is False
    assert pruner.decision(trial.number).forecast == pytest.approx(2.95, rel=0.02)


def test_reports_in_any_order_decide_as_if_sorted(study: optuna.Study) -> None:
    pruner = attach(study)
    add_family(study)
    reports = curve(3.2, steps()[:6])
    shuffled = dict(np.random.default_rng(0).permutation(list(reports.items())))
    sorted_trial, shuffled_trial = frozen(90, reports), frozen(91, {int(k): float(v) for k, v in shuffled.items()})
    assert pruner.prune(study, sorted_trial) == pruner.prune(study, shuffled_trial)
    assert pruner.decision(90).forecast == pytest.approx(pruner.decision(91).forecast, rel=1e-12)


def test_reports_taken_one_by_one_in_disorder_decide_as_if_sorted(study: optuna.Study) -> None:
    pruner = attach(study)
    add_family(study)
    reports = curve(3.2, steps()[:6])
    trial = running(study, {})
    for step in (10, 5, 20, 15, 30, 25):
        trial.report(reports[step], step)
        trial.should_prune()
    pruner.prune(study, frozen(90, reports))
    assert pruner.decision(trial.number).forecast == pytest.approx(pruner.decision(90).forecast, rel=1e-12)


def test_too_few_references_decide_nothing(study: optuna.Study) -> None:
    pruner = attach(study, min_references=5)
    for _ in range(4):
        add(study, curve(3.0, steps()))
    assert first_stop(study, curve(4.0, steps()[:-1])) == 0
    assert pruner.decision(4).reason == "too_few_references"


def test_grids_agree_within_one_report(storage: optuna.storages.BaseStorage) -> None:
    stops = {}
    for name, grid in {"5,15,25": steps(10, first=5), "10,20,30": steps(10), "every 7": steps(7)}.items():
        study = optuna.create_study(storage=storage)
        attach(study)
        add_family(study)
        stops[name] = first_stop(study, curve(3.5, grid))
    assert min(stops.values()) >= 10
    assert max(stops.values()) - min(stops.values()) <= 10


def test_sparse_reports_are_stopped_at_the_first_one_past_the_minimum_fraction(study: optuna.Study) -> None:
    attach(study, min_fraction=0.2)
    add_family(study)
    assert first_stop(study, curve(4.5, [3, 13, 37, 80, 100])) == 37


def test_one_spike_changes_nothing(study: optuna.Study) -> None:
    pruner = attach(study)
    add_family(study)
    clean = curve(2.95, steps())
    spiked = {**clean, 30: 20 * clean[30]}
    trial = running(study, {})
    for step in steps()[:12]:
        trial.report(spiked[step], step)
        assert trial.should_prune() is False
    assert pruner.decision(trial.number).forecast == pytest.approx(2.95, rel=0.02)


@pytest.mark.parametrize("lucky", [False, True])
def test_sustained_divergence_is_stopped_within_five_reports(study: optuna.Study, lucky: bool) -> None:
    pruner = attach(study)
    reports = curve(3.0, steps(1))
    if lucky:
        reports[4] *= 0.3
    risen = {s: v * (2.0 if s > 20 else 1.0) for s, v in reports.items()}
    assert 20 < first_stop(study, risen) <= 25
    assert pruner.decision(0).reason == "diverging"


def test_no_forecast_stops_a_trial_before_the_minimum_fraction_or_in_warm_up(study: optuna.Study) -> None:
    made = Recipe(schedule=schedule("linear"), lr=1e-3, warmup_fraction=0.3)
    attach(study, recipe=lambda trial: made, min_fraction=0.2)
    add_family(study)
    assert first_stop(study, curve(4.5, steps())) == 30


def test_another_family_is_never_judged_by_this_one(study: optuna.Study) -> None:
    pruner = attach(study)
    add_family(study, family="decay")
    assert first_stop(study, scaled(curve(4.0, steps()[:-1]), 1.0), family="cooldown") == 0
    assert pruner.decision(6).reason == "no_family"
    assert first_stop(study, curve(4.0, steps()[:-1])) == 0  # unlabelled among labelled ones
    assert 0 < first_stop(study, curve(4.0, steps()), family="decay") <= 30


def test_another_schedule_is_another_family(study: optuna.Study) -> None:
    pruner = attach(study)
    add_family(study, schedule="cosine")
    assert first_stop(study, curve(4.0, steps()[:-1]), schedule="constant") == 0
    assert pruner.decision(6).reason == "no_family"
    assert 0 < first_stop(study, curve(4.0, steps()), schedule="cosine") <= 30


def test_every_decision_can_be_read_back(study: optuna.Study, tmp_path) -> None:
    log = tmp_path / "logs" / "decisions.jsonl"
    pruner = attach(study, log=log)
    add_family(study)
    stop = first_stop(study, curve(3.6, steps()))
    decision = pruner.decision(6)
    assert (decision.step, decision.fraction, decision.pruned) == (stop, stop / HORIZON, True)
    assert decision.lower < decision.forecast < decision.upper
    assert decision.forecast == pytest.approx(3.6, rel=0.02)
    assert decision.incumbent == pytest.approx(3.0)
    assert 0 <= decision.p_best <= decision.allowed < 0.05
    assert decision.n_references == 6
    assert decision.family
    assert decision.reason == "cannot_win"
    assert '"reason": "cannot_win"' in log.read_text().splitlines()[-1]


def test_turning_the_sign_changes_nothing(storage: optuna.storages.BaseStorage) -> None:
    stops = {}
    for sign, direction in ((1.0, "minimize"), (-1.0, "maximize")):
        study = optuna.create_study(storage=storage, direction=direction)
        pruner = attach(study)
        add_family(study, sign=sign)
        stops[sign] = [first_stop(study, scaled(curve(f, steps(2)), sign)) for f in (3.1, 3.25, 3.4, 2.9)]
        assert pruner.decision(6).incumbent == pytest.approx(sign * 3.0)
        assert pruner.decision(6).lower < pruner.decision(6).upper
    assert stops[1.0] == stops[-1.0]


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.5), (-40.0, 160.0), (-5000.0, -4000.0), (-1e-3, 1e-3)])
def test_values_that_are_accuracies_negative_or_near_zero_are_judged(
    storage: optuna.storages.BaseStorage, low: float, high: float
) -> None:
    """A maximised value that rises from ``low`` to ``high``; a bad trial ends two fifths of the way lower."""
    study = optuna.create_study(storage=storage, direction="maximize")
    attach(study)

    def rising(end: float, seed: int) -> dict[int, float]:
        base = curve(1.0, steps(), wiggle=0.002, seed=seed)
        return {s: low + (high - low) * (end - 0.5 * (v - 1.0)) for s, v in base.items()}

    for i, end in enumerate(np.linspace(0.95, 1.0, 8)):
        add(study, rising(end, i))
    assert first_stop(study, rising(1.02, 20)) == 0
    assert 10 <= first_stop(study, rising(0.6, 21)) <= 30


def test_a_constant_curve_or_a_single_report_divides_nothing_by_zero(study: optuna.Study) -> None:
    pruner = attach(study)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pruner.prune(study, frozen(90, {50: 3.0})) is False
        for _ in range(4):
            add(study, dict.fromkeys(steps(), 3.0))
        assert pruner.prune(study, frozen(91, {50: 3.0})) is False
        assert pruner.prune(study, frozen(92, dict.fromkeys(steps()[:8], 3.0))) is False
        assert pruner.prune(study, frozen(93, dict.fromkeys(steps()[:8], 0.0))) is False


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"total_steps": 0}, "total_steps"),
        ({"total_steps": -5}, "total_steps"),
        ({"total_steps": NAN}, "total_steps"),
        ({"total_steps": "100"}, "total_steps"),
        ({"min_fraction": 0.0}, "min_fraction"),
        ({"min_fraction": 1.0}, "min_fraction"),
        ({"min_fraction": "0.1"}, "min_fraction"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": None}, "alpha"),
        ({"margin": -0.1}, "margin"),
        ({"margin": "1%"}, "margin"),
        ({"min_references": 0}, "min_references"),
        ({"min_references": 2.5}, "min_references"),
        ({"min_references": True}, "min_references"),
        ({"stop_diverging": "no"}, "stop_diverging"),
        ({"log": True}, "log"),
        ({"mode": "off"}, "mode"),
        ({"audit": 1.0}, "audit"),
        ({"transform": "square"}, "transform"),
        ({"recipe": 3}, "recipe"),
        ({"family": "x"}, "family"),
        ({"model": 3}, "model"),
        ({"model": "absent.json"}, "absent.json"),
    ],
)
def test_a_wrong_argument_is_a_value_error_that_names_it(settings: dict[str, object], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        CollapsePruner(**settings)


@pytest.mark.parametrize("total_steps", [np.int64(HORIZON), np.float32(HORIZON)])
def test_total_steps_may_be_a_number_of_numpys(total_steps: Any) -> None:
    study = optuna.create_study(pruner=CollapsePruner(total_steps=total_steps))
    assert study.pruner.horizon(study, study.ask()) == HORIZON


def test_references_of_two_metrics_are_refused() -> None:
    at = np.array(steps())
    curves = [
        Curve.from_points(at, list(curve(3.0, steps()).values()), horizon=HORIZON, metric=Metric(name), run_id=name)
        for name in ("train_loss", "val_loss")
    ]
    with pytest.raises(ValueError, match="one metric"):
        CollapsePruner(CollapseModel.fit(curves))


def test_a_model_of_proxies_judges_from_the_first_incumbent_on(study: optuna.Study) -> None:
    made = Recipe(schedule=schedule("linear"), lr=1e-3)
    proxies = [
        Curve.from_points(
            steps(),
            list(curve(final, steps(), wiggle=0.002, seed=i).values()),
            horizon=HORIZON,
            recipe=made,
            metric=Metric(end="last"),
            run_id=f"proxy{i}",
            family="proxies",
        )
        for i, final in enumerate(np.linspace(4.0, 4.4, 6))
    ]
    pruner = attach(study, model=CollapseModel.fit(proxies), recipe=lambda trial: made)
    assert first_stop(study, curve(3.0, steps())) == 0
    assert 10 <= first_stop(study, curve(3.6, steps())) <= 30
    assert pruner.decision(1).n_references == 7
    assert math.isclose(pruner.decision(1).incumbent, 3.0, rel_tol=1e-9)


def test_the_margin_spares_what_is_only_a_little_worse(storage: optuna.storages.BaseStorage) -> None:
    for margin, stopped in ((0.0, True), (0.25, False)):
        study = optuna.create_study(storage=storage)
        attach(study, margin=margin)
        add_family(study)
        assert (first_stop(study, curve(3.5, steps()[:-1])) > 0) is stopped


def test_one_error_budget_bounds_all_stops_of_a_study(storage: optuna.storages.BaseStorage) -> None:
    study = optuna.create_study(storage=storage)
    pruner = attach(study, alpha=0.02)
    add_family(study)
    spent = 0.0
    for final in np.linspace(3.2, 3.4, 25):
        if first_stop(study, curve(final, steps())):
            spent += pruner.decision(study.trials[-1].number).p_best
    assert spent > 0
    assert spent <= 0.02
    assert pruner.decision(study.trials[-1].number).error_spent == pytest.approx(
        spent - (pruner.decision(study.trials[-1].number).p_best or 0.0), abs=1e-9
    )
