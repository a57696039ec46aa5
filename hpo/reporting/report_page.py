"""``report.html``: a sweep as one self-contained page, light and dark, for large screens and phones.

The page needs no network and asks for none: styles, scripts and Plotly are in it, and its content security policy lets nothing
be loaded and no script run but those whose hashes it names. Whatever comes from a log or a configuration is text: Jinja escapes
it, and data for the figures is JSON in which ``<`` cannot occur.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from hpo.reporting import report_text
from hpo.reporting.decision_trail import TrailLine, clock
from hpo.reporting.family_alarms import family_alarms
from hpo.reporting.landscape_figures import landscape_figures
from hpo.reporting.posterior_slices import posterior_of
from hpo.reporting.report_figures import Figure, curves_figure, error_figure, forecast_figure, regret_figure
from hpo.reporting.report_tables import MAX_ROWS, proxies_table, stopping_table, trials_table
from hpo.reporting.stopping_points import stopping_points
from hpo.reporting.sweep_files import SweepRecord, TrialRecord, rank
from hpo.reporting.sweep_words import settings_text

_TEMPLATES = Path(__file__).parent / "templates"


def plotly_script() -> str:
    """Return the source of plotly.js, "" where Plotly is not installed."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        return ""
    script: str = get_plotlyjs()
    return script


def page(sweep: SweepRecord, plotly: str) -> str:
    """Return the page of a sweep as HTML; the same folder always gives the same page.

    Parameters
    ----------
    plotly : str
        The source of plotly.js; without it the page has every table and sentence but no figures.

    Raises
    ------
    ImportError
        Jinja2 is not installed.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["kept"] = lambda text: str(text).replace(" %", "\u00a0%")  # no line breaks before a per cent sign
    scripts = [plotly, _asset("report.js")] if plotly else [_asset("report.js")]
    return environment.get_template("report.html.j2").render(
        **_content(sweep),
        has_plotly=bool(plotly),
        styles=_markup(_asset("report.css")),
        scripts=[_markup(script) for script in scripts],
        script_hashes=" ".join(f"'sha256-{_sha256(script)}'" for script in scripts),
    )


def _content(sweep: SweepRecord) -> dict[str, Any]:
    """Return what the template is filled with, as text, records and figures."""
    points = stopping_points(sweep)
    figures = _figures(sweep, points)
    return {
        "sweep": sweep,
        "status": _status(sweep),
        "headline": report_text.headline(sweep),
        "opening": report_text.opening(sweep),
        "cards": report_text.cards(sweep),
        "parts": report_text.compute_parts(sweep),
        "picks": report_text.picks(sweep),
        "notices": report_text.notices(sweep, family_alarms(sweep)),
        "figures": {figure.id: figure for figure in figures},
        "slices": [figure for figure in figures if figure.id.startswith("slice-")],
        "tables": [table for table in (trials_table(sweep), proxies_table(sweep), stopping_table(points)) if table is not None],
        "trails": _trails(sweep),
        "facts": _facts(sweep),
        "config": yaml.safe_dump(sweep.config, sort_keys=False, allow_unicode=True),
        "figure_data": _json({figure.id: {"data": figure.data, "layout": figure.layout} for figure in figures}),
    }


def _trails(sweep: SweepRecord) -> list[tuple[TrialRecord, str, list[tuple[str, str, bool]]]]:
    """Return the candidates that the table shows, by number, with their settings and trails in words."""
    shown = sorted(sorted(sweep.trials, key=rank)[:MAX_ROWS], key=lambda trial: trial.number)
    return [(trial, settings_text(trial.settings), [_shown(line) for line in trial.trail]) for trial in shown]


def _figures(sweep: SweepRecord, points: Any) -> list[Figure]:
    found = [forecast_figure(sweep), curves_figure(sweep), regret_figure(sweep, points), error_figure(sweep, points)]
    return [figure for figure in [*found, *landscape_figures(sweep, posterior_of(sweep))] if figure is not None]


def _status(sweep: SweepRecord) -> str:
    if sweep.result is not None and sweep.result.get("winner") is not None:
        return "finished"
    finished = sweep.state.finished
    if finished is not None and finished.get("error"):
        return "failed"
    return "not finished"


def _shown(line: TrailLine) -> tuple[str, str, bool]:
    return clock(line.time), line.text, line.is_decision


def _facts(sweep: SweepRecord) -> list[tuple[str, str]]:
    """Return what is needed to believe the sweep or to repeat it, in words."""
    stopping, resources = sweep.stopping, sweep.config.get("resources") or {}
    facts = [
        ("began", f"{clock(sweep.state.begun)} UTC" if sweep.state.begun is not None else ""),
        ("seed", str(sweep.config.get("seed", ""))),
        ("rule", f"{stopping.get('rule', 'select')} at {sweep.at:g}, α {stopping.get('alpha', '')}"),
        ("resources of a trial", ", ".join(f"{key} {resources[key]:g}" for key in ("cpu", "gpu") if key in resources)),
        *sweep.environment.items(),
    ]
    return [(name, str(value)) for name, value in facts if value]


def _json(data: Any) -> Any:
    """Return JSON that may stand inside a script element."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return _markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _markup(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _asset(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")
