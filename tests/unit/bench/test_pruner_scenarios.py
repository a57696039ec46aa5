"""The synthetic studies of the pruner's table: a run that was ended goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import pruner_scenarios


def test_an_ended_run_goes_on_and_a_torn_line_is_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, played = tmp_path / "rows.jsonl", []
    measure = pruner_scenarios.measure

    def counted(pruner: str, scenario: str, seed: int) -> dict[str, float]:
        played.append((pruner, scenario, seed))
        return measure(pruner, scenario, seed)

    monkeypatch.setattr(pruner_scenarios, "measure", counted)
    command = ["--pruners", "median", "--first-seed", "7", "--seeds", "1", "--rows", str(rows), "--json"]
    command += ["--scenarios", "spread", "late_bloomers"]
    assert pruner_scenarios.main(command) == 0
    whole = capsys.readouterr().out
    assert played == [("median", "spread", 7), ("median", "late_bloomers", 7)]
    rows.write_text(rows.read_text()[:-20])
    assert pruner_scenarios.main(command) == 0
    assert pruner_scenarios.main(command) == 0
    assert played[2:] == [("median", "late_bloomers", 7)]
    assert json.loads(capsys.readouterr().out.partition("\n{")[0]) == json.loads(whole)
    assert len(pruner_scenarios.read_rows(rows)) == 2


def test_the_truth_of_a_study_is_what_its_reports_end_in() -> None:
    for made in (pruner_scenarios.spread_finals(3, noise=0.0), pruner_scenarios.five_percent(3, noise=0.0)):
        assert made.values[:, -1] == pytest.approx(made.finals)
        assert made.best == made.finals.argmin()
