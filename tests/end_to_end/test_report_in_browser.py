"""report.html in a real browser: it draws, complains of nothing, asks for nothing, sorts, turns dark, and fits a phone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, chromium
from sweeps_here import SCRIPT, config, sweep_here

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
N_FIGURES = 5
DRAWN = "document.querySelectorAll('.plot .main-svg').length >= document.querySelectorAll('.plot').length"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a verified sweep with a setting that is a script."""
    pytest.importorskip("plotly", reason="Plotly absent: pip install plotly")
    return sweep_here(tmp_path_factory.mktemp("sweep") / "run", config(), verify=True).path / "report.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium."""
    program = chromium()
    if program is None:
        pytest.skip("Chromium absent: install Debian's package chromium")
    with Browser(program, tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def picture(request: pytest.FixtureRequest, browser: Browser) -> Iterator[None]:
    """Where HPO_PICTURES names a folder, leave there a picture of the page as the test left it."""
    yield
    if os.environ.get("HPO_PICTURES"):
        browser.picture(Path(os.environ["HPO_PICTURES"]) / f"{request.node.name}.png")


def opened(browser: Browser, report: Path, width: int = 1280, *, dark: bool = False) -> None:
    browser.open(report, width=width, dark=dark)
    browser.wait_for(DRAWN)


def luminance(browser: Browser, expression: str) -> float:
    """Return how light a CSS colour is, from 0 to 1."""
    numbers = browser.run(f"({expression}).match(/[\\d.]+/g).slice(0, 3).map(Number)")
    return sum(numbers) / 3 / 255


@pytest.mark.usefixtures("picture")
@pytest.mark.parametrize("dark", [False, True])
def test_it_draws_every_figure_in_the_colours_of_the_theme(browser: Browser, report: Path, dark: bool) -> None:
    opened(browser, report, dark=dark)
    assert browser.complaints == []
    assert browser.run("document.querySelectorAll('.plot .main-svg .trace').length") > 3 * N_FIGURES
    assert browser.run("document.querySelectorAll('.plot').length") == N_FIGURES
    paper = luminance(browser, "getComputedStyle(document.body).backgroundColor")
    ink = luminance(browser, "getComputedStyle(document.querySelector('.plot .xtick text')).fill")
    text = luminance(browser, "getComputedStyle(document.querySelector('.lead')).color")
    assert (paper < 0.2 and min(ink, text) > 0.7) if dark else (paper > 0.9 and max(ink, text) < 0.3)


def test_the_button_turns_page_and_figures_dark_and_back(browser: Browser, report: Path) -> None:
    opened(browser, report)
    paper, ink = (
        "getComputedStyle(document.body).backgroundColor",
        "getComputedStyle(document.querySelector('.xtick text')).fill",
    )
    for is_dark in (True, False):
        browser.run("document.getElementById('theme').click()")
        assert (luminance(browser, paper) < 0.5) == is_dark
        assert (luminance(browser, ink) > 0.5) == is_dark
    assert browser.complaints == []


def test_it_asks_the_network_for_nothing_and_runs_no_script_of_the_log(browser: Browser, report: Path) -> None:
    opened(browser, report)
    assert browser.requests[0] == report.as_uri()
    assert [url for url in browser.requests[1:] if not url.startswith(("data:", "blob:"))] == []
    assert SCRIPT in browser.run("document.body.innerText")
    browser.run(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1'; document.body.append(s); })()"
    )
    assert browser.run("window.ran") is None  # its policy refuses scripts that it does not name
    assert any("Content Security Policy" in complaint for complaint in browser.complaints)


def column(browser: Browser, name: str) -> list[str]:
    heads: list[str] = browser.run("[...document.querySelectorAll('#table-trials thead th')].map(h => h.innerText.trim())")
    i = heads.index(name)
    cells: list[str] = browser.run(
        f"[...document.querySelectorAll('#table-trials tbody tr')].map(r => r.cells[{i}].dataset.value)"
    )
    return cells


def click(browser: Browser, name: str) -> str:
    """Click on a column's head; return how the table then says it is sorted."""
    browser.run(f"[...document.querySelectorAll('#table-trials th button')].find(b => b.innerText.trim() === '{name}').click()")
    said: str = browser.run("document.querySelector('#table-trials th[aria-sort]').getAttribute('aria-sort')")
    return said


def test_tables_sort_up_and_down_by_number_and_by_word_with_what_is_empty_last(browser: Browser, report: Path) -> None:
    opened(browser, report)
    assert click(browser, "forecast") == "ascending"
    up = column(browser, "forecast")
    numbers = [float(value) for value in up if value]
    assert len(numbers) == 8
    assert numbers == sorted(numbers)
    assert up[8:] == ["", ""]
    assert click(browser, "forecast") == "descending"
    assert [float(value) for value in column(browser, "forecast") if value] == numbers[::-1]
    assert column(browser, "forecast")[8:] == ["", ""]
    click(browser, "state")
    states = column(browser, "state")
    assert states == sorted(states)


def test_a_trials_link_opens_its_trail(browser: Browser, report: Path) -> None:
    opened(browser, report)
    browser.run("document.querySelector('#table-trials tbody a').click()")
    browser.wait_for("document.querySelector('#trail-4').open")
    assert "in the smallest set that holds the best" in browser.run("document.querySelector('#trail-4').innerText")


@pytest.mark.usefixtures("picture")
@pytest.mark.parametrize("width", [360, 390, 768])
def test_a_phone_does_not_scroll_sideways(browser: Browser, report: Path, width: int) -> None:
    opened(browser, report, width)
    assert browser.run("document.documentElement.scrollWidth") <= width
    widest = browser.run(
        "Math.max(...[...document.querySelectorAll('.plot .main-svg')].map(s => s.getBoundingClientRect().right))"
    )
    assert widest <= width
    assert browser.complaints == []


def test_every_figure_table_and_control_has_words_for_those_who_cannot_see_it(browser: Browser, report: Path) -> None:
    opened(browser, report)
    unnamed = (
        "[...document.querySelectorAll('[role=img], button, a, th')].filter(e =>"
        " !(e.getAttribute('aria-label') || e.innerText || e.textContent).trim()).length"
    )
    assert browser.run(unnamed) == 0
    described = "[...document.querySelectorAll('.plot')].map(p => document.getElementById(p.getAttribute('aria-describedby')))"
    assert all(length > 40 for length in browser.run(f"{described}.map(d => d.innerText.length)"))
    assert browser.run("document.documentElement.lang") == "en"
    assert browser.run("[...document.querySelectorAll('h1')].length") == 1
