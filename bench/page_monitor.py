"""The benchmark page's section on the monitor: false alarms of healthy runs, faults that were put in, real faults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.page_parts import command, table

_FORMS = {
    "train step 4σ": ("step of 4 σ, within 3 %", "within_3pct"),
    "train drift 16σ": ("drift of 16 σ, before the loss turns", "before_loss_turns"),
    "train spike 8σ": ("spike of 8 σ, within 3 %", "within_3pct"),
    "val step 8σ": ("step of 8 σ in validation, within 3 %", "within_3pct"),
}
"""What the table shows of the faults that were put in: title, and which share."""
_HEAD = """## Alarms of the monitor, true and false

Healthy runs of the test half of the recorded curves, as they are and *bootstrapped* from their residuals: how many have an
alarm. Then faults that were put into them, in σ of the noise of the reports: the share found, of *n* runs each; a run in which
a detector had cried wolf before the fault does not count. The other detectors look at one run alone, at its last 10, 30 or 100
reports. *Order seen*: where runs share the order of their data, and the monitor has the references' logs to see that by."""
_REAL = (
    """Real faults in our own training, from 60 % of it on: where the first alarm comes (an alarm before .6 is a false one):"""
)


def monitor_section(results: Path) -> str:
    """Return the section, empty without ``monitor_test.json``; the command is the first line of the text beside it."""
    path = results / "monitor_test.json"
    if not path.is_file():
        return ""
    found = json.loads(path.read_text(encoding="utf-8"))
    text = path.with_suffix(".txt")
    first = text.read_text(encoding="utf-8").partition("\n")[0] if text.is_file() else ""
    line = first if first.startswith("python ") else "python -m bench.monitor"
    parts = [_HEAD, _found(found), command(line), _real(found["real_faults"])]
    return "\n\n".join(
        [*parts, "Every form and size of fault, with delays and onsets, is in `bench/results/monitor_test.txt`."]
    )


def _found(found: Mapping[str, Any]) -> str:
    alarms, faults = found["false_alarms"], found["faults"]
    forms = {form: about for form, about in _FORMS.items() if form in faults}
    head = ["detector", "alarms: recorded", "bootstrapped", *(title for title, _ in forms.values())]
    rows = []
    for detector in alarms["recorded"]:
        healthy = [_share(alarms[kind].get(detector)) for kind in ("recorded", "bootstrapped")]
        rows.append([detector, *healthy, *(_told(faults[form].get(detector), share) for form, (_, share) in forms.items())])
    return table(head, rows)


def _share(one: Mapping[str, Any] | None) -> str:
    return "–" if one is None else f"{one['alarms']} of {one['n']}"


def _told(one: Mapping[str, Any] | None, share: str) -> str:
    """Return a share and of how many runs, a dash where no run was left to judge by."""
    return "–" if one is None or not one["n"] else f"{one[share]:.0%} of {one['n']}"


def _real(faults: Sequence[Mapping[str, Any]]) -> str:
    if not faults:
        return ""
    detectors = list(faults[0]["alarms"])
    rows = [
        [
            f"{one['fault'] or 'none'}, {one['metric']}".replace("_", " "),
            *(_when(one["alarms"].get(name)) for name in detectors),
        ]
        for one in faults
    ]
    return f"{_REAL}\n\n{table(['fault', *detectors], rows)}"


def _when(fraction: float | None) -> str:
    return "–" if fraction is None else f"{fraction:.2f}"
