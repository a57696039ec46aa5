"""report.html: what it says of a finished, killed, failed and old sweep, and that nothing in a log can run in it."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import shutil
import sys
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from sweeps_here import SCRIPT, Killed, config, sweep_here

from hpo.adapters.curve_files import RecordedRun
from hpo.commands.report import report_after_sweep, write_report
from hpo.engine.commands_file import Answer, CommandsFile
from hpo.engine.run_folder import RunFolder
from hpo.engine.trouble import SweepError
from hpo.reporting import report_page, report_tables, sweep_files
from hpo.reporting.report_page import page
from hpo.reporting.report_tables import Cell, Table
from hpo.reporting.stopping_points import stopping_points
from hpo.reporting.sweep_files import read_sweep

pytest.importorskip("jinja2", reason="Jinja2 absent: pip install 'collapse-hpo[sweep]'")
pytest.importorskip("plotly", reason="Plotly absent: pip install plotly")

pytestmark = pytest.mark.timeout(120)
NO_SPACE = "\N{NO-BREAK SPACE}"


class Elements(HTMLParser):
    """The elements of a page with their attributes, and its text without scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside, self._texts = "", list[str]()
        self.feed(html)
        self.text = " ".join(" ".join(self._texts).replace(NO_SPACE, " ").split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self._texts.append(data)


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A verified sweep with a diverged candidate and a setting that is a script."""
    return sweep_here(tmp_path_factory.mktemp("sweep") / "run", config(), verify=True)


@pytest.fixture(scope="module")
def shown(verified: RunFolder) -> Elements:
    """Its report, as the sweep left it."""
    return Elements((verified.path / "report.html").read_text(encoding="utf-8"))


@pytest.fixture
def copy(verified: RunFolder, tmp_path: Path) -> Path:
    """A copy of the sweep's run folder, free to change."""
    return Path(shutil.copytree(verified.path, tmp_path / "run"))


def words(folder: Path) -> str:
    return Elements(page(read_sweep(folder), "")).text


def figures(elements: Elements) -> dict[str, Any]:
    (data,) = [s for s, (_, about) in zip(elements.scripts, _scripts(elements), strict=True) if about.get("id") == "figures"]
    found: dict[str, Any] = json.loads(data)
    return found


def _scripts(elements: Elements) -> list[tuple[str, dict[str, str | None]]]:
    return [one for one in elements.found if one[0] == "script"]


def test_it_says_what_won_its_forecast_the_savings_and_the_regret(verified: RunFolder, shown: Elements) -> None:
    result = json.loads(verified.result.read_text())
    assert result["winner"] == {"lr": pytest.approx(0.01), "kind": "plain"}
    forecast = result["forecast"]
    assert f"lr 0.01, kind plain won, with a final loss of {result['actual_final_loss']:.4f}" in shown.text
    assert (
        f"end at {forecast['final_loss']:.4f} (90 % interval {forecast['lower']:.4f} to {forecast['upper']:.4f})" in shown.text
    )
    assert f"compute saved {100 * result['saved_fraction']:.0f} %" in shown.text
    assert f"forecast error {result['forecast_error_pct']:+.2g} %" in shown.text
    assert f"money saved {result['price'] * (1 / (1 - result['saved_fraction']) - 1):.2f}" in shown.text
    for rule in ("current best", "transfer"):
        assert rule in shown.text
    assert re.search(r"this sweep .{,60} lr 0.01, kind plain \d\.\d{4} 0\.00 %", shown.text)


def test_it_says_what_went_wrong(shown: Elements) -> None:
    assert "Alarm Trials 8, 9 diverged: the run reported a non-finite value." in shown.text
    assert "Alarm Proxies proxy-1-08, proxy-1-09, proxy-0-08, proxy-0-09 diverged: loss was not finite." in shown.text


def test_a_setting_that_is_a_script_is_text_everywhere(verified: RunFolder, shown: Elements) -> None:
    html = (verified.path / "report.html").read_text(encoding="utf-8")
    assert SCRIPT not in html
    assert shown.text.count(SCRIPT) > 12  # tables, trails and alarms name it
    assert "alert" not in "".join(s for s, (_, a) in zip(shown.scripts, _scripts(shown), strict=True) if "id" not in a)[-8000:]
    hovers = json.dumps(figures(shown))
    assert "<script" not in hovers
    assert "&lt;script&gt;" in hovers


def test_nothing_is_loaded_from_anywhere_and_only_its_own_scripts_may_run(shown: Elements) -> None:
    links = [v for _, about in shown.found for k, v in about.items() if k in ("src", "href", "srcset", "action") and v]
    assert all(link.startswith(("#", "data:")) for link in links)
    (policy,) = [a["content"] for tag, a in shown.found if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    run = [s for s, (_, about) in zip(shown.scripts, _scripts(shown), strict=True) if about.get("type") != "application/json"]
    assert [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in run] == allowed
    assert len(run) == 2  # Plotly and the page's own
    assert "unsafe-inline" not in policy.split("script-src")[1]


def test_every_figure_is_valid_has_words_and_shows_the_trials(verified: RunFolder, shown: Elements) -> None:
    go = pytest.importorskip("plotly.graph_objects", reason="Plotly absent: pip install plotly")
    found = figures(shown)
    assert set(found) == {"forecasts", "curves", "regret", "errors", "slice-0"}
    for name, figure in found.items():
        go.Figure(_with_colours(figure))  # which refuses what Plotly does not know
        assert any(a.get("id") == f"says-{name}" for _, a in shown.found)
    measured = next(trace for trace in found["forecasts"]["data"] if trace["name"] == "measured")
    result = json.loads(verified.result.read_text())
    assert sorted(measured["x"]) == sorted(
        t["actual_final_loss"] for t in result["trials"] if t["actual_final_loss"] is not None
    )


def _with_colours(value: Any) -> Any:
    if isinstance(value, str):
        return "#123456" if value.startswith("var:") else value
    if isinstance(value, list):
        return [_with_colours(one) for one in value]
    return {key: _with_colours(one) for key, one in value.items()} if isinstance(value, dict) else value


def test_what_other_stopping_points_would_have_given_agrees_with_the_sweep_at_its_own(verified: RunFolder) -> None:
    sweep, result = read_sweep(verified.path), json.loads(verified.result.read_text())
    here = next(point for point in stopping_points(sweep) if point.fraction == pytest.approx(0.2))
    known = [t for t in result["trials"] if t["actual_final_loss"] is not None]
    errors = [100 * (t["forecast"]["final_loss"] / t["actual_final_loss"] - 1) for t in known]
    assert here.n_judged == len(known) == 8
    assert here.bias_pct == pytest.approx(sum(errors) / 8)
    assert here.error_pct == pytest.approx(sum(map(abs, errors)) / 8)
    assert here.regret_pct == pytest.approx(result["regret_pct"]["ours"])
    assert here.current_best_regret_pct == pytest.approx(result["regret_pct"]["current_best"])


def test_nothing_of_a_run_after_the_stopping_point_bears_on_it(verified: RunFolder) -> None:
    sweep = read_sweep(verified.path)
    changed = [replace(t, run=_doubled_after(t.run, 0.35)) for t in sweep.trials]
    before, after = stopping_points(sweep), stopping_points(replace(sweep, trials=tuple(changed)))
    assert [p for p in before if p.fraction <= 0.35] == [p for p in after if p.fraction <= 0.35]
    assert [p for p in before if p.fraction > 0.35] != [p for p in after if p.fraction > 0.35]


def _doubled_after(run: RecordedRun | None, fraction: float) -> RecordedRun | None:
    if run is None or run.horizon is None:
        return run
    return replace(run, values=np.where(run.steps > fraction * run.horizon, 2 * run.values, run.values))


def test_tables_can_be_downloaded_with_the_numbers_of_the_result(verified: RunFolder, shown: Elements) -> None:
    links = {str(a["download"]): str(a["href"]) for _, a in shown.found if a.get("download")}
    assert set(links) == {"here-trials.csv", "here-proxies.csv", "here-stopping-points.csv"}
    text = unquote(links["here-trials.csv"].partition(",")[2])
    rows = {int(row["trial"]): row for row in csv.DictReader(io.StringIO(text))}
    for trial in json.loads(verified.result.read_text())["trials"]:
        row = rows[trial["number"]]
        assert float(row["lr"]) == trial["settings"]["lr"]
        assert row["kind"] == trial["settings"]["kind"]
        assert row["state"] == trial["state"]
        assert row["forecast"] == ("" if trial["forecast"]["final_loss"] is None else str(trial["forecast"]["final_loss"]))


def test_a_text_that_a_spreadsheet_would_run_is_made_harmless_in_the_csv() -> None:
    table = Table("t", "T", ("a", "b"), frozenset(), ((Cell("x", "=1+1"), Cell("y", -2.5)),))
    assert table.csv == "a,b\n'=1+1,-2.5\n"


def test_each_trial_has_its_trail_of_decisions(shown: Elements) -> None:
    trail = re.search(r"trial 4 lr 0.01, kind plain winner (.*?) trial 5 ", shown.text)
    assert trail is not None
    parts = ["trains, up to step 20", "reached step 20, 20 % of its training", "go on: in the smallest set that holds the best"]
    places = [trail[1].index(part) for part in [*parts, "judged at 20 %", "P(best)", "reached step 100, its end"]]
    assert places == sorted(places)
    other = re.search(r"trial 5 lr 0.01, kind .*? stopped (.*?) trial 6 ", shown.text)
    assert other is not None
    assert "stop: outside the set that holds the best" in other[1]
    assert "verification: reached step 100, its end" in other[1]


def test_it_says_seed_versions_and_configuration(shown: Elements) -> None:
    for fact in ("seed 0", "rule select at 0.2", "numpy 2", "Python 3", "trainable: sweeps_here:train"):
        assert fact in shown.text


def test_the_same_folder_gives_the_same_page_and_a_resume_of_it_too(copy: Path) -> None:
    write_report(copy, copy / "report.html")
    before = (copy / "report.html").read_bytes()
    sweep_here(copy, verify=True)
    assert (copy / "report.html").read_bytes() == before


def test_without_plotly_every_sentence_and_table_is_there_and_how_to_get_the_figures(copy: Path) -> None:
    elements = Elements(page(read_sweep(copy), ""))
    assert "The figures need Plotly: pip install 'collapse-hpo[sweep]'" in elements.text
    assert "measured final losses lie inside their 90 % interval" in elements.text
    assert not any(a.get("class") == "plot" for _, a in elements.found)
    assert len([a for _, a in elements.found if a.get("download")]) == 3


def test_a_sweep_without_the_packages_says_how_to_get_its_report(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    report_after_sweep(RunFolder(copy), said.append)
    assert said[-1].startswith("the report has no figures without plotly: pip install")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    report_after_sweep(RunFolder(copy), said.append)
    assert said[-1].startswith("no report without jinja2: pip install")


def test_a_run_folder_of_an_older_version_has_its_report(copy: Path) -> None:
    (copy / "logs" / "progress.jsonl").unlink()
    text = words(copy)
    assert "lr 0.01, kind plain won" in text
    assert "stop: outside the set that holds the best, judged at 20 %" in text


def test_what_cannot_be_read_is_named_and_the_rest_shown(copy: Path) -> None:
    (copy / "model.json").write_text('{"schema": 999}')
    (copy / "result.json").write_text("{")
    (copy / "curves" / "trial-00.parquet").write_bytes(b"no parquet")
    text = words(copy)
    for name in ("model.json", "result.json", "curves/trial-00.parquet"):
        assert f"Note {name} cannot be read" in text
    assert "trial 4 lr 0.01, kind plain" in text


@pytest.mark.parametrize("key", ["forecast", "seconds", "winner"])
def test_a_result_of_another_version_is_named_and_the_rest_shown(copy: Path, key: str) -> None:
    result = json.loads((copy / "result.json").read_text())
    del result[key]
    (copy / "result.json").write_text(json.dumps(result))
    text = words(copy)
    assert f"Note result.json cannot be read: it lacks {key}" in text
    assert "trial 4 lr 0.01, kind plain" in text


def test_files_of_another_kind_are_named(copy: Path) -> None:
    (copy / "config.yaml").write_text("- a list")
    (copy / "result.json").write_text("[]")
    text = words(copy)
    assert "Note config.yaml cannot be read: it is no mapping" in text
    assert "Note result.json cannot be read: it is no object" in text


def test_of_very_many_candidates_the_best_are_shown_and_all_are_in_the_csv(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_files, "MAX_CURVES", 3)
    for module in (report_tables, report_page):
        monkeypatch.setattr(module, "MAX_ROWS", 4)
    elements = Elements(page(read_sweep(copy), ""))
    assert "Only the curves of the 3 best of 10 candidates were read." in elements.text
    assert "The first 4 are shown; the CSV has all 10." in elements.text
    assert "Those of the best 4 of 10 candidates." in elements.text
    (link,) = [str(a["href"]) for _, a in elements.found if a.get("download") == "here-trials.csv"]
    assert len(unquote(link.partition(",")[2]).splitlines()) == 11


def test_what_people_asked_for_is_in_the_trail(copy: Path) -> None:
    file = CommandsFile(copy)
    file.answer(Answer(file.ask("keep", "trial-04").id, True, "trial-04 <b>goes</b> on"))
    assert "by hand: keep — trial-04 <b>goes</b> on" in words(copy)
    assert "<b>goes</b>" not in page(read_sweep(copy), "")


def test_a_killed_sweep_says_how_far_it_came_and_a_resumed_one_that_it_was_killed(tmp_path: Path) -> None:
    def die(name: str) -> None:
        if name == "trial-05":
            raise Killed

    with pytest.raises(Killed):
        sweep_here(tmp_path / "run", config(), before=die)
    assert not (tmp_path / "run" / "report.html").exists()
    text = words(tmp_path / "run")
    assert "here not finished" in text
    assert "It has not come to its end" in text
    assert "trial 4 lr 0.01, kind plain at its stop" in text
    sweep_here(tmp_path / "run")
    text = words(tmp_path / "run")
    assert "here finished" in text
    assert "It was interrupted and resumed once" in text
    assert "How far a pick is off the best is known once every candidate has been trained to its end" in text


def test_a_failed_sweep_says_why(tmp_path: Path) -> None:
    broken = config()
    broken["target"] = {**broken["target"], "nan_above": 1e-9}
    with pytest.raises(SweepError):
        sweep_here(tmp_path / "run", broken)
    text = Elements((tmp_path / "run" / "report.html").read_text(encoding="utf-8")).text
    assert "here failed" in text
    assert "This sweep has no winner" in text
    assert "It ended with: no candidate could be trained to the stopping point" in unescape(text)


@pytest.mark.slow
def test_under_prune_repeated_judgements_are_counted(tmp_path: Path) -> None:
    pruned = {**config(), "stopping": "prune"}
    sweep_here(tmp_path / "run", pruned)
    text = words(tmp_path / "run")
    assert re.search(r"stop: its forecast final value is worse than the best, judged at \d+ %", text)
    assert re.search(r"go on: .{,80}judged \d+ times, last at \d+ %", text)
