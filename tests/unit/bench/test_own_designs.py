"""The designs of our own ladder and sweep: what their comparisons rest on, and what the reports say of made-up curves."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from bench import own_report
from bench.own_ladder import FAMILY, SIZES, OwnRun, comparisons, ladder_runs
from bench.own_report import ladder_figure, ladder_report, ladder_table
from bench.own_runs import collect
from bench.own_sweep import SEEDS, sweep_runs
from bench.own_transfer import DEPTHS, LRS, PARAMETERISATIONS, WIDTHS, best_lr, penalty_pct, transfer_runs
from hpo.adapters.training_session import FolderSession


def test_the_ladder_spans_sixteenfold_at_matched_controls_with_two_seeds() -> None:
    matched = [run for run in ladder_runs() if run.group == "matched"]
    sizes = sorted({run.recipe.n_params for run in matched})
    assert sizes[-1] >= 16 * sizes[0]
    assert len(sizes) >= 3
    assert len(matched) == 2 * len(sizes)
    for name in ("tpp", "tau", "warmup_fraction"):
        values = [getattr(run.recipe, name) for run in matched]
        assert max(values) / min(values) < 1.001, name
    assert min(run.n_steps for run in matched) >= 4000


def test_head_count_is_the_same_at_every_size() -> None:
    assert len({run.width // run.model["head_dim"] for run in ladder_runs()}) == 1


def test_contrasts_move_what_they_say() -> None:
    runs = ladder_runs()
    base = next(run for run in runs if run.group == "matched" and run.width == 36)

    def ratios(group: str, name: str) -> list[float]:
        return sorted(round(getattr(r.recipe, name) / getattr(base.recipe, name), 2) for r in runs if r.group == group)

    assert ratios("tau", "tau") == [0.25, 4.0]
    assert ratios("tau_by", "tau") == [2.0, 2.0, 2.0]
    assert ratios("tpp", "tpp") == [0.25, 4.0]
    assert ratios("tpp", "tau") == [1.0, 1.0]
    assert ratios("batch_tau", "tau") == [1.0, 1.0]
    assert ratios("batch_tau", "batch_tokens") == pytest.approx(ratios("batch_decay", "tau"), rel=0.01)
    assert ratios("batch_decay", "base_weight_decay") == [1.0, 1.0]


def test_a_seeds_targets_cost_ten_times_its_proxies() -> None:
    for seed in SEEDS:
        flops = Counter[str]()
        for run in sweep_runs((seed,)):
            flops[run.group] += run.recipe.flops or 0.0
        assert flops["target"] >= 10 * flops["proxy"]


def test_the_sweep_has_three_seeds_of_twelve_targets_and_names_are_distinct() -> None:
    runs = sweep_runs()
    targets = Counter(run.seed for run in runs if run.group == "target")
    assert len(SEEDS) >= 3
    assert min(targets.values()) >= 12
    assert len({run.run_id for run in runs}) == len(runs)
    assert {run.family for run in runs if run.seed == 1} == {"own-sweep-seed1"}


def kept(path: Path, slopes: dict[int, float]) -> Path:
    """Write a made-up ladder: L = (t̂)^-slope at each width, two seeds, a little apart."""
    runs = [
        OwnRun(
            run_id=f"ladder-w{width}-seed{seed}",
            group="matched",
            family=FAMILY,
            width=width,
            tpp=20.0,
            batch_sequences=64,
            lr=0.004,
            tau=0.25,
            seed=seed,
            model={"depth": 3, "head_dim": width // 4},
            notes={"width": width},
        )
        for width in slopes
        for seed in (0, 1)
    ]
    for run in runs:
        with FolderSession(path / "runs" / run.run_id, stop_step=run.n_steps) as session:
            for step in range(1, run.n_steps + 1):
                loss = 2.0 * (step / run.n_steps) ** -(slopes[run.width] + 1e-4 * run.seed)
                session.report(step=step, loss=loss, tokens=step * 4096.0, lr=0.004, val_loss=loss)
    collect(runs, path / "runs", path / "own_ladder.parquet")
    return path / "own_ladder.parquet"


def test_the_report_finds_the_neighbours_that_collapse_and_those_that_do_not(tmp_path: Path) -> None:
    small, middle, large = sorted(SIZES)
    report = ladder_report(kept(tmp_path, {small: 0.12, middle: 0.1, large: 0.1}))
    rows = {row["name"]: row for row in report["comparisons"]}
    assert rows[f"w{small}-w{middle}"]["collapse"] is False
    assert rows[f"w{middle}-w{large}"]["collapse"] is True
    assert rows[f"w{small}-w{middle}"]["deviation_pct"] == pytest.approx(100 * 0.02 * np.log(5), rel=0.03)
    assert rows[f"w{small}-w{middle}"]["seed_pct"] == pytest.approx(100 * 1e-4 * np.log(5), rel=0.05)
    assert rows["ladder"]["collapse"] is False
    assert rows["ladder"]["mismatched"] == []
    assert set(report["left_out"]) == {c.name for c in comparisons()} - set(rows)


def test_table_and_figure_hold_what_there_is(tmp_path: Path) -> None:
    path = kept(tmp_path, dict.fromkeys(SIZES, 0.1))
    table = ladder_table(ladder_report(path))
    assert "| neighbours: width 16 and 36 | 24k, 96k | yes | yes |" in table
    assert "Not yet: tau, tau_by, tpp" in table
    assert ladder_figure(path).count("<svg ") == 2


def test_every_panel_is_a_comparison() -> None:
    assert set(own_report.PANELS) <= {c.name for c in comparisons()}


def test_the_transfer_runs_have_equal_steps_at_every_rate_and_shape() -> None:
    runs = transfer_runs()
    shapes = {(run.width, run.model["depth"]) for run in runs}
    assert len({run.n_steps for run in runs}) == 1
    assert len(runs) == len(shapes) * len(LRS) * len(PARAMETERISATIONS)
    assert {w for w, d in shapes if d == DEPTHS[0]} == set(WIDTHS)
    assert {d for w, d in shapes if w == WIDTHS[0]} == set(DEPTHS)


def test_the_best_rate_is_the_parabolas_vertex() -> None:
    x = np.log(np.array(LRS))
    centre = x[2] + 0.3 * (x[3] - x[2])
    assert best_lr([2.0 + 0.1 * (v - centre) ** 2 for v in x]) == pytest.approx(np.exp(centre))


@pytest.mark.parametrize("losses", [[1.0, 2.0, 3.0, 4.0, 5.0], [1.0, float("nan"), 3.0, 4.0, 5.0]])
def test_the_best_rate_at_the_edge_is_the_edge(losses: list[float]) -> None:
    assert best_lr(losses) == LRS[0]


def test_the_penalty_is_the_excess_over_the_lowest_of_the_curve() -> None:
    x = np.log(np.array(LRS))
    losses = [2.0 + 0.1 * (v - x[2]) ** 2 for v in x]
    assert penalty_pct(losses, LRS[2]) == pytest.approx(0.0, abs=1e-9)
    assert penalty_pct(losses, LRS[3]) == pytest.approx(100 * 0.05 * (x[3] - x[2]) ** 2)
    assert penalty_pct([*losses[:-1], float("nan")], LRS[2]) is None
