"""Whatever a study holds, the pruner answers with a bool, raises and warns of nothing, and says why in JSON."""

from __future__ import annotations

import json
import math
import warnings
from typing import Any

import numpy as np
import optuna
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from hpo import CollapsePruner, finish

NAMES = (
    "total_steps", "family", "lr", "weight_decay", "batch_size", "seq_len", "n_params", "n_tokens", "batch_tokens",
    "warmup_ratio", "schedule", "predicted_final",
)  # fmt: skip
ODD = (None, True, 0, -1, 3, 50.0, 1e308, 5e-324, math.nan, math.inf, "100", "", "cosine", [1], {"a": 1}, 10**30)
SPACE = {"x": FloatDistribution(1e-5, 1.0, log=True), "choice": CategoricalDistribution([None, True, "a", 3])}
attributes = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(ODD), max_size=3)
params = st.fixed_dictionaries({}, optional={"x": st.floats(1e-5, 1.0), "choice": st.sampled_from([None, True, "a", 3])})
anything = st.dictionaries(st.integers(0, 10**12) | st.integers(0, 20), st.floats(), max_size=20)


@st.composite
def curves(draw: st.DrawFn) -> dict[int, float]:
    """Return reports of a curve: falling, rising or flat, of any size, on any grid, with gaps, noise and disorder."""
    n, every = draw(st.sampled_from([20, 20, 20, 2])), draw(st.sampled_from([1, 1, 1, 10**10]))
    size, noise = 10.0 ** draw(st.sampled_from([0, 0, 0, -300, 300])), draw(st.sampled_from([0.0, 0.01, 1.0]))
    scatter = np.random.default_rng(draw(st.integers(0, 9))).standard_normal(n)
    slope, level = draw(st.sampled_from([-0.3, 0.0, 0.3])), draw(st.sampled_from([1.0, 0.0, -1.0]))
    made = {every * (i + 1): size * (level + slope * math.log((i + 1) / n) + noise * scatter[i]) for i in range(n)}
    return dict(reversed(made.items())) if draw(st.booleans()) else made


def finished(state: TrialState, reports: dict[int, float], params: dict[str, Any], about: dict[str, Any]) -> FrozenTrial:
    """Return a trial of a study; its value is its last report where that is one that Optuna takes."""
    last = reports[max(reports)] if reports else 0.0
    value = (0.0 if math.isnan(last) else last) if state == TrialState.COMPLETE else None
    kinds = {name: SPACE[name] for name in params}
    return create_trial(
        state=state, value=value, intermediate_values=reports, params=params, distributions=kinds, user_attrs=about
    )


past = st.builds(
    finished,
    st.sampled_from([TrialState.COMPLETE, TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL, TrialState.RUNNING]),
    curves() | anything,
    params,
    attributes,
)
choices = st.fixed_dictionaries(
    {"total_steps": st.sampled_from([20, 20, 20, None, 1, 100, 10**11])},
    optional={
        "transform": st.sampled_from(["log", "log1m", "identity"]),
        "mode": st.sampled_from(["shadow", "audit"]),
        "margin": st.just(0.1),
        "min_references": st.sampled_from([1, 2]),
        "stop_diverging": st.just(False),
    },
)


@given(st.lists(past, max_size=10), curves() | anything, attributes, choices, st.sampled_from(["minimize", "maximize"]))
def test_any_study_gets_an_answer(
    trials: list[FrozenTrial], reports: dict[int, float], about: dict[str, Any], settings: dict[str, Any], direction: str
) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = CollapsePruner(**settings)
    study = optuna.create_study(direction=direction, pruner=pruner, sampler=optuna.samplers.RandomSampler(seed=0))
    study.add_trials(trials)
    live = study.ask()
    for name, value in about.items():
        live.set_user_attr(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".* allows no value of .*", RuntimeWarning)  # of a log that was asked for
        warnings.filterwarnings("ignore", "finished trials end at step", RuntimeWarning)  # of a length that is wrong
        for step, value in reports.items():
            live.report(value, step)
            assert type(live.should_prune()) is bool
    finish(live)
    if reports:
        said = pruner.decision(live.number)
        assert said is not None
        json.dumps(said.to_dict(), allow_nan=False)
