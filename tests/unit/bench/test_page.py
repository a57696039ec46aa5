"""The benchmark page: made from results alone, weighted by tasks, with failures named."""

from __future__ import annotations

import json
import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from bench.page import benchmark_page
from hpo.cli import app


def result(name: str, n_tasks: int, regrets: dict[str, float], **protocol: Any) -> dict[str, Any]:
    facts = {"name": name, "file": "olmo_ladder.parquet", "metric": "val_loss", "role": "test", "noise": 0.001, **protocol}
    summary = {method: {"0.2": {"regret_pct": regret, "hit": 0.5, "decided": 1.0}} for method, regret in regrets.items()}
    return {"n_tasks": n_tasks, "protocol": facts, "summary": summary}


def page_of(folder: Path, *results: dict[str, Any]) -> str:
    for one in results:
        (folder / f"{one['protocol']['name']}.json").write_text(json.dumps(one), encoding="utf-8")
    return benchmark_page(folder)


def row(page: str, start: str) -> list[str]:
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_headline_is_a_mean_over_the_tasks_of_unseen_language_models(tmp_path: Path) -> None:
    page = page_of(
        tmp_path,
        result("one", 3, {"hpo": 0.1, "current_best": 1.0}),
        result("two", 1, {"hpo": 0.5, "current_best": 2.0}),
        result("tuned", 9, {"hpo": 9.0}, role="develop"),
        result("other", 9, {"hpo": 9.0}, file="taskset_rnn_text.parquet"),
        result("train", 9, {"hpo": 9.0}, metric="train_loss"),
    )
    assert row(page, "**this project**")[1] == "0.200"
    assert row(page, "current best: the loss so far")[1] == "1.250"
    assert "4 tasks of 2 protocols" in page


@pytest.mark.parametrize(("ours", "n_lost"), [(0.3, 1), (0.19, 0)])
def test_a_protocol_is_lost_where_a_free_rule_is_better_beyond_noise(tmp_path: Path, ours: float, n_lost: int) -> None:
    page = page_of(tmp_path, result("one", 3, {"hpo": ours, "current_best": 0.1, "transfer": 4.0}))
    assert f"On {n_lost} of 1 protocols" in page
    assert ("| `one` | test | 3 | 0.300 | 0.100 | 4.000 |" in page) == bool(n_lost)


def test_stopping_rules_are_told_with_the_share_that_references_cost(tmp_path: Path) -> None:
    made = result("one", 2, {})
    shares = {"tokens_share": 0.4, "regret_pct": 0.1, "winner_stopped": 0.05}
    made["summary"] = {"everything": {"tokens_all": 200.0}, "select": {"tokens_all": 150.0, **shares}}
    (tmp_path / "asynchronous").mkdir()
    page = page_of(tmp_path / "asynchronous", made) and benchmark_page(tmp_path)
    name = "**this project, `select`** at 20 %"
    assert row(page, name) == [name, "0.100", "0.100", "0.050", "0.40", "0.75", "–"]


def test_a_rules_row_has_the_coverage_of_the_forecast_it_rests_on_and_its_worst_protocol(tmp_path: Path) -> None:
    (tmp_path / "asynchronous").mkdir()
    for name, regret in (("one", 0.1), ("two", 0.4)):
        played, replayed = result(name, 2, {}), result(name, 2, {"hpo": 0.0})
        played["summary"] = {"select": {"regret_pct": regret}}
        replayed["summary"]["hpo"]["0.2"]["coverage90"] = 0.9
        page_of(tmp_path / "asynchronous", played)
        page_of(tmp_path, replayed)
    cells = row(benchmark_page(tmp_path), "**this project, `select`** at 20 %")
    assert (cells[1], cells[2], cells[-1]) == ("0.250", "0.400", "0.90")


def test_a_file_by_another_name_than_its_protocol_is_not_counted_again(tmp_path: Path) -> None:
    made = result("one", 3, {"hpo": 0.1})
    (tmp_path / "copy.json").write_text(json.dumps(made), encoding="utf-8")
    assert "3 tasks of 1 protocols" in page_of(tmp_path, made)


def test_calibration_is_pooled_over_the_pairs_of_each_kind_of_study(tmp_path: Path) -> None:
    one, two = result("taskset_a", 1, {}), result("taskset_b", 3, {})
    for made, pairs, skill in ((one, 100, 0.2), (two, 3000, 0.4)):
        found = {"n_pairs": pairs, "slope": skill, "brier_skill": skill, "coverage90": skill}
        made["calibration"] = {"hpo": {"0.2": found}}
    page = page_of(tmp_path, one, two)
    pooled = (100 * 0.2 + 3000 * 0.4) / 3100
    assert f"| TaskSet | 20% | 4 | 3,100 | 0.35 | {pooled:.2f} | 0.40 |" in page


def test_reports_are_taken_over_with_their_command(tmp_path: Path) -> None:
    (tmp_path / "own_ladder.md").write_text("a table\n", encoding="utf-8")
    (tmp_path / "decision_latency.txt").write_text("numbers\n", encoding="utf-8")
    page = benchmark_page(tmp_path)
    assert "a table\n\n```sh\nhpo bench own-ladder\n```" in page
    assert "```text\nnumbers\n```" in page


def test_the_page_of_the_results_that_are_kept_has_every_part(repository: Path) -> None:
    page = benchmark_page(repository / "bench" / "results")
    for title in (
        *("One table", "Forecasts", "Calibration", "Latency", "Ten thousand trials", "Where it loses"),
        *(
            "Pruners where the truth",
            "Our own sweep",
            "Our own ladder",
            "Tokens to the same",
            "Alarms of the monitor",
            "Every protocol",
        ),
    ):
        assert f"## {title}" in page


def test_a_races_command_and_an_alarms_command_are_those_that_were_run(repository: Path) -> None:
    results = repository / "bench" / "results"
    page, races = benchmark_page(results), json.loads((results / "race.json").read_text(encoding="utf-8"))
    names = ",".join(one["protocol"]["name"] for one in races)
    assert f"--seeds {races[0]['race']['n_seeds']} --only {names} --out bench/results/race.md" in page
    assert (results / "monitor_test.txt").read_text(encoding="utf-8").partition("\n")[0] in page


def test_every_table_that_is_kept_is_on_the_page(repository: Path) -> None:
    results = repository / "bench" / "results"
    page, beside = benchmark_page(results), {"README", "outlook_8_references"}
    for path in results.glob("*.md"):
        last = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip() and line[0] != "!"][-1]
        assert path.stem in beside or last in page, path.name


def test_every_command_of_the_page_is_one_that_its_program_takes(repository: Path) -> None:
    page = benchmark_page(repository / "bench" / "results")
    found = [shlex.split(line) for line in re.findall(r"```sh\n(.*)\n```", page)]
    assert len(found) > 15
    wrong = [line for line in found if not _takes(line)]
    assert not wrong


def _takes(line: list[str]) -> bool:
    """True if every option of a command is known: to the help of a command of ours, or to the source of a module."""
    options = [word for word in line if word.startswith("--")]
    if line[0] == "hpo":
        told = CliRunner().invoke(app, [*line[1:3], "--help"], env={"COLUMNS": "200"})
        return told.exit_code == 0 and all(option in told.output for option in options)
    spec = find_spec(line[2])
    source = Path((spec and spec.origin) or "").read_text(encoding="utf-8")
    return all(option in source or option.removeprefix("--") in source for option in options)
