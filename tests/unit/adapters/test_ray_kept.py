from __future__ import annotations

import tracemalloc

import pytest

from hpo.adapters.ray_kept import KEPT_POINTS, StepsInCommon, thinned


def test_a_finished_trial_keeps_a_bounded_number_of_points_and_its_last_as_it_was() -> None:
    kept = thinned({step: float(step) for step in range(1, 10_001)})
    assert KEPT_POINTS / 2 <= len(kept) <= KEPT_POINTS
    assert kept[10_000] == 10_000.0
    assert all(step == pytest.approx(value) for step, value in kept.items())
    assert list(kept) == sorted(kept)


def test_few_points_are_kept_as_they_are() -> None:
    values = dict.fromkeys(range(KEPT_POINTS), 1.0)
    assert thinned(values) is values


def test_what_is_kept_reads_as_the_reports_did() -> None:
    reports = {1: 3.0, 2: float("inf"), 7.5: 2.0, 9: 2.5}
    kept = StepsInCommon().keep(reports)
    assert dict(kept) == reports
    assert list(reversed(kept)) == list(reversed(reports))
    assert [type(step) for step in kept] == [int, int, float, int]
    assert 2 in kept
    assert 8 not in kept
    with pytest.raises(KeyError):
        kept[10]


def test_trials_that_report_at_other_steps_keep_their_own() -> None:
    common = StepsInCommon()
    made = [range(1, 50), range(1, 101), range(5, 60, 5), range(1, 30), range(1, 101)]
    kept = [common.keep(dict.fromkeys(steps, 1.0)) for steps in made]
    assert [list(one) for one in kept] == [list(steps) for steps in made]


def test_a_report_of_many_trials_takes_little_more_than_its_number() -> None:
    common, n_trials, n_reports = StepsInCommon(), 200, 100
    common.keep({10 * step: 0.1 * step for step in range(n_reports)})
    tracemalloc.start()
    kept = [common.keep({10 * step: 0.1 * (step + i) for step in range(n_reports)}) for i in range(n_trials)]
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == n_trials
    assert held / n_trials / n_reports < 16
