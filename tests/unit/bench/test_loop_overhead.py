"""The overhead bench runs and says what it measured; how much it measured is no claim of a unit test."""

from __future__ import annotations

import json

import pytest

from bench.loop_overhead import main


def test_json_is_one_document_with_the_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--width", "16", "--depth", "1", "--blocks", "3", "--steps", "2", "--json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert {"n_params", "loop_ms", "bare_ms", "overhead", "checkpoint_ms", "goal"} <= set(found)


def test_the_sentence_names_the_goal(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--width", "16", "--depth", "1", "--blocks", "3", "--steps", "2"])
    assert "goal 5 %" in capsys.readouterr().out
