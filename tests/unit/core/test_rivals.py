from __future__ import annotations

import numpy as np
import pytest
from scipy import special
from synthetic import recipe, surrogate_curve

from hpo.core.model import CollapseModel
from hpo.core.posterior import Law
from hpo.core.references import Reference
from hpo.core.rivals import Finished, probability_lowest

TAUS = (0.05, 0.1, 0.2, 0.4)


def law(level, covariance, dofs=np.inf):
    return Law(list(range(len(level))), np.array(level), np.array(covariance), tuple(np.broadcast_to(dofs, len(level))))


@pytest.mark.parametrize("dof", [np.inf, 4.0])
@pytest.mark.parametrize("z", [0.0, 1.0, 3.0, 10.0, 40.0])
def test_against_one_known_value_it_is_the_law_s_own_tail(dof, z):
    found = probability_lowest(law([z, 0.0], np.diag([1.0, 0.0]), (dof, np.inf)))
    exact = special.ndtr(-z) if np.isinf(dof) else special.stdtr(dof, -z)
    assert found == pytest.approx(exact, rel=0.05, abs=1e-300)


def test_it_agrees_with_plain_draws():
    draw = np.random.default_rng(0)
    root = draw.standard_normal((4, 4))
    one = law([0.3, 0.0, 0.2, 0.5], root @ root.T, 5.0)
    drawn = one.draw(draw, 200_000)
    assert probability_lowest(one) == pytest.approx(np.mean(drawn.argmin(axis=1) == 0), abs=0.015)


def test_what_a_run_shares_with_its_rival_cancels():
    shared = 0.01**2 * np.ones((2, 2)) + 0.001**2 * np.eye(2)
    apart = (0.01**2 + 0.001**2) * np.eye(2)
    assert probability_lowest(law([0.01, 0.0], shared)) < 1e-6 < 0.1 < probability_lowest(law([0.01, 0.0], apart))


def test_a_margin_spares_and_nobody_to_compare_with_is_none():
    one = law([0.02, 0.0], np.diag([0.001**2, 0.0]))
    assert probability_lowest(one) < 1e-6
    assert probability_lowest(one, margin=0.03) > 0.999
    assert probability_lowest(law([0.0], [[1.0]])) is None
    assert probability_lowest(Law([1, 2], np.zeros(2), np.eye(2), (np.inf, np.inf))) is None


def test_finished_runs_of_worse_settings_bear_on_a_trial_between_them():
    """The landscape: early in training, two neighbours that ended badly say more of a trial than its own few reports."""
    taus = np.geomspace(0.03, 0.6, 9)
    ended = [
        surrogate_curve(
            recipe(tau=tau, n_params=3e5),
            final=3.0 * (1 + 0.02 * np.log(tau / 0.1) ** 2),
            run_id=f"{tau:.3f}",
        )
        for tau in taus
    ]
    model = CollapseModel.fit(ended)
    best = sorted((Finished(Reference.of(c), float(np.log(c.final_loss))) for c in ended), key=lambda f: f.level)[:4]
    prefix = surrogate_curve(recipe(tau=0.5, n_params=3e5), final=3.155, until=0.12, noise=0.01, rng=np.random.default_rng(0))
    alone = model.forecast(prefix)
    apart = (best[0].level - alone.level) / alone.level_sd
    assert probability_lowest(model.joint_law([prefix], best)) < special.stdtr(alone.dof, apart)
