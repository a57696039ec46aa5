"""Stop marks: how the driver tells a run to end where it is, and how everybody later knows why.

A mark is a file in the run's folder. The worker looks for it whenever the driver has taken a report, so the run ends at that
report, saves a checkpoint and leaves the outcome ``stopped``; a mark found before the run begins has the same effect. It
survives crashes of either side, and taking it away revives the run.
"""

from __future__ import annotations

import json
from pathlib import Path

from hpo.adapters.atomic import write_json

MARK_NAME = "stop.json"
BY_HAND = "stopped_by_hand"
OUT_OF_TIME = "time_budget"


def mark_stopped(folder: Path, reason: str) -> None:
    """Have the run in ``folder`` stop, for ``reason``; a mark that is there already stays as it is."""
    if not is_marked(folder):
        write_json(folder / MARK_NAME, {"reason": reason})


def unmark(folder: Path) -> None:
    """Take the run's mark away."""
    (folder / MARK_NAME).unlink(missing_ok=True)


def is_marked(folder: Path) -> bool:
    """Return True if the run in ``folder`` is to stop or was stopped."""
    return (folder / MARK_NAME).exists()


def why_stopped(folder: Path) -> str | None:
    """Return the reason in the run's mark, None without one."""
    if not is_marked(folder):
        return None
    reason: str = json.loads((folder / MARK_NAME).read_text(encoding="utf-8"))["reason"]
    return reason
