"""Counts the tests of the JUnit files named, says what was skipped and why, and fails on a skip that must not be.

A skip is allowed for one of the reasons in ``ALLOWED`` only, and only where its excuse holds on this machine. Each tier
must have run at least one test. The totals go to ``build/totals.txt`` as well.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent


def _curves_absent() -> bool:
    return not Path(os.environ.get("HPO_CURVES") or ROOT.parent / "shared" / "curves").is_dir()


def _always() -> bool:
    return True


ALLOWED: dict[str, Callable[[], bool]] = {
    r"needs a GPU": _always,  # a machine without one can still check the rest
    r"recorded curves absent": _curves_absent,  # where the folder lies, nothing may skip for its absence
    r"running as root": lambda: os.geteuid() == 0,  # root may write to a read-only folder, so that cannot be tested
}


def main(files: list[str]) -> int:
    """Return 0 where every tier ran and every skip is allowed, else 1."""
    totals: Counter[str] = Counter()
    reasons: Counter[tuple[str, str]] = Counter()
    faults: list[str] = []
    for file in files:
        cases = _cases(Path(file))
        if not any(outcome != "skipped" for _, outcome, _ in cases):
            faults.append(f"{file}: no test ran")
        for name, outcome, reason in cases:
            totals[outcome] += 1
            if outcome in ("skipped", "xfailed"):
                reasons[outcome, reason] += 1
            if outcome == "skipped" and not _allowed(reason):
                faults.append(f"{name} must not skip here: {reason}")
    _report(totals, reasons, faults)
    return 1 if faults else 0


def _cases(file: Path) -> list[tuple[str, str, str]]:
    """Return (test, outcome, reason of a skip) for each test of one JUnit file; none where there is no such file."""
    if not file.is_file():
        return []
    return [
        (f"{case.get('classname')}::{case.get('name')}", *_outcome(case))
        for case in ET.parse(file).iter("testcase")  # noqa: S314 - written by pytest a minute ago
    ]


def _outcome(case: ET.Element) -> tuple[str, str]:
    skipped = case.find("skipped")
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed", ""
    if skipped is not None:
        return ("xfailed" if skipped.get("type") == "pytest.xfail" else "skipped"), skipped.get("message") or "no reason given"
    return "passed", ""


def _allowed(reason: str) -> bool:
    return any(re.search(pattern, reason) and holds() for pattern, holds in ALLOWED.items())


def _report(totals: Counter[str], reasons: Counter[tuple[str, str]], faults: list[str]) -> None:
    for (outcome, reason), count in sorted(reasons.items()):
        print(f"{outcome} {count}: {reason}")
    if not reasons:
        print("nothing was skipped")
    for fault in faults:
        print(f"error: {fault}")
    words = [f"{totals[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped")]
    if totals["xfailed"]:
        words.append(f"{totals['xfailed']} xfailed")
    line = ", ".join(words)
    print(line)
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "totals.txt").write_text(line + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
