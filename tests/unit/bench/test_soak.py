"""The soak, at a size that a test can afford."""

from __future__ import annotations

import json

import pytest

from bench.soak import main


def test_a_small_soak_is_sound_and_accounts_for_every_trial(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--trials", "120", "--seed", "3", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [fault for fault in found["faults"] if "should_prune takes" not in fault] == []  # so few say nothing about time
    assert sum(found["states"].values()) == found["n_trials"] == 120
    assert sum(found["reasons"].values()) == found["states"]["PRUNED"] == found["tenths"][-1]["stopped"]
    assert 0 < found["error_spent"] <= 0.05
    assert set(found["reasons"]) <= {"cannot_win", "non_finite"}


def test_a_soak_too_small_to_tell_anything_is_refused() -> None:
    with pytest.raises(ValueError, match="--trials must be at least 100; found 5"):
        main(["--trials", "5"])
