"""The result and the estimate as text for people."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten
from typing import Any

from rich.table import Table

MOST_TOLD = 100
"""Letters of a reason that the table shows; ``result.json`` has all of it."""


def trials_table(result: Mapping[str, Any]) -> Table:
    """Return the table of a ``result.json``'s trials, in order of their forecasts."""
    names = list(dict.fromkeys(name for trial in result["trials"] for name in trial["settings"]))
    table = Table()
    for column in ("trial", *names, "loss at stop", "forecast", "90 %", "P(best)", "state", "reason", "actual"):
        table.add_column(column, justify="left" if column in ("state", "reason") else "right", no_wrap=column != "reason")
    for trial in sorted(result["trials"], key=_rank):
        forecast = trial["forecast"]
        table.add_row(
            str(trial["number"]),
            *(_number(trial["settings"].get(name)) for name in names),
            _loss(trial["loss_at_stop"]),
            _loss(forecast["final_loss"]),
            "" if forecast["lower"] is None else f"{forecast['lower']:.3f}-{forecast['upper']:.3f}",
            "" if forecast["p_best"] is None else f"{forecast['p_best']:.3f}",
            trial["state"],
            shorten(str(trial["reason"]), MOST_TOLD, placeholder=" …"),
            _loss(trial["actual_final_loss"]),
            style="bold" if trial["state"] == "winner" else None,
        )
    return table


def summary_lines(result: Mapping[str, Any]) -> list[str]:
    """Return what the sweep found and saved, and what the simpler rules would have chosen, one statement a line."""
    forecast, spent = result["forecast"], result["flops_spent"]
    lines = [f"winner            {_settings(result['winner'])}"]
    if forecast["final_loss"] is None:
        lines.append(f"final loss        {result['actual_final_loss']:.4f} (it was not forecast)")
    else:
        lines.append(
            f"final loss        {result['actual_final_loss']:.4f}, forecast at {forecast['at_fraction']:.0%} of training "
            f"{forecast['final_loss']:.4f} ({forecast['lower']:.4f} to {forecast['upper']:.4f}), "
            f"error {result['forecast_error_pct']:+.2f} %"
        )
    full = _flops(result["flops_full_sweep"])
    lines.append(f"compute           {_parts(spent)}: {result['saved_fraction']:.0%} of the full sweep's {full} saved")
    if result.get("price") is not None:
        lines.append(f"price             {result['price']:.2f}")
    if result["break_even_trials"] is not None:
        lines.append(f"break-even        from {result['break_even_trials']} candidates on")
    regret = result.get("regret_pct", {})
    for rule, name in (("current_best", "current best"), ("transfer", "transfer")):
        pick = result[f"{rule}_pick"]
        same = " (the same)" if pick == result["winner"] else ""
        lines.append(f"{name:<17} would have chosen {_settings(pick)}{same}{_regret(regret.get(rule))}")
    if "regret_pct" in result:
        lines.append(f"verified          every candidate trained to its end; our pick{_regret(regret['ours'])}")
    if "library" in result:
        lines.append(f"library           {_library_text(result['library'])}")
    lines += [f"suspect           {suspect_text(trial)}" for trial in result["trials"] if trial.get("suspect")]
    ties = result["tie_set"]
    if len(ties) > 1:
        lines.append(f"not told apart    trials {', '.join(map(str, ties))} at the stopping point")
    if (settled := result.get("settled")) and settled["trials"]:
        lines.append(f"settled           {_means(settled)} (means of {settled['seeds']} seeds)")
    return lines


def _means(settled: Mapping[str, Any]) -> str:
    means = [(one["mean"], one["number"]) for one in settled["trials"] if one.get("mean") is not None]
    return ", ".join(f"trial {number} at {mean:.4f}" for mean, number in sorted(means))


def _library_text(library: Mapping[str, Any]) -> str:
    drift = library["drift"]
    if drift is None:
        kept = "" if library["kept_as"] is None else f"; kept as {library['kept_as']}"
        return f"{library['said']}{kept}"
    if library["is_used"]:
        return f"{library['entry']} judged this sweep: {drift['reason']}"
    return f"{library['entry']} was not used: {drift['reason']}; kept as {library['kept_as'] or 'nothing'}"


def suspect_text(trial: Mapping[str, Any]) -> str:
    """Return which trial is suspect, since when and why; it goes into the choice as any other."""
    why, state = trial["suspect"], f", the {trial['state']}," if trial["state"] == "winner" else ""
    since = "" if why["onset"] is None else f" from {why['onset']:.0%} of its training on"
    size = "" if why["size_pct"] is None else f" by {why['size_pct']:+.2g} %"
    return f"trial {trial['number']}{state} left the proxies' curve{since}{size}: {why['reason']}"


def estimate_lines(estimate: Mapping[str, Any]) -> list[str]:
    """Return a dry run's estimate, one statement a line."""
    spent = estimate["flops_spent"]
    runs = f"{estimate['n_proxies']} proxies, {estimate['candidates']} candidates, {_count(estimate['kept'])} to the end"
    if len(estimate["kept_at"]) > 1:
        going = ", ".join(f"{_count(n)} after {float(look):.0%}" for look, n in estimate["kept_at"].items())
        runs += f" (expected to go on: {going})"
    full = _flops(estimate["flops_full_sweep"])
    lines = [f"library           {estimate['library']['said']}"] if "library" in estimate else []
    lines += [
        f"runs              {runs}",
        f"expected cost     {_parts(spent)}",
        f"full sweep        {full}; expected saving {estimate['saved_fraction']:.0%}",
    ]
    if estimate["break_even_trials"] is not None:
        lines.append(f"break-even        from {estimate['break_even_trials']} candidates on")
    if estimate["hours"] is None:
        lines.append("time              unknown: set resources.flops_per_s (FLOPs a second of one trial)")
    else:
        lines.append(f"time              {estimate['hours']:.2f} h; full sweep {estimate['hours_full_sweep']:.2f} h")
    if estimate["price"] is not None:
        lines.append(f"price             {estimate['price']:.2f}; full sweep {estimate['price_full_sweep']:.2f}")
    return lines + _outlook_lines(estimate["outlook"], estimate["candidates"])


def _outlook_lines(outlook: Mapping[str, Any] | None, n: int) -> list[str]:
    """Return what a dry run is expected to find, and what would be better."""
    if outlook is None:
        return ["expected to find  not known without proxies, before the first trials have finished"]
    found = f"the best of {n} with P {outlook['p_best']:.2f}, {outlook['kept']:.1f} of them to the end"
    lines = [f"expected to find  {found}; regret {outlook['regret_pct']:.2f} %"]
    if outlook["better"] is not None:
        cheaper = outlook["better"]["flops"]["total"] < outlook["flops"]["total"]
        label = "better" if cheaper else f"for P {outlook['wanted_p_best']:.2f}"
        lines.append(f"{label:<17} {design_text(outlook['better'])}")
    return [*lines, f"assuming          {outlook['assumes']}; hpo plan-proxies looks further"]


def design_text(design: Mapping[str, Any]) -> str:
    """Return a design of a sweep, as :func:`hpo.engine.outlook.described` has it, in words."""
    sizes = " and ".join(size_text(size) for size in design["sizes"]) or "no further proxies"
    return (
        f"{sizes} at {design['settings']} settings, judged at {design['stop_at']:.0%}, {design['kept']:.1f} to the end: "
        f"P {design['p_best']:.2f}, regret {design['regret_pct']:.2f} %, for {_flops(design['flops']['total'])} expected, "
        f"{design['flops']['at_most']:.2e} at most"
    )


def size_text(size: Mapping[str, Any]) -> str:
    """Return a proxy size as a configuration has it, on one line."""
    return "{" + ", ".join(f"{name}: {_number(value)}" for name, value in size.items()) + "}"


def _rank(trial: Mapping[str, Any]) -> tuple[bool, float]:
    loss = trial["forecast"]["final_loss"]
    return loss is None, loss if loss is not None else float(trial["number"])


def _settings(settings: Mapping[str, Any] | None) -> str:
    return "nothing" if settings is None else ", ".join(f"{name} {_number(value)}" for name, value in settings.items())


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def _loss(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _count(value: float) -> str:
    """Return an expected number of runs: whole, or with one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def _flops(value: float) -> str:
    return f"{value:.2e} FLOPs"


def _parts(spent: Mapping[str, float]) -> str:
    parts = f"proxies {spent['proxies']:.2e}, candidates {spent['candidates']:.2e}, finishing {spent['winner']:.2e}"
    return f"{_flops(spent['total'])} ({parts})"


def _regret(value: float | None) -> str:
    return "" if value is None else f", regret {value:.2f} %"
