"""The benchmark page's one table: every rule that decides which trials go on, on the same trials, and what it loses."""

from __future__ import annotations

import math
from collections.abc import Sequence

from bench.page_parts import (
    OURS,
    Result,
    command,
    is_unseen_language_model,
    mean,
    n_tasks,
    score_of,
    shown,
    table,
    weighted_mean,
)

RULES = {
    "everything": "train everything",
    "current_top1": "current best: the loss so far at 20 %",
    "current_quarter": "current best: its best quarter at 20 %",
    "current_as_many": "current best: as many as `select` keeps",
    "transfer_pick": "transfer: the nearest reference's final loss, no look",
    "power_law_pick": "power law, per run, at 20 %",
    "multi_power_law_pick": "multi-power law, no look",
    "multi_power_law_aligned_pick": "multi-power law, aligned at 20 %",
    "surrogate_pick": "the papers' surrogate with early-align at 20 %",
    "optuna_median": "Optuna Median",
    "optuna_percentile": "Optuna Percentile (25)",
    "optuna_halving": "Optuna SuccessiveHalving",
    "optuna_hyperband": "Optuna Hyperband",
    "ray_asha": "Ray ASHA",
    "collapse_pruner": "**this project, `CollapsePruner`** without references",
    "landscape_pick": "**this project**, its first choice alone at 20 %",
    "prune": "**this project, `prune`**",
    "select": "**this project, `select`** at 20 %",
}
_FORECASTS = {
    "current_top1": "current_best",
    "transfer_pick": "transfer",
    "power_law_pick": "power_law",
    "multi_power_law_pick": "multi_power_law",
    "multi_power_law_aligned_pick": "multi_power_law_aligned",
    "surrogate_pick": "surrogate",
    **dict.fromkeys(("landscape_pick", "prune", "select"), OURS),
}
"""Whose intervals a rule rests on."""
_COLUMNS = ("rule", "regret, %", "worst, %", "winner lost", "tokens", "with references", "coverage")
_HEAD = """## One table: what each rule loses, and what it costs

{tasks} tasks of {protocols} protocols, {names}: language models, validation loss, none used to tune a method. Trials
arrive in random order ({seeds} orders) on {workers} workers of a simulated clock. Rules that look *at 20 %* train every trial
that far and finish the one they rank first, or, for `select`, the smallest set that holds the best with 95 %.

- *regret*: how much worse the best finished trial ends than the best there is; mean over tasks, and *worst*: of one protocol;
- *winner lost*: the share of {replays} in which every trial within seed noise of the best was stopped (none of 100 still
  allows 3 %, with 95 % confidence, were they independent);
- *tokens*: of training everything; *with references* counts the runs that a rule learned from as if they were trained for it
  alone. In most of these studies three or four trials learn from dozens of runs: **there references do not pay**, whatever
  the rule;
- *coverage*: how often the rule's 90 % intervals, at 20 % of training, hold the final loss."""


_PROTOCOLS_HEAD = """By protocol, the cheapest references first. Those of our own sweep are smaller models: with them
counted it still costs less than training everything. Elsewhere they are whole earlier studies at the same size and shorter
horizons: there it pays only where these exist already. *Lost*: the winner, as above."""
_PROTOCOL_COLUMNS = (
    *("protocol", "tasks", "tokens: `select`", "with references", "Hyperband", "ASHA"),
    *("lost: `select`", "Hyperband", "ASHA"),
)


def rules_section(documents: Sequence[Result], replays: Sequence[Result]) -> str:
    """Return the section, empty without results.

    Parameters
    ----------
    documents : sequence of mapping
        Replays on the simulated clock.
    replays : sequence of mapping
        Those of forecasts, for the coverage of intervals.
    """
    chosen = [one for one in documents if is_unseen_language_model(one) and n_tasks(one)]
    if not chosen:
        return ""
    names = {one["protocol"]["name"] for one in chosen}
    forecasts = [one for one in replays if one["protocol"]["name"] in names]
    known = {name for one in chosen for name in one["summary"]}
    rows = [_row(rule, chosen, forecasts) for rule in [*RULES, *sorted(known - set(RULES))] if rule in known]
    clock = chosen[0].get("asynchronous", {})
    tasks, seeds = sum(n_tasks(one) for one in chosen), clock.get("n_seeds", "several")
    head = _HEAD.format(
        tasks=tasks,
        protocols=len(chosen),
        names=", ".join(f"`{name}`" for name in sorted(names)),
        seeds=seeds,
        replays=f"{tasks * seeds} replays" if isinstance(seeds, int) else "the replays",
        workers=clock.get("n_workers", "several"),
    )
    said = command("hpo bench scoreboard --curves DIR --only test --asynchronous --out bench/results/asynchronous")
    return "\n\n".join([head, table(_COLUMNS, rows), said, *_by_protocol(chosen)])


def _by_protocol(chosen: Sequence[Result]) -> list[str]:
    """Return what `select` costs on each protocol, dearest references last, beside the usual rules: where it pays."""
    shares = {one["protocol"]["name"]: _share_with_references(one, "select") for one in chosen}
    rows = []
    for one in sorted(chosen, key=lambda one: shares[one["protocol"]["name"]]):
        cells = [shown(score_of(one, rule, "tokens_share", None), 2) for rule in ("select", "optuna_hyperband", "ray_asha")]
        lost = [shown(score_of(one, rule, "winner_stopped", None), 2) for rule in ("select", "optuna_hyperband", "ray_asha")]
        share = shares[one["protocol"]["name"]]
        whole = shown(share if math.isfinite(share) else None, 2)
        rows.append([f"`{one['protocol']['name']}`", str(n_tasks(one)), cells[0], whole, *cells[1:], *lost])
    return [_PROTOCOLS_HEAD, table(_PROTOCOL_COLUMNS, rows)]


def _row(rule: str, chosen: Sequence[Result], forecasts: Sequence[Result]) -> list[str]:
    regrets = [value for one in chosen if (value := score_of(one, rule, "regret_pct", None)) is not None]
    cells = [mean(chosen, rule, "regret_pct", 3, None), shown(max(regrets, default=None), 3)]
    cells += [mean(chosen, rule, score, digits, None) for score, digits in (("winner_stopped", 3), ("tokens_share", 2))]
    shares = [(_share_with_references(one, rule), n_tasks(one)) for one in chosen]
    known = [(share, n) for share, n in shares if math.isfinite(share)]
    covered = mean(forecasts, _FORECASTS[rule], "coverage90", 2) if rule in _FORECASTS else "–"
    return [RULES.get(rule, rule), *cells, shown(weighted_mean(known), 2), covered]


def _share_with_references(one: Result, rule: str) -> float:
    spent, whole = score_of(one, rule, "tokens_all", None), score_of(one, "everything", "tokens_all", None)
    return math.nan if spent is None or not whole else spent / whole
