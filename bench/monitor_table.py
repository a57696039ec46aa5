"""The results of the monitor's bench as text."""

from __future__ import annotations

from typing import Any

from bench.monitor_real import lines_of


def table_lines(result: dict[str, Any]) -> list[str]:
    """Return what :func:`bench.monitor.evaluate` found, and the real faults where they are there, as lines of text."""
    lines = [f"false alarms per healthy run ({result['role']} half)"]
    for part, rates in result["false_alarms"].items():
        for detector, r in rates.items():
            if not r["n"]:
                continue
            low, high = r["interval90"]
            lines.append(
                f"  {part:<13}{detector:<19}{r['alarms']:>4} of {r['n']:<4}{r['rate']:>7.1%}  ({low:.1%} to {high:.1%})"
            )
    for noise, shares in result["by_onset"].items():
        for detector, by in shares.items():
            if by:
                said = "  ".join(f"{float(onset):.0%}: {share:.0%}" for onset, share in by.items())
                lines.append(f"  4σ steps within 3 % of training, by onset, {noise}, {detector}: {said}")
    titles = ("n", "early", "found", "≤3 %", "delay", "turn", "seen", "rise", "onset±3%")
    lines.append(f"  {'fault':<22}{'detector':<19}" + "".join(f"{title:>9}" for title in titles))
    for name, scores in result["faults"].items():
        lines += [f"  {name:<22}{detector:<19}{_scores(one)}" for detector, one in scores.items()]
    return lines + (lines_of(result["real_faults"]) if "real_faults" in result else [])


def _scores(one: dict[str, Any]) -> str:
    delay = one["median_delay"]
    late = "-" if delay is None else f"{delay:.3f}"
    shares = [_share(one[key]) for key in ("found", "within_3pct")]
    before = [_share(one[f"before_{what}"]) for what in ("loss_turns", "turn_is_seen", "clear_rise")]
    rest = [late, *before, _share(one.get("onset_within_3pct"))]
    return "".join(f"{text:>9}" for text in (str(one["n"]), str(one["early"]), *shares, *rest))


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
