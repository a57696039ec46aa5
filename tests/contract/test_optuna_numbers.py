"""What the pruner promises about noisy studies, late bloomers, divergence and long studies, over every storage."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState
from optuna_studies import HORIZON, add, add_family, attach, curve, first_stop, frozen, running, steps

from hpo import CollapsePruner
from hpo.adapters.optuna_references import N_BEST, N_NEWEST

Open = Callable[[str], optuna.storages.BaseStorage]
KINDS = ["memory", "journal", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)]
LUCKY = 2.85


def noisy(final: float, seed: int, noise: float = 0.02, every: int = 1) -> dict[int, float]:
    """Return reports with multiplicative noise, the last one included."""
    scatter = np.random.default_rng(seed).standard_normal(HORIZON)
    return {s: v * float(np.exp(noise * e)) for (s, v), e in zip(curve(final, steps(every)).items(), scatter, strict=False)}


def add_noisy_family(study: optuna.Study, n: int = 8) -> None:
    """Add trials that all end at 3.0 but for noise; the first one's last report is a lucky one."""
    for seed in range(n):
        reports = noisy(3.0, seed)
        add(study, {**reports, HORIZON: LUCKY} if seed == 0 else reports)


def test_a_lucky_final_value_is_not_what_others_must_beat(study: optuna.Study) -> None:
    pruner = attach(study)
    add_noisy_family(study)
    assert first_stop(study, noisy(2.97, 50)) == 0  # better than all by 1 %
    trial = running(study, {s: v for s, v in noisy(2.97, 51).items() if s < 60})
    trial.should_prune()
    assert study.best_value <= LUCKY
    assert LUCKY + 0.06 < pruner.decision(trial.number).incumbent < 3.03


def test_without_noise_the_incumbent_is_the_best_value(study: optuna.Study) -> None:
    pruner = attach(study)
    add_family(study)
    pruner.prune(study, frozen(99, curve(3.1, steps()[:6])))
    assert pruner.decision(99).incumbent == pytest.approx(study.best_value, rel=1e-9)


def test_a_trial_five_per_cent_worse_but_above_the_median_is_stopped_between_10_and_30_per_cent(study: optuna.Study) -> None:
    attach(study)
    for seed, final in enumerate(np.linspace(3.6, 3.0, 8)):
        add(study, noisy(float(final), seed, noise=0.005, every=2))
    assert 10 <= first_stop(study, noisy(3.15, 50, noise=0.005, every=2)) <= 30


def test_a_late_bloomer_known_by_its_family_goes_on_and_the_worse_ones_stop(study: optuna.Study) -> None:
    pruner = attach(study)
    add_family(study, family="decay")
    blooming = {s: 2.9 * (1 + 0.25 * min(1.0, (1 - s / HORIZON) / 0.2)) for s in steps()}
    assert first_stop(study, blooming, family="constant with cooldown") == 0
    assert pruner.decision(6).reason in ("no_family", "complete")
    worse = [first_stop(study, curve(final, steps()), family="decay") for final in (3.6, 3.7, 3.8)]
    assert all(10 <= at <= 30 for at in worse)


def test_a_rise_of_half_over_three_reports_is_stopped_within_five(study: optuna.Study) -> None:
    pruner = attach(study)
    reports = noisy(2.9, 3)
    reports[5] *= 0.7  # a lucky early value
    risen = {s: v * (1 + 0.5 * min(1.0, max(0, s - 10) / 3)) for s, v in reports.items()}
    assert 10 < first_stop(study, risen) <= 15
    assert pruner.decision(0).reason == "diverging"


def test_a_rise_that_comes_back_stops_nothing_where_it_is_said_to_be_normal(study: optuna.Study) -> None:
    reports = {s: v * (1.9 if 20 < s <= 40 else 1.0) for s, v in curve(2.9, steps()).items()}
    attach(study)
    assert 20 < first_stop(study, reports) <= 40
    pruner = attach(study, stop_diverging=False)
    assert first_stop(study, reports) == 0
    assert first_stop(study, {**curve(3.0, steps()[:5]), 30: float("nan")}) == 30
    add_family(study)
    assert first_stop(study, curve(3.6, steps())) > 0
    assert pruner.decision(9).reason == "cannot_win"


def test_a_trial_that_rose_but_is_still_better_than_the_best_goes_on(study: optuna.Study) -> None:
    pruner = attach(study)
    add_family(study)
    risen = {s: (1.0 if s < 50 else 1.6) for s in steps()}
    assert first_stop(study, risen) == 0
    assert pruner.decision(6).reason != "diverging"


def test_a_long_study_is_judged_by_its_newest_and_best_trials(open_storage: Open) -> None:
    study = optuna.create_study(storage=open_storage("memory"))
    pruner = attach(study)
    add(study, curve(2.8, steps()))  # the best is the oldest
    for seed in range(3 * N_NEWEST):
        add(study, curve(3.0 + 0.001 * (seed % 50), steps(), wiggle=0.002, seed=seed))
    pruner.prune(study, frozen(999, curve(2.95, steps()[:6])))
    decision = pruner.decision(999)
    assert decision.incumbent == pytest.approx(2.8, rel=1e-3)
    assert N_NEWEST <= decision.n_references <= N_NEWEST + N_BEST


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_joins_a_long_study_decides_as_the_first(open_storage: Open, kind: str) -> None:
    """Past twenty trials the model is not fitted anew after each: when it is must not depend on who asks when."""

    def pruner() -> CollapsePruner:
        return CollapsePruner(total_steps=HORIZON)

    def objective(trial: optuna.Trial) -> float:
        reports = curve(3.0 + 0.01 * ((7 * trial.number) % 30), steps(10), wiggle=0.004, seed=trial.number)
        for step, value in reports.items():
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    study = optuna.create_study(storage=open_storage(kind), study_name="long", pruner=pruner())
    study.optimize(objective, n_trials=44)
    assert {t.state for t in study.trials} == {TrialState.COMPLETE, TrialState.PRUNED}
    again = optuna.load_study(storage=open_storage(kind), study_name="long", pruner=pruner())
    for number, final in enumerate((2.95, 3.05, 3.2), start=900):
        trial = frozen(number, curve(final, steps(10)[:4]))
        assert study.pruner.prune(study, trial) == again.pruner.prune(again, trial)
        assert study.pruner.decision(number).to_dict() == pytest.approx(again.pruner.decision(number).to_dict())


def test_a_trial_that_goes_on_in_spite_of_its_forecast_is_not_read_for_at_every_report(
    study: optuna.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    pruner = study.pruner = CollapsePruner(total_steps=1000, mode="shadow")
    for i, final in enumerate((3.0, 3.1, 3.2, 3.3)):
        add(study, curve(final, steps(50, 1000), 1000, wiggle=0.002, seed=i))
    reads = []
    get_trials = optuna.Study.get_trials
    monkeypatch.setattr(optuna.Study, "get_trials", lambda self, *a, **k: (reads.append(1), get_trials(self, *a, **k))[1])
    seen: dict[int, float] = {}
    for step, value in curve(5.0, range(1, 200), 1000).items():
        seen[step] = value
        pruner.prune(study, frozen(50, seen))
    assert pruner.decision(50).action == "stop"
    assert 1 <= len(reads) <= 20
