"""What fails costs a decision and gives one warning, never an exception: functions of the user's, and the pruner itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from optuna_studies import HORIZON, add_family, curve, first_stop, frozen, running, steps

import hpo
from hpo import CollapseModel, CollapsePruner, Recipe, finish, plot_forecasts, report
from hpo.adapters.callbacks import EpochCallback
from hpo.core.schedules import schedule

NAN = float("nan")
HEALTHY: dict[str, Any] = {
    "total_steps": lambda _: HORIZON,
    "recipe": lambda _: Recipe(schedule=schedule("linear"), lr=1e-3),
    "family": lambda _: "one",
}
every_function = pytest.mark.parametrize("name", list(HEALTHY))


def attach(study: optuna.Study, name: str, *, fails_from: int, fails_to: float = float("inf")) -> CollapsePruner:
    """Set a pruner whose function of this name raises for some trials."""

    def function(trial: Any) -> Any:
        if fails_from <= trial.number < fails_to:
            raise KeyError("width")
        return HEALTHY[name](trial)

    pruner = study.pruner = CollapsePruner(**{"total_steps": HORIZON, **HEALTHY, name: function})
    return pruner


@every_function
def test_a_failing_function_gives_no_decision_and_one_warning_that_names_it(study: optuna.Study, name: str) -> None:
    pruner = attach(study, name, fails_from=6)
    add_family(study)
    with pytest.warns(RuntimeWarning) as said:
        stops = [first_stop(study, curve(final, steps()[:-1])) for final in (4.0, 4.5)]
    assert stops == [0, 0]
    assert len(said) == 1
    assert str(said[0].message).startswith(f"{name} raised KeyError: 'width' for trial 6")
    for number in (6, 7):
        decision = pruner.decision(number)
        assert (decision.action, decision.reason) == ("continue", "function_failed")
        assert decision.detail == f"{name} raised KeyError: 'width' for trial {number}"


@every_function
def test_trials_for_which_a_function_fails_teach_nothing_and_the_others_decide(study: optuna.Study, name: str) -> None:
    pruner = attach(study, name, fails_from=2, fails_to=4)
    add_family(study)
    with pytest.warns(RuntimeWarning, match=f"{name} raised KeyError: 'width' for trial 2") as said:
        assert 10 <= first_stop(study, curve(3.8, steps())) <= 30
    assert len(said) == 1
    assert pruner.decision(6).n_references == 4


@every_function
def test_a_non_finite_value_or_a_hand_stops_a_trial_all_the_same(study: optuna.Study, name: str) -> None:
    pruner = attach(study, name, fails_from=0)
    pruner.stop(1)
    with pytest.warns(RuntimeWarning, match=name):
        assert first_stop(study, {**curve(3.0, [1, 2]), 3: NAN, 4: 3.0}) == 3
    assert pruner.decision(0).reason == "non_finite"
    assert first_stop(study, curve(3.0, [1, 2])) == 1


def reported_finished_and_drawn(trial: optuna.Trial) -> Any:
    """Go through everything that asks the pruner; return the figure."""
    for step, value in list(curve(4.0, steps()).items())[:8]:
        report(trial, step, value)
    finish(trial)
    EpochCallback(trial, "loss").on_epoch_end(60, {"loss": 4.1})
    return plot_forecasts(trial.study)


@every_function
def test_reporting_finishing_callbacks_and_the_figure_go_on(study: optuna.Study, name: str) -> None:
    pytest.importorskip("plotly", reason="Plotly absent: pip install plotly")
    attach(study, name, fails_from=5)
    add_family(study)
    trial = study.ask()
    with pytest.warns(RuntimeWarning, match=name) as said:
        figure = reported_finished_and_drawn(trial)
    assert len(said) == 1
    assert "predicted_final" not in trial.user_attrs
    assert "finished (6)" in {trace.name for trace in figure.data}


@pytest.mark.parametrize(
    ("name", "answer", "rule"),
    [
        ("recipe", 3, "must return a Recipe or None; it returned 3"),
        ("total_steps", "100", "must return a number of at least 1 or None; it returned '100'"),
        ("total_steps", -1, "must return a number of at least 1 or None; it returned -1"),
    ],
)
def test_a_wrong_answer_is_a_failure_that_says_what_was_wanted(study: optuna.Study, name: str, answer: Any, rule: str) -> None:
    pruner = study.pruner = CollapsePruner(**{**HEALTHY, name: lambda _: answer})
    with pytest.warns(RuntimeWarning, match=rule):
        assert pruner.prune(study, frozen(9, curve(4.0, steps()[:8]))) is False
    assert rule in pruner.decision(9).detail


@every_function
def test_a_function_that_fails_once_is_asked_again_at_the_next_report(study: optuna.Study, name: str) -> None:
    failures = iter([True])
    healthy = HEALTHY[name]

    def function(trial: Any) -> Any:
        if trial.number == 6 and next(failures, False):
            raise TimeoutError
        return healthy(trial)

    study.pruner = CollapsePruner(**{**HEALTHY, name: function})
    add_family(study)
    trial = running(study, curve(4.0, steps()[:5]))
    with pytest.warns(RuntimeWarning, match="TimeoutError"):
        assert trial.should_prune() is False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trial.should_prune() is True
    study.tell(trial, state=TrialState.PRUNED)


def test_a_fault_of_the_pruner_itself_costs_decisions_and_one_warning(
    study: optuna.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: Any) -> None:
        raise IndexError("out of range")

    pruner = study.pruner = CollapsePruner(total_steps=HORIZON)
    add_family(study)
    with monkeypatch.context() as broken:
        broken.setattr(CollapseModel, "forecast", fault)
        with pytest.warns(RuntimeWarning, match="failed on trial 6.*please report IndexError") as said:
            assert first_stop(study, curve(4.0, steps()[:8])) == 0
        assert len(said) == 1
        assert pruner.decision(6).reason == "failed"
        assert first_stop(study, {**curve(3.0, [1, 2]), 3: NAN}) == 3
    assert 10 <= first_stop(study, curve(4.0, steps())) <= 30


@pytest.mark.parametrize("call", [lambda: report(None, 1, 2.0), lambda: finish(None)])
def test_what_is_no_live_trial_is_named(call: Callable[[], None]) -> None:
    with pytest.raises(ValueError, match="trial must be a live Optuna trial, as an objective is given; found None"):
        call()


@pytest.mark.parametrize("call", [lambda: hpo.attach(None, CollapsePruner()), lambda: plot_forecasts(None)])
def test_what_is_no_study_is_named(call: Callable[[], None]) -> None:
    pytest.importorskip("plotly")
    with pytest.raises(ValueError, match="study must be an Optuna study; found None"):
        call()


def test_what_is_no_curve_is_named() -> None:
    for given in (None, ["a"]):
        with pytest.raises(ValueError, match=r"curves must be a list of Curve; found (None|'a')"):
            CollapseModel.fit(given)
    with pytest.raises(ValueError, match="model must be a CollapseModel"):
        hpo.Monitor(None)


@pytest.mark.parametrize("step", [0.2, float("nan"), float("inf")])
def test_a_step_that_is_not_whole_is_refused(step: float) -> None:
    trial = running(optuna.create_study(pruner=CollapsePruner(total_steps=HORIZON)), {})
    with pytest.raises(ValueError, match="step must be a whole number"):
        report(trial, step, 1.0)
    report(trial, 3.0, 1.0)
    assert trial.study.trials[0].intermediate_values == {3: 1.0}


def test_an_objective_is_tried_with_a_fixed_trial_and_repeated_with_a_finished_one() -> None:
    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        callback = EpochCallback(trial)
        for epoch, value in enumerate(curve(3.0 + x, steps()).values()):
            report(trial, epoch, value)
            callback.on_epoch_end(epoch, {"val_loss": value})
        finish(trial)
        return value

    study = optuna.create_study(pruner=CollapsePruner(total_steps=HORIZON))
    study.optimize(objective, n_trials=1)
    assert objective(optuna.trial.FixedTrial({"x": 0.5})) == pytest.approx(3.5)
    assert objective(study.best_trial) == study.best_value


def test_epochs_without_the_monitored_value_are_passed_over_and_said_once() -> None:
    trial = running(optuna.create_study(pruner=CollapsePruner(total_steps=HORIZON)), {})
    callback = EpochCallback(trial)
    with pytest.warns(UserWarning, match=r"epoch 1 logged \['loss'\] and no 'val_loss'"):
        callback.on_epoch_end(0, {"loss": 1.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        callback.on_epoch_end(1, {"loss": 1.0, "val_loss": 2.0})
        callback.on_epoch_end(2, {"loss": 1.0})
    assert trial.study.trials[0].intermediate_values == {2: 2.0}


def _report_all(trial: optuna.Trial, values: dict[int, float]) -> None:
    for step, value in values.items():
        report(trial, step, value)


def test_forecasts_are_left_also_from_inside_a_patient_pruner() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        patient = optuna.pruners.PatientPruner(CollapsePruner(total_steps=HORIZON), patience=0)
    study = optuna.create_study(pruner=patient)
    add_family(study)
    trial = running(study, {})
    with pytest.raises(optuna.TrialPruned):
        _report_all(trial, {s: 4.0 + 0.01 * s for s in steps()})
    assert {"predicted_final", "reason"} <= study.trials[-1].user_attrs.keys()
