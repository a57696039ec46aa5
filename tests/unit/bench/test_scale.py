"""The simulated sweep: every trial ends, and what the driver takes is what its workers wait."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ray")

from bench.scale import recorded_curves
from bench.scale_actors import Actors, _waits
from bench.scale_report import write_actors, write_scale
from bench.scale_simulated import HORIZON, Load, SimulatedSweep

pytestmark = pytest.mark.usefixtures("quiet_optuna")

LOAD = Load(n_workers=5, n_trials=40, trial_s=100.0, ray_ms=0.0)


def _curves() -> np.ndarray:
    t = np.arange(1, HORIZON + 1) / HORIZON
    return np.array([(2.5 + final) * (1 + 0.3 * (t**-0.3 - 1)) for final in (0.3, 0.0, 0.5, 0.2)])


def _run(load: Load, tmp_path: Path):
    tmp_path.mkdir(exist_ok=True)
    return SimulatedSweep(load, _curves(), tmp_path / "log.jsonl").run()


def test_every_trial_ends_and_most_are_stopped(tmp_path):
    measured = _run(LOAD, tmp_path)
    assert 20 < measured.n_stopped < 40
    assert measured.n_reports < 40 * HORIZON
    assert 0.5 < measured.utilisation <= 1.0


def test_a_table_and_a_figure_say_what_was_measured(tmp_path):
    found = [{"load": asdict(load), "measured": asdict(_run(load, tmp_path))} for load in (LOAD, replace(LOAD, n_workers=2))]
    for one in found:  # each beside what was found before
        write_scale(tmp_path / "out", [one])
    table = (tmp_path / "out" / "scale.md").read_text()
    assert [line.split(" | ")[0] for line in table.splitlines() if line[:3] in ("| 5", "| 2")] == ["| 2", "| 5"]
    assert "workers train" in (tmp_path / "out" / "scale.svg").read_text()


def test_what_has_no_time_is_told_as_far_as_it_came(tmp_path):
    measured = SimulatedSweep(LOAD, _curves(), tmp_path / "log.jsonl", within_s=1e-9).run()
    assert (measured.n_reports, measured.n_ended) == (10, 0)
    write_scale(tmp_path / "out", [{"load": asdict(LOAD), "measured": asdict(measured)}])
    assert "| 5 | 40 (0 ended) |" in (tmp_path / "out" / "scale.md").read_text()


def test_memory_is_told_a_trial(tmp_path):
    """Over few trials what an older fit held may be freed, so that it shrinks; what the process holds moves in pages."""
    measured = SimulatedSweep(LOAD, _curves(), tmp_path / "log.jsonl", traces_memory=True).run()
    assert 0 < abs(measured.bytes_per_trial) < 50_000


def test_fewer_reports_a_trial_are_fewer_reports(tmp_path):
    few = _run(replace(LOAD, n_reports=25), tmp_path)
    assert few.n_reports < 40 * 25
    assert few.n_stopped > 20
    with pytest.raises(ValueError, match="n_reports"):
        replace(LOAD, n_reports=30)


def test_a_driver_that_cannot_follow_leaves_its_workers_waiting(tmp_path):
    quick = _run(LOAD, tmp_path)
    slow = _run(replace(LOAD, ray_ms=1000.0), tmp_path)
    assert slow.driver_busy > 0.8 > 0.2 > quick.driver_busy
    assert slow.utilisation < 0.5 * quick.utilisation


def test_what_real_actors_note_tells_their_waits_starts_and_use():
    """Two trials on one actor: a second of steps each, half a second for each answer, and one until the next began."""
    notes = [
        {"trial": trial, "began_s": at, "ended_s": at + 1.0, "waited_s": waited, "actor": 7}
        for trial, at, waited in (("a", 0.0, 0.0), ("a", 1.5, 0.5), ("b", 3.5, 0.0), ("b", 5.0, 0.5))
    ]
    told = _waits(notes)
    assert told["next_start_s"] == pytest.approx(1.0)
    assert told["decided_p50_s"] == pytest.approx(0.5)
    assert told["utilisation"] == pytest.approx(4.0 / 6.0)


def test_actors_are_kept_beside_those_measured_before(tmp_path):
    actors = Actors(8, 32, 600, 20, 5.5, 0.01, 0.06, 0.1, 2e4, 0.98)
    write_actors(tmp_path, [asdict(actors)])
    write_actors(tmp_path, [asdict(replace(actors, is_plain=True, n_stopped=0)), asdict(replace(actors, n_actors=4))])
    rows = [line.split(" | ")[:4] for line in (tmp_path / "scale_actors.md").read_text().splitlines() if line[2:3].isdigit()]
    assert rows == [["| 4", "ours", "32", "20"], ["| 8", "ours", "32", "20"], ["| 8", "Ray alone", "32", "0"]]


def test_recorded_curves_are_means_over_the_whole_run(curves_folder):
    curves = recorded_curves(curves_folder)
    assert curves.shape[1] == HORIZON
    assert np.all(np.isfinite(curves))
    assert np.all(curves[:, -1] < curves[:, 0])


def test_a_folder_without_the_recorded_runs_is_told(tmp_path):
    with pytest.raises(ValueError):
        recorded_curves(tmp_path)


@pytest.mark.parametrize("module", ["bench.scale", "bench.live_race"])
def test_ray_is_loaded_after_its_token_has_been_set(module):
    """Ray reads how it authenticates when it is imported: real actors did not start where that was too early."""
    code = f"import sys, {module}; raise SystemExit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
