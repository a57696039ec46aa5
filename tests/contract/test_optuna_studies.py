"""What the pruner promises about whole studies: storages, restarts, other pruners, threads, and what stays in the trials."""

from __future__ import annotations

import json
import pickle
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from optuna_studies import HORIZON, add, add_family, curve, first_stop, frozen, running, steps

from hpo import CollapsePruner
from hpo.adapters.optuna_live import MARK, attach, finish, report

Open = Callable[[str], optuna.storages.BaseStorage]
KINDS = ["memory", "journal", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]


def objective(finals: list[float], every: int = 5) -> Callable[[optuna.Trial], float]:
    """Return an objective whose trial n ends at finals[n % len]."""

    def run(trial: optuna.Trial) -> float:
        reports = curve(finals[trial.number % len(finals)], steps(every), wiggle=0.002, seed=trial.number)
        for step, value in reports.items():
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    return run


FINALS = [float(x) for x in np.random.default_rng(0).uniform(3.0, 3.5, 16)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_process_decides_as_the_old_one(open_storage: Open, kind: str) -> None:
    study = optuna.create_study(storage=open_storage(kind), study_name="restart", pruner=CollapsePruner(total_steps=HORIZON))
    study.optimize(objective(FINALS), n_trials=16)
    assert any(t.state == TrialState.PRUNED for t in study.trials)
    again = optuna.load_study(storage=open_storage(kind), study_name="restart", pruner=CollapsePruner(total_steps=HORIZON))
    for final in (2.95, 3.05, 3.2, 3.6):
        for until in (3, 4, 5, 8, 12):
            trial = frozen(99 + until, curve(final, steps()[:until]))
            assert study.pruner.prune(study, trial) == again.pruner.prune(again, trial)
            assert study.pruner.decision(99 + until).to_dict() == pytest.approx(again.pruner.decision(99 + until).to_dict())


def test_a_trial_is_judged_with_its_own_parameters_and_what_stops_say_they_spent_is_counted() -> None:
    """A promising setting whose curve starts higher is not stopped for looking like all others."""

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0.0, 1.0)
        draw = np.random.default_rng(trial.number)
        for step in steps():
            value = (3 * (1.06 - 0.06 * x)) * (1 + (0.4 + 0.3 * x) * ((step / HORIZON) ** -0.3 - 1))
            trial.report(value * (1 + 0.002 * draw.standard_normal()), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return 3 * (1.06 - 0.06 * x)

    pruner = CollapsePruner(total_steps=HORIZON)
    study = optuna.create_study(pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=3))
    study.optimize(objective, n_trials=24)
    best = max(study.trials, key=lambda t: t.params["x"])
    assert best.state == TrialState.COMPLETE
    stopped = [pruner.decision(t.number) for t in study.trials if t.state == TrialState.PRUNED]
    assert stopped
    fresh = CollapsePruner(total_steps=HORIZON)
    view = fresh.view_of(study)
    view.refresh(study)
    assert view.spent_without(-1) == pytest.approx(sum(d.p_best for d in stopped if d.reason == "cannot_win"))


def test_decisions_never_write_to_the_study(study: optuna.Study) -> None:
    study.pruner = CollapsePruner(total_steps=HORIZON)
    add_family(study)
    trial = running(study, curve(3.6, steps()[:6]))
    before = pickle.dumps([(t.user_attrs, t.system_attrs, t.state, t.intermediate_values) for t in study.trials])
    assert trial.should_prune() is True
    assert pickle.dumps([(t.user_attrs, t.system_attrs, t.state, t.intermediate_values) for t in study.trials]) == before
    assert trial.user_attrs == {}
    assert study.user_attrs == {}
    study.tell(trial, state=TrialState.PRUNED)


def test_studies_made_under_another_pruner_serve_as_references(study: optuna.Study) -> None:
    study.pruner = optuna.pruners.PercentilePruner(50.0, n_startup_trials=4)
    study.optimize(objective(FINALS), n_trials=12)
    stopped_by_it = sum(t.state == TrialState.PRUNED for t in study.trials)
    assert stopped_by_it
    study.pruner = CollapsePruner(total_steps=HORIZON)
    assert 10 <= first_stop(study, curve(4.0, steps())) <= 30
    assert study.pruner.decision(12).error_spent < 0.05


def test_trials_without_reports_still_set_the_incumbent(study: optuna.Study) -> None:
    study.pruner = CollapsePruner(total_steps=HORIZON)
    add_family(study)
    add(study, {}, value=2.5)
    assert 10 <= first_stop(study, curve(2.9, steps())) <= 40
    assert study.pruner.decision(7).incumbent == pytest.approx(2.5)


def test_what_the_objective_returns_is_what_is_forecast(study: optuna.Study) -> None:
    """Reports are one loss, the objective returns another, 10 % higher."""
    study.pruner = CollapsePruner(total_steps=HORIZON)
    for i, final in enumerate(np.linspace(3.0, 3.3, 6)):
        reports = curve(final, steps(), wiggle=0.002, seed=i)
        add(study, reports, value=1.1 * reports[HORIZON])
    study.pruner.prune(study, frozen(99, curve(3.1, steps()[:8])))
    assert study.pruner.decision(99).forecast == pytest.approx(1.1 * 3.1, rel=0.01)


def test_a_reporting_call_stops_the_trial_and_leaves_its_forecast_in_it(study: optuna.Study) -> None:
    study.pruner = CollapsePruner(total_steps=HORIZON)
    add_family(study)

    def run(trial: optuna.Trial) -> float:
        for step, value in curve(3.6, steps()).items():
            report(trial, step, value)
        return value

    study.optimize(run, n_trials=1)
    trial = study.trials[-1]
    assert trial.state == TrialState.PRUNED
    assert trial.user_attrs["predicted_final"] == pytest.approx(3.6, rel=0.02)
    assert trial.user_attrs["predicted_lower"] < 3.6 < trial.user_attrs["predicted_upper"]
    assert trial.user_attrs["stopped_at"] == trial.last_step
    assert trial.user_attrs["reason"] == "cannot_win"
    json.dumps(trial.user_attrs, allow_nan=False)


def test_a_diverged_trial_says_so_in_its_attributes(study: optuna.Study) -> None:
    study.pruner = CollapsePruner(total_steps=HORIZON)
    trial = study.ask()
    report(trial, 1, 3.0)
    with pytest.raises(optuna.TrialPruned, match="non-finite"):
        report(trial, 2, float("nan"))
    study.tell(trial, state=TrialState.PRUNED)
    assert study.trials[0].user_attrs["reason"] == "non_finite"
    assert study.trials[0].user_attrs["predicted_final"] is None


def test_finish_writes_nothing_to_a_trial_that_goes_on(study: optuna.Study) -> None:
    study.pruner = CollapsePruner(total_steps=HORIZON)
    add_family(study)
    trial = running(study, curve(2.9, steps()[:6]))
    assert trial.should_prune() is False
    finish(trial)
    assert trial.user_attrs == {}


@pytest.mark.parametrize("known", [True, False])
def test_a_long_log_is_stored_as_at_most_200_points(study: optuna.Study, known: bool) -> None:
    study.pruner = CollapsePruner(total_steps=50_000 if known else None)
    trial = study.ask()
    for step in range(0, 50_000, 11):
        report(trial, step, 3.0 + 1.0 / (1 + step))
    stored = study.trials[0].intermediate_values
    assert 100 <= len(stored) <= 200


def test_tokens_tell_the_recipe_its_batch(study: optuna.Study) -> None:
    study.pruner = CollapsePruner(total_steps=HORIZON)
    trial = study.ask(
        {
            "lr": optuna.distributions.FloatDistribution(1e-3, 1e-2),
            "weight_decay": optuna.distributions.FloatDistribution(0.1, 0.2),
        }
    )
    report(trial, 5, 3.0, tokens=5 * 4096)
    assert trial.user_attrs["batch_tokens"] == 4096


@pytest.mark.parametrize("kind", KINDS)
def test_a_study_loaded_without_its_pruner_is_noticed(open_storage: Open, kind: str) -> None:
    study = optuna.create_study(storage=open_storage(kind), study_name="left", pruner=CollapsePruner(total_steps=HORIZON))
    report(study.ask(), 1, 3.0)
    loaded = optuna.load_study(storage=open_storage(kind), study_name="left")
    with pytest.warns(UserWarning, match="loaded without it"):
        report(loaded.ask(), 1, 3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert attach(loaded, CollapsePruner(total_steps=HORIZON)) is loaded
    assert isinstance(loaded.pruner, CollapsePruner)


def test_attach_says_what_a_study_was_made_with(study: optuna.Study) -> None:
    study.pruner = optuna.pruners.HyperbandPruner()
    with pytest.warns(UserWarning, match="made with HyperbandPruner"):
        attach(study, CollapsePruner(alpha=0.05))
    assert study.user_attrs[MARK]["alpha"] == 0.05
    with pytest.warns(UserWarning, match=r"alpha=0\.05"):
        attach(study, CollapsePruner(alpha=0.1))
    with pytest.raises(ValueError, match="CollapsePruner"):
        attach(study, optuna.pruners.NopPruner())


def test_attach_says_that_another_pruner_stopped_trials(study: optuna.Study) -> None:
    add(study, {1: 3.0}, state=TrialState.PRUNED)
    with pytest.warns(UserWarning, match="1 pruned trials and no mark of this pruner"):
        attach(study, CollapsePruner())


def test_a_multi_objective_study_cannot_be_attached(storage: optuna.storages.BaseStorage) -> None:
    study = optuna.create_study(storage=storage, directions=["minimize", "minimize"])
    with pytest.raises(ValueError, match="one objective"):
        attach(study, CollapsePruner())


@pytest.mark.parametrize("kind", KINDS)
def test_four_threads_share_a_pruner(open_storage: Open, kind: str) -> None:
    study = optuna.create_study(storage=open_storage(kind), pruner=CollapsePruner(total_steps=HORIZON))
    study.optimize(objective(FINALS, every=10), n_trials=24, n_jobs=4)
    states = [t.state for t in study.trials]
    assert set(states) <= {TrialState.COMPLETE, TrialState.PRUNED}
    assert len(states) == 24
    assert np.argmin(FINALS) % 16 in {t.number % 16 for t in study.trials if t.state == TrialState.COMPLETE}


def test_one_pruner_serves_several_studies(storage: optuna.storages.BaseStorage) -> None:
    pruner = CollapsePruner(total_steps=HORIZON)
    studies = [optuna.create_study(storage=storage, pruner=pruner) for _ in range(2)]
    add_family(studies[0])
    trial = frozen(50, curve(3.6, steps()[:6]))
    assert [pruner.prune(s, trial) for s in studies] == [True, False]
    assert pruner.decision(50, studies[0]).reason == "cannot_win"
    assert pruner.decision(50, studies[1]).reason == "no_references"


def test_a_pruner_can_be_pickled_in_use(study: optuna.Study) -> None:
    pruner = study.pruner = CollapsePruner(total_steps=HORIZON, alpha=0.04)
    add_family(study)
    trial = frozen(50, curve(3.6, steps()[:6]))
    assert pruner.prune(study, trial) is True
    copy = pickle.loads(pickle.dumps(pruner))
    assert copy.describe() == pruner.describe()
    assert copy.prune(study, trial) is True


def test_a_study_is_read_a_few_times_a_trial_not_at_every_report(study: optuna.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    pruner = study.pruner = CollapsePruner(total_steps=1000)
    for i, final in enumerate((3.0, 3.1, 3.2)):
        add(study, curve(final, steps(50, 1000), 1000, wiggle=0.002, seed=i))
    reads = []
    get_trials = optuna.Study.get_trials
    monkeypatch.setattr(optuna.Study, "get_trials", lambda self, *a, **k: (reads.append(1), get_trials(self, *a, **k))[1])
    reports = curve(2.9, steps(10, 1000), 1000)
    seen: dict[int, float] = {}
    for step, value in reports.items():
        seen[step] = value
        assert pruner.prune(study, frozen(50, seen)) is False
    assert 1 <= len(reads) <= 8


def test_audited_trials_go_on_and_suspend_stopping_when_they_contradict(open_storage: Open) -> None:
    study = optuna.create_study(storage=open_storage("memory"), study_name="audit")
    pruner = study.pruner = CollapsePruner(total_steps=HORIZON, audit=0.5)
    add_family(study)
    trial = running(study, curve(3.6, steps()[:6]))
    while trial.should_prune():
        study.tell(trial, state=TrialState.PRUNED)
        trial = running(study, curve(3.6, steps()[:6]))
    assert pruner.decision(trial.number).reason == "audited"
    for step, value in curve(2.5, steps()[6:]).items():  # it ends far better than was forecast
        trial.report(value, step)
    study.tell(trial, 2.5)
    trial = running(study, curve(9.0, steps()[:3]))
    with pytest.warns(RuntimeWarning, match="no trial is stopped by forecast any more: of 1 audited trials 1 beat"):
        trial.should_prune()
    assert first_stop(study, curve(9.0, steps()[:-1])) == 0


def test_an_audit_that_agrees_goes_on_stopping(open_storage: Open) -> None:
    study = optuna.create_study(storage=open_storage("memory"), study_name="audit")
    study.pruner = CollapsePruner(total_steps=HORIZON, audit=0.3)
    add_family(study)
    stops = [
        first_stop(study, curve(final, steps(), wiggle=0.002, seed=i)) for i, final in enumerate(np.linspace(3.5, 3.9, 20))
    ]
    assert 8 <= sum(s > 0 for s in stops) < 20


def test_threads_that_decide_at_once_do_not_disturb_each_other(open_storage: Open) -> None:
    study = optuna.create_study(storage=open_storage("memory"), pruner=CollapsePruner(total_steps=HORIZON))
    add_family(study)
    answers: dict[int, bool] = {}

    def judge(number: int) -> None:
        answers[number] = study.pruner.prune(study, frozen(number, curve(3.6 if number % 2 else 2.9, steps()[:6])))

    threads = [threading.Thread(target=judge, args=(n,)) for n in range(100, 116)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {n: n % 2 == 1 for n in range(100, 116)}


@pytest.mark.parametrize(
    ("step", "loss", "name"), [(1, None, "loss"), (1, "low", "loss"), (1, [3.0], "loss"), (None, 3.0, "step")]
)
def test_a_report_that_is_no_number_is_a_value_error_that_names_it(step: Any, loss: Any, name: str) -> None:
    trial = optuna.create_study(pruner=CollapsePruner()).ask()
    with pytest.raises(ValueError, match=f"{name} must be a number; found "):
        report(trial, step, loss)


@pytest.mark.parametrize(
    ("transform", "sign", "warns"), [("log", -1.0, False), ("log", 1.0, True), ("log1m", 1.0, False), (None, 1.0, False)]
)
def test_a_scale_that_the_values_do_not_allow_is_told_once(transform: Any, sign: float, warns: bool) -> None:
    study = optuna.create_study(direction="maximize", pruner=CollapsePruner(total_steps=HORIZON, transform=transform))
    for final in (0.5, 0.6, 0.7):
        add(study, {s: sign * v for s, v in curve(final / 4, steps()).items()})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in (10, 11):
            study.pruner.prune(study, frozen(number, {s: sign * v for s, v in curve(0.2, steps()[:8]).items()}))
    assert [f"transform={transform!r} allows no value of" in str(w.message) for w in caught] == [True] * warns
