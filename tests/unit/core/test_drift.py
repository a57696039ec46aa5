"""Whether runs have left the curve of a family that was learned earlier."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import recipe, surrogate_curve

from hpo.core.curve import Curve
from hpo.core.drift import DRIFT_LEVEL, drift_of
from hpo.core.model import CollapseModel

TAUS = (0.05, 0.1, 0.2, 0.4, 0.8)


def runs(rng: np.random.Generator, n_params: float, label: str, *, until: float = 1.0, drift: float = 0.0) -> list[Curve]:
    """Return runs over τ, each with its own wandering (sd about 0.4 % per unit) and noise, all bent by ``drift`` early on."""
    made = []
    for k, tau in enumerate(TAUS):
        own = 0.004 * rng.standard_normal(2)
        bend = lambda t, own=own: own[0] * (1 - t) + own[1] * (1 - t) ** 2 + drift * (1 - t) ** 4  # noqa: E731
        about = {"until": until, "noise": 0.002, "rng": rng, "run_id": f"{label}-{k}"}
        made.append(surrogate_curve(recipe(tau=tau, n_params=n_params), 3.0 - 0.1 * k, bend=bend, **about))
    return made


def learned(rng: np.random.Generator) -> CollapseModel:
    return CollapseModel.fit([*runs(rng, 1e6, "small"), *runs(rng, 2e6, "middle")])


def test_the_same_family_at_a_new_size_is_seldom_called_drifted():
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        found.append(drift_of(learned(rng), runs(rng, 4e6, "target", until=0.2)).status)
    assert found.count("drifted") <= 5  # 2 of 40 expected at the level; more than 5 with probability 1.4 %
    assert found.count("untested") == 0


@pytest.mark.parametrize("until", [0.3, 1.0])
def test_a_family_that_has_changed_is_called_drifted(until):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        found = drift_of(learned(rng), runs(rng, 4e6, "target", until=until, drift=0.1))
        assert found.status == "drifted"
        assert found.p_value < DRIFT_LEVEL
        assert found.size_pct > 2
        assert "5 runs together have left" in found.reason


def test_one_run_that_strays_is_no_drift_of_the_family():
    rng = np.random.default_rng(0)
    model, targets = learned(rng), runs(rng, 4e6, "target", until=0.3)
    stray = runs(rng, 4e6, "stray", until=0.3, drift=0.03)[0]
    assert drift_of(model, [*targets[1:], stray]).status == "steady"


def test_a_shift_of_all_levels_is_no_drift():
    rng = np.random.default_rng(1)
    model = learned(rng)
    targets = [surrogate_curve(recipe(tau=tau, n_params=4e6), 7.0, until=0.3, noise=0.002, rng=rng) for tau in TAUS]
    assert drift_of(model, targets).status == "steady"


def test_order_does_not_matter():
    rng = np.random.default_rng(2)
    model, targets = learned(rng), runs(rng, 4e6, "target", until=0.2)
    assert drift_of(model, targets).p_value == pytest.approx(drift_of(model, targets[::-1]).p_value, rel=1e-9)


def test_runs_without_a_family_or_a_curve_leave_it_untested():
    rng = np.random.default_rng(3)
    model = learned(rng)
    stranger = surrogate_curve(recipe(n_params=4e6), family="stranger", until=0.2)
    diverged = Curve.from_points([1, 2], [3.0, np.nan], horizon=1000, recipe=recipe(), family="family")
    for curves in ([], [stranger], [diverged]):
        found = drift_of(model, curves)
        assert (found.status, found.p_value, found.n_runs) == ("untested", None, 0)


def test_the_outcome_is_json_ready_and_comes_back():
    rng = np.random.default_rng(4)
    found = drift_of(learned(rng), runs(rng, 4e6, "target", until=0.2))
    assert type(found).from_dict(found.to_dict()) == found


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, float("nan")])
def test_a_level_that_is_no_probability_is_refused(level):
    with pytest.raises(ValueError, match="level must be in"):
        drift_of(CollapseModel([]), [], level)
