"""A study with constraints: a trial that breaks one is nobody's rival, over every storage."""

from __future__ import annotations

import optuna
import pytest
from optuna_studies import HORIZON, add_family, attach, curve, first_stop, steps

from hpo.adapters.optuna_trials import is_feasible
from hpo.reporting.study_lines import study_lines


def add_broken(study: optuna.Study, final: float, value: float, key: str = "constraints") -> None:
    """Add a finished trial whose constraint has a value."""
    reports = curve(final, steps())
    constraints = {key: [value] if key == "constraints" else value}
    study.add_trial(optuna.trial.create_trial(value=reports[HORIZON], intermediate_values=reports, system_attrs=constraints))


@pytest.mark.parametrize("key", ["constraints", "constraints:memory"])
def test_a_trial_that_breaks_a_constraint_is_no_incumbent(storage: optuna.storages.BaseStorage, key: str) -> None:
    kept, broken = (optuna.create_study(storage=storage) for _ in range(2))
    for study, value in ((kept, -1.0), (broken, 1.0)):
        pruner = attach(study)
        add_family(study)
        add_broken(study, 2.0, value, key)
        stopped = first_stop(study, curve(2.5, steps()[:-1]))
        incumbent = pruner.decision(7).incumbent
        if value < 0:
            assert stopped > 0
            assert incumbent == pytest.approx(2.0, rel=1e-3)
        else:
            assert stopped == 0
            assert incumbent > 2.5


def test_where_all_break_one_nobody_is_stopped_by_forecast_but_they_teach(study: optuna.Study) -> None:
    pruner = attach(study)
    for final in (3.0, 3.1, 3.2, 3.3):
        add_broken(study, final, 0.5)
    assert first_stop(study, curve(5.0, steps()[:-1])) == 0
    decision = pruner.decision(4)
    assert (decision.reason, decision.n_references, decision.incumbent) == ("no_incumbent", 4, None)


def test_a_constraint_of_zero_is_kept() -> None:
    assert is_feasible(optuna.trial.create_trial(value=1.0, system_attrs={"constraints": [0.0, -1.0]}))
    assert is_feasible(optuna.trial.create_trial(value=1.0))
    assert not is_feasible(optuna.trial.create_trial(value=1.0, system_attrs={"constraints": [-1.0], "constraints:b": 0.1}))


def test_a_figure_does_not_call_it_the_best() -> None:
    study = optuna.create_study()
    attach(study)
    add_family(study)
    add_broken(study, 2.0, 1.0)
    found = study_lines(study)
    assert [line.is_feasible for line in found.lines] == [True] * 6 + [False]
    assert "breaks a constraint" in found.lines[-1].text
