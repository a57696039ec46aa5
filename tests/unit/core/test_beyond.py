"""Runs longer or larger than all references."""

import numpy as np
import pytest

from hpo.core.beyond import DRIFT_SD, KEPT, drift_apart, kept_level


def test_differences_drift_only_beyond_the_references():
    rates = np.array([-2.0, 2.0])
    assert not drift_apart(rates, np.array([0.0, 0.04])).any()
    near, far = (drift_apart(rates, np.full(2, apart)) for apart in (0.5, 1.0))
    np.testing.assert_allclose(2 * near, far)
    assert far[0, 0] > 0 > far[0, 1]


def test_the_level_of_longer_runs_keeps_what_one_run_by_itself_leaves_uncertain():
    before, after = 1e-4 * np.eye(20), 1e-6 * np.eye(20)
    assert not kept_level(before, after, np.zeros(20)).any()
    added = kept_level(before, after, np.full(20, 1.0))
    assert np.mean(np.diag(after + added)) == pytest.approx(KEPT * 1e-4, rel=1e-6)
    assert np.linalg.matrix_rank(added) == 1
    assert np.max(kept_level(before * 1e4, after, np.full(20, 1.0))) == pytest.approx(DRIFT_SD**2)
